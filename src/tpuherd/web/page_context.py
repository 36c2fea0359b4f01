"""What the endpoints of the page share: the project, its store, and what the user may do."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol, TypeVar

import anyio.to_thread

from tpuherd.clock import Clock
from tpuherd.settings.project_access import ProjectScope
from tpuherd.store.database import Database
from tpuherd.store.open_database import open_database
from tpuherd.web.live_feed import LiveFeed

T = TypeVar("T")


class WorldControl(Protocol):
    """The control of a simulated world. Its errors are HerdErrors."""

    def read_world(self) -> Mapping[str, Any]:
        """Return its nodes, weather and log."""
        ...

    def make_weather(self, kind: str, given: Mapping[str, Any]) -> Mapping[str, Any]:
        """Apply one kind of weather; `clear` ends all."""
        ...


@dataclass(frozen=True, kw_only=True, slots=True)
class PageContext:
    """One project, as its page shows it."""

    scope: ProjectScope
    environ: Mapping[str, str]
    name: str  #: of the context, for people
    project: str  #: in the cloud; "" if a world that is gone had it
    clock: Clock
    world: WorldControl | None
    static: Path

    def open_store(self) -> Database:
        return open_database(self.scope, self.clock.now())

    async def query_store(self, query: Callable[[Database, float], T]) -> T:
        """Run a query with a connection of its own, so that no live change waits for it."""

        def work() -> T:
            now = self.clock.now()
            store = open_database(self.scope, now)
            try:
                return query(store, now)
            finally:
                store.close()

        return await anyio.to_thread.run_sync(work)


@dataclass(frozen=True, kw_only=True, slots=True)
class PageServices:
    """What the running server adds to the context."""

    context: PageContext
    feed: LiveFeed
