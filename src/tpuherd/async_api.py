"""Jobs from Python as coroutines: `tpuherd.AsyncHerd`."""

import asyncio
import shlex
from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self, TypeVar, Unpack

from tpuherd.clock import WallClock
from tpuherd.commands.command_types import ExecRequest
from tpuherd.commands.find_logs import LogQuery
from tpuherd.commands.read_logs import read_logs
from tpuherd.commands.run_command import run_command
from tpuherd.commands.ship_code import change_job_code, ship_folder
from tpuherd.cost_results import CostReport, JobReport
from tpuherd.errors import InvalidInput, NotConfirmed
from tpuherd.job import Job, mistakes_error
from tpuherd.job_fields import JobChanges, MapOptions
from tpuherd.jobfile.joined_fields import change_fields
from tpuherd.jobfile.yaml_with_lines import YamlDocument
from tpuherd.jobs import cost_queries, engine_control, job_queries, submit
from tpuherd.jobs.adopt_nodes import adopt_nodes, check_adoption, find_nodes
from tpuherd.jobs.adopt_resources import adopt_resources
from tpuherd.jobs.cloud_inventory import survey_cloud
from tpuherd.jobs.job_queries import map_status
from tpuherd.jobs.map_progress import watch_map
from tpuherd.jobs.open_project import Session
from tpuherd.jobs.orphans import collect_orphans
from tpuherd.jobs.preview_plan import preview_plan
from tpuherd.jobs.remove import removal_preview, remove_jobs, wait_until_gone
from tpuherd.jobs.submit import SubmitResult
from tpuherd.jobs.submit_map import (
    MapRequest,
    add_map_fields,
    submit_map_on_job,
    submit_new_map,
)
from tpuherd.jobs.sweep_queries import sweep_status
from tpuherd.model.slots_and_plan import Goal
from tpuherd.remote import open_remote
from tpuherd.remote.resolve_hosts import RemoteSession
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
    read_result,
)
from tpuherd.settings import project_access
from tpuherd.store.open_database import open_database
from tpuherd.sweeps.map_items import check_items
from tpuherd.sync.shipment import Shipment
from tpuherd.views.event_lines import event_json
from tpuherd.views.type_pages import type_rows

if TYPE_CHECKING:
    from tpuherd.cloud.nodes_api import Cloud

T = TypeVar("T")


class PresetAnswers:
    """Answers for the calling program, which confirms in advance."""

    def __init__(self, environ: Mapping[str, str], *, yes: bool) -> None:
        self.environ = environ
        self.yes = yes

    async def show_message(self, sentence: str) -> None:
        """Ignore notes for people."""

    async def ask_confirmation(
        self, question: str, details: str = "", *, instead: str = ""
    ) -> bool:
        if not self.yes:
            sentence = f"{details}\n{question}" if details else question
            raise NotConfirmed(sentence, hint="pass yes=True to confirm")
        return True


def user_argument(user: str) -> str:
    """How a call names another user; the page, which calls too, sends people to a terminal."""
    return f"pass user={user!r}, or --user {shlex.quote(user)} in a terminal"


class AsyncHerd:
    """The jobs of one project. Without `yes=True`, a call that needs a confirmation raises.

    Inside `async with`, connections to the cloud and to hosts are kept from call to call.
    """

    #: Whether commands begin in the job's code, where a host has it; else in the login's home.
    _in_code = True

    def __init__(
        self, *, world: str | Path | None = None, environ: Mapping[str, str] | None = None
    ) -> None:
        self._world = Path(world) if world is not None else None
        self._environ = project_access.process_environment() if environ is None else environ
        self._stack: AsyncExitStack | None = None
        self._kept: tuple[project_access.ProjectAccess, RemoteSession] | None = None

    async def __aenter__(self) -> Self:
        self._stack = AsyncExitStack()
        return self

    async def __aexit__(self, *error: object) -> None:
        stack, self._stack, self._kept = self._stack, None, None
        if stack is not None:
            await stack.aclose()

    async def _open_remote(
        self, place: project_access.ProjectAccess, stack: AsyncExitStack
    ) -> RemoteSession:
        """Return the kept session, or open one for this call."""
        if self._kept is not None and self._kept[0] == place:
            return self._kept[1]
        reach = await (self._stack or stack).enter_async_context(
            open_remote.open_remote_session(place, WallClock())
        )
        if self._stack is not None:
            self._kept = place, reach
        return reach

    @asynccontextmanager
    async def _open_session(
        self, *, yes: bool = False, acting_for: str = ""
    ) -> AsyncIterator[Session]:
        place = project_access.resolve_access(self._environ, world=self._world)
        clock = WallClock()
        store = open_database(place, clock.now())
        async with AsyncExitStack() as stack:
            stack.callback(store.close)
            reached: list[RemoteSession] = []

            async def cloud() -> "Cloud":
                if not reached:
                    reached.append(await self._open_remote(place, stack))
                return reached[0].cloud

            prompter = PresetAnswers(self._environ, yes=yes)
            with engine_control.starting_engine(store, place, self._environ):
                yield Session(
                    place=place, store=store, clock=clock, prompter=prompter, cloud=cloud,
                    acting_for=acting_for, naming_user=user_argument,
                )  # fmt: skip

    async def run(self, job: Job, *, yes: bool = False) -> Submission:
        """Submit a job. `did` is submitted, unchanged, changed, resumed, or restarted if it had
        ended.
        """
        return await self._submit_job(job, Goal.RUN, yes=yes)

    async def up(self, job: Job, *, yes: bool = False) -> Submission:
        """Request a job's nodes and set them up with its code, without running its command."""
        return await self._submit_job(job, Goal.IDLE, yes=yes)

    async def _submit_job(self, job: Job, goal: Goal, *, yes: bool) -> Submission:
        async with self._open_session(yes=yes) as here:
            page = job.page
            found = await submit.check_submission(page, job.base, goal, here)
            if found is None:
                raise mistakes_error(page.mistakes, "")
            result = await submit.submit(found, here, "")
            assert result is not None, "PresetAnswers never says no: it raises"
            return submission_result(result)

    async def change(
        self, name: str, *, yes: bool = False, user: str = "", **fields: Unpack[JobChanges]
    ) -> Submission:
        """Change some fields of a job; None resets one. `did` is changed or unchanged.

        `user`: act on jobs of this other user on purpose, here and below.
        """
        async with self._open_session(yes=yes, acting_for=user) as here:
            page = YamlDocument(value=change_fields(here.get_own_job(name).document, fields))
            result = await submit.change_job(name, page, here)
            if result is None:
                raise mistakes_error(page.mistakes, "")
            return submission_result(result)

    async def scale(
        self, name: str, copies: int, *, yes: bool = False, user: str = ""
    ) -> Submission:
        """Change the number of copies."""
        return await self.change(name, yes=yes, user=user, copies=copies)

    async def stop(self, name: str, *, user: str = "") -> bool:
        """Stop a job and delete its nodes but keep the job; False if it was already stopped."""
        async with self._open_session(acting_for=user) as here:
            return submit.stop_job(here.get_own_job(name), here)

    async def resume(self, name: str, *, user: str = "") -> bool:
        """Resume a job after a stop or after it gave up; False if it is already active."""
        async with self._open_session(acting_for=user) as here:
            return submit.resume_job(here.get_own_job(name), here)

    async def down(
        self, *names: str, yes: bool = False, wait: bool = True, user: str = ""
    ) -> tuple[str, ...]:
        """Remove these jobs, or all of one's own, with everything they have; return the removed
        jobs.
        """
        async with self._open_session(yes=yes, acting_for=user) as here:
            inventory = await survey_cloud(here)
            found = removal_preview(names, inventory, here)
            if not found.jobs:
                return ()
            await here.prompter.ask_confirmation(found.question, "\n".join(found.losses))
            await remove_jobs(found, inventory, here)
            if wait:
                async for _ in wait_until_gone(found.jobs, here):
                    engine_control.ensure_engine(here.store, here.place, self._environ)
            return found.jobs

    async def wait(self, *names: str, timeout: float | None = None) -> int:
        """Wait until all have ended; return the greatest of their exit statuses, 0 for success.

        Raises TimeoutError after `timeout` seconds.
        """
        async with self._open_session() as here:
            jobs = job_queries.match_jobs(names, here.store.stored_jobs())
        async with (
            self._open_session() as here
        ):  # closing a session starts the engine if it is needed
            ends = job_queries.watch_job_ends(jobs, here.store, here.clock, timeout_s=timeout)
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
        environment: bool = False,
    ) -> CommandResult:
        """Run a command or a shell line on all hosts of a target, and collect its output.

        It begins in the job's code, with its Python environment, where a host has these; with
        `environment`, it fails where there is no environment.
        """
        if bool(command) == (shell is not None):
            raise InvalidInput(
                "pass what to run: exec(target, 'ls', '-l') or exec(target, shell='ls -l')"
            )
        request = ExecRequest(
            target=target, argv=command, shell=shell, timeout_s=timeout, yes=yes,
            environment=environment, in_code=self._in_code,
        )  # fmt: skip
        async with self._open_session(yes=yes) as here, AsyncExitStack() as stack:
            reach = await self._open_remote(here.place, stack)
            return await run_command(request, here.place, reach, here.prompter)

    async def sync(
        self, path: str | Path, target: str, dest: str = "", *, yes: bool = False
    ) -> Shipment:
        """Ship a folder to a folder on all hosts of a target: to all of them or none.

        Without `dest`, it becomes the code of the job `target` from its next attempt on.
        """
        async with self._open_session(yes=yes) as here, AsyncExitStack() as stack:
            if not dest:
                return await change_job_code(Path(path), target, here)
            reach = await self._open_remote(here.place, stack)
            return await ship_folder(Path(path), target, dest, here, reach)

    async def logs(
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
        scope = project_access.resolve_scope(self._environ, world=self._world)
        query = LogQuery(target=target, attempt=attempt, since=since, all_=all)
        return await asyncio.to_thread(read_logs, query, scope, WallClock().now())

    async def jobs(self) -> list[JobSummary]:
        """Return all jobs."""
        async with self._open_session() as here:
            return read_result(job_queries.job_rows(here.store, here.clock.now()), list[JobSummary])

    async def status(self, name: str) -> JobStatus:
        """Return the details of a job, or of one of its slots."""
        async with self._open_session() as here:
            return read_result(
                job_queries.job_status(here.store, here.clock.now(), name), JobStatus
            )

    async def cost(self, name: str) -> JobReport:
        """Return where the time and money of a job, or of one of its slots, went."""
        async with self._open_session() as here:
            return read_result(cost_queries.job_cost(here.store, here.clock.now(), name), JobReport)

    async def costs(self, days: int = 14) -> CostReport:
        """Return what all jobs cost: in all, on each of the last days, and soon."""
        async with self._open_session() as here:
            return read_result(
                cost_queries.all_costs(here.store, here.clock.now(), days), CostReport
            )

    async def why(self, name: str) -> Why:
        """Return what a job or slot does or waits for."""
        async with self._open_session() as here:
            answer = job_queries.why_as_json(here.store, here.clock.now(), name)
            return read_result(answer, Why)

    async def sweep(self, name: str) -> SweepStatus:
        """Return all trials of a sweep."""
        async with self._open_session() as here:
            return read_result(sweep_status(here.store, here.clock.now(), name)[0], SweepStatus)

    async def map(
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
        request = MapRequest(
            items=check_items(items),
            command=command if isinstance(command, str) else tuple(command),
            **options,
        )
        async with self._open_session(yes=yes) as here:
            name = await submit_map(job, request, here)
        if wait:
            async with self._open_session() as here:  # closing the other one started the engine
                async for _ in watch_map(name, here.store, here.clock):
                    pass
        return await self.map_status(name)

    async def map_status(self, name: str) -> MapResult:
        """Return all items of a map."""
        async with self._open_session() as here:
            return read_result(map_status(here.store, here.clock.now(), name), MapResult)

    async def events(self, name: str, *, all: bool = False) -> list[Event]:
        """Return a job's events, oldest first; `all`: also those of earlier jobs with this name."""
        async with self._open_session() as here:
            begun = None if all else job_queries.last_submission(here.store, name)
            found = here.store.read_events(after=begun[0] - 1 if begun else 0, job=name)
            rows = [split_event(event_json(seq, one)) for seq, one in found]
            return read_result(rows, list[Event])

    async def types(self, name: str = "") -> list[TpuType]:
        """Return what Google documents of TPU types: of one, of a generation, or all."""
        return read_result(type_rows(name), list[TpuType])

    async def capacity(self) -> list[ZoneCapacity]:
        """Return what herd has learned about zones."""
        async with self._open_session() as here:
            return read_result(
                job_queries.capacity_rows(here.store, here.clock.now()), list[ZoneCapacity]
            )

    async def plan(self, name: str | None = None) -> Plan:
        """Return what the engine would do in the cloud now."""
        async with self._open_session() as here:
            return await preview_plan(name, here)

    async def gc(self, *names: str, yes: bool = False) -> Leftovers:
        """Find cloud resources that herd created but no job uses, and delete the named ones."""
        async with self._open_session(yes=yes) as here:
            found = await collect_orphans(names, here)
            assert found is not None, "PresetAnswers never says no: it raises"
            return found

    async def adopt(self, owner: str | None = None) -> Adoption:
        """Take over orphans, or another owner's resources."""
        async with self._open_session() as here:
            return await adopt_resources(owner, here)

    async def adopt_nodes(self, *nodes: str, job: Job, yes: bool = False) -> Adoption:
        """Take running nodes that other tools created into a new job, without restarting them."""
        async with self._open_session(yes=yes) as here:
            page = job.page
            there = await find_nodes(nodes, here)
            checked = await check_adoption(there, page, job.base, here)
            if checked is None:
                raise mistakes_error(page.mistakes, "")
            adopted = await adopt_nodes(checked, here)
            assert adopted is not None, "PresetAnswers never says no: it raises"
            return adopted


async def submit_map(job: str | Job, request: MapRequest, here: Session) -> str:
    """Submit a map; return the name of its job."""
    if isinstance(job, str):
        page = YamlDocument(value={})
        made = await submit_map_on_job(job, page, request, here)
    else:
        page = job.page
        add_map_fields(page, request, keep=False)
        found = await submit.check_submission(page, job.base, Goal.RUN, here)
        made = None if found is None else await submit_new_map(found, request, here, "")
    if made is None:
        raise mistakes_error(page.mistakes, "")
    return made.stored_job.job


def submission_result(result: SubmitResult) -> Submission:
    job = result.stored_job
    return read_result({"job": job.job, "did": result.word, "revision": job.revision}, Submission)


def split_event(event: Mapping[str, Any]) -> dict[str, Any]:
    """Separate an event's facts from the fields that all events have."""
    known = {name: event[name] for name in ("seq", "at", "kind", "job", "slot")}
    facts = {name: it for name, it in event.items() if name not in known}
    return {**known, "why": str(event.get("why") or ""), "facts": facts}
