"""What people are told because time has passed: a long wait, a cost near its limit."""

from collections.abc import Mapping
from math import inf

from tpuherd.model.receivers import Receiver, Topic
from tpuherd.notify.notes import JobFacts, JobMemory, Note, NotifyMemory, count_words
from tpuherd.views.format_text import format_money, format_span

COST_S = 60.0  #: how often costs are looked at


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
