"""Jobs from Python: `Herd` with plain calls, `AsyncHerd` with coroutines.

herd = tpuherd.Herd()                              # the same cloud as on the command line
herd.run(tpuherd.Job.load("job.yaml"), yes=True)   # Submission(did="submitted"); returns at once
herd.wait("gpt")                                   # the job's exit status
herd.down("gpt", yes=True)                         # returns when nothing is left

async with tpuherd.AsyncHerd(world="./world") as herd:    # the same as coroutines
    await herd.run(tpuherd.Job(name="gpt", accelerator="v4-8", run="hostname"))
"""

import asyncio
from collections.abc import Coroutine, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, TypeVar, Unpack

from tpuherd.async_api import AsyncHerd
from tpuherd.cost_results import CostReport, JobReport
from tpuherd.job import Job
from tpuherd.job_fields import JobChanges, MapOptions
from tpuherd.results import (
    Adoption,
    CommandResult,
    Event,
    JobStatus,
    JobSummary,
    Leftovers,
    LogLine,
    MapResult,
    Plan,
    Submission,
    SweepStatus,
    TpuType,
    Why,
    ZoneCapacity,
)
from tpuherd.sync.shipment import Shipment

T = TypeVar("T")


class Herd:
    """The methods of AsyncHerd as plain calls; also works inside a running event loop, as in
    notebooks.
    """

    def __init__(
        self, *, world: str | Path | None = None, environ: Mapping[str, str] | None = None
    ) -> None:
        self._herd = AsyncHerd(world=world, environ=environ)

    def run(self, job: Job, *, yes: bool = False) -> Submission:
        """Submit a job. `did` is submitted, unchanged, changed, resumed, or restarted if it had
        ended.
        """
        return run_blocking(self._herd.run(job, yes=yes))

    def up(self, job: Job, *, yes: bool = False) -> Submission:
        """Request a job's nodes and set them up with its code, without running its command."""
        return run_blocking(self._herd.up(job, yes=yes))

    def change(
        self, name: str, *, yes: bool = False, user: str = "", **fields: Unpack[JobChanges]
    ) -> Submission:
        """Change some fields of a job; None resets one. `did` is changed or unchanged.

        `user`: act on jobs of this other user on purpose, here and below.
        """
        return run_blocking(self._herd.change(name, yes=yes, user=user, **fields))

    def scale(self, name: str, copies: int, *, yes: bool = False, user: str = "") -> Submission:
        """Change the number of copies."""
        return run_blocking(self._herd.scale(name, copies, yes=yes, user=user))

    def stop(self, name: str, *, user: str = "") -> bool:
        """Stop a job and delete its nodes but keep the job; False if it was already stopped."""
        return run_blocking(self._herd.stop(name, user=user))

    def resume(self, name: str, *, user: str = "") -> bool:
        """Resume a job after a stop or after it gave up; False if it is already active."""
        return run_blocking(self._herd.resume(name, user=user))

    def down(
        self, *names: str, yes: bool = False, wait: bool = True, user: str = ""
    ) -> tuple[str, ...]:
        """Remove these jobs, or all of one's own, with everything they have; return the removed
        jobs.
        """
        return run_blocking(self._herd.down(*names, yes=yes, wait=wait, user=user))

    def wait(self, *names: str, timeout: float | None = None) -> int:
        """Wait until all have ended; return the greatest of their exit statuses, 0 for success.

        Raises TimeoutError after `timeout` seconds.
        """
        return run_blocking(self._herd.wait(*names, timeout=timeout))

    def exec(
        self,
        target: str,
        *command: str,
        shell: str | None = None,
        timeout: float | None = None,
        yes: bool = False,
        environment: bool = False,
    ) -> CommandResult:
        """Run a command or a shell line on all hosts of a target, and collect its output.

        It begins in the job's code, with its Python environment, where a host has these; with
        `environment`, it fails where there is no environment.
        """
        done = self._herd.exec(
            target, *command, shell=shell, timeout=timeout, yes=yes, environment=environment
        )
        return run_blocking(done)

    def sync(self, path: str | Path, target: str, dest: str = "", *, yes: bool = False) -> Shipment:
        """Ship a folder to a folder on all hosts of a target: to all of them or none.

        Without `dest`, it becomes the code of the job `target` from its next attempt on.
        """
        return run_blocking(self._herd.sync(path, target, dest, yes=yes))

    def logs(
        self,
        target: str,
        *,
        attempt: str | None = None,
        since: float | None = None,
        all: bool = False,
    ) -> list[LogLine]:
        """Return log lines of a target's hosts, also deleted ones; `all`: also of earlier jobs
        of the name.
        """
        return run_blocking(self._herd.logs(target, attempt=attempt, since=since, all=all))

    def jobs(self) -> list[JobSummary]:
        """Return all jobs."""
        return run_blocking(self._herd.jobs())

    def status(self, name: str) -> JobStatus:
        """Return the details of a job, or of one of its slots."""
        return run_blocking(self._herd.status(name))

    def cost(self, name: str) -> JobReport:
        """Return where the time and money of a job, or of one of its slots, went."""
        return run_blocking(self._herd.cost(name))

    def costs(self, days: int = 14) -> CostReport:
        """Return what all jobs cost: in all, on each of the last days, and soon."""
        return run_blocking(self._herd.costs(days))

    def why(self, name: str) -> Why:
        """Return what a job or slot does or waits for."""
        return run_blocking(self._herd.why(name))

    def sweep(self, name: str) -> SweepStatus:
        """Return all trials of a sweep."""
        return run_blocking(self._herd.sweep(name))

    def map(
        self,
        job: str | Job,
        items: Iterable[str],
        command: Sequence[str] | str = (),
        *,
        wait: bool = True,
        yes: bool = False,
        **options: Unpack[MapOptions],
    ) -> MapResult:
        """Run a command for each item, on the nodes of a job (its name) or of a new one.

        {} in the command is replaced by the item; without {} it is appended. Text is for a shell,
        words are not. The same job, items and command go on where they were.
        """
        work = self._herd.map(job, items, command, wait=wait, yes=yes, **options)
        return run_blocking(work)

    def map_status(self, name: str) -> MapResult:
        """Return all items of a map."""
        return run_blocking(self._herd.map_status(name))

    def events(self, name: str, *, all: bool = False) -> list[Event]:
        """Return a job's events, oldest first; `all`: also those of earlier jobs with this name."""
        return run_blocking(self._herd.events(name, all=all))

    def types(self, name: str = "") -> list[TpuType]:
        """Return what Google documents of TPU types: of one, of a generation, or all."""
        return run_blocking(self._herd.types(name))

    def capacity(self) -> list[ZoneCapacity]:
        """Return what herd has learned about zones."""
        return run_blocking(self._herd.capacity())

    def plan(self, name: str | None = None) -> Plan:
        """Return what the engine would do in the cloud now."""
        return run_blocking(self._herd.plan(name))

    def gc(self, *names: str, yes: bool = False) -> Leftovers:
        """Find cloud resources that herd created but no job uses, and delete the named ones."""
        return run_blocking(self._herd.gc(*names, yes=yes))

    def adopt(self, owner: str | None = None) -> Adoption:
        """Take over orphans, or another owner's resources."""
        return run_blocking(self._herd.adopt(owner))

    def adopt_nodes(self, *nodes: str, job: Job, yes: bool = False) -> Adoption:
        """Take running nodes that other tools created into a new job, without restarting them."""
        return run_blocking(self._herd.adopt_nodes(*nodes, job=job, yes=yes))


def run_blocking(work: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine to its result, in another thread if this one has an event loop."""
    try:
        asyncio.get_running_loop()
        has_loop = True
    except RuntimeError:
        has_loop = False
    if not has_loop:
        return asyncio.run(work)
    with ThreadPoolExecutor(1) as apart:
        return apart.submit(asyncio.run, work).result()
