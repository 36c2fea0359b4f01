"""Parts of the engine harness: the user's clock, the desired state, and how errors are shown."""

from collections.abc import Callable, Mapping
from typing import Any

from tests.simulated.engine_jobs import desired_slots_of, launch_of, order_of
from tpuherd.clock import Clock
from tpuherd.engine.desired import DesiredState
from tpuherd.jobfile.read_job import JobSpec, read_fields
from tpuherd.model.lab_shares import NO_SHARES, LabShares
from tpuherd.model.search import Search
from tpuherd.model.stored_job import StoredJob

#: They look at each history once it is over.
WITNESSES: list[Callable[[Any], None]] = []


def look_back(play: Any) -> None:
    for witness in WITNESSES:
        witness(play)


def desire(jobs: Mapping[str, StoredJob], shares: LabShares = NO_SHARES) -> DesiredState:
    """The desired state that an engine computes from stored jobs."""
    return DesiredState(
        desired_slots=desired_slots_of(jobs, shares),
        order=order_of,
        launch=lambda slot: launch_of(slot, jobs[slot.job]),
        rows=jobs,
        sweeps={
            job: search_of(stored_job)
            for job, stored_job in jobs.items()
            if "sweep" in stored_job.document
        },
    )


def search_of(stored_job: StoredJob) -> Search:
    """How a sweep is searched."""
    found = read_fields(stored_job.document)
    assert isinstance(found, JobSpec) and found.sweep is not None, found
    return found.sweep


class SetClock:
    """The clock of the user's machine, which somebody sets ahead and back."""

    def __init__(self, clock: Clock) -> None:
        self.clock = clock
        self.off_s = 0.0
        self.was_set = False

    def now(self) -> float:
        return self.clock.now() + self.off_s

    async def sleep(self, seconds: float) -> None:
        await self.clock.sleep(seconds)

    def set(self, by_s: float) -> None:
        """From now on it shows so much more, or less."""
        self.off_s += by_s
        self.was_set = True


def told(error: BaseException) -> str:
    """An error, with those that are in it, and where it came from."""
    if isinstance(error, BaseExceptionGroup):
        return "; ".join(told(one) for one in error.exceptions)
    place = error.__traceback__
    while place is not None and place.tb_next is not None:
        place = place.tb_next
    where = f"{place.tb_frame.f_code.co_filename}:{place.tb_lineno}" if place else ""
    return f"{type(error).__name__}: {error} ({where})"
