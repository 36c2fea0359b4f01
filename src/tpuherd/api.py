"""Jobs from Python, as `herd` on the command line does them: plain calls, or coroutines.

herd = tpuherd.Herd()                              # the cloud that the command line means
herd.run(tpuherd.Job.load("job.yaml"), yes=True)   # Submission(did="submitted"); comes back at once
herd.wait("gpt")                                   # its exit status
herd.down("gpt", yes=True)                         # when nothing is left

async with tpuherd.AsyncHerd(world="./world") as herd:    # the same as coroutines
    await herd.run(tpuherd.Job(name="gpt", accelerator="v4-8", run="hostname"))
"""

import asyncio
from collections.abc import Coroutine, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, TypeVar, Unpack

from tpuherd.async_api import AsyncHerd
from tpuherd.job import Job
from tpuherd.job_fields import JobChanges
from tpuherd.results import (
    Adoption,
    CommandResult,
    Event,
    JobStatus,
    JobSummary,
    Leftovers,
    LogLine,
    Plan,
    Submission,
    SweepStatus,
    Why,
    ZoneCapacity,
)
from tpuherd.sync.shipment import Shipment

T = TypeVar("T")


class Herd:
    """The same in plain calls; also where an event loop runs already, as in notebooks."""

    def __init__(
        self, *, world: str | Path | None = None, environ: Mapping[str, str] | None = None
    ) -> None:
        self._herd = AsyncHerd(world=world, environ=environ)

    def run(self, job: Job, *, yes: bool = False) -> Submission:
        """Submit it: made, same, changed, resumed, or again where it had ended."""
        return run_blocking(self._herd.run(job, yes=yes))

    def up(self, job: Job, *, yes: bool = False) -> Submission:
        """Submit its nodes, set up and with its code, without its command."""
        return run_blocking(self._herd.up(job, yes=yes))

    def change(self, name: str, *, yes: bool = False, **fields: Unpack[JobChanges]) -> Submission:
        """Other values for some fields; None takes one back. changed or same."""
        return run_blocking(self._herd.change(name, yes=yes, **fields))

    def scale(self, name: str, copies: int, *, yes: bool = False) -> Submission:
        """So many of it."""
        return run_blocking(self._herd.scale(name, copies, yes=yes))

    def stop(self, name: str) -> bool:
        """Stop it, give its nodes back, keep the job; False: it was stopped already."""
        return run_blocking(self._herd.stop(name))

    def resume(self, name: str) -> bool:
        """Let it go on; False: it does already."""
        return run_blocking(self._herd.resume(name))

    def down(self, *names: str, yes: bool = False, wait: bool = True) -> tuple[str, ...]:
        """Drop these jobs, or all, and everything they have; those that went."""
        return run_blocking(self._herd.down(*names, yes=yes, wait=wait))

    def wait(self, *names: str, timeout: float | None = None) -> int:
        """The greatest of their exit statuses, when all have ended: 0 is success.

        TimeoutError if that takes more than `timeout` seconds.
        """
        return run_blocking(self._herd.wait(*names, timeout=timeout))

    def exec(
        self,
        target: str,
        *command: str,
        shell: str | None = None,
        timeout: float | None = None,
        yes: bool = False,
    ) -> CommandResult:
        """Run a command, or a line of shell, on all hosts of a target, and collect its output."""
        return run_blocking(
            self._herd.exec(target, *command, shell=shell, timeout=timeout, yes=yes)
        )

    def sync(self, path: str | Path, target: str, dest: str = "", *, yes: bool = False) -> Shipment:
        """Ship a folder to a folder of all hosts of a target, or to none of them.

        Without `dest` it is the code of the job `target` from its next attempt on.
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
        """What its hosts wrote, also those that are gone; `all`: also earlier jobs of the name."""
        return run_blocking(self._herd.logs(target, attempt=attempt, since=since, all=all))

    def jobs(self) -> list[JobSummary]:
        """All jobs."""
        return run_blocking(self._herd.jobs())

    def status(self, name: str) -> JobStatus:
        """All of a job, or of one of its slots."""
        return run_blocking(self._herd.status(name))

    def why(self, name: str) -> Why:
        """What it does or waits for."""
        return run_blocking(self._herd.why(name))

    def sweep(self, name: str) -> SweepStatus:
        """All trials of a sweep."""
        return run_blocking(self._herd.sweep(name))

    def events(self, name: str, *, all: bool = False) -> list[Event]:
        """What happened to a job, the oldest first; `all`: also to earlier ones of its name."""
        return run_blocking(self._herd.events(name, all=all))

    def capacity(self) -> list[ZoneCapacity]:
        """What was learnt of zones."""
        return run_blocking(self._herd.capacity())

    def plan(self, name: str | None = None) -> Plan:
        """What would be done in the cloud now."""
        return run_blocking(self._herd.plan(name))

    def gc(self, *names: str, yes: bool = False) -> Leftovers:
        """What herd made and no job uses; what is named here is deleted."""
        return run_blocking(self._herd.gc(*names, yes=yes))

    def adopt(self, owner: str | None = None) -> Adoption:
        """Take over what no job uses, or what another owner has."""
        return run_blocking(self._herd.adopt(owner))


def run_blocking(work: Coroutine[Any, Any, T]) -> T:
    """Its result; in a thread of its own where this one has a loop."""
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return asyncio.run(work)
    with ThreadPoolExecutor(1) as apart:
        return apart.submit(asyncio.run, work).result()
