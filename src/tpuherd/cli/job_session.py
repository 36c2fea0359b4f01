"""Opens a Session for one command that changes jobs, and prints for it."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, nullcontext
from typing import TYPE_CHECKING, Any

from tpuherd.cli.ask_user import TerminalPrompter
from tpuherd.cli.store_session import print_notices
from tpuherd.clock import WallClock
from tpuherd.commands.console import Console
from tpuherd.commands.host_access import HostAccess
from tpuherd.errors import HerdError
from tpuherd.jobs import engine_control
from tpuherd.jobs.open_project import Session
from tpuherd.settings import project_access
from tpuherd.settings.project_access import ProjectAccess
from tpuherd.ssh_config.ssh_projects import refresh_job_names
from tpuherd.store.database import Database
from tpuherd.store.open_database import open_database
from tpuherd.views.printable import json_text

if TYPE_CHECKING:
    from tpuherd.cloud.nodes_api import Cloud


@asynccontextmanager
async def open_job_session(
    console: Console,
    doing: HostAccess,
    name: str,
    *,
    yes: bool = False,
    begins: bool = True,
    acting_for: str | None = None,
) -> AsyncIterator[Session]:
    """Yield a Session; afterwards start an engine that carries out the changes."""
    place = project_access.resolve_access(console.environ, world=console.said.world)
    clock = WallClock()

    async def cloud() -> "Cloud":
        _, reach = await doing.open_remote(console)
        return reach.cloud

    store = open_database(place, clock.now())
    try:
        await print_notices(console, place.store_folder)
        prompter = TerminalPrompter(console, name, yes=yes)
        ending = engine_control.starting_engine(store, place, console.environ)
        with ending if begins else nullcontext():
            yield Session(
                place=place,
                store=store,
                clock=clock,
                prompter=prompter,
                cloud=cloud,
                acting_for=acting_for or "",
            )
            await refresh_ssh_names(place, store, console)
    finally:
        store.close()


async def refresh_ssh_names(place: ProjectAccess, store: Database, console: Console) -> None:
    """Give new jobs their names for ssh at once; the engine does so, too."""
    try:
        refresh_job_names(place, console.environ, store.stored_jobs().values())
    except (HerdError, OSError) as error:
        await console.print_notice(f"herd: the names for ssh are as before: {error}")


async def print_lines(console: Console, text: str) -> None:
    await console.print_text(text)


async def print_json(console: Console, content: Any) -> None:
    await console.write(f"{json_text(content, indent=2)}\n".encode(errors="replace"))


def format_dollars(amount: float | None) -> str:
    """$1.23"""
    return "unknown" if amount is None else f"${amount:,.2f}"
