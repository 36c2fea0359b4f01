"""What becomes of a world's engine when the world is stopped."""

import asyncio
from collections.abc import Mapping
from contextlib import closing
from pathlib import Path

from tpuherd.clock import WallClock
from tpuherd.errors import HerdError
from tpuherd.jobs import engine_control
from tpuherd.settings import project_access
from tpuherd.targets import fold_names


def stop_idle_engine(world: Path, environ: Mapping[str, str]) -> str:
    """End it where nothing is wished; else say that it waits. "" where there is none of ours."""
    try:
        scope = project_access.resolve_scope(environ, world=world)
        if not scope.store_folder.exists():
            return ""
        with closing(engine_control.open_store(scope)) as store:
            holder, wishes = store.lease_holder(WallClock().now()), store.stored_jobs()
        if holder is None:
            return ""
        if wishes:
            return (
                f"its engine (pid {holder.pid}) waits for it, since {fold_names(wishes)} is"
                " wished, and"
                " ends if it stays away: herd engine stop ends it now"
            )
        return "its engine has ended, too" if asyncio.run(engine_control.stop_engine(scope)) else ""
    except HerdError:
        return ""  # the world is stopped all the same
