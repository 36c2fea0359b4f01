"""Jobs from Python as coroutines: `tpuherd.AsyncHerd`."""

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self, TypeVar, Unpack

from tpuherd.clock import WallClock
from tpuherd.commands.command_types import Wish
from tpuherd.commands.find_logs import Look
from tpuherd.commands.read_logs import read_logs
from tpuherd.commands.run_command import run_command
from tpuherd.commands.ship_code import change_code, ship_folder
from tpuherd.errors import Unfit
from tpuherd.job import Job, mistaken
from tpuherd.job_fields import JobChanges
from tpuherd.jobfile.yaml_with_lines import Page
from tpuherd.jobs import engine_control, job_queries, submit
from tpuherd.jobs.adopt_resources import take_over
from tpuherd.jobs.cloud_inventory import look
from tpuherd.jobs.open_project import Desk
from tpuherd.jobs.orphans import collect
from tpuherd.jobs.preview_plan import planned
from tpuherd.jobs.remove import doomed, drop, watched
from tpuherd.jobs.submit import Made
from tpuherd.jobs.sweep_queries import swept
from tpuherd.model.slots_and_plan import Goal
from tpuherd.remote import open_remote
from tpuherd.remote.resolve_hosts import Reach
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
    read_result,
)
from tpuherd.settings import project_access
from tpuherd.store.database import Database
from tpuherd.sync.shipment import Shipment
from tpuherd.views.event_lines import record

if TYPE_CHECKING:
    from tpuherd.cloud.nodes_api import Cloud

T = TypeVar("T")
SURE = "yes=True says so"


class Caller:
    """The program that calls: it said before what it agrees to."""

    def __init__(self, environ: Mapping[str, str], *, yes: bool) -> None:
        self.environ = environ
        self.yes = yes

    async def tell(self, sentence: str) -> None:
        """What is worth a note to a user is nothing to a program."""

    async def agree(self, question: str, details: str = "") -> bool:
        if not self.yes:
            raise Unfit(f"{details}\n{question}" if details else question, hint=SURE)
        return True


class AsyncHerd:
    """The jobs of one place. What needs a yes raises Unfit without `yes=True`.

    In `async with` its connections to the cloud and to hosts stay from call to call.
    """

    def __init__(
        self, *, world: str | Path | None = None, environ: Mapping[str, str] | None = None
    ) -> None:
        self._world = Path(world) if world is not None else None
        self._environ = project_access.environment() if environ is None else environ
        self._stack: AsyncExitStack | None = None
        self._kept: tuple[project_access.Place, Reach] | None = None

    async def __aenter__(self) -> Self:
        self._stack = AsyncExitStack()
        return self

    async def __aexit__(self, *error: object) -> None:
        stack, self._stack, self._kept = self._stack, None, None
        if stack is not None:
            await stack.aclose()

    async def _reach(self, place: project_access.Place, stack: AsyncExitStack) -> Reach:
        """The ways to its hosts: those that are kept, or new ones for this call."""
        if self._kept is not None and self._kept[0] == place:
            return self._kept[1]
        reach = await (self._stack or stack).enter_async_context(
            open_remote.reaching(place, WallClock())
        )
        if self._stack is not None:
            self._kept = place, reach
        return reach

    @asynccontextmanager
    async def _desk(self, *, yes: bool = False) -> AsyncIterator[Desk]:
        place = project_access.place(self._environ, world=self._world)
        clock = WallClock()
        store = Database(place.store, clock.now())
        async with AsyncExitStack() as stack:
            stack.callback(store.close)
            reached: list[Reach] = []

            async def cloud() -> "Cloud":
                if not reached:
                    reached.append(await self._reach(place, stack))
                return reached[0].cloud

            talk = Caller(self._environ, yes=yes)
            yield Desk(place=place, store=store, clock=clock, talk=talk, cloud=cloud)
            engine_control.ensure(place, self._environ)

    async def run(self, job: Job, *, yes: bool = False) -> Submission:
        """Submit it: made, same, changed, resumed, or again where it had ended."""
        return await self._submit(job, Goal.RUN, yes=yes)

    async def up(self, job: Job, *, yes: bool = False) -> Submission:
        """Submit its nodes, set up and with its code, without its command."""
        return await self._submit(job, Goal.IDLE, yes=yes)

    async def _submit(self, job: Job, goal: Goal, *, yes: bool) -> Submission:
        async with self._desk(yes=yes) as here:
            page = job.page
            found = await submit.ready(page, job.base, goal, here)
            if found is None:
                raise mistaken(page.mistakes, "")
            made = await submit.wished(found, here, "")
            assert made is not None, "a caller never says no: it raises"
            return submission(made)

    async def change(
        self, name: str, *, yes: bool = False, **fields: Unpack[JobChanges]
    ) -> Submission:
        """Other values for some fields; None takes one back. changed or same."""
        async with self._desk(yes=yes) as here:
            document = {**here.wish(name).document, **fields}
            page = Page(value={k: v for k, v in document.items() if v is not None})
            made = await submit.changed(name, page, here)
            if made is None:
                raise mistaken(page.mistakes, "")
            return submission(made)

    async def scale(self, name: str, copies: int, *, yes: bool = False) -> Submission:
        """So many of it."""
        return await self.change(name, yes=yes, copies=copies)

    async def stop(self, name: str) -> bool:
        """Stop it, give its nodes back, keep the job; False: it was stopped already."""
        async with self._desk() as here:
            return submit.stopped(here.wish(name), here)

    async def resume(self, name: str) -> bool:
        """Let it go on; False: it does already."""
        async with self._desk() as here:
            return submit.resumed(here.wish(name), here)

    async def down(self, *names: str, yes: bool = False, wait: bool = True) -> tuple[str, ...]:
        """Drop these jobs, or all, and everything they have; those that went."""
        async with self._desk(yes=yes) as here:
            seen = await look(here)
            found = doomed(names, seen, here)
            if not found.jobs:
                return ()
            await here.talk.agree(found.question, "\n".join(found.losses))
            await drop(found, seen, here)
            if wait:
                async for _ in watched(found.jobs, here):
                    engine_control.ensure(here.place, self._environ)
            return found.jobs

    async def wait(self, *names: str, timeout: float | None = None) -> int:
        """The greatest of their exit statuses, when all have ended: 0 is success.

        TimeoutError if that takes more than `timeout` seconds.
        """
        async with self._desk() as here:
            jobs = job_queries.chosen(names, here.store.wishes())
        async with self._desk() as here:  # who has submitted or read lets an engine begin
            ends = job_queries.endings(jobs, here.store, here.clock, timeout_s=timeout)
            ended = {job: status async for job, status, _ in ends}
        left = [job for job in jobs if job not in ended]
        if left:
            raise TimeoutError(f"{', '.join(left)}: not ended in {timeout:g} s")
        return max(ended.values(), default=0)

    async def exec(
        self,
        target: str,
        *command: str,
        shell: str | None = None,
        timeout: float | None = None,
        yes: bool = False,
    ) -> CommandResult:
        """Run a command, or a line of shell, on all hosts of a target, and collect its output."""
        if bool(command) == (shell is not None):
            raise Unfit("say what to run: exec(target, 'ls', '-l') or exec(target, shell='ls -l')")
        wish = Wish(target=target, argv=command, shell=shell, timeout_s=timeout, yes=yes)
        async with self._desk(yes=yes) as here, AsyncExitStack() as stack:
            reach = await self._reach(here.place, stack)
            return await run_command(wish, here.place, reach, here.talk)

    async def sync(
        self, path: str | Path, target: str, dest: str = "", *, yes: bool = False
    ) -> Shipment:
        """Ship a folder to a folder of all hosts of a target, or to none of them.

        Without `dest` it is the code of the job `target` from its next attempt on.
        """
        async with self._desk(yes=yes) as here, AsyncExitStack() as stack:
            if not dest:
                return await change_code(Path(path), target, here)
            reach = await self._reach(here.place, stack)
            return await ship_folder(Path(path), target, dest, here, reach)

    async def logs(
        self,
        target: str,
        *,
        attempt: str | None = None,
        since: float | None = None,
        all: bool = False,
    ) -> list[LogLine]:
        """What its hosts wrote, also those that are gone; `all`: also earlier jobs of the name."""
        scope = project_access.scope(self._environ, world=self._world)
        seen = Look(target=target, attempt=attempt, since=since, all_=all)
        return await asyncio.to_thread(read_logs, seen, scope, WallClock().now())

    async def jobs(self) -> list[JobSummary]:
        """All jobs."""
        async with self._desk() as here:
            return read_result(job_queries.jobs(here.store, here.clock.now()), list[JobSummary])

    async def status(self, name: str) -> JobStatus:
        """All of a job, or of one of its slots."""
        async with self._desk() as here:
            return read_result(job_queries.status(here.store, here.clock.now(), name), JobStatus)

    async def why(self, name: str) -> Why:
        """What it does or waits for."""
        async with self._desk() as here:
            told = job_queries.why_told(here.store, here.clock.now(), name)
            told["recent"] = [split_event(one) for one in told["recent"]]
            return read_result(told, Why)

    async def sweep(self, name: str) -> SweepStatus:
        """All trials of a sweep."""
        async with self._desk() as here:
            return read_result(swept(here.store, here.clock.now(), name)[0], SweepStatus)

    async def events(self, name: str, *, all: bool = False) -> list[Event]:
        """What happened to a job, the oldest first; `all`: also to earlier ones of its name."""
        async with self._desk() as here:
            begun = None if all else job_queries.last_submitted(here.store, name)
            found = here.store.events(after=begun[0] - 1 if begun else 0, job=name)
            told = [split_event(record(seq, one)) for seq, one in found]
            return read_result(told, list[Event])

    async def capacity(self) -> list[ZoneCapacity]:
        """What was learnt of zones."""
        async with self._desk() as here:
            return read_result(
                job_queries.capacity(here.store, here.clock.now()), list[ZoneCapacity]
            )

    async def plan(self, name: str | None = None) -> Plan:
        """What would be done in the cloud now."""
        async with self._desk() as here:
            return read_result((await planned(name, here)).as_json(), Plan)

    async def gc(self, *names: str, yes: bool = False) -> Leftovers:
        """What herd made and no job uses; what is named here is deleted."""
        async with self._desk(yes=yes) as here:
            found = await collect(names, here)
            assert found is not None, "a caller never says no: it raises"
            return read_result(found.as_json(), Leftovers)

    async def adopt(self, owner: str | None = None) -> Adoption:
        """Take over what no job uses, or what another owner has."""
        async with self._desk() as here:
            return read_result((await take_over(owner, here)).as_json(), Adoption)


def submission(made: Made) -> Submission:
    """What became of a job, for a program."""
    return Submission(job=made.wish.job, did=made.word, revision=made.wish.revision)


def split_event(told: Mapping[str, Any]) -> dict[str, Any]:
    """A line of the log with its facts apart."""
    known = {name: told[name] for name in ("seq", "at", "kind", "job", "slot")}
    facts = {name: it for name, it in told.items() if name not in known}
    return {**known, "why": str(told.get("why") or ""), "facts": facts}
