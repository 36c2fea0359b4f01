"""Opens the store for a command that only reads, and starts an engine if jobs need one.

The project or world itself need not be reachable.
"""

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from tpuherd.clock import WallClock
from tpuherd.commands.console import Console
from tpuherd.errors import HerdError, InvalidInput, NotAllowed, NotFound
from tpuherd.jobs import engine_control
from tpuherd.model.trouble import LOGIN, TroubleRecord
from tpuherd.settings import project_access
from tpuherd.store.database import Database
from tpuherd.store.open_database import open_database
from tpuherd.store.set_aside import read_notices
from tpuherd.targets import fold_names
from tpuherd.views.printable import json_text, show_controls, show_values
from tpuherd.views.text_width import paint_text
from tpuherd.views.trouble_line import trouble_line


@dataclass(frozen=True, kw_only=True, slots=True)
class StoreSession:
    """The open store of one command."""

    store: Database
    clock: WallClock
    console: Console
    login: HerdError | None = None  #: why there is no login

    @property
    def now(self) -> float:
        return self.clock.now()

    async def print_content(self, content: Any, text: Callable[[Any], str], *, json_: bool) -> None:
        """Print JSON, or text of the same content with escapes made visible."""
        if json_:
            await self.console.write(f"{json_text(content, indent=2)}\n".encode(errors="replace"))
        else:
            await self.console.print_text(text(show_values(content)), coloured=True)

    def current_troubles(self) -> list[TroubleRecord]:
        """Return the problems that affect all jobs."""
        found = self.store.troubles.read()
        if self.login is None:
            return found
        said, hint, now = self.login.sentence, self.login.hint, self.now
        return [TroubleRecord(source=LOGIN, sentence=said, hint=hint, since=now, at=now), *found]

    async def print_troubles(self, *, apart: bool = False) -> None:
        """Print them, on stderr if `apart`."""
        found = self.current_troubles()
        port = 2 if apart else 1
        mark = ""
        if self.console.is_terminal(port):
            mark = paint_text("✗ ", "1;31", colour=self.console.has_colour(port))
        for one in found:
            line = f"{mark}{show_controls(trouble_line(one, self.now))}"
            await self.console.print_text(line, port, coloured=True)
        if found and not apart:
            await self.console.print_text("")


@asynccontextmanager
async def open_store_session(console: Console) -> AsyncIterator[StoreSession]:
    """Open the store, and start an engine if there are jobs."""
    clock = WallClock()
    scope = project_access.resolve_scope(console.environ, world=console.said.world)
    place = login = None
    try:
        place = project_access.resolve_access(console.environ, world=console.said.world)
    except NotAllowed as error:
        login = error
    except HerdError:  # without the project there is no engine to start
        pass
    if scope.world is not None and not scope.has_store:
        project_access.read_world_facts(scope.world)  # raises if there is no such world
    store = open_database(scope, clock.now())
    try:
        await print_notices(console, scope.store_folder)
        if place and (
            store.stored_jobs() or not engine_control.has_known_jobs(store)
        ):  # new, or the store was lost
            with suppress(HerdError):
                engine_control.ensure_engine(store, place, console.environ)
        yield StoreSession(store=store, clock=clock, console=console, login=login)
    finally:
        store.close()


async def choose_job(name: str | None, command: str, console: Console) -> str:
    """Return the name, or that of the only job there is, and say which that is."""
    if name is not None:
        return name
    scope = project_access.resolve_scope(console.environ, world=console.said.world)
    names: list[str] = []
    if scope.has_store:
        store = open_database(scope, WallClock().now())
        names = sorted(store.stored_jobs())
        store.close()
    if not names:
        raise NotFound("no jobs", hint="start one with `herd run`")
    if len(names) > 1:
        hint = f"such as: {command} {names[0]}"
        raise InvalidInput(f"say which job: {fold_names(names)}", hint=hint)
    if console.said.loud >= 0:
        await console.print_notice(f"{command}: {names[0]}, the only job there is")
    return names[0]


async def print_notices(console: Console, store: Path) -> None:
    """Print the notices of a damaged store until they are acknowledged."""
    for sentence in read_notices(store).values():
        await console.print_notice(f"herd: {sentence}")


def format_moment(at: float, now: float) -> str:
    """Return the local time, with the date unless it is today."""
    when, today = (datetime.fromtimestamp(one, UTC).astimezone() for one in (at, now))
    return when.strftime("%H:%M:%S" if when.date() == today.date() else "%Y-%m-%d %H:%M:%S")
