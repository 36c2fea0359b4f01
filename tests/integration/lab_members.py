"""Members of a lab: accounts with homes of their own, on one world and one real PostgreSQL."""

import os
import signal
import subprocess
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from time import time

from tests.conformance.postgres import Postgres
from tests.conformance.world import World, until
from tests.integration.engines import Owner
from tpuherd.model.slots_and_plan import HistoryEvent
from tpuherd.settings import project_access
from tpuherd.store.open_database import open_database


@dataclass(frozen=True)
class Member(Owner):
    """One account; the store's folder has only what this account keeps in files."""

    url: str = ""  #: of the database
    name: str = ""

    @property
    def database(self) -> str:
        """The name of the database."""
        return self.url.partition("@/")[2].partition("?")[0]

    @property
    def env(self) -> dict[str, str]:
        return {**super().env, "HERD_STORE": self.url, "USER": self.name}

    def events(self, *kinds: str) -> list[HistoryEvent]:
        with closing(open_database(self._scope, time())) as store:
            return [event for _, event in store.read_events(kinds=kinds or None)]

    def leader(self) -> str:
        """Who leads, as `herd engine status` says; "" if nobody does."""
        with closing(open_database(self._scope, time())) as store:
            holder = store.lease_holder(time())
        return "" if holder is None else holder.who.partition("@")[0]

    @property
    def _scope(self) -> project_access.ProjectScope:
        return project_access.resolve_scope(self.env, world=self.world.folder)

    @contextmanager
    def standing_by(self) -> "Iterator[subprocess.Popen[bytes]]":
        """An engine of this account that leads when no other does."""
        out = self.home / "stand-by.out"
        with out.open("ab") as stream:
            process = subprocess.Popen(
                [self.program, "engine", "run", "--stand-by"], env=self.env, stdout=stream,
                stderr=stream, stdin=subprocess.DEVNULL,
            )  # fmt: skip
        try:
            until(lambda: b"standing by" in out.read_bytes(), "it to stand by", seconds=60)
            yield process
        finally:
            for number in (signal.SIGCONT, signal.SIGTERM):
                with suppress(ProcessLookupError):
                    os.kill(process.pid, number)
            try:
                process.wait(60)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()


@contextmanager
def members(server: Postgres, world: World, database: str) -> Iterator[tuple[Member, Member]]:
    """Ann and Bob, who share a new database and nothing else."""
    server.ask(f"CREATE DATABASE {database}")
    found = []
    for name in ("ann", "bob"):
        home = Path(world.home) / database / name
        home.mkdir(parents=True)
        found.append(Member(home, world, url=server.url(database), name=name))
    ann, bob = found
    try:
        yield ann, bob
    finally:
        for one in found:
            one.leave_all()
        world.clear()
