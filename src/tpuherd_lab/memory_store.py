"""A store in memory for one engine: what it would write, in order."""

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from tpuherd.model.slots_and_plan import HistoryEvent
from tpuherd.model.stored_job import StoredJob
from tpuherd.ports import LeaseHolder
from tpuherd.store.log_store import LogHost, LogInfo, LogStore, LogWriter
from tpuherd.store.trouble_files import TroubleStore

NOWHERE = Path("/dev/null/tpuherd")  #: nothing can be written there


class MemoryStore:
    """The engine's Store. `written` is called after each write of events."""

    def __init__(self, written: Callable[[], None]) -> None:
        self.events: list[HistoryEvent] = []
        self.messages: Mapping[str, str] = {}
        self._jobs: dict[str, StoredJob] = {}
        self._settings: dict[str, Mapping[str, Any]] = {}
        self._changes = 0
        self._written = written

    def change_counter(self) -> int:
        return self._changes

    def stored_jobs(self) -> Mapping[str, StoredJob]:
        return dict(self._jobs)

    def put_job(
        self,
        stored_job: StoredJob,
        events: Sequence[HistoryEvent] = (),
        *,
        expected: int | None = None,
    ) -> StoredJob:
        self._changes += 1
        stored_job = replace(stored_job, revision=self._changes)
        self._jobs[stored_job.job] = stored_job
        self.append_events(events)
        return stored_job

    def add_jobs(self, new: Sequence[StoredJob], events: Sequence[HistoryEvent]) -> None:
        for one in new:
            self.put_job(one)
        self.append_events(events)

    def remove_job(self, job: str, events: Sequence[HistoryEvent] = ()) -> None:
        self._changes += 1
        self._jobs.pop(job, None)
        self.append_events(events)

    def load_setting(self, name: str) -> Mapping[str, Any] | None:
        return self._settings.get(name)

    def put_setting(
        self, name: str, document: Mapping[str, Any], events: Sequence[HistoryEvent] = ()
    ) -> None:
        self._settings[name] = document
        self.append_events(events)

    def append_events(
        self,
        events: Sequence[HistoryEvent],
        *,
        epoch: int | None = None,
        unchanged_since: int | None = None,
    ) -> int:
        self.events += events
        self._written()
        return len(self.events)

    def prune_events(self, kinds: Collection[str], *, before: float, most: int) -> int:
        return 0

    def pack_events(self, *, before: float, keep: int) -> int:
        return 0

    def read_events(
        self,
        *,
        after: int = 0,
        job: str | None = None,
        slot: str | None = None,
        kinds: Collection[str] | None = None,
        limit: int | None = None,
        newest: bool = False,
    ) -> Iterator[tuple[int, HistoryEvent]]:
        found = [
            (number, event)
            for number, event in enumerate(self.events[after:], after + 1)
            if (kinds is None or event.kind in kinds)
            and (job is None or event.job == job)
            and (slot is None or event.slot == slot)
        ]
        if limit is not None:
            found = found[-limit:] if newest else found[:limit]
        return iter(found)

    def take_lease(self, holder: LeaseHolder, now: float, ttl_s: float) -> int | None:
        return 1

    def renew_lease(self, epoch: int, now: float) -> None:
        return

    def release_lease(self, epoch: int) -> None:
        return

    def lease_holder(self, now: float) -> LeaseHolder | None:
        return None

    def load_history(self) -> tuple[int, bytes] | None:
        return None

    def save_history(self, seq: int, content: bytes) -> None:
        return

    def slot_messages(self) -> Mapping[str, str]:
        return self.messages

    def put_slot_messages(self, states: Mapping[str, str]) -> None:
        self.messages = states


class NoSecrets:
    """There are none."""

    def get(self, job: str) -> Mapping[str, str]:
        return {}


class NoTroubles(TroubleStore):
    """Forgets troubles."""

    def __init__(self) -> None:
        super().__init__(NOWHERE)

    def record_trouble(self, source: str, sentence: str, *, hint: str = "", now: float) -> None:
        return

    def end_trouble(self, source: str) -> None:
        return


class NoLogs(LogStore):
    """Keeps no log."""

    def __init__(self) -> None:
        super().__init__(NOWHERE)

    def write_info(self, about: LogInfo) -> None:
        return

    def find_log(self, id: str) -> LogInfo | None:
        return None

    def remove_jobs(self, jobs: Collection[str]) -> None:
        return

    def open_writer(self, id: str, place: LogHost) -> LogWriter:
        return LogWriter(NOWHERE)

    def end_offset(self, id: str, place: LogHost) -> int:
        return 0

    def trim_job(self, job: str, newest: str) -> list[str]:
        return []
