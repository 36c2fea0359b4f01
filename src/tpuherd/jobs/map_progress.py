"""Follows a map until all its items have ended."""

from collections.abc import AsyncIterator
from dataclasses import dataclass, replace

from tpuherd.clock import Clock
from tpuherd.history.apply_trial_events import SWEEPS, apply_trial_event
from tpuherd.jobs.job_queries import job_ending, load_scene
from tpuherd.model.slots_and_plan import HistoryEvent
from tpuherd.model.sweep_trials import Sweep
from tpuherd.store.database import Database

LOOK_S = 0.2
#: After one of these the map may have ended without all of its items.
ENDS = frozenset({"job.stopped", "job.removed", "slot.gave_up"})
KINDS = (*SWEEPS, *ENDS)


@dataclass(frozen=True, kw_only=True, slots=True)
class MapProgress:
    """How far a map is, and what has failed since the last time."""

    total: int
    complete: int
    failed: int
    running: int
    failures: tuple[HistoryEvent, ...] = ()  #: the ends of items that have just failed
    end: tuple[int, str] | None = None  #: its exit status, and why it has ended

    @property
    def phases(self) -> dict[str, int]:
        """The number of items in each phase."""
        waiting = self.total - self.complete - self.failed - self.running
        return {
            "complete": self.complete,
            "failed": self.failed,
            "running": self.running,
            "waiting": waiting,
        }


async def watch_map(
    job: str, store: Database, clock: Clock, *, timeout_s: float | None = None
) -> AsyncIterator[MapProgress]:
    """Yield the progress of the job's latest map when it changes, and when it has ended."""
    until = None if timeout_s is None else clock.now() + timeout_s
    watch, version = MapWatch(job, store), -1
    while True:
        before, version = version, store.change_counter()
        if version != before:
            progress = watch.read_progress(clock.now())
            yield progress if before != -1 else replace(progress, failures=())
            if progress.end is not None:
                return
        if until is not None and clock.now() >= until:
            return
        await clock.sleep(LOOK_S)


class MapWatch:
    """What was read of a map so far."""

    def __init__(self, job: str, store: Database) -> None:
        self._job, self._store = job, store
        self._sweep, self._total = Sweep(), 0
        begun = store.read_events(job=job, kinds=("map.started",), limit=1, newest=True)
        self._seen = next((seq for seq, _ in begun), 1) - 1

    def read_progress(self, now: float) -> MapProgress:
        """Read what is new."""
        failures: list[HistoryEvent] = []
        end: tuple[int, str] | None = None
        is_ending = False
        for seq, event in self._store.read_events(after=self._seen, job=self._job, kinds=KINDS):
            self._sweep, self._seen = apply_trial_event(self._sweep, event), seq
            is_ending = is_ending or event.kind in ENDS
            match event.kind:
                case "map.started":
                    self._total, end = int(event.facts["count"]), None
                case "map.ended":
                    end = int(event.facts["exit"]), str(event.facts.get("why", ""))
                case "trial.ended" if event.facts["outcome"] == "failed":
                    failures.append(event)
        if end is None and is_ending:
            end = job_ending(load_scene(self._store, now), self._job)
        sweep = self._sweep
        return MapProgress(
            total=self._total,
            complete=sweep.complete,
            failed=len(sweep.failed),
            running=sum(one.given_at is not None for one in sweep.unfinished),
            failures=tuple(failures),
            end=end,
        )
