"""A user with an empty world, an engine, and what its store contains."""

import json
import os
import signal
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from time import time
from typing import Any

from tests.conformance.world import HERD, World, started, until
from tests.integration.users import User
from tpuherd.model.slots_and_plan import HistoryEvent
from tpuherd.settings import project_access
from tpuherd.settings.folders import logs_folder
from tpuherd.store.database import Database
from tpuherd.store.log_store import LogStore


@dataclass(frozen=True)
class Owner(User):
    """A user with jobs."""

    def job(self, name: str, run: str, **fields: Any) -> None:
        """Submit one."""
        file = self.home / f"{name}.yaml"
        fields = {"name": name, "accelerator": "v4-16", "zones": "any", "run": run, **fields}
        file.write_text(json.dumps(fields))
        done = self.herd("run", file, "--detach", "--yes")
        assert done.returncode == 0, done.stderr

    def bucket(self, name: str) -> None:
        """Make one, as any client of Cloud Storage would."""
        self.world.ask("POST", "storage/v1/b?project=demo", {"name": name, "location": "US"})

    @property
    def store_folder(self) -> Path:
        """Where the engine's files are."""
        return project_access.resolve_scope(self.env, world=self.world.folder).store_folder

    def events(self, *kinds: str) -> list[HistoryEvent]:
        """What the log says."""
        if not self.store_folder.exists():
            return []
        store = Database(self.store_folder, time())
        try:
            found = [event for _, event in store.read_events(kinds=kinds or None)]
            assert not store.malformed.found, "what herd wrote itself is malformed to its readers"
            return found
        finally:
            store.close()

    def happened(self, kind: str, seconds: float = 120, many: int = 1) -> HistoryEvent:
        """Wait for this many events of this kind; return the last."""
        try:
            return until(
                lambda: next(iter(self.events(kind)[many - 1 :]), None),
                f"{many} {kind}",
                seconds=seconds,
            )
        except AssertionError as error:
            error.add_note("\n".join(["The last events:", *map(str, self.events()[-30:])]))
            error.add_note("The cloud has: " + " ".join(self.all_there_is()))
            raise

    def engine(self) -> int | None:
        """The process id of the engine."""
        done = self.herd("engine", "status", "--json")
        found = json.loads(done.stdout)["pid"]
        return None if found is None else int(found)

    def kill_engine(self) -> bool:
        """kill -9; whether there was one."""
        pid = self.engine()
        if pid is None:
            return False
        os.kill(pid, signal.SIGKILL)
        return True

    def said(self) -> dict[str, list[str]]:
        """The lines of every attempt's log on every host."""
        state = self.home / ".local/state/tpuherd"
        shelf = LogStore(logs_folder(state, world=self.world.folder, project="demo"))
        lines = {}
        for about in shelf.list_logs():
            for place in about.places if about.kind == "attempt" else ():
                pieces = [
                    one.piece for _, one in shelf.read_records(about.id, place) if one.port < 3
                ]
                text = b"".join(pieces).decode()
                lines[f"{about.id}/{place.worker}"] = text.splitlines()
        return lines

    def all_there_is(self) -> list[str]:
        """Everything that the cloud has of anybody."""
        found = []
        for kind in ("nodes", "queuedResources"):
            listed = self.world.ask("GET", f"v2/projects/demo/locations/-/{kind}")
            found += [one["name"] for one in listed.get(kind, [])]
        return found

    def leave_all(self) -> None:
        """His engine and his keeper end."""
        self.herd("engine", "stop")
        self.leave()


@contextmanager
def owner(*options: str) -> Iterator[Owner]:
    """Of a world that is quick."""
    with started(*(options or ("--time-scale", "60"))) as world:
        found = Owner(world.home, world)
        try:
            yield found
        except AssertionError as error:
            error.add_note("\n".join(["The last events:", *map(str, found.events()[-30:])]))
            error.add_note("The cloud has: " + " ".join(found.all_there_is()))
            raise
        finally:
            found.leave_all()


def begin(owner: Owner, *words: str) -> "subprocess.Popen[bytes]":
    """A command beside others."""
    return subprocess.Popen(
        [HERD, *words], env=owner.env, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )


def once_each(lines: dict[str, list[str]], word: str) -> Sequence[str]:
    """Logs that contain this line more than once: something was started twice."""
    return [log for log, said in lines.items() if said.count(word) > 1]


__all__ = ["Owner", "World", "begin", "once_each", "owner"]
