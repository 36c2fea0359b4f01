"""Warns of READY nodes on which nothing runs, and gives them back after a while."""

from math import inf

from tpuherd.model.slot_history import has_running_attempt
from tpuherd.model.slots_and_plan import Goal
from tpuherd.planner.bid_status import NodeNeed
from tpuherd.planner.retry_limits import format_age
from tpuherd.planner.slot_input import SlotContext

IDLE_WARNING_S = 3600.0  #: or half of the limit, if that is shorter


def idle_start(case: SlotContext) -> float | None:
    """Return since when nothing has run on the slot's node; None: something does, or may.

    What the agents of unreached hosts run is not known.
    """
    status, attempt = case.incumbent, case.slot_history.attempt
    if status is None or status.bid.ready_at is None or not status.whole:
        return None
    busy = case.slot.name in case.world.observed.working
    if busy or has_running_attempt(case.slot_history):
        return None
    ended = attempt.ended_at if attempt is not None else None
    used = max((host.used_at for host in status.hosts), default=0.0)
    return max(status.bid.ready_at, status.bid.prepared_at or 0.0, ended or 0.0, used)


def idle_limit_reason(case: SlotContext) -> str:
    """Return why an idle node should go; "" if it may stay."""
    since, limit_s = idle_start(case), case.slot.limits.idle_s
    if since is None or limit_s == inf or case.need is not NodeNeed.SEEK:
        return ""
    case.wake_by(since + limit_s)
    if case.now < since + limit_s:
        return ""
    why = f"nothing has run on it for {format_age(limit_s)}"
    lacks = case.slot_history.failed_why if case.slot.goal is Goal.RUN else ""
    return f"{why}: {lacks}" if lacks else why


def warn_of_idle_node(case: SlotContext) -> None:
    """Record once that a node is idle, and that it is used again."""
    since = idle_start(case)
    if since is None or case.incumbent is None:
        return
    bid = case.incumbent.bid
    if bid.idle_at is not None:
        if since > bid.idle_at:
            case.record_event("bid.used", f"a command runs on {bid.name}", {"bid": bid.name})
        return
    due = since + min(IDLE_WARNING_S, case.slot.limits.idle_s / 2)
    case.wake_by(due)
    if case.now >= due:
        case.record_event("bid.idle", f"{bid.name}: {idle_words(case, since)}", {"bid": bid.name})


def idle_note(case: SlotContext) -> str:
    """Return what `herd why` adds for a node whose user was warned; "" for others."""
    since = idle_start(case)
    if since is None or case.incumbent is None:
        return ""
    bid = case.slot_history.bids.get(case.incumbent.bid.name)
    if bid is None or bid.idle_at is None or since > bid.idle_at:
        return ""
    return f"; {idle_words(case, since)}"


def idle_words(case: SlotContext, since: float) -> str:
    """nothing has run on it for 2 h, at $3.69 an hour; it is deleted in 22 h"""
    price = case.incumbent.bid.offer.price if case.incumbent is not None else None
    words = f"nothing has run on it for {format_age(case.now - since)}"
    if price:
        words += f", at ${price:,.2f} an hour"
    left = since + case.slot.limits.idle_s - case.now
    if left == inf or case.need is not NodeNeed.SEEK:
        return words
    return f"{words}; it is deleted in {format_age(left)} unless something runs"
