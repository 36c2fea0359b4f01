"""Apply a slot's deadline: how much work is left, which nodes that demands, and why.

deadline_choice.py decides; this gathers what the decision depends on, records when it changes, and
says which bids it makes outdated and which offers may be requested.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from math import inf
from statistics import median

from tpuherd.history.apply_bid_events import unfit_key
from tpuherd.history.apply_zone_events import zone_stats_key
from tpuherd.model.observed import HostRun
from tpuherd.model.slot_history import BidRecord, SlotHistory, has_running_attempt
from tpuherd.model.slots_and_plan import CHEAP_TIERS, Deadline, Goal, Offer, Slot
from tpuherd.planner.bid_status import NodeNeed
from tpuherd.planner.deadline_choice import (
    STARTS_KEPT,
    DeadlineFacts,
    DeadlineMode,
    NodeTier,
    choose_deadline_mode,
    even_pace,
    even_time,
)
from tpuherd.planner.policy import Role
from tpuherd.planner.retry_limits import format_age, total_cost
from tpuherd.planner.slot_input import SlotContext

WORK_MARGIN = 1.05  #: reported steps take so much longer, with checkpoints and slower ones
START_MARGIN = 1.5
LAG_MARGIN = 2.0  #: so many times what spot takes to be granted is waited for it, if need be
START_S, WAIT_S = 200.0, 200.0  #: from READY to the first step, and to READY, until it is known
START_S_MIN = 60.0
REACT_S = 120.0  #: until a loss is noticed and a request is sent
ASSUMED_SHARE = 0.5  #: of the time to the deadline is work, if nobody says how much it is
FIRM_STEP_S = 60.0  #: until on-demand is requested in one more zone: each that is granted is billed
MOMENT_S = 0.5  #: after the time of a change it is certain
MISSED = "missed"  #: beside the modes


@dataclass(frozen=True, kw_only=True, slots=True)
class WorkLeft:
    """How much of a slot's work is left, and was in all."""

    left_s: float
    total_s: float
    assumed: bool = False  #: neither reported nor stated


def is_cheap(offer: Offer) -> bool:
    return offer.tier in CHEAP_TIERS


def apply_deadline(case: SlotContext) -> None:
    """Choose the mode, record a change of it, and plan again when it may change."""
    deadline, slot_history = case.slot.deadline, case.slot_history
    if deadline is None or case.slot.goal is not Goal.RUN or case.need is not NodeNeed.SEEK:
        return
    work = find_work_left(case, deadline)
    start_s = start_time(case)
    facts = DeadlineFacts(
        left_s=deadline.at - case.now,
        work_s=work.left_s,
        start_s=start_s,
        pace=even_pace(work.total_s, deadline.at - deadline.since, start_s),
        on=held_tier(slot_history),
        react_s=REACT_S,
        lag_s=LAG_MARGIN * grant_time(case, cheap=True),
    )
    mode = choose_deadline_mode(facts)
    obstacle = "" if mode is DeadlineMode.WAIT else find_obstacle(case, facts)
    if facts.left_s <= 0 or obstacle:
        mode = DeadlineMode.WAIT
    case.deadline_mode = mode
    case.deadline_note = describe_deadline(facts, mode, obstacle, assumed=work.assumed)
    name = MISSED if facts.left_s <= 0 else str(mode)
    if name != (slot_history.deadline_mode or str(DeadlineMode.WAIT)):
        kind = "slot.deadline_missed" if name == MISSED else "slot.deadline_mode"
        case.record_event(kind, case.deadline_note, {
            "mode": name, "left_s": round(facts.left_s), "work_s": round(facts.work_s),
        })  # fmt: skip
    for due_s in change_times(facts):
        case.wake_by(case.now + due_s)


def change_times(facts: DeadlineFacts) -> Iterator[float]:
    """Seconds until another mode is chosen if nothing gets on; those in the past mean nothing."""
    yield facts.left_s
    starts = 1.0 if facts.on is NodeTier.SPOT else STARTS_KEPT
    yield facts.slack_s - starts * facts.start_s - facts.react_s + MOMENT_S
    if facts.on is NodeTier.NONE:
        ahead_s = even_time(facts.left_s, facts.start_s) - facts.work_s / facts.pace
        yield ahead_s + facts.lag_s + MOMENT_S


def held_tier(slot_history: SlotHistory) -> NodeTier:
    """What the attempt runs on; else what is granted, on-demand first."""
    held = [bid for bid in slot_history.bids.values() if is_held(bid)]
    used = [bid for bid in held if has_running_attempt(slot_history, bid.name)]
    tiers = {is_cheap(bid.offer) for bid in used or held}
    if not tiers:
        return NodeTier.NONE
    return NodeTier.SPOT if tiers == {True} else NodeTier.FIRM


def is_held(bid: BidRecord) -> bool:
    gone = (bid.lost_at, bid.notice_at, bid.withdrawn_at, bid.refusal)
    return bid.granted_at is not None and all(one is None for one in gone)


# ---- how much is left ----------------------------------------------------------------------------


def find_work_left(case: SlotContext, deadline: Deadline) -> WorkLeft:
    """The work left, by the steps that the script reports, else by what the user states."""
    slot_history = case.slot_history
    runs = attempt_reports(case)
    total = max((run.total for run in runs if run.total), default=slot_history.total)
    paces = [run.step_s for run in runs if run.step_s]
    step_s = median(paces) if paces else slot_history.step_s
    if total and step_s:
        steps = max(0, total - finished_steps(case, runs))
        return WorkLeft(left_s=steps * step_s * WORK_MARGIN, total_s=total * step_s * WORK_MARGIN)
    stated = deadline.work_s
    total_s = ASSUMED_SHARE * (deadline.at - deadline.since) if stated is None else stated
    done_s = slot_history.ran_s + running_time(case)
    return WorkLeft(left_s=max(0.0, total_s - done_s), total_s=total_s, assumed=stated is None)


def attempt_reports(case: SlotContext) -> list[HostRun]:
    attempt = case.slot_history.attempt
    if attempt is None or attempt.ended_at is not None:
        return []
    return [
        run
        for host in case.world.observed.hosts.get(attempt.bid, ())
        for run in host.works
        if run.attempt == attempt.id
    ]


def finished_steps(case: SlotContext, runs: Sequence[HostRun]) -> int:
    """The steps that a loss leaves: the saved ones, or those of a node that is not taken away.

    A script that has never saved is taken to lose nothing: nothing else is known.
    """
    reached = max((run.step for run in runs if run.step is not None), default=0)
    marks = [run.saved for run in runs if run.saved is not None]
    if case.slot_history.saved is not None:
        marks.append(case.slot_history.saved)
    if not any(marks) or held_tier(case.slot_history) is NodeTier.FIRM:
        return max(reached, *marks, 0)
    return max(marks)


def running_time(case: SlotContext) -> float:
    """Seconds since the running attempt began its work."""
    attempt = case.slot_history.attempt
    if attempt is None or attempt.ended_at is not None or attempt.started_at is None:
        return 0.0
    return max(0.0, case.now - attempt.started_at)


def start_time(case: SlotContext) -> float:
    """Seconds from the decision for on-demand until the work goes on there."""
    start_s = case.slot_history.start_s
    known_s = grant_time(case, cheap=False) + (START_S if start_s is None else start_s)
    return max(START_S_MIN, START_MARGIN * known_s)


def grant_time(case: SlotContext, *, cheap: bool) -> float:
    """Seconds from a request to READY in the quickest zone, as far as that is known."""
    stats = case.world.history.zone_stats
    waits = [
        median(found.waits_s)
        for offer in case.slot.offers
        if is_cheap(offer) is cheap
        and (found := stats.get(zone_stats_key(offer))) is not None
        and found.waits_s
    ]
    return min(waits, default=WAIT_S)


# ---- what that means -----------------------------------------------------------------------------


def find_obstacle(case: SlotContext, facts: DeadlineFacts) -> str:
    """Why on-demand can't be used though the deadline demands it; "" if it can."""
    firm = [offer for offer in fitting(case) if not is_cheap(offer)]
    if not firm:
        return "no on-demand node is allowed or affordable"
    limit = case.slot.limits.cost
    prices = [offer.price for offer in firm if offer.price is not None]
    if limit == inf or facts.on is NodeTier.FIRM or not prices:
        return ""
    rest = facts.work_s / 3600 * min(prices)
    left = limit - total_cost(case.slot_history, case.now)
    if rest <= left:
        return ""
    return f"on-demand for the rest costs about ${rest:,.2f}, and max_cost leaves ${left:,.2f}"


def fitting(case: SlotContext) -> list[Offer]:
    unfit: Mapping[str, str] = case.slot_history.unfit
    digest = case.slot.node_digest
    return [offer for offer in case.slot.offers if unfit_key(offer, digest) not in unfit]


def describe_deadline(
    facts: DeadlineFacts, mode: DeadlineMode, obstacle: str, *, assumed: bool
) -> str:
    work = f"{'an assumed ' if assumed else ''}{format_age(facts.work_s)} of work left"
    if facts.left_s <= 0:
        return f"its deadline has passed with {work}: it goes on as cheap as can be"
    head = f"deadline in {format_age(facts.left_s)}, {work}"
    if obstacle:
        return f"{head}: on-demand is needed, but {obstacle}"
    match mode, facts.on:
        case DeadlineMode.FIRM, _:
            return f"{head}: no time for another loss, so on-demand to the end"
        case DeadlineMode.CATCH_UP, NodeTier.FIRM:
            return f"{head}: on on-demand until there is spot"
        case DeadlineMode.CATCH_UP, _:
            return f"{head}: behind an even pace, so on-demand until there is spot"
        case _, NodeTier.NONE:
            return f"{head}: ahead of an even pace, so waiting for spot"
        case _:
            return head


def deadline_role(case: SlotContext, bid: BidRecord) -> tuple[Role, str] | None:
    """The role of a bid that is not what the deadline demands now; None: it is."""
    mode, cheap = case.deadline_mode, is_cheap(bid.offer)
    works = has_running_attempt(case.slot_history, bid.name)
    match mode:
        case DeadlineMode.FIRM if cheap:
            return (Role.OUTDATED if works else Role.SURPLUS), "only on-demand meets the deadline"
        case DeadlineMode.WAIT if not cheap:
            return (Role.OUTDATED if works else Role.SURPLUS), "spot does for the deadline"
        case DeadlineMode.CATCH_UP if not cheap and (works or has_ready_spot(case)):
            return (Role.OUTDATED if works else Role.SURPLUS), "spot is cheaper"
        case _:
            return None


def has_ready_spot(case: SlotContext) -> bool:
    """Whether a spot node is set up, and can take over."""
    bids = [bid for bid in case.slot_history.bids.values() if is_held(bid) and is_cheap(bid.offer)]
    return any(bid.prepared == case.slot.code_digest for bid in bids)


def stays_beside(case: SlotContext, bid: BidRecord, held: Sequence[BidRecord]) -> bool:
    """Whether a spot request stays though on-demand is granted: it is to replace that."""
    if case.deadline_mode is not DeadlineMode.CATCH_UP or not is_cheap(bid.offer):
        return False
    return not any(is_cheap(one.offer) for one in held)


def requestable_slots(case: SlotContext) -> list[Slot]:
    """The slot with the offers that may be requested now, in groups that do not wait for others."""
    slot, mode = case.slot, case.deadline_mode
    if mode is None:
        return [slot]
    offers = fitting(case)
    cheap = [offer for offer in offers if is_cheap(offer)]
    firm = [offer for offer in offers if not is_cheap(offer)]
    firm = [offer for offer in firm if offer.price is not None] or firm
    groups = [cheap]
    if mode is DeadlineMode.FIRM:
        groups = [firm]
    elif mode is DeadlineMode.CATCH_UP and held_tier(case.slot_history) is NodeTier.NONE:
        groups = [firm, cheap]
    return [replace(slot, offers=tuple(group)) for group in groups if group] or [slot]


def firm_count(case: SlotContext, slot: Slot, live: Sequence[BidRecord]) -> int:
    """How many of these offers may be requested now: on-demand one after another, cheapest first.

    Spot is requested everywhere at once, as it is cheap and seldom there; on-demand is usually
    granted in each zone that is asked.
    """
    if case.deadline_mode is None or any(map(is_cheap, slot.offers)):
        return len(slot.offers)
    due = max((bid.asked_at + FIRM_STEP_S for bid in live), default=case.now)
    case.wake_by(due)
    return 1 if case.now >= due else 0
