"""How often a slot may fail, what it may cost, and how long it pauses before the next try."""

from collections.abc import Iterator
from dataclasses import dataclass
from math import inf

from tpuherd.diagnosis.first_failure import find_cause
from tpuherd.model.slot_history import (
    AttemptRecord,
    BidRecord,
    GiveUpCode,
    SlotHistory,
    Verdict,
    bid_cost,
)
from tpuherd.model.slots_and_plan import Goal, Slot

PAUSE_S_MAX = 300.0
HAPPENED = {
    GiveUpCode.FAILURES: "failed",
    GiveUpCode.STALLS: "stalled",
    GiveUpCode.PREEMPTIONS: "was preempted",
}
CHIPS_PAUSE_S = 15.0  #: time for the chips to become free


@dataclass(frozen=True, kw_only=True, slots=True)
class ReachedLimit:
    code: GiveUpCode
    why: str  #: for people


def format_age(seconds: float) -> str:
    """A rounded time span, coarse enough not to change all the time."""
    for many, word in ((86400, "d"), (3600, "h"), (60, "min")):
        if seconds >= many:
            return f"{seconds // many:.0f} {word}"
    return "less than a minute"


def format_times(many: int) -> str:
    return {1: "once", 2: "twice"}.get(many, f"{many} times")


def total_cost(slot_history: SlotHistory, now: float) -> float:
    """Dollars so far, including running nodes."""
    return slot_history.spent + sum(bid_cost(bid, now) for bid in slot_history.bids.values())


def reached_limit(slot: Slot, slot_history: SlotHistory, now: float) -> ReachedLimit | None:
    """The limit that ends this slot, if one is reached."""
    limits = slot.limits
    if found := reached_retry_limit(slot, slot_history, now):
        return found
    if limits.cost < inf and (cost := total_cost(slot_history, now)) >= limits.cost:
        why = f"it has cost {cost:.2f} dollars, the limit is {limits.cost:.2f}"
        return ReachedLimit(code=GiveUpCode.COST, why=why)
    return None


def reached_retry_limit(slot: Slot, slot_history: SlotHistory, now: float) -> ReachedLimit | None:
    """The limit of its current work that is reached: failures, preemptions, stalls, time.

    An idle slot runs no command, but its setup may fail.
    """
    limits = slot.limits
    if slot.goal is Goal.GONE:
        return None
    if slot.goal is Goal.RUN and has_timed_out(slot, slot_history, now):
        why = f"it ran longer than {limits.timeout_s:g} s, its timeout"
        return ReachedLimit(code=GiveUpCode.TIMEOUT, why=why)
    if (slot.goal is Goal.RUN or slot_history.unpreparable) and (
        refusal := unfit_reason(slot_history)
    ):
        return ReachedLimit(code=GiveUpCode.UNFIT, why=f"it can't run like this: {refusal}")
    if found := reached_failure_limit(slot, slot_history):
        return found
    first = slot_history.first_launch_at
    if slot.goal is Goal.RUN and first is not None and now >= first + limits.lifetime_s:
        why = f"it has reached its lifetime of {format_age(limits.lifetime_s)}"
        return ReachedLimit(code=GiveUpCode.LIFETIME, why=why)
    return None


def reached_failure_limit(slot: Slot, slot_history: SlotHistory) -> ReachedLimit | None:
    """Which kind of failure came too often; of an idle slot only those of its setup."""
    limits = slot.limits
    kinds = (
        (slot_history.failures, limits.failures, GiveUpCode.FAILURES),
        (slot_history.stalls, limits.stalls, GiveUpCode.STALLS),
        (slot_history.preemptions, limits.preemptions, GiveUpCode.PREEMPTIONS),
    )
    for many, most, code in kinds if slot.goal is Goal.RUN else kinds[:1]:
        if most is not None and many > most:
            last = slot_history.failed_why if code is GiveUpCode.FAILURES else ""
            if slot.items and code is GiveUpCode.FAILURES and most == 0:
                return ReachedLimit(code=code, why=last or "it failed")
            are = f"{most or 'none'} {'is' if most < 2 else 'are'} forgiven"
            why = f"it {HAPPENED[code]} {format_times(many)} without progress, {are}"
            return ReachedLimit(code=code, why=f"{why}: {last}" if last else why)
    return None


def has_timed_out(slot: Slot, slot_history: SlotHistory, now: float) -> bool:
    """Whether the latest attempt of its item runs for too long, or was stopped because of that."""
    attempt, limit_s = slot_history.attempt, slot.limits.timeout_s
    if attempt is None or limit_s == inf or attempt.trial != slot_history.trial:
        return False
    if attempt.verdict not in {None, Verdict.STOPPED, Verdict.FAILURE}:
        return False
    until = attempt.stopping_at if attempt.ended_at is not None else attempt.stopping_at or now
    return until is not None and until - item_start(attempt) >= limit_s


def item_start(attempt: AttemptRecord) -> float:
    """When the attempt's command began."""
    return attempt.started_at or attempt.launched_at


def unfit_reason(slot_history: SlotHistory) -> str:
    """Why no retry can help; "" once something was changed."""
    if slot_history.unpreparable:
        return slot_history.failed_why
    last = slot_history.attempt
    if last is None or last.verdict is not Verdict.FAILURE or slot_history.failed_at is None:
        return ""
    return (find_cause(last.lines) or slot_history.failed_why) if last.unfit else ""


def limit_times(slot: Slot, slot_history: SlotHistory, now: float) -> Iterator[float]:
    """When a limit will be reached if nothing changes."""
    limits, attempt = slot.limits, slot_history.attempt
    if attempt is not None and attempt.ended_at is None:
        yield item_start(attempt) + limits.timeout_s
    if slot_history.first_launch_at is not None and slot.goal is Goal.RUN:
        yield slot_history.first_launch_at + limits.lifetime_s
    if limits.cost < inf:
        running = [
            bid
            for bid in slot_history.bids.values()
            if bid_cost(bid, now + 3600) > bid_cost(bid, now)
        ]
        rate = sum(bid.offer.price or 0.0 for bid in running)
        if rate > 0:
            yield now + max(1.0, (limits.cost - total_cost(slot_history, now)) / rate * 3600)


def pause_until(slot_history: SlotHistory, bid: BidRecord) -> float:
    """When to prepare or launch again: at once after one failure, then with growing pauses.

    Not at once where preparing failed: what it lacked a moment ago it lacks still.
    """
    if slot_history.failed_at is None:
        return 0.0
    many = (
        slot_history.failures + bid.node_failures + bid.faults + bid.unprepared + bid.missing_inputs
    )
    if bid.unprepared or bid.missing_inputs:
        many = max(many, 2)
    pause = min(PAUSE_S_MAX, 10.0 * 2 ** min(many - 2, 10)) if many >= 2 else 0.0
    return slot_history.failed_at + max(pause, CHIPS_PAUSE_S if bid.faults else 0.0)
