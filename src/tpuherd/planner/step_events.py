"""Turn an attempt's reported steps into events: the first step, and checkpoints."""

from collections.abc import Mapping, Sequence
from math import inf
from typing import Any

from tpuherd.model.observed import HostRun
from tpuherd.planner.data_moves import record_restore, record_saves
from tpuherd.planner.slot_input import SlotContext

#: Checkpoints are noted no more often than this, and later on with each hundredth of the attempt's
#: age: the log is kept for long, and read whole.
SAVED_S, SAVED_SHARE = 60.0, 0.01


def attempt_works(case: SlotContext) -> list[HostRun]:
    """What the hosts report of the latest attempt."""
    attempt = case.slot_history.attempt
    return [
        work
        for one in case.bid_statuses
        if attempt is not None and one.bid.name == attempt.bid
        for host in one.hosts
        for work in host.works
        if work.attempt == attempt.id
    ]


def record_progress(case: SlotContext) -> None:
    attempt = case.slot_history.attempt
    assert attempt is not None
    works = attempt_works(case)
    facts = first_step_facts(works) if attempt.first_step_at is None else {}
    if facts:
        why = f"attempt {attempt.number} makes progress: step {facts['step']}"
        case.record_event("attempt.first_step", why, {"attempt": attempt.id, **facts})
        record_restore(case, facts)
    saved = max((work.saved for work in works if work.saved is not None), default=None)
    if saved is None or (attempt.saved is not None and saved <= attempt.saved):
        return
    pause_s = max(SAVED_S, SAVED_SHARE * (case.now - attempt.launched_at))
    due = (-inf if attempt.saved_at is None else attempt.saved_at) + pause_s
    if case.now < due:
        case.wake_by(due)
        return
    facts = {"attempt": attempt.id, "step": saved, **checkpoint_facts(works)}
    case.record_event("attempt.saved", f"step {saved} is saved", facts)
    record_saves(case, works)


def checkpoint_facts(works: Sequence[HostRun]) -> dict[str, float]:
    """What the command reports of its checkpoints and its pace: the best step, the newest
    milestone, what checkpoints cost, how many steps it has in all and how long one takes."""
    marks: dict[str, float] = {name: step for work in works for name, step in work.marks.items()}
    for name in ("total", "step_s"):
        values = [value for work in works if (value := getattr(work, name))]
        if values:
            marks[name] = max(values)
    return {**marks, **{name: value for work in works for name, value in work.saving.items()}}


def first_step_facts(works: list[HostRun]) -> dict[str, Any]:
    """The first step, and the checkpoint it resumed from, if the command reports any."""
    steps = [work.step for work in works if work.step is not None]
    if not steps:
        return {}
    facts: dict[str, Any] = {"step": max(steps)}
    for name in ("resumed", "restore_s"):
        values = [value for work in works if (value := getattr(work, name)) is not None]
        if values:
            facts[name] = max(values)
    if startups := [work.startup for work in works if work.startup]:
        facts["startup"] = dict(choose_startup(startups))
    return facts


def choose_startup(startups: Sequence[Mapping[str, float]]) -> Mapping[str, float]:
    """The startup of the slowest host: it spent the least time in the first step itself."""
    return min(startups, key=lambda parts: parts.get("first_step_s", inf))
