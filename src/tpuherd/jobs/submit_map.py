"""Submits a map: a command for each of many items, on the nodes of a job."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from tpuherd.errors import InvalidInput
from tpuherd.jobfile.fields import ChangeImpact
from tpuherd.jobfile.job_diff import diff_documents
from tpuherd.jobfile.read_job import JobSpec, job_document, read_document
from tpuherd.jobfile.sweep_fields import ITEMS
from tpuherd.jobfile.yaml_with_lines import YamlDocument
from tpuherd.jobs.job_queries import map_digest
from tpuherd.jobs.load_history import has_finished, load_history
from tpuherd.jobs.open_project import Session, job_event, user_at_machine
from tpuherd.jobs.submit import (
    CheckedJob,
    SubmitResult,
    check_access,
    check_name,
    classify_change,
    prepare_record,
    put_secrets,
    relocate_buckets,
)
from tpuherd.model.slots_and_plan import Goal, HistoryEvent
from tpuherd.model.stored_job import StoredJob
from tpuherd.model.sweep_trials import Sweep
from tpuherd.sweeps.map_items import item_events, items_digest, join_items

NO_COMMAND = "give a command: herd map JOB FILE -- COMMAND {}"
BUSY = "{} runs a command of its own, and `herd map` needs free nodes"
FREE = "use nodes that `herd up` keeps, or a job file with another name"


@dataclass(frozen=True, kw_only=True, slots=True)
class MapRequest:
    """The items of a map, and how to run them."""

    items: tuple[str, ...]
    command: str | tuple[str, ...] = ()  #: shell text, or words; () is the job's own `run`
    retries: int | None = None  #: of a failed item; None: as the job says, or none
    timeout: str | float | None = None  #: of one item, as in a job file
    again: bool = False  #: also items that have already succeeded


def add_map_fields(page: YamlDocument, request: MapRequest, *, keep: bool) -> None:
    """Write the map into a job's document."""
    document: dict[str, Any] = page.value
    if map_digest(document) == "" and document.get("sweep") is not None:
        raise InvalidInput("its job has a `sweep:`", hint="`herd sweep FILE` runs it")
    if request.command:
        run = request.command
        document["run"] = run if isinstance(run, str) else list(run)
    if not document.get("run"):
        raise InvalidInput(NO_COMMAND)
    sweep = {"method": ITEMS, "items": items_digest(request.items), "trials": len(request.items)}
    if request.timeout is not None:
        sweep["timeout"] = request.timeout
    document["sweep"] = {**sweep, "keep": True} if keep else sweep
    retry = document.get("retry")
    if retry is None or isinstance(retry, Mapping):
        known = dict(retry or {})
        failures = known.get("failures", 0) if request.retries is None else request.retries
        document["retry"] = {**known, "failures": failures}


async def submit_new_map(
    found: CheckedJob, request: MapRequest, here: Session, details: str
) -> SubmitResult | None:
    """Submit a map as a job of its own, whose nodes are deleted at the end; None if the user says
    no.
    """
    before = here.store.stored_jobs().get(found.job.name)
    check_name(found.job.name, here)
    refuse_busy_job(before, here)
    prepared = await prepare_record(found, here, details)
    if prepared is None:
        return None
    found, fresh = prepared
    put_secrets(found, here)
    return await put_map(fresh, request, here)


async def submit_map_on_job(
    name: str, page: YamlDocument, request: MapRequest, here: Session
) -> SubmitResult | None:
    """Submit a map on the nodes of a job; None if the document has mistakes or the user says no.

    Nodes that `herd up` requested stay at the end.
    """
    before = here.get_own_job(name, hint="a map runs on nodes of a job of your own")
    refuse_busy_job(before, here)
    page.value = dict(before.document)
    keep = before.goal is Goal.IDLE or is_kept(before)
    add_map_fields(page, request, keep=keep)
    job = read_document(page)
    if page.mistakes or not isinstance(job, JobSpec):
        return None
    job = await relocate_buckets(job, before.document, page, here)
    if page.mistakes:
        return None
    await check_access(here)
    now = here.clock.now()
    fresh = replace(
        before,
        document=job_document(job),
        goal=Goal.IDLE if keep else Goal.RUN,
        changed_at=now,
        made_at=now,
        who=user_at_machine(),
    )
    return await put_map(fresh, request, here)


def is_kept(stored: StoredJob) -> bool:
    """Whether its map runs on nodes that `herd up` keeps."""
    return bool((stored.document.get("sweep") or {}).get("keep"))


def refuse_busy_job(before: StoredJob | None, here: Session) -> None:
    """Raise if the job runs something else than a map."""
    if before is None or before.goal is not Goal.RUN or map_digest(before.document):
        return
    if not has_finished(here.store, before):
        raise InvalidInput(BUSY.format(before.job), hint=FREE)


async def put_map(fresh: StoredJob, request: MapRequest, here: Session) -> SubmitResult | None:
    """Write the job with the events of its map; None if the user says no."""
    before = here.store.stored_jobs().get(fresh.job)
    sweep = load_history(here.store).sweeps.get(fresh.job, Sweep()) if before else Sweep()
    if before is not None and not request.again and is_same_map(before, fresh, sweep, here):
        if sweep.is_over and not sweep.failed:
            change = diff_documents(before.document, fresh.document)
            return SubmitResult(word="unchanged", stored_job=before, change=change)
    else:
        if before is not None and not await confirm_new_map(before, sweep, here):
            return None
        sweep = Sweep()
    over = before is not None and has_finished(here.store, before)
    result = classify_change(before, fresh, is_over=over)
    if not await confirm_change(result, here):
        return None
    if sweep.items and result.word in {"unchanged", "changed", "resumed"} and not sweep.is_over:
        return put_going_on(result, before, here)
    return put_map_events(result, before, request, sweep, here)


async def confirm_change(result: SubmitResult, here: Session) -> bool:
    """Ask before a change costs nodes."""
    change = result.change
    if result.word != "changed" or not (change.fewer or change.needs is ChangeImpact.NODE):
        return True
    question = f"{result.stored_job.job} already exists: {change.sentence}"
    return await here.prompter.ask_confirmation(question, "\n".join(f"  {x}" for x in change.lines))


def put_going_on(result: SubmitResult, before: StoredJob | None, here: Session) -> SubmitResult:
    """Write what changed of a map that goes on."""
    if result.word == "unchanged":
        return result
    kind = f"job.{result.word}"
    line = job_event(kind, result.stored_job, f"{result.word} it", result.change)
    revision = before.revision if before else 0
    stored = here.store.put_job(result.stored_job, [line], expected=revision)
    return replace(result, stored_job=stored)


def put_map_events(
    result: SubmitResult,
    before: StoredJob | None,
    request: MapRequest,
    sweep: Sweep,
    here: Session,
) -> SubmitResult:
    """Write the job, and that its map starts or goes on."""
    stored, digest = result.stored_job, items_digest(request.items)
    known = {"changed": "job.changed", "resumed": "job.resumed", "unchanged": "job.changed"}
    kind = known.get(result.word, "job.submitted")
    stored = replace(stored, changed_at=here.clock.now())
    facts: dict[str, Any] = {"items": digest, "count": len(request.items)}
    why = f"{user_at_machine()} gave {stored.job} {len(request.items)} items"
    more: Sequence[HistoryEvent] = ()
    if sweep.items:
        left = sorted({*sweep.failed, *sweep.again, *(one.number for one in sweep.unfinished)})
        facts |= {"made": sweep.made, "complete": sweep.complete, "again": left}
        why = f"{user_at_machine()} lets {stored.job} go on: {sweep.complete} items have succeeded"
    else:
        more = tuple(item_events(stored.job, request.items, digest, stored.changed_at))
    events = [
        job_event(kind, stored, f"{result.word} it", result.change),
        HistoryEvent(
            at=stored.changed_at, kind="map.started", job=stored.job, facts={**facts, "why": why}
        ),
        *more,
    ]
    revision = before.revision if before else 0
    word = "resumed" if sweep.items else result.word
    written = here.store.put_job(stored, events, expected=revision)
    return replace(result, word=word, stored_job=written)


def is_same_map(before: StoredJob, fresh: StoredJob, sweep: Sweep, here: Session) -> bool:
    """Whether these are the items and the command of the job's present map, and all is known."""
    digest = map_digest(fresh.document)
    if not map_digest(before.document) == digest == sweep.items:
        return False
    if before.document.get("run") != fresh.document.get("run"):
        return False
    found = here.store.read_events(job=fresh.job, kinds=("map.items",))
    known = join_items((event for _, event in found), digest)
    return len(known) == int(fresh.document["sweep"]["trials"])


async def confirm_new_map(before: StoredJob, sweep: Sweep, here: Session) -> bool:
    """Ask before a map that has not ended is replaced."""
    if not sweep.items or sweep.is_over or before.goal is Goal.GONE:
        return True
    ended = sweep.complete + len(sweep.failed)
    return await here.prompter.ask_confirmation(
        f"{before.job} is at work on another map, of which {ended} items have ended: replace it?"
    )
