"""Turns a job file's page into a stored job: checked, confirmed by the user, and written."""

import asyncio
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from math import inf
from pathlib import Path
from typing import Any

from tpuherd.engine.desired_slots import read_snapshot_texts, snapshot_files
from tpuherd.errors import InvalidInput, NotAllowed, NotReached, OperationFailed
from tpuherd.jobfile.bucket_scan import scan_fields
from tpuherd.jobfile.expand_slots import expand_slots
from tpuherd.jobfile.fields import SECRETS, ChangeImpact
from tpuherd.jobfile.grants import Allowance
from tpuherd.jobfile.job_diff import JobDiff, diff_documents
from tpuherd.jobfile.job_spec import NodeRetention
from tpuherd.jobfile.read_job import (
    JobSpec,
    job_document,
    named_fields,
    read_document,
    split_repository,
)
from tpuherd.jobfile.yaml_with_lines import YamlDocument
from tpuherd.jobs import bucket_guard, secret_values, via_parcel, wandb_key
from tpuherd.jobs.load_history import has_finished, refused_zones, slot_histories
from tpuherd.jobs.open_project import Session, job_event, user_at_machine
from tpuherd.jobs.preflight import check_job, check_shipped
from tpuherd.jobs.receiver_values import check_receivers
from tpuherd.jobs.upload_consent import ask_upload_consent
from tpuherd.model.slot_history import SlotHistory
from tpuherd.model.slots_and_plan import Goal, Offer, Slot
from tpuherd.model.stored_job import StoredJob
from tpuherd.model.trouble import CLOUD
from tpuherd.settings import project_settings
from tpuherd.store.notify_secrets import notify_key
from tpuherd.sweeps import optuna_sampler
from tpuherd.sync.snapshot_store import open_archive
from tpuherd.sync.take_snapshot import snapshot_commit, snapshot_folder

RUN_MISSING = "run is missing: write run: python3 train.py, or append -- python3 train.py"
#: Fields that `herd set` can't change, with the reason.
BY_RUN: Mapping[str, str] = {
    "name": "a job keeps its name",
    "workdir": "herd run ships the current code",
    "repo": "herd run ships the current code",
    "secrets": "herd run reads their values",
    "notify": "herd run reads its addresses",
}
OTHERS_NAME = "choose another name, or ask them to take it down"
ASKED_AGAIN = "retried the refused requests"
BY_COMMAND = "use `herd run FILE` for a job with a command, `herd up FILE` for nodes without one"


KEPT = NodeRetention(done=inf, failed=inf)


@dataclass(frozen=True, kw_only=True, slots=True)
class CheckedJob:
    """A valid job that fits the project, with its slots."""

    job: JobSpec
    goal: Goal
    base: Path  #: the folder that its paths are relative to
    slots: tuple[Slot, ...]
    secrets: Mapping[str, str]
    notify_secrets: Mapping[str, str]  #: the hidden values of its receivers
    granted: bool  #: may be requested without a confirmation

    @property
    def offers(self) -> Sequence[Offer]:
        """The possible offers, best first."""
        return self.slots[0].offers


@dataclass(frozen=True, kw_only=True, slots=True)
class SubmitResult:
    word: str  #: `did` of results.Submission
    stored_job: StoredJob
    change: JobDiff


def read_page(page: YamlDocument, goal: Goal) -> JobSpec | None:
    """Read the job as far as no project is needed; its mistakes are added to the page."""
    content = page.value
    if goal is Goal.RUN and isinstance(content, Mapping) and "run" not in named_fields(content):
        page.add_mistake((), RUN_MISSING)
    job = read_document(page)
    if not isinstance(job, JobSpec):
        return None
    if job.sweep is not None and (absent := optuna_sampler.missing_dependency(job.sweep)):
        page.add_mistake(("sweep", "method"), absent)
    return job


async def check_submission(
    page: YamlDocument,
    base: Path,
    goal: Goal,
    here: Session,
    *,
    adopting: Collection[str] = (),
) -> CheckedJob | None:
    """Find every mistake; None if the page has mistakes. `adopting`: names of nodes to adopt."""
    job = read_page(page, goal)
    values, hidden, locations = {}, dict[str, str](), dict[str, str]()
    if isinstance(page.value, Mapping):
        values = await check_named_resources(page, base, here)
        hidden = await check_receivers(page, base, here)
        locations = await bucket_guard.locate_buckets(page, base, here)
    if page.mistakes or job is None:
        return None
    job = replace(job, run=job.run if goal is Goal.RUN else None)
    if "node" not in page.value:
        job = keep_node_of_up(job, here.store.stored_jobs().get(job.name))
    key = await wandb_key.key_before_snapshot(
        job, page, base, here.prompter, by_hand=bool(adopting) or has_kept_node(job, here)
    )
    job = key.add_to(job)
    job = bucket_guard.add_locations(job, locations)
    bucket_guard.check_zones(job, page)
    if page.mistakes:
        return None
    place = here.place
    allowed = project_settings.load_allowance(
        here.config_folder, world=place.world, project=place.project
    )
    granted = allowed.everything or bool(allowed.grants)
    slots = slots_with_offers(
        job, goal, here, allowed if granted else replace(allowed, everything=True)
    )
    await check_job(job, slots[0].offers, page, base, here, adopting)
    if page.mistakes:
        return None
    check_name(job.name, here)
    return CheckedJob(
        job=job,
        goal=goal,
        base=base,
        slots=slots,
        secrets=values | key.secrets,
        notify_secrets=hidden,
        granted=granted,
    )


def keep_node_of_up(job: JobSpec, before: StoredJob | None) -> JobSpec:
    """A node that `herd up` requested stays after a command on it, and after the next ones."""
    if job.run is None or before is None or before.goal is Goal.GONE:
        return job
    kept = job_document(replace(job, node=KEPT)).get("node")
    if before.goal is Goal.IDLE or before.document.get("node") == kept:
        return replace(job, node=KEPT)
    return job


def has_kept_node(job: JobSpec, here: Session) -> bool:
    """Whether the job has nodes of `herd up`, which the user may have set up by hand."""
    return job.node == KEPT and job.name in here.store.stored_jobs()


def slots_with_offers(
    job: JobSpec, goal: Goal, here: Session, allowed: Allowance
) -> tuple[Slot, ...]:
    """Its slots; Unfit where there is no node to be had for them."""
    slots = expand_slots(job, new_job_record(job, goal, "", here.clock.now()), allowed)
    if not slots[0].offers:
        raise InvalidInput(slots[0].no_offer)
    return slots


def check_name(name: str, here: Session) -> None:
    """Refuse the name of another user's job, even of one that has ended."""
    before = here.store.stored_jobs().get(name)
    if before is not None:
        here.check_user(before, hint=OTHERS_NAME)


async def check_named_resources(page: YamlDocument, base: Path, here: Session) -> dict[str, str]:
    """Check that the secrets and the folder exist; return the secrets' values."""
    raw = page.value.get("secrets")
    named = SECRETS.read(raw, lambda *_: None) or () if raw is not None else ()
    values, missing = await secret_values.collect_secrets(
        named, base, here.prompter.environ, server=secret_values.wandb_server(page.value.get("env"))
    )
    for name, sentence in missing.items():
        page.add_mistake(("secrets", name), sentence)
    workdir = page.value.get("workdir")
    here_too = not via_parcel.carried_snapshot(here.prompter.environ)
    if here_too and isinstance(workdir, str) and not (base / Path(workdir).expanduser()).is_dir():
        page.add_mistake(("workdir",), f"{workdir} is not a folder")
    return values


def put_secrets(found: CheckedJob, here: Session) -> None:
    """Store the values before the job, so that the engine finds them."""
    name = found.job.name
    for key, values in ((name, found.secrets), (notify_key(name), found.notify_secrets)):
        for secret, value in values.items():
            here.store.secrets.put(key, secret, value)


async def prepare_record(
    found: CheckedJob, here: Session, details: str
) -> tuple[CheckedJob, StoredJob] | None:
    """Ask for confirmation where it is billed, and take its code; None if the user says no."""
    await check_access(here)
    project = here.place.project
    if not found.granted:
        question = (
            f"no grants are configured for {project}, so the TPUs are billed;"
            " `herd context grant` declares free ones"
        )
        if not await here.prompter.ask_confirmation(question, details):
            return None
        project_settings.allow_everything(here.config_folder, project)
    snapshot = await snapshot_code(found, here)
    if snapshot is None:
        return None
    if found.job.repo and snapshot:
        files = snapshot_files(archive := open_archive(here.place.folders.state), snapshot)
        read = read_snapshot_texts(archive, files)
        by_hand = has_kept_node(found.job, here)
        key = await wandb_key.key_of_snapshot(found.job, read, here.prompter, by_hand=by_hand)
        found = replace(found, job=key.add_to(found.job), secrets={**found.secrets, **key.secrets})
    fresh = new_job_record(found.job, found.goal, snapshot, here.clock.now())
    return found, replace(fresh, user=here.user)


async def submit(
    found: CheckedJob, here: Session, details: str, *, instead: str = ""
) -> SubmitResult | None:
    """Ask for confirmation and write the job; None if the user says no.

    `instead`: what to type where herd chose the name, and the user may mean another job. Raises
    NotAllowed without writing anything if there is no valid login.
    """
    prepared = await prepare_record(found, here, details)
    if prepared is None:
        return None
    found, fresh = prepared
    before = here.store.stored_jobs().get(fresh.job)
    check_name(fresh.job, here)
    result = classify_change(
        before, fresh, is_over=before is not None and has_finished(here.store, before)
    )
    if result.word == "changed":
        question = f"{fresh.job} already exists: {result.change.sentence}"
        lines = "\n".join(f"  {one}" for one in result.change.lines)
        if not await here.prompter.ask_confirmation(question, lines, instead=instead):
            return None
    return write_job(result, before, found, here)


async def check_access(here: Session) -> bool:
    """Get a token and one list. False: the cloud does not answer now. Raises NotAllowed."""
    cloud = await here.cloud()
    try:
        await cloud.check_access()
    except (NotReached, OperationFailed) as error:
        note = here.store.troubles.record_trouble
        note(CLOUD, error.sentence, hint=error.hint, now=here.clock.now())
        await here.prompter.show_message(
            f"{error.sentence}; nodes are requested when the cloud answers"
        )
        return False
    here.store.troubles.end_trouble(CLOUD)
    return True


async def snapshot_code(found: CheckedJob, here: Session) -> str | None:
    """Take a snapshot of the code and return its id; "" without code, None if the user says no."""
    job, environ = found.job, here.prompter.environ
    archive = open_archive(here.place.folders.state)
    along = via_parcel.carried_snapshot(environ)
    if along and not job.repo:
        check_shipped(job, along, archive)
        archive.pin_snapshots(job.name, [along])
        return along
    if job.repo:
        commit = split_repository(job.repo)
        taking = partial(snapshot_commit, *commit, archive, environ)
    elif job.workdir:
        folder = found.base / Path(job.workdir).expanduser()
        if not any(folder.iterdir()):
            return ""  # an empty folder ships nothing
        taking = partial(snapshot_folder, folder, archive, environ)
    else:
        return ""
    first = await asyncio.to_thread(taking)
    snapshot = await ask_upload_consent(first, taking, archive, here.prompter)
    if snapshot is None:
        return None
    check_shipped(job, snapshot.id, archive)
    archive.pin_snapshots(job.name, [snapshot.id])
    return snapshot.id


def new_job_record(job: JobSpec, goal: Goal, snapshot: str, now: float) -> StoredJob:
    return StoredJob(
        job=job.name,
        goal=goal,
        document=job_document(job),
        snapshot=snapshot,
        made_at=now,
        changed_at=now,
        who=user_at_machine(),
    )


def classify_change(before: StoredJob | None, fresh: StoredJob, *, is_over: bool) -> SubmitResult:
    """Compare a submitted job with the stored job of the same name."""
    if before is None:
        return SubmitResult(word="submitted", stored_job=fresh, change=JobDiff())
    old = before.document
    if before.snapshot == fresh.snapshot and {"workdir"} <= old.keys() & fresh.document.keys():
        old = {**old, "workdir": fresh.document["workdir"]}  # the same code, seen from elsewhere
    change = diff_documents(old, fresh.document, code=(before.snapshot, fresh.snapshot))
    if is_over:
        return SubmitResult(word="restarted", stored_job=fresh, change=change)
    kept = replace(fresh, made_at=before.made_at)
    if before.goal is Goal.GONE:
        return SubmitResult(word="resumed", stored_job=kept, change=change)
    if before.goal is not fresh.goal:
        lines = (*change.lines, f"goal: {before.goal} → {fresh.goal}")
        change = replace(change, fields=(*change.fields, "goal"), lines=lines)
    if not change.lines:
        return SubmitResult(word="unchanged", stored_job=before, change=change)
    return SubmitResult(word="changed", stored_job=kept, change=change)


def write_job(
    result: SubmitResult, before: StoredJob | None, found: CheckedJob, here: Session
) -> SubmitResult:
    """Write to the store; secrets first, so that the engine finds them."""
    put_secrets(found, here)
    if result.word == "unchanged":
        histories = slot_histories(here.store, result.stored_job)
        if any(bid.missing_inputs for history in histories for bid in history.bids.values()):
            append_job_event("job.changed", "provided what was missing", result.stored_job, here)
        elif refused_zones(here.store):
            append_job_event("job.changed", ASKED_AGAIN, result.stored_job, here)
        return result
    kind = {"changed": "job.changed", "resumed": "job.resumed"}.get(result.word, "job.submitted")
    fields = f": {', '.join(result.change.fields)}" if result.change.fields else ""
    why = f"{result.word} it{fields}"
    line = job_event(kind, result.stored_job, why, result.change)
    revision = before.revision if before else 0
    try:
        stored = here.store.put_job(result.stored_job, [line], expected=revision)
    except NotAllowed:  # a role of a lab that may only read
        for key in (result.stored_job.job, notify_key(result.stored_job.job)):
            if before is None:
                here.store.secrets.remove(key)
        raise
    return replace(result, stored_job=stored)


# ---- existing jobs ------------------------------------------------------------------------------


async def change_job(name: str, page: YamlDocument, here: Session) -> SubmitResult | None:
    """Apply a page with the whole new document; None if it has mistakes or the user says no."""
    before = here.get_own_job(name)
    job = read_document(page)
    if not isinstance(job, JobSpec):
        return None
    job = await relocate_buckets(job, before.document, page, here)
    if page.mistakes:
        return None
    change = diff_documents(before.document, job_document(job))
    for field in change.fields:
        if field in BY_RUN:
            raise InvalidInput(f"{field} can't be set: {BY_RUN[field]}", hint="herd run FILE")
    if bool(job.run) != bool(before.document.get("run")):
        raise InvalidInput(f"run can't be {'set' if job.run else 'removed'}: {BY_COMMAND}")
    if not change.lines:
        return SubmitResult(word="unchanged", stored_job=before, change=change)
    place, now = here.place, here.clock.now()
    slots_with_offers(job, before.goal, here, project_settings.load_allowance(
        here.config_folder, world=place.world, project=place.project
    ))  # fmt: skip
    if change.fewer or change.needs is not ChangeImpact.NOTHING:
        details = "\n".join(f"  {line}" for line in change.lines)
        if not await here.prompter.ask_confirmation(f"{name}: {change.sentence}", details):
            return None
    fresh = replace(before, document=job_document(job), changed_at=now, who=user_at_machine())
    why = f"changed {', '.join(change.fields)}{here.name_other_user(before)}"
    line = job_event("job.changed", fresh, why, change)
    stored = here.store.put_job(fresh, [line], expected=before.revision)
    return SubmitResult(word="changed", stored_job=stored, change=change)


async def relocate_buckets(
    job: JobSpec, before: Mapping[str, Any], page: YamlDocument, here: Session
) -> JobSpec:
    """Look up the buckets of changed fields, and check the zones again."""
    found = await bucket_guard.locate_uses(scan_fields(page.value), page, here)
    job = bucket_guard.forget_former_buckets(job, before, page.value)
    job = bucket_guard.add_locations(job, found)
    bucket_guard.check_zones(job, page)
    return job


def stop_job(stored: StoredJob, here: Session) -> bool:
    """Delete its nodes and keep the job; False if it was already stopped, or is done."""
    here.check_user(stored)
    histories = slot_histories(here.store, stored)
    over = are_done(histories) and not any(one.bids for one in histories)
    if stored.goal is Goal.GONE or over:
        return False
    set_goal(stored, Goal.GONE, "job.stopped", "stopped it", here)
    return True


def are_done(histories: Sequence[SlotHistory]) -> bool:
    return bool(histories) and all(one.done_at is not None for one in histories)


def resume_job(stored: StoredJob, here: Session) -> bool:
    """Continue a job after a stop or after it gave up; False if it is already active."""
    here.check_user(stored)
    histories = slot_histories(here.store, stored)
    if are_done(histories):
        raise InvalidInput(f"{stored.job} is done", hint="run it again with `herd run FILE`")
    if stored.goal is not Goal.GONE and not any(one.gave_up_at is not None for one in histories):
        if not refused_zones(here.store):
            return False
        append_job_event("job.resumed", ASKED_AGAIN, stored, here)
        return True
    kept = (stored.document.get("sweep") or {}).get("keep")  # a map on nodes of `herd up`
    goal = Goal.RUN if stored.document.get("run") and not kept else Goal.IDLE
    set_goal(stored, goal, "job.resumed", "resumed it", here)
    return True


def append_job_event(kind: str, why: str, stored: StoredJob, here: Session) -> None:
    """Record an event of a job that does not change."""
    here.store.append_events([replace(job_event(kind, stored, why), at=here.clock.now())])


def set_goal(stored: StoredJob, goal: Goal, kind: str, why: str, here: Session) -> None:
    fresh = replace(stored, goal=goal, changed_at=here.clock.now(), who=user_at_machine())
    here.store.put_job(
        fresh,
        [job_event(kind, fresh, f"{why}{here.name_other_user(stored)}")],
        expected=stored.revision,
    )
