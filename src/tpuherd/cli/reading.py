"""Where a command reads what is remembered: the store of the place that is meant, and its engine.

The place itself need not be there: what is remembered of it can be read all the same.
"""

import json
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from tpuherd import meant
from tpuherd.cli.console import Console
from tpuherd.clock import WallClock
from tpuherd.desk import engines
from tpuherd.ports import HerdError
from tpuherd.store.database import Database


@dataclass(frozen=True, kw_only=True, slots=True)
class Reading:
    """Open for one command."""

    store: Database
    clock: WallClock
    console: Console

    @property
    def now(self) -> float:
        return self.clock.now()

    async def show(self, content: Any, text: str, *, json_: bool) -> None:
        """As JSON, or for people."""
        said = json.dumps(content, indent=2, ensure_ascii=False) if json_ else text
        await self.console.say(f"{said}\n".encode(errors="replace"))


@contextmanager
def reading(console: Console) -> Iterator[Reading]:
    """Whoever reads wishes that are not at rest has an engine begin, where it can."""
    clock = WallClock()
    scope = meant.scope(console.environ, world=console.said.world)
    store = Database(scope.store, clock.now())
    try:
        yield Reading(store=store, clock=clock, console=console)
        if store.wishes() or not any(store.events(limit=1)):  # new, or it was lost
            with suppress(HerdError):  # the place is not there: then nothing can be begun
                place = meant.place(console.environ, world=console.said.world)
                engines.ensure(place, console.environ)
    finally:
        store.close()


def moment(at: float, now: float) -> str:
    """The local time; with its day unless that is today."""
    when, today = (datetime.fromtimestamp(one, UTC).astimezone() for one in (at, now))
    return when.strftime("%H:%M:%S" if when.date() == today.date() else "%Y-%m-%d %H:%M:%S")
