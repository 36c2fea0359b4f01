"""From a page that says a job to a wish in the store: judged, asked about, and written."""

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

from tpuherd.errors import Broken, NoLogin, NotAllowed, NotFound, NotReached, Unfit
from tpuherd.jobfile.expand_slots import expand
from tpuherd.jobfile.fields import SECRETS, Need
from tpuherd.jobfile.grants import Allowed, bucket_of
from tpuherd.jobfile.job_diff import Change, difference
from tpuherd.jobfile.read_job import Job, document, judged, named_fields, repository
from tpuherd.jobfile.yaml_with_lines import Page
from tpuherd.jobs import secret_values, via_parcel
from tpuherd.jobs.check_access import check_access
from tpuherd.jobs.load_history import lived, over, refused_zones
from tpuherd.jobs.open_project import Desk, event, who
from tpuherd.jobs.preflight import check_job, check_shipped
from tpuherd.jobs.upload_consent import consented
from tpuherd.model.slots_and_plan import Goal, Offer, Slot
from tpuherd.model.stored_job import Wish
from tpuherd.settings import project_settings
from tpuherd.sweeps import optuna_sampler
from tpuherd.sync.snapshot_store import archived
from tpuherd.sync.take_snapshot import take, take_commit

RUN_MISSING = "run is missing: write run: python3 train.py, or say it: -- python3 train.py"
#: What only a run finds out.
BY_RUN: Mapping[str, str] = {
    "name": "a job keeps its name",
    "workdir": "a run takes the code as it is then",
    "repo": "a run takes the code as it is then",
    "secrets": "a run finds out their values",
}
ASKED_AGAIN = "had it asked for again where it was refused"
BY_COMMAND = "herd run FILE wishes for a job that has a command, herd up FILE for nodes without one"


@dataclass(frozen=True, kw_only=True, slots=True)
class Ready:
    """A job that is right in itself and fits the place, and what it comes to."""

    job: Job
    goal: Goal
    base: Path  #: where its paths are from
    slots: tuple[Slot, ...]
    secrets: Mapping[str, str]
    granted: bool  #: it may be asked for without a question

    @property
    def offers(self) -> Sequence[Offer]:
        """Where a node may come from, the best liked first."""
        return self.slots[0].offers


@dataclass(frozen=True, kw_only=True, slots=True)
class Made:
    """What became of a wish."""

    word: str  #: made, changed, same, again, resumed
    wish: Wish
    change: Change


async def ready(page: Page, base: Path, goal: Goal, here: Desk) -> Ready | None:
    """Everything that can be wrong is found; None: the page has its mistakes now."""
    content = page.value
    if goal is Goal.RUN and isinstance(content, Mapping) and "run" not in named_fields(content):
        page.wrong((), RUN_MISSING)
    job = judged(page)
    if (
        isinstance(job, Job)
        and job.sweep is not None
        and (absent := optuna_sampler.missing(job.sweep))
    ):
        page.wrong(("sweep", "method"), absent)
    values = await outside(page, base, here) if isinstance(content, Mapping) else {}
    if page.mistakes or not isinstance(job, Job):
        return None
    job = replace(job, run=job.run if goal is Goal.RUN else None)
    place = here.place
    allowed = project_settings.allowed(here.config, world=place.world, project=place.project)
    granted = allowed.everything or bool(allowed.grants)
    slots = fitting(job, goal, here, allowed if granted else replace(allowed, everything=True))
    await check_job(job, slots[0].offers, page, base, here)
    if page.mistakes:
        return None
    return Ready(job=job, goal=goal, base=base, slots=slots, secrets=values, granted=granted)


def fitting(job: Job, goal: Goal, here: Desk, allowed: Allowed) -> tuple[Slot, ...]:
    """Its slots; Unfit where there is no node to be had for them."""
    slots = expand(job, row(job, goal, "", here.clock.now()), allowed)
    if not slots[0].offers:
        raise Unfit(slots[0].no_offer)
    return slots


async def outside(page: Page, base: Path, here: Desk) -> dict[str, str]:
    """What the page names and must be there: secrets, the folder, the bucket. The secrets."""
    raw = page.value.get("secrets")
    named = SECRETS.read(raw, lambda *_: None) or () if raw is not None else ()
    values, missing = await secret_values.found(named, base, here.talk.environ)
    for name, sentence in missing.items():
        page.wrong(("secrets", name), sentence)
    workdir = page.value.get("workdir")
    here_too = not via_parcel.snapshot(here.talk.environ)
    if here_too and isinstance(workdir, str) and not (base / Path(workdir).expanduser()).is_dir():
        page.wrong(("workdir",), f"{workdir} is no folder")
    bucket = bucket_of(str(page.value.get("checkpoint") or ""))
    if bucket:
        await look_at(bucket, page, here)
    return values


async def look_at(bucket: str, page: Page, here: Desk) -> None:
    """Whether it is there and may be read; where it is is remembered."""
    world, project = here.place.world, here.place.project
    cloud = await here.cloud()
    try:
        location = await cloud.bucket(bucket)
    except NotFound:
        page.wrong(("checkpoint",), f"there is no bucket {bucket}")
        return
    except NoLogin:
        raise
    except NotAllowed:
        page.wrong(("checkpoint",), f"you may not look at the bucket {bucket}")
        return
    except (NotReached, Broken):
        if (
            bucket
            not in project_settings.allowed(here.config, world=world, project=project).buckets
        ):
            raise  # where nodes may be is not known without it
        return
    project_settings.remember_bucket(
        here.config, world=world, project=project, bucket=(bucket, location)
    )


async def wished(found: Ready, here: Desk, details: str) -> Made | None:
    """Ask what is to be asked, and write it; None where the user says no.

    NotAllowed where nobody is logged in: then nothing is written.
    """
    await check_access(here)
    project = here.place.project
    if not found.granted:
        question = (
            f"no grants are known for {project}: this may be asked for, and is billed;"
            " `herd context grant` says what is free"
        )
        if not await here.talk.agree(question, details):
            return None
        project_settings.allow_everything(here.config, project)
    snapshot = await taken(found, here)
    if snapshot is None:
        return None
    fresh = row(found.job, found.goal, snapshot, here.clock.now())
    before = here.store.wishes().get(fresh.job)
    made = weighed(before, fresh, is_over=before is not None and over(here.store, before))
    if made.word == "changed":
        question = f"{fresh.job} is there already: {made.change.sentence}"
        if not await here.talk.agree(question, "\n".join(f"  {one}" for one in made.change.lines)):
            return None
    return written(made, before, found, here)


async def taken(found: Ready, here: Desk) -> str | None:
    """The code as it is now, by its id; "" where there is none, None where the user says no."""
    job, environ = found.job, here.talk.environ
    archive = archived(here.place.folders.state)
    along = via_parcel.snapshot(environ)
    if along and not job.repo:
        check_shipped(job, along, archive)
        archive.pin(job.name, [along])
        return along
    if job.repo:
        commit = repository(job.repo)
        taking = partial(take_commit, *commit, archive, environ)
    elif job.workdir:
        folder = found.base / Path(job.workdir).expanduser()
        if not any(folder.iterdir()):
            return ""  # an empty folder ships nothing
        taking = partial(take, folder, archive, environ)
    else:
        return ""
    first = await asyncio.to_thread(taking)
    snapshot = await consented(first, taking, archive, here.talk)
    if snapshot is None:
        return None
    check_shipped(job, snapshot.id, archive)
    archive.pin(job.name, [snapshot.id])
    return snapshot.id


def row(job: Job, goal: Goal, snapshot: str, now: float) -> Wish:
    """A wish that is made now."""
    return Wish(
        job=job.name,
        goal=goal,
        document=document(job),
        snapshot=snapshot,
        made_at=now,
        changed_at=now,
        who=who(),
    )


def weighed(before: Wish | None, fresh: Wish, *, is_over: bool) -> Made:
    """What a wish means where there may be one of that name."""
    if before is None:
        return Made(word="made", wish=fresh, change=Change())
    change = difference(before.document, fresh.document, code=(before.snapshot, fresh.snapshot))
    if is_over:
        return Made(word="again", wish=fresh, change=change)
    kept = replace(fresh, made_at=before.made_at)
    if before.goal is Goal.GONE:
        return Made(word="resumed", wish=kept, change=change)
    if before.goal is not fresh.goal:
        lines = (*change.lines, f"goal: {before.goal} → {fresh.goal}")
        change = replace(change, fields=(*change.fields, "goal"), lines=lines)
    if not change.lines:
        return Made(word="same", wish=before, change=change)
    return Made(word="changed", wish=kept, change=change)


def written(made: Made, before: Wish | None, found: Ready, here: Desk) -> Made:
    """Into the store; secrets first, so that nobody misses them."""
    for name, value in found.secrets.items():
        here.store.secrets.put(made.wish.job, name, value)
    if made.word == "same":
        trails = lived(here.store, made.wish)
        if any(bid.lacking for trail in trails for bid in trail.bids.values()):
            append("wish.changed", "gave what was missing", made.wish, here)
        elif refused_zones(here.store):
            append("wish.changed", ASKED_AGAIN, made.wish, here)
        return made
    kind = {"changed": "wish.changed", "resumed": "wish.resumed"}.get(made.word, "wish.made")
    why = f"wished it: {', '.join(made.change.fields) or made.word}"
    line = event(kind, made.wish, why, made.change)
    revision = before.revision if before else 0
    return replace(made, wish=here.store.put(made.wish, [line], expected=revision))


# ---- wishes that are there -----------------------------------------------------------------------


async def changed(name: str, page: Page, here: Desk) -> Made | None:
    """By a page that says the whole document anew; None: mistakes on the page, or a no."""
    before = here.wish(name)
    job = judged(page)
    if not isinstance(job, Job):
        return None
    change = difference(before.document, document(job))
    for field in change.fields:
        if field in BY_RUN:
            raise Unfit(f"{field} can't be set: {BY_RUN[field]}", hint="herd run FILE")
    if bool(job.run) != bool(before.document.get("run")):
        raise Unfit(f"run can't be {'set' if job.run else 'taken back'}: {BY_COMMAND}")
    if not change.lines:
        return Made(word="same", wish=before, change=change)
    place, now = here.place, here.clock.now()
    fitting(job, before.goal, here, project_settings.allowed(
        here.config, world=place.world, project=place.project
    ))  # fmt: skip
    if change.fewer or change.needs is not Need.NOTHING:
        details = "\n".join(f"  {line}" for line in change.lines)
        if not await here.talk.agree(f"{name}: {change.sentence}", details):
            return None
    fresh = replace(before, document=document(job), changed_at=now, who=who())
    line = event("wish.changed", fresh, f"changed {', '.join(change.fields)}", change)
    wish = here.store.put(fresh, [line], expected=before.revision)
    return Made(word="changed", wish=wish, change=change)


def stopped(wish: Wish, here: Desk) -> bool:
    """Its nodes go, the wish stays; false: it was so."""
    if wish.goal is Goal.GONE:
        return False
    put(wish, Goal.GONE, "wish.stopped", "stopped it", here)
    return True


def resumed(wish: Wish, here: Desk) -> bool:
    """It goes on after a stop, or after it gave up; false: it does."""
    trails = lived(here.store, wish)
    if wish.goal is not Goal.GONE and not any(one.gave_up_at is not None for one in trails):
        if not refused_zones(here.store):
            return False
        append("wish.resumed", ASKED_AGAIN, wish, here)
        return True
    if all(one.done_at is not None for one in trails):
        raise Unfit(f"{wish.job} is done", hint="herd run FILE runs it again")
    goal = Goal.RUN if wish.document.get("run") else Goal.IDLE
    put(wish, goal, "wish.resumed", "let it go on", here)
    return True


def append(kind: str, why: str, wish: Wish, here: Desk) -> None:
    """A line in the log of a wish that stays as it is."""
    here.store.append([replace(event(kind, wish, why), at=here.clock.now())])


def put(wish: Wish, goal: Goal, kind: str, why: str, here: Desk) -> None:
    """The same wish with another goal."""
    fresh = replace(wish, goal=goal, changed_at=here.clock.now(), who=who())
    here.store.put(fresh, [event(kind, fresh, why)], expected=wish.revision)
