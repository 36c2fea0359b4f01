"""Builds a bug report: reads what there is, notes what could not be read, changes nothing.

The store is read first. Only if it is sound, checks and the plan open it, because opening a damaged
store sets it aside.
"""

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field

from tpuherd.bug_report import known_values
from tpuherd.bug_report.live_files import checks_file, daemon_file, plan_file
from tpuherd.bug_report.log_files import output_files, own_log_files
from tpuherd.bug_report.machine_files import settings_file, sizes_file, versions_file
from tpuherd.bug_report.pack_report import (
    PackedReport,
    bucket_names,
    pack_files,
    redact_files,
    report_name,
)
from tpuherd.bug_report.report_file import ReportFile
from tpuherd.bug_report.store_files import private_values, store_files
from tpuherd.checks.check_all import find_machine
from tpuherd.checks.machine_facts import Machine
from tpuherd.commands.console import Console
from tpuherd.commands.host_access import HostAccess
from tpuherd.errors import HerdError, NotFound
from tpuherd.jobs.open_project import no_job_message
from tpuherd.settings import project_access
from tpuherd.settings.project_access import ProjectScope
from tpuherd.store.inspect_store import StoreContents, inspect_store
from tpuherd.transcripts.redact_text import SECRET, KnownValue
from tpuherd.views.bug_report_page import report_readme

EVENTS_MAX = 5000
PRIVATE_MIN = 6  #: shorter values of env are common words and numbers
ASK_S = 30.0  #: for checks and the plan, which ask the cloud


@dataclass(frozen=True, kw_only=True, slots=True)
class BugReportOptions:
    job: str | None  #: also its output
    hide_project: bool


@dataclass(kw_only=True, slots=True)
class Collection:
    """The files so far, and why others are missing."""

    files: list[ReportFile] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)

    def add_files(self, what: str, read: Callable[[], Iterable[ReportFile]]) -> None:
        """Add files; an error ends these, and no others."""
        try:
            self.files.extend(read())
        except (HerdError, OSError, ValueError) as error:
            self.note_problem(what, error)

    async def add_answer(self, what: str, answer: Awaitable[ReportFile]) -> None:
        """Add what was asked for, if it comes in time."""
        try:
            async with asyncio.timeout(ASK_S):
                self.files.append(await answer)
        except TimeoutError:
            self.problems.append(f"{what}: no answer in {ASK_S:g} s")
        except Exception as error:  # noqa: BLE001 - what fails here may be the bug to report
            self.note_problem(what, error)

    def note_problem(self, what: str, error: Exception) -> None:
        why = error.sentence if isinstance(error, HerdError) else f"{type(error).__name__}: {error}"
        self.problems.append(f"{what}: {why}")


@dataclass(frozen=True, kw_only=True, slots=True)
class Sources:
    """Where the files come from."""

    machine: Machine
    scope: ProjectScope | None  #: None: no project or world is known
    contents: StoreContents


async def build_report(
    options: BugReportOptions, console: Console, home: HostAccess
) -> PackedReport:
    """Return the report; raises NotFound if the store is readable and has no such job."""
    found = Collection()
    sources = find_sources(options.job, console, found)
    collect_files(found, sources, options.job)
    await collect_answers(found, sources, options.job, console, home)
    known = list(list_known_values(sources))
    if options.hide_project:
        known += known_values.project_names(sources.scope, sources.machine.folders)
        known += bucket_names(found.files)
    return pack_report(found, known, sources.machine.clock.now())


def find_sources(job: str | None, console: Console, found: Collection) -> Sources:
    machine = find_machine(console)
    try:
        scope = project_access.resolve_scope(machine.environ, world=machine.world)
    except (HerdError, OSError) as error:
        found.note_problem("the project", error)
        return Sources(machine=machine, scope=None, contents=StoreContents())
    contents = read_store(scope, job)
    found.problems += [f"the store: {one}" for one in contents.problems]
    if job is not None and contents.is_sound and job not in contents.jobs and not contents.events:
        raise NotFound(no_job_message(job, contents.jobs))
    return Sources(machine=machine, scope=scope, contents=contents)


def read_store(scope: ProjectScope, job: str | None) -> StoreContents:
    """Read the store, wherever it is, and change nothing."""
    folder = scope.store_folder
    if scope.database is None:
        return inspect_store(folder, most=EVENTS_MAX, job=job)
    try:
        from tpuherd.store.inspect_server import inspect_server
    except ImportError:
        return StoreContents(problems=["it is in PostgreSQL, and psycopg is not installed"])
    return inspect_server(scope.database, folder.name, most=EVENTS_MAX, job=job)


def collect_files(found: Collection, sources: Sources, job: str | None) -> None:
    """Add what is on this machine's disk."""
    machine, scope, contents = sources.machine, sources.scope, sources.contents
    found.add_files("versions", lambda: [versions_file()])
    found.add_files("settings", lambda: [settings_file(machine)])
    found.add_files("sizes", lambda: [sizes_file(machine)])
    if scope is not None:
        found.add_files("the store", lambda: store_files(scope, contents, job))
    found.add_files("logs", lambda: own_log_files(scope, machine.folders.runtime))
    if scope is not None and job is not None:
        found.add_files("output", lambda: output_files(scope, job))


async def collect_answers(
    found: Collection, sources: Sources, job: str | None, console: Console, home: HostAccess
) -> None:
    """Add what has to be asked for."""
    machine, is_sound = sources.machine, sources.contents.is_sound
    await found.add_answer("the daemon", daemon_file(machine))
    await found.add_answer("checks", checks_file(machine, console, home, is_sound=is_sound))
    if is_sound and sources.contents.jobs:
        await found.add_answer("the plan", plan_file(machine, job))


def list_known_values(sources: Sources) -> Iterator[KnownValue]:
    """Yield what must not be in the report."""
    environ = sources.machine.environ
    yield from known_values.stored_secrets(sources.machine.folders)
    yield from known_values.secret_variables(environ)
    database = None if sources.scope is None else sources.scope.database
    if database is not None and database.password:
        yield KnownValue(value=database.password, kind=SECRET)
    for value in private_values(sources.contents):
        if len(value) >= PRIVATE_MIN:
            yield KnownValue(value=value, kind=SECRET)
    yield from known_values.personal_names(environ)


def pack_report(found: Collection, known: Sequence[KnownValue], now: float) -> PackedReport:
    """Remove secrets from all files and pack them, with a page that says what they are."""
    files, hidden = redact_files([*found.files, problems_file(found.problems)], known)
    problems = files.pop().text.splitlines()
    page = ReportFile(
        name="README.txt", text=report_readme(files, hidden, problems), about="what is inside"
    )
    everything = [page, *files]
    return PackedReport(
        content=pack_files(everything, folder=report_name(now), now=now),
        files=everything,
        hidden=hidden,
        problems=problems,
    )


def problems_file(problems: Sequence[str]) -> ReportFile:
    """Return the problems as a file, so that secrets are removed from them, too."""
    lines = (" ".join(one.split()) for one in problems)
    return ReportFile(name="problems", text="\n".join(lines), about="")
