"""Which events people are told about, and in which words.

`read_event` folds one event of the log into the memory and returns the notes it leads to. A storm
leads to few: failures are told by growing counts, trials and items never one by one, refusals once
a day, and a job's end once for all of its slots.
"""

from collections.abc import Callable, Mapping
from typing import Any

from tpuherd.history.event_kinds import has_required_facts
from tpuherd.model.receivers import Topic
from tpuherd.model.slot_history import SILENT, GiveUpCode, Verdict
from tpuherd.model.slots_and_plan import HistoryEvent, Refusal
from tpuherd.notify.notes import JobFacts, JobMemory, Note, NotifyMemory, count_words, is_power
from tpuherd.views.format_text import format_money, format_span

FIRST_TOLD = 3  #: failures are told one by one so often, then the 4th, 8th, 16th …
AGAIN_S = 86_400.0  #: the same refusal is told again after this
#: Refusals that waiting does not fix.
LASTING = {
    Refusal.QUOTA: "quota",
    Refusal.PERMISSION: "permissions",
    Refusal.RESERVATION: "reservation",
}
TEXT_MAX = 600  #: of one note

Words = tuple[tuple[Topic, ...], str, str]  #: topics, title, text
NoteMaker = Callable[[JobMemory, HistoryEvent, JobFacts], Words | None]


def read_event(
    memory: NotifyMemory, seq: int, event: HistoryEvent, jobs: Mapping[str, JobFacts]
) -> list[Note]:
    """Remember the event, and return what to tell; events of an unknown kind tell nothing."""
    if not has_required_facts(event):
        return []
    if event.kind in ENGINE_NOTES:
        words = ENGINE_NOTES[event.kind](event)
        return [] if words is None else [make_note(words, seq, event)]
    if event.kind not in JOB_NOTES or not event.job:
        return []
    facts = jobs.get(event.job) or JobFacts(job=event.job, slots=())
    job = memory.jobs.setdefault(event.job, JobMemory())
    if event.kind == "job.submitted":
        memory.jobs[event.job] = JobMemory()
        return []
    if event.kind == "job.removed":
        del memory.jobs[event.job]
        return []
    words = JOB_NOTES[event.kind](job, event, facts)
    if words is None:
        return []
    count = job.preemptions if words[0] == (Topic.PREEMPTED,) else 0
    return [make_note(words, seq, event, count)]


def make_note(words: Words, seq: int, event: HistoryEvent, count: int = 0) -> Note:
    topics, title, text = words
    return Note(
        topics=topics,
        title=clip_text(title, 120),
        text=clip_text(text, TEXT_MAX),
        at=event.at,
        job=event.job,
        slot=event.slot,
        seq=seq,
        count=count,
    )


def clip_text(text: str, most: int) -> str:
    """On one line and at most so long."""
    plain = " ".join(text.split())
    return plain if len(plain) <= most else f"{plain[: most - 1]}…"


def event_reason(event: HistoryEvent) -> str:
    return str(event.facts.get("why") or event.facts.get("message") or "")


def slot_or_job(event: HistoryEvent, facts: JobFacts) -> str:
    """The slot, or the job if it has only one."""
    return event.slot if len(facts.slots) > 1 else event.job


# ---- nodes ---------------------------------------------------------------------------------------


def note_request(job: JobMemory, event: HistoryEvent, facts: JobFacts) -> None:
    """A slot without a node waits from its first request on."""
    if not job.nodes.get(event.slot):
        job.waits.setdefault(event.slot, event.at)


def note_grant(job: JobMemory, event: HistoryEvent, facts: JobFacts) -> None:
    nodes = job.nodes.setdefault(event.slot, [])
    if event.facts["bid"] not in nodes:
        nodes.append(event.facts["bid"])
    job.waits.pop(event.slot, None)
    job.refused.clear()


def note_loss(job: JobMemory, event: HistoryEvent, facts: JobFacts) -> None:
    """A slot that lost its last node waits, unless it has ended."""
    nodes, slot = job.nodes.get(event.slot, []), event.slot
    job.silent.pop(event.facts["bid"], None)
    if event.facts["bid"] not in nodes:
        return
    nodes.remove(event.facts["bid"])
    if not nodes:
        del job.nodes[slot]
        if not job.stopped and slot not in job.done and slot not in job.gave_up:
            job.waits.setdefault(slot, event.at)


def note_refusal(job: JobMemory, event: HistoryEvent, facts: JobFacts) -> Words | None:
    refusal = str(event.facts["refusal"])
    reason = LASTING.get(Refusal(refusal)) if refusal in set(Refusal) else None
    if reason is None or event.at < job.refused.get(refusal, event.at - AGAIN_S) + AGAIN_S:
        return None
    job.refused[refusal] = event.at
    hint = event.facts.get("hint")
    more = f" ({hint})" if hint else ""
    text = f"The cloud refuses nodes for {event.job}: {event.facts['message']}{more}"
    return (Topic.QUOTA,), f"{event.job} is refused for its {reason}", text


def note_silence(job: JobMemory, event: HistoryEvent, facts: JobFacts) -> None:
    if event.facts.get("code") == SILENT:
        job.silent[event.facts["bid"]] = float(event.facts.get("since", event.at))


def note_return(job: JobMemory, event: HistoryEvent, facts: JobFacts) -> None:
    if event.facts.get("code") == SILENT:
        job.silent.pop(event.facts["bid"], None)


def note_idle(job: JobMemory, event: HistoryEvent, facts: JobFacts) -> Words:
    return (Topic.IDLE,), f"A node of {event.job} is idle", event_reason(event)


# ---- attempts ------------------------------------------------------------------------------------


def note_attempt_end(job: JobMemory, event: HistoryEvent, facts: JobFacts) -> Words | None:
    verdict, name = str(event.facts["verdict"]), slot_or_job(event, facts)
    if verdict == Verdict.PREEMPTED:
        job.preemptions += 1
        times = count_words(job.preemptions, "time")
        text = f"{name}: {event_reason(event)}. {event.job} was preempted {times} so far."
        return (Topic.PREEMPTED,), f"{event.job} was preempted {times}", text
    if verdict == Verdict.STALLED and not facts.sweep:
        job.stalls += 1
        told = is_told_count(job.stalls)
        title = f"{name} stalled" + times_words(job.stalls)
        return ((Topic.STALLED,), title, attempt_text(event, name)) if told else None
    if verdict == Verdict.FAILURE and not facts.sweep:
        return note_failure(job, event, facts)
    return None


def note_failure(job: JobMemory, event: HistoryEvent, facts: JobFacts) -> Words | None:
    """Of the command or of its setup."""
    if facts.sweep and event.kind == "attempt.ended":
        return None
    job.failures += 1
    if not is_told_count(job.failures):
        return None
    name = slot_or_job(event, facts)
    what = "setup of " if event.kind == "slot.setup_failed" else ""
    title = f"{what[:1].upper()}{what[1:]}{name} failed" + times_words(job.failures)
    return (Topic.FAILED,), title, attempt_text(event, name)


def attempt_text(event: HistoryEvent, name: str) -> str:
    host = f" on {event.facts['host']}" if event.facts.get("host") else ""
    return f"{name}: {event_reason(event) or 'no reason is known'}{host}"


def is_told_count(many: int) -> bool:
    return many <= FIRST_TOLD or is_power(many, 2)


def times_words(many: int) -> str:
    """Nothing for the first, then "for the 4th time"."""
    if many < 2:
        return ""
    ending = {1: "st", 2: "nd", 3: "rd"}.get(many % 10, "th") if many // 10 % 10 != 1 else "th"
    return f" for the {many}{ending} time"


# ---- trials and items ----------------------------------------------------------------------------


def note_trial_end(job: JobMemory, event: HistoryEvent, facts: JobFacts) -> Words | None:
    outcome = str(event.facts["outcome"])
    many = job.trials[outcome] = job.trials.get(outcome, 0) + 1
    if outcome != "failed" or not is_power(many, 10):
        return None
    what = count_words(many, "item" if facts.items else "trial")
    have = "has" if many == 1 else "have"
    text = f"{what} of {event.job} {have} failed; the latest: {event_reason(event)}"
    return (Topic.FAILED,), f"{what} of {event.job} {have} failed", text


def note_map_end(job: JobMemory, event: HistoryEvent, facts: JobFacts) -> Words:
    job.map_ended = True
    complete, failed = event.facts["complete"], event.facts["failed"]
    many = f"{complete} items complete" + (f", {failed} failed" if failed else "")
    text = f"The map {event.job} has ended: {many}{since_words(event, facts)}."
    topics = (Topic.DONE, Topic.FAILED) if failed else (Topic.DONE,)
    return topics, f"{event.job} has ended: {many}", text


# ---- ends ----------------------------------------------------------------------------------------


def note_done(job: JobMemory, event: HistoryEvent, facts: JobFacts) -> Words | None:
    job.done[event.slot] = event.at
    job.waits.pop(event.slot, None)
    return job_end_words(job, event, facts)


def job_end_words(job: JobMemory, event: HistoryEvent, facts: JobFacts) -> Words | None:
    """What to say once all slots have ended; None before, and where a map has said so."""
    slots = facts.slots or (event.slot,)
    if job.map_ended or not all(slot in job.done or slot in job.gave_up for slot in slots):
        return None
    good = [slot for slot in slots if slot in job.done]
    if not good:
        return None
    since = since_words(event, facts)
    if len(good) < len(slots):
        text = f"{len(good)} of {count_words(len(slots), 'copy', 'copies')} are done"
        bad = f"{len(slots) - len(good)} gave up"
        return (Topic.DONE,), f"{event.job} has ended: {bad}", f"{event.job}: {text}, {bad}{since}."
    trials = ", ".join(f"{many} {word}" for word, many in sorted(job.trials.items()))
    text = f"{event.job} is done{since}" + (f"; trials: {trials}" if trials else "")
    return (Topic.DONE,), f"{event.job} is done", f"{text}."


def since_words(event: HistoryEvent, facts: JobFacts) -> str:
    """How long it took and what it cost, as far as known."""
    span = event.at - facts.made_at
    took = f" after {format_span(span)}" if facts.made_at and span > 0 else ""
    return took + (f", for {format_money(facts.cost)}" if facts.cost >= 0.005 else "")


def note_give_up(job: JobMemory, event: HistoryEvent, facts: JobFacts) -> Words:
    job.gave_up[event.slot] = event.at
    job.waits.pop(event.slot, None)
    name, cost = slot_or_job(event, facts), facts.cost
    topics: tuple[Topic, ...] = (Topic.GAVE_UP,)
    if event.facts.get("code") == GiveUpCode.COST:
        topics = (Topic.GAVE_UP, Topic.COST)
    text = f"{name} gave up: {event_reason(event)}"
    if job_end_words(job, event, facts) is not None:
        topics = (*topics, Topic.DONE)
        text = f"{text}; {len(job.done)} of {len(facts.slots)} copies are done"
    return topics, f"{name} gave up", f"{text}. So far {format_money(cost)}."


def note_stop(job: JobMemory, event: HistoryEvent, facts: JobFacts) -> None:
    job.stopped = True
    job.waits.clear()
    job.silent.clear()


def note_resume(job: JobMemory, event: HistoryEvent, facts: JobFacts) -> None:
    """Slots that gave up, or were stopped, try again."""
    job.stopped = False
    job.gave_up.clear()


def pass_over(job: JobMemory, event: HistoryEvent, facts: JobFacts) -> None:
    """Nothing to remember: `read_event` handles it."""


# ---- of no job -----------------------------------------------------------------------------------


def crash_words(event: HistoryEvent) -> Words | None:
    count = event.facts.get("count", 1)
    if not isinstance(count, int) or not is_power(count, 2):
        return None
    again = f" {count} times in a row" if count > 1 else ""
    text = f"The engine ended unexpectedly{again} and has started again: {event_reason(event)}"
    return (Topic.ENGINE,), f"The engine ended unexpectedly{again}", text


def problem_words(event: HistoryEvent) -> Words:
    return (Topic.ENGINE,), "The engine has a problem", event_reason(event)


def paused_words(event: HistoryEvent) -> Words:
    return (Topic.ENGINE,), "herd deletes nothing for now", event_reason(event)


def store_words(event: HistoryEvent) -> Words:
    return (Topic.ENGINE,), "The job store was damaged", event_reason(event) or "It was repaired."


def orphan_words(event: HistoryEvent) -> Words:
    facts: Mapping[str, Any] = event.facts
    price = facts.get("per_hour")
    cost = f" and costs {format_money(price)} an hour" if isinstance(price, float | int) else ""
    text = (
        f"{facts['bid']} in {facts['zone']} belongs to no job{cost}: `herd gc` lists and deletes it"
    )
    return (Topic.ORPHAN,), f"{facts['bid']} belongs to no job", text


JOB_NOTES: Mapping[str, NoteMaker] = {
    "job.submitted": pass_over,
    "job.removed": pass_over,
    "job.stopped": note_stop,
    "job.resumed": note_resume,
    "bid.requested": note_request,
    "bid.granted": note_grant,
    "bid.adopted": note_grant,
    "bid.lost": note_loss,
    "bid.withdrawn": note_loss,
    "bid.refused": note_refusal,
    "bid.idle": note_idle,
    "bid.unhealthy": note_silence,
    "bid.healthy": note_return,
    "slot.setup_failed": note_failure,
    "slot.done": note_done,
    "slot.gave_up": note_give_up,
    "attempt.ended": note_attempt_end,
    "trial.ended": note_trial_end,
    "map.ended": note_map_end,
}
ENGINE_NOTES: Mapping[str, Callable[[HistoryEvent], Words | None]] = {
    "engine.crashed": crash_words,
    "engine.problem": problem_words,
    "engine.deletions_paused": paused_words,
    "store.set_aside": store_words,
    "orphan.found": orphan_words,
}
READ_KINDS = frozenset((*JOB_NOTES, *ENGINE_NOTES))
