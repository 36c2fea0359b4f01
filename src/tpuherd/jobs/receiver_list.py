"""Lists who is told about jobs, sets who is told by default, and sends messages as a test."""

import asyncio
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from tpuherd.clock import Clock
from tpuherd.errors import InvalidInput
from tpuherd.jobfile.notify_fields import NOTIFY
from tpuherd.jobfile.yaml_with_lines import FieldPath, YamlDocument
from tpuherd.jobs.job_queries import resolve_name
from tpuherd.jobs.receiver_values import read_values
from tpuherd.model.receivers import WITHHELD_REASONS, Topic
from tpuherd.notify.compose import Message
from tpuherd.notify.notes import Note
from tpuherd.notify.outbox import Outbox
from tpuherd.notify.ready_receivers import ReadyReceiver
from tpuherd.senders.deliver import Deliverer
from tpuherd.store.database import Database
from tpuherd.store.notify_secrets import (
    job_receivers,
    notify_key,
    project_receivers,
    put_receivers,
)
from tpuherd.store.notify_state import load_notify_state

HINT = "write `notify:` in its job file, or use `herd notify set`: docs/howto/notify.md"


def all_receivers(store: Database, *, others: bool = False) -> dict[str, tuple[ReadyReceiver, ...]]:
    """Return the receivers of each job that names some itself, and of all others by ""."""
    general = project_receivers(store.secrets)
    found = {"": general}
    for name, stored_job in store.stored_jobs().items():
        if stored_job.document.get("notify") is not None:
            found[name] = job_receivers(stored_job, store.secrets, general, others=others)
    return found


def receiver_rows(store: Database, *, others: bool = False) -> list[dict[str, Any]]:
    """Return each distinct receiver with its jobs and what became of its messages. `others`: this
    account allows messages of jobs that others submitted."""
    state = load_notify_state(store.folder)
    jobs: dict[str, list[str]] = {}
    known: dict[str, ReadyReceiver] = {}
    for job, receivers in all_receivers(store, others=others).items():
        for one in receivers:
            known[one.key] = one
            jobs.setdefault(one.key, []).append(job)
    rows = []
    for key, one in known.items():
        box = state.boxes.get(key, Outbox()) if state else Outbox()
        rows.append({
            "receiver": one.title,
            "jobs": [job for job in jobs[key] if job],
            "default": "" in jobs[key],
            "on": [str(topic) for topic in one.spec.on],
            "sent": box.sent,
            "waiting": len(box.pending) + box.dropped,
            "failures": box.failures,
            "failing_since": box.failing_since,
            "problem": withheld_reason(one) or one.problem or box.error,
        })  # fmt: skip
    return rows


def withheld_reason(receiver: ReadyReceiver, engine: str = "this account") -> str:
    return WITHHELD_REASONS.get(receiver.withheld, "").format(engine=engine)


async def set_receivers(
    page: YamlDocument, base: Path, environ: Mapping[str, str], store: Database
) -> bool:
    """Make the page's receivers those of all jobs that name none; False: it has mistakes."""
    raw: Any = page.value
    above: FieldPath = ()
    if isinstance(raw, Mapping) and raw.keys() == {"notify"}:
        raw, above = raw["notify"], ("notify",)
    if raw is None and not page.mistakes:
        page.add_mistake(above, "names no receiver: write url, run, or host and to")
    if page.mistakes:
        return False

    def wrong(sentence: str, at: FieldPath) -> None:
        page.add_mistake((*above, *at), sentence)

    receivers = NOTIFY.read(raw, wrong) or ()
    if page.mistakes:
        return False
    places: list[FieldPath] = [(*above, at) for at in range(len(receivers))]
    paths = places if isinstance(raw, list | tuple) else [above]
    kept = store.secrets.get(notify_key())
    values = await read_values(receivers, base, environ, kept, (page, paths))
    if page.mistakes:
        return False
    put_receivers(store.secrets, receivers, values)
    return True


async def send_test_messages(
    store: Database,
    name: str | None,
    *,
    every: bool,
    others: bool,
    environ: Mapping[str, str],
    clock: Clock,
) -> list[dict[str, Any]]:
    """Send a message to each receiver now, all at once; return what came back."""
    receivers = chosen_receivers(store, name, all_receivers(store, others=others), every=every)
    if not receivers:
        raise InvalidInput(f"{name or 'the project'} has no receivers", hint=HINT)
    message = make_test_message(name or "", clock.now())
    deliverer = Deliverer(environ)

    async def send(one: ReadyReceiver) -> dict[str, Any]:
        begun = clock.now()
        problem = await deliverer.send(one, message)
        said = "" if problem is None else problem.sentence
        took = clock.now() - begun
        return {
            "receiver": one.title, "accepted": problem is None, "problem": said, "seconds": took,
        }  # fmt: skip

    try:
        return await asyncio.gather(*map(send, receivers))
    finally:
        await deliverer.close()


def chosen_receivers(
    store: Database,
    name: str | None,
    found: Mapping[str, Sequence[ReadyReceiver]],
    *,
    every: bool,
) -> Sequence[ReadyReceiver]:
    """Return those of a job, of the project, or of all; equal ones once."""
    if name is not None:
        job, _ = resolve_name(store, name)
        chosen: Sequence[ReadyReceiver] = found.get(job, found[""])
    elif every:
        chosen = [one for many in found.values() for one in many]
    else:
        chosen = found[""]
    return tuple({one.key: one for one in chosen}.values())


def make_test_message(job: str, now: float) -> Message:
    title = f"A test message{f' about {job}' if job else ''}"
    text = "If you read this, herd can tell you what happens to your jobs."
    note = Note(topics=(Topic.DONE,), title=title, text=text, at=now, job=job)
    return Message(
        id=f"test-{now:.0f}", title=title, text=text, origin="herd notify test", at=now,
        notes=(note,),
    )  # fmt: skip
