"""Submits the map of a command line, and shows its progress until the end."""

import asyncio
from dataclasses import dataclass, replace

from tpuherd.cli.follow import DETACHING, wait_for_signal
from tpuherd.cli.job_options import JobArguments, read_job_input
from tpuherd.cli.job_session import open_job_session, print_json
from tpuherd.cli.submit_job import (
    RunOptions,
    offers_table,
    price_text,
    print_dry_run,
    print_mistakes,
    size_prefix,
)
from tpuherd.commands.console import Console
from tpuherd.commands.host_access import HostAccess
from tpuherd.errors import InvalidInput, NotAllowed
from tpuherd.exit_status import ABORTED, SIGNALLED
from tpuherd.jobfile.yaml_with_lines import YamlDocument
from tpuherd.jobs.image_python import python_notes
from tpuherd.jobs.job_queries import map_status
from tpuherd.jobs.map_progress import MapProgress, watch_map
from tpuherd.jobs.open_project import Session
from tpuherd.jobs.submit import CheckedJob, SubmitResult, check_submission
from tpuherd.jobs.submit_map import (
    MapRequest,
    add_map_fields,
    submit_map_on_job,
    submit_new_map,
)
from tpuherd.model.slots_and_plan import Goal
from tpuherd.views.map_table import failure_lines, map_heading

NAME = "herd map"
CLEAR_LINE = b"\r\x1b[K"
DID = {
    "submitted": "Submitted {}",
    "restarted": "Submitted {} again",
    "resumed": "Resumed {}",
    "changed": "Submitted to {}",
    "unchanged": "{} goes on",
}


@dataclass(frozen=True, kw_only=True, slots=True)
class MapInput:
    """What the command line says of a map."""

    said: JobArguments  #: of the job; its file, or none and its name
    target: str  #: the job whose nodes are used; "": a new one
    items: str  #: a file, or -
    retries: int | None
    timeout_s: float | None
    again: bool
    detach: bool
    yes: bool
    dry: bool
    json_: bool
    command_name: str = NAME


async def submit_and_follow(
    asked: MapInput, items: tuple[str, ...], console: Console, home: HostAccess
) -> int:
    """Submit; without login or permission nothing is stored."""
    try:
        made = await submit_map(asked, items, console, home)
    except NotAllowed as error:
        raise InvalidInput(error.sentence, hint=error.hint) from error
    if isinstance(made, int):
        return made
    job = made.stored_job.job
    if not asked.detach:
        return await follow_map(job, asked, console, home)
    if asked.json_:
        async with open_job_session(console, home, NAME) as here:
            await print_json(console, map_status(here.store, here.clock.now(), job))
    return 0


async def submit_map(
    asked: MapInput, items: tuple[str, ...], console: Console, home: HostAccess
) -> SubmitResult | int:
    """Return what was submitted, or the exit status if nothing was."""
    words = asked.said.command
    request = MapRequest(
        items=items,
        command=words[0] if len(words) == 1 else tuple(words),
        retries=asked.retries,
        timeout=asked.timeout_s,
        again=asked.again,
    )
    async with open_job_session(console, home, NAME, yes=asked.yes, begins=not asked.dry) as here:
        found: CheckedJob | None = None
        if asked.target:
            page = YamlDocument(value={})
            made = await submit_map_on_job(asked.target, page, request, here)
        else:
            page, base = read_job_input(job_arguments(asked), console.folder)
            if isinstance(page.value, dict):
                add_map_fields(page, request, keep=False)
            found = await check_submission(page, base, Goal.RUN, here)
            if found is not None and asked.dry:
                return await print_map_dry_run(asked, found, here, console)
            made = None if found is None else await submit_new_map(
                found, request, here, offers_table(found.offers)
            )  # fmt: skip
        if page.mistakes:
            return await print_mistakes(page, asked.said.file or "", NAME, console)
        if made is None:
            return ABORTED
        await print_submitted_map(made, found, len(items), console)
        return made


def job_arguments(asked: MapInput) -> JobArguments:
    """The job without its command, which keeps its {} as words."""
    return replace(asked.said, command=())


async def print_map_dry_run(
    asked: MapInput, found: CheckedJob, here: Session, console: Console
) -> int:
    options = RunOptions(
        said=asked.said, goal=Goal.RUN, follow=False, yes=asked.yes, dry=True, json_=asked.json_,
        by=NAME,
    )  # fmt: skip
    before = here.store.stored_jobs().get(found.job.name)
    notes = python_notes(found.job, found.offers, found.base, simulated=bool(here.place.world))
    return await print_dry_run(options, found, before, list(notes), console)


async def print_submitted_map(
    made: SubmitResult, found: CheckedJob | None, many: int, console: Console
) -> None:
    if console.said.loud < 0:
        return
    what = f"{many:,} items" if many > 1 else "1 item"
    if found is not None:
        best = found.offers[0]
        what = f"{what} on {size_prefix(found)}{best.type} {best.tier}, {price_text(found)}"
    await console.print_notice(f"{DID[made.word].format(made.stored_job.job)}: {what}")


async def follow_map(job: str, asked: MapInput, console: Console, home: HostAccess) -> int:
    """Show progress and failures until the end; Ctrl+C only stops the display."""
    async with open_job_session(console, home, NAME) as here:
        page = map_status(here.store, here.clock.now(), job)
        texts = {row["item"]: row["text"] for row in page["items"]}
        shown = asyncio.ensure_future(show_progress(job, texts, here, console))
        ends = asyncio.ensure_future(wait_for_signal(console))
        try:
            await asyncio.wait((shown, ends), return_when=asyncio.FIRST_COMPLETED)
            if not shown.done():
                number = ends.result()
                await console.print_notice(
                    f"{NAME}: {job} keeps running; `herd map status {job}` shows it, and the same"
                    " command follows it again"
                )
                return 0 if number in DETACHING else SIGNALLED + number
            status = shown.result()
        finally:
            for task in (shown, ends):
                task.cancel()
            await asyncio.gather(shown, ends, return_exceptions=True)
        if asked.json_:
            await print_json(console, map_status(here.store, here.clock.now(), job))
        return status


async def show_progress(job: str, texts: dict[int, str], here: Session, console: Console) -> int:
    """Return the exit status of the map."""
    line = console.is_terminal(2) and console.said.loud >= 0
    status = 0
    async for one in watch_map(job, here.store, here.clock):
        if line:
            await console.write(CLEAR_LINE, 2)
        for event in one.failures:
            number = event.facts["trial"]
            row = {"item": number, "text": texts.get(number, ""), "why": "", **event.facts}
            row.setdefault("lines", [])
            await console.print_notice("\n".join(failure_lines(row)))
        heading = map_heading(page_of(job, one))
        if one.end is not None:
            status, why = one.end
            await console.print_notice(f"{NAME}: {heading}" if is_whole(one) else f"{NAME}: {why}")
        elif line:
            width = console.terminal_size()[1]
            await console.write(heading[: width - 1].encode(), 2)
            await console.flush()
    return status


def page_of(job: str, one: MapProgress) -> dict[str, object]:
    return {"map": job, "total": one.total, "phases": one.phases}


def is_whole(one: MapProgress) -> bool:
    """Whether all items have ended."""
    return one.complete + one.failed == one.total
