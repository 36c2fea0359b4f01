"""Submits a job for `herd run` and `herd up`, and shows the result."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from math import inf
from pathlib import Path

from tpuherd.cli.job_options import JobArguments, read_job_input
from tpuherd.cli.job_session import format_dollars, open_job_session, print_json, print_lines
from tpuherd.cli.typed_run import expand_script, job_file_text, save_job_file
from tpuherd.commands.console import Console
from tpuherd.commands.host_access import HostAccess
from tpuherd.errors import HerdError, InvalidInput, NotAllowed
from tpuherd.exit_status import ABORTED, MISUSED
from tpuherd.jobfile.expand_slots import price_range
from tpuherd.jobfile.job_diff import JobDiff, diff_documents
from tpuherd.jobfile.nfs_folders import WORKER_0
from tpuherd.jobfile.read_job import job_document
from tpuherd.jobfile.typed_script import TypedJob
from tpuherd.jobfile.yaml_with_lines import YamlDocument
from tpuherd.jobs import via_parcel
from tpuherd.jobs.image_python import python_notes
from tpuherd.jobs.open_project import Prompter
from tpuherd.jobs.submit import CheckedJob, SubmitResult, check_submission, read_page, submit
from tpuherd.model.search import Search, count_trials
from tpuherd.model.slots_and_plan import Goal, Offer
from tpuherd.model.stored_job import StoredJob
from tpuherd.sweeps import search_space
from tpuherd.views.deadline_line import deadline_lines
from tpuherd.views.egress_lines import billed_lines, egress_lines, egress_rows
from tpuherd.views.format_text import count_slices, format_table

TRIALS_SHOWN = 10
OTHER_NAME = "--name NAME starts another job beside it"
OWN_FOLDER = (
    "give the script a folder of its own, leave files out by .herdignore, or name the folder to"
    " ship: --workdir FOLDER"
)
WORDS = {
    "submitted": "Submitted {}",
    "restarted": "Submitted {} again",
    "resumed": "Resumed {}",
    "changed": "Changed {}",
    "unchanged": "Unchanged: {}",
}


@dataclass(frozen=True, kw_only=True, slots=True)
class RunOptions:
    said: JobArguments
    goal: Goal
    follow: bool | None
    yes: bool
    dry: bool
    json_: bool
    by: str = ""  #: the command's name, if not run or up
    waits: bool = False  #: for the end of the job
    typed: TypedJob | None = None  #: what the typed sentence stands for
    save: str = ""  #: the file to write that as

    @property
    def command_name(self) -> str:
        if self.by:
            return self.by
        return "herd run" if self.goal is Goal.RUN else "herd up"


async def run_job(asked: RunOptions, console: Console, home: HostAccess) -> int:
    """Submit; without login or permission nothing is stored."""
    if asked.said.script is not None:
        world = console.said.world
        said, typed = expand_script(asked.said, console.folder, console.environ, world)
        asked = replace(asked, said=said, typed=typed)
    try:
        return await submit_job(asked, console, home)
    except NotAllowed as error:
        raise InvalidInput(error.sentence, hint=error.hint) from error


async def submit_job(asked: RunOptions, console: Console, home: HostAccess) -> int:
    """Submit; mistakes of the job come before problems of the project."""
    page, base = read_job_input(asked.said, console.folder)
    try:
        return await submit_page(page, base, asked, console, home)
    except HerdError:
        if not page.mistakes:
            read_page(page, asked.goal)
        if not page.mistakes:
            raise
        return await print_mistakes(page, asked.said.file or "", asked.command_name, console)


async def submit_page(
    page: YamlDocument, base: Path, asked: RunOptions, console: Console, home: HostAccess
) -> int:
    """Find all mistakes before anything is stored."""
    async with open_job_session(
        console, home, asked.command_name, yes=asked.yes, begins=not asked.dry
    ) as here:
        found = await check_submission(page, base, asked.goal, here)
        if found is None:
            return await print_mistakes(page, asked.said.file or "", asked.command_name, console)
        await print_ignored(page, asked.said.file or "", asked.command_name, console)
        if asked.typed is not None and not await agree_typed(asked, page, here.prompter, console):
            return ABORTED
        if asked.dry:
            notes = python_notes(found.job, found.offers, base, simulated=bool(here.place.world))
            before = here.store.stored_jobs().get(found.job.name)
            return await print_dry_run(asked, found, before, list(notes), console)
        guessed = asked.typed is not None and asked.typed.guessed_name
        guessed = guessed or via_parcel.has_guessed_name(console.environ)
        instead = OTHER_NAME if guessed else ""
        made = await submit(found, here, offers_table(found.offers), instead=instead)
        if made is None:
            return ABORTED
        await print_submitted(asked, made, found, console)
    if asked.goal is not Goal.RUN:
        shown = console.is_terminal(1) and console.said.loud >= 0 and not asked.json_
        return await follow_node(found.job.name, console, home) if shown and not asked.by else 0
    return await follow_or_detach(asked, found.job.name, console, home)


async def agree_typed(
    asked: RunOptions, page: YamlDocument, prompter: Prompter, console: Console
) -> bool:
    """Say what is assumed, write it as a job file, and ask where a guess may go too far."""
    assert asked.typed is not None
    if console.said.loud >= 0:
        for sentence in asked.typed.assumptions:
            await console.print_notice(f"{asked.command_name}: {sentence}")
    if asked.save:
        sentence = save_job_file(page.value, asked.save, console.folder)
        await console.print_notice(f"{asked.command_name}: {sentence}")
    if asked.dry and not asked.json_:
        await print_lines(
            console, f"# the same as a job file (--save FILE):\n{job_file_text(page.value)}"
        )
    if not asked.typed.doubt:
        return True
    if asked.dry:
        await console.print_notice(f"{asked.command_name}: {asked.typed.doubt}; {OWN_FOLDER}")
        return True
    return await prompter.ask_confirmation(asked.typed.doubt, instead=OWN_FOLDER)


async def follow_node(job: str, console: Console, home: HostAccess) -> int:
    """Follow nodes until they are ready, and say what comes next."""
    from tpuherd.cli.follow import follow_job

    status = await follow_job(job, console, home, by="herd up")
    if status == 0:
        await console.print_notice(f"herd up: {job} is ready. Next:")
        for line in (f"herd ssh {job}", f"herd exec {job} -- COMMAND", f"herd down {job}"):
            await console.print_notice(f"  {line}")
    return status


async def follow_or_detach(asked: RunOptions, job: str, console: Console, home: HostAccess) -> int:
    """Follow the job, wait for it, or print how to do that later."""
    if asked.follow or (asked.follow is None and not asked.waits and console.is_terminal(1)):
        from tpuherd.cli.follow import follow_job

        return await follow_job(job, console, home)
    if asked.waits:
        from tpuherd.cli.wait import run_wait

        return await run_wait((job,), None, False, console, home)
    if asked.follow is None and not asked.json_ and console.said.loud >= 0:
        await console.print_notice(
            f"{asked.command_name}: detached, because there is no terminal:"
            f" `herd wait {job}` waits for its end,"
            f" `herd logs {job} -f` shows its output; use --follow or --wait to stay attached"
        )
    return 0


async def print_mistakes(page: YamlDocument, file: str, name: str, console: Console) -> int:
    for one in sorted(page.mistakes, key=lambda each: each.line):
        await console.print_notice(f"{name}: {one.format_line(file)}")
    return MISUSED


async def print_ignored(page: YamlDocument, file: str, name: str, console: Console) -> None:
    """Print what the job says and herd no longer does."""
    for one in page.notices:
        await console.print_notice(f"{name}: {one.format_line(file)}")


def offers_table(offers: Sequence[Offer]) -> str:
    """Return a table of offers, the preferred first."""
    rows = [("TYPE", "ZONE", "TIER", "RUNTIME", "HOSTS", "PER HOUR")]
    for one in offers:
        price = format_dollars(one.price)
        rows.append((one.type, one.zone, one.tier, one.runtime, str(one.hosts), price))
    return format_table(rows)


async def print_dry_run(
    asked: RunOptions,
    found: CheckedJob,
    before: StoredJob | None,
    notes: Sequence[str],
    console: Console,
) -> int:
    change = diff_documents(before.document, job_document(found.job)) if before else JobDiff()
    if asked.json_:
        keys = ("zone", "type", "tier", "runtime", "hosts", "price", "rank")
        offers = [{key: getattr(one, key) for key in keys} for one in found.offers]
        about = {
            "job": job_document(found.job),
            "offers": offers,
            "egress": egress_rows(found.job, found.offers),
            "granted": found.granted,
            "python": list(notes),
        }
        await print_json(console, {**about, **change_summary(found, change)})
        return 0
    await print_lines(console, f"{offers_table(found.offers)}\n")
    await print_lines(
        console,
        f"{copies_prefix(found)}{found.job.name}{slices_suffix(found)}: {price_text(found)}",
    )
    for line in deadline_lines(found.job, found.offers):
        await print_lines(console, line)
    for line in egress_lines(found.job, found.offers):
        await print_lines(console, line)
    for line in change.lines:
        await print_lines(console, f"  {line}")
    for note in notes:
        await print_lines(console, note)
    if found.job.sweep is not None:
        await print_lines(console, f"\n{trials_table(found.job.sweep)}")
    if not found.granted:
        await console.print_notice(
            f"{asked.command_name}: the project has no grants, so herd would ask first"
        )
    return 0


def trials_table(search: Search) -> str:
    """Return the first trials, unless they depend on results."""
    if search.items:
        return f"{count_trials(search)} items"
    all_ = f"{count_trials(search)} trials"
    if search.method == "bayes":
        return f"{all_}, each chosen by the results of those before"
    first = range(min(TRIALS_SHOWN, count_trials(search)))
    rows = [search_space.suggest_point(search, number) for number in first]
    names = list(search.parameters)
    lines = [(str(at), *(str(row[name]) for name in names)) for at, row in enumerate(rows)]
    more = f"; the first {len(rows)}" if len(rows) < count_trials(search) else ""
    return f"{all_}{more}:\n{format_table([('TRIAL', *names), *lines])}"


def change_summary(found: CheckedJob, change: JobDiff) -> dict[str, object]:
    prices = price_range(found.slots)
    return {
        "slots": [slot.name for slot in found.slots],
        "per_hour": {
            "least": prices.least,
            "most": prices.most,
            "unknown_in": list(prices.unknown_in),
        },
        "trials": count_trials(found.job.sweep) if found.job.sweep else None,
        "difference": list(change.lines),
        "needs": change.needs,
    }


def price_text(found: CheckedJob) -> str:
    """$6.12 to $9.36/h; unknown in us-east1-c"""
    prices = price_range(found.slots)
    if prices.least is None:
        return "price unknown"
    upto = "" if prices.least == prices.most else f" to {format_dollars(prices.most)}"
    zones = f"; unknown in {', '.join(prices.unknown_in)}" if prices.unknown_in else ""
    return f"{format_dollars(prices.least)}{upto}/h{zones}"


def size_prefix(found: CheckedJob) -> str:
    """3 × for several copies; 2 slices of, for several slices."""
    return copies_prefix(found) + count_slices(found.job.slices)


def copies_prefix(found: CheckedJob) -> str:
    """3 × for several copies."""
    return f"{len(found.slots)} × " if len(found.slots) > 1 else ""


def slices_suffix(found: CheckedJob) -> str:
    """, 2 slices each"""
    return f", {found.job.slices} slices each" if found.job.slices > 1 else ""


async def print_submitted(
    asked: RunOptions, made: SubmitResult, found: CheckedJob, console: Console
) -> None:
    if asked.json_:
        about = {"job": made.stored_job.job, "did": made.word, "revision": made.stored_job.revision}
        await print_json(console, {**about, **change_summary(found, made.change)})
    elif console.said.loud >= 0:
        best = found.offers[0]
        zones = len({one.zone for one in found.offers})
        where = best.zone if zones == 1 else f"one of {zones} zones"
        trials = f", {count_trials(found.job.sweep)} trials" if found.job.sweep else ""
        what = (
            f"{size_prefix(found)}{best.type} {best.tier} in {where}, {price_text(found)}{trials}"
        )
        word = WORDS[made.word]
        if asked.typed is not None and made.word == "unchanged":
            word = "Attached to {}"
        await console.print_notice(f"{word.format(made.stored_job.job)}: {what}")
        tiers = {one.tier for one in found.offers}
        if found.job.run and found.job.node.done == inf:
            name = found.job.name
            await console.print_notice(f"its node stays at the end: `herd down {name}` ends it")
        for line in [
            *billed_lines(found.job, found.offers),
            *own_disk_lines(found.job.nfs, tiers),
        ]:
            await console.print_notice(line)


def own_disk_lines(folders: Mapping[str, str], tiers: Collection[str]) -> list[str]:
    """Say what happens to a job's folders that are on its own nodes."""
    own = sorted(folder for folder, server in folders.items() if server == WORKER_0)
    if not own:
        return []
    verb = "is" if len(own) == 1 else "are"
    when = ", which Google may take at any time" if {"spot", "preemptible"} & set(tiers) else ""
    return [
        f"{', '.join(own)} {verb} on worker 0's disk and deleted with the node{when}: keep nothing"
        " there that you can't lose"
    ]
