"""What people are told because time has passed: a long wait, silence, a cost near its limit."""

from collections.abc import Mapping
from math import inf

from tpuherd.model.receivers import Receiver, Topic
from tpuherd.notify.notes import JobFacts, JobMemory, Note, NotifyMemory, count_words
from tpuherd.views.format_text import format_money, format_span

COST_S = 60.0  #: how often costs are looked at
TELL_SILENCE_S = 300.0  #: for so long the hosts of a node are silent before anyone is told


def timed_notes(
    memory: NotifyMemory,
    jobs: Mapping[str, JobFacts],
    receiver: Receiver,
    told: dict[str, float],
    now: float,
) -> tuple[list[Note], float]:
    """Return what to tell this receiver now, and when to look again.

    `told` is what it was told already; it is changed, and what no longer matters is dropped.
    """
    notes: list[Note] = []
    kept: dict[str, float] = {}
    again_at = inf
    for name, facts in jobs.items():
        job = memory.jobs.get(name, JobMemory())
        if Topic.WAITING in receiver.on and job.waits and not job.stopped:
            again_at = min(again_at, note_wait(job, facts, receiver, (told, kept), notes, now))
        if {Topic.WAITING, Topic.STALLED} & set(receiver.on):
            again_at = min(again_at, note_silence(job, facts, (told, kept), notes, now))
        if Topic.COST in receiver.on and facts.max_cost is not None:
            note_cost(facts, receiver, (told, kept), notes, now)
            if facts.cost < facts.max_cost:
                again_at = min(again_at, now + COST_S)
    told.clear()
    told.update(kept)
    return notes, again_at


Marks = tuple[dict[str, float], dict[str, float]]  #: told before, and told from now on


def note_wait(
    job: JobMemory,
    facts: JobFacts,
    receiver: Receiver,
    marks: Marks,
    notes: list[Note],
    now: float,
) -> float:
    """Tell of the longest wait when it reaches the limit, twice that, and so on."""
    told, kept = marks
    since = min(job.waits.values())
    key = f"wait {facts.job} {since:.0f}"
    due_s = told.get(key, receiver.waiting)
    if now - since >= due_s:
        while now - since >= due_s:
            due_s *= 2
        many = len(job.waits)
        which = (
            facts.job
            if len(facts.slots) < 2
            else (f"{count_words(many, 'copy', 'copies')} of {facts.job}")
        )
        span = format_span(now - since)
        title = f"{facts.job} has waited for capacity for {span}"
        text = (
            f"{which} {'have' if many > 1 else 'has'} no node; the longest wait is {span}."
            f" `herd why {facts.job}` says what is asked where."
        )
        notes.append(Note(topics=(Topic.WAITING,), title=title, text=text, at=now, job=facts.job))
    kept[key] = due_s
    return since + due_s


def note_silence(
    job: JobMemory, facts: JobFacts, marks: Marks, notes: list[Note], now: float
) -> float:
    """Tell once of each node whose hosts have been silent for long."""
    told, kept = marks
    again_at = inf
    for bid, since in job.silent.items():
        key = f"silent {bid} {since:.0f}"
        if key in told or now >= since + TELL_SILENCE_S:
            kept[key] = since
        else:
            again_at = min(again_at, since + TELL_SILENCE_S)
        if key not in told and key in kept:
            span = format_span(now - since)
            title = f"{facts.job} has been silent for {span}"
            text = (
                f"Hosts of {bid} have given no sign of life for {span}, so it is not known whether"
                f" {facts.job} works. `herd why {facts.job}` names them and says what is done."
            )
            topics = (Topic.WAITING, Topic.STALLED)
            notes.append(Note(topics=topics, title=title, text=text, at=now, job=facts.job))
    return again_at


def note_cost(
    facts: JobFacts, receiver: Receiver, marks: Marks, notes: list[Note], now: float
) -> None:
    """Tell once when the cost reaches the share of its limit."""
    told, kept = marks
    assert facts.max_cost is not None
    key = f"cost {facts.job} {facts.made_at:.0f} {facts.max_cost:g}"
    if key in told:
        kept[key] = told[key]
    elif facts.cost >= receiver.cost * facts.max_cost:
        kept[key] = facts.cost
        spent, most = format_money(facts.cost), format_money(facts.max_cost)
        text = (
            f"{facts.job} has cost {spent} of at most {most}, at which herd ends it."
            f" `herd set {facts.job} max_cost=…` raises the limit."
        )
        title = f"{facts.job} has cost {spent} of {most}"
        notes.append(Note(topics=(Topic.COST,), title=title, text=text, at=now, job=facts.job))
