"""Assign roles to a slot's bids, apply the bid table, and request new nodes."""

from collections.abc import Sequence
from math import inf

from tpuherd.history.apply_zone_events import zone_stats_key
from tpuherd.model.observed import BidObservation, NodeState, RequestState
from tpuherd.model.slot_history import BidRecord, GiveUpCode, has_running_attempt
from tpuherd.model.slots_and_plan import Ask, Goal, RequestKind, Slot, Withdraw, offer_key
from tpuherd.planner.bid_status import (
    UNHEALTHY_S_MAX,
    BidStatus,
    NodeNeed,
    awaits_name,
    choose_incumbent,
    has_reached_host,
    is_outdated,
    is_prepared,
    needs_replacement,
)
from tpuherd.planner.deadline_plan import (
    deadline_role,
    firm_count,
    requestable_slots,
    stays_beside,
)
from tpuherd.planner.policy import BIDS, BidAction, BidPhase, Role
from tpuherd.planner.slot_input import SlotContext
from tpuherd.planner.zone_choice import PendingAsk, bid_count, choose_offers
from tpuherd.targets import split_bid_name

AGAIN_S, AGAIN_S_MAX = 10.0, 300.0  #: what has no effect is sent again, later and later
DRAIN_S = 30.0  #: a node is kept this long for the last lines of its log
COLLECT_S_MAX = 600.0  #: how long to wait for unreachable hosts before deleting
LOGS_S_MAX = 120.0  #: how long to wait for the rest of a log alone
NOTICE_S = 30.0  #: from a preemption notice until the cloud takes the node
LEAVING_S_MAX = 120.0  #: how long outputs are fetched from a node that another one replaces
RIVALS_MAX = 2  #: bids kept beside the granted one until one node is READY
FULL_S = 3600.0  #: how long outputs that would fill our disk are kept on their node
COLLECTS_MAX = 3  #: tries to fetch outputs of a removed job
#: After a host's last sign of life, for this time the cloud is looked at so often: it may say why.
FELL_SILENT_S, SILENT_LOOK_S = 20.0, 1.0
LEAVING_S = 60.0  #: the same after a host's notice that it shuts down


def assign_roles(case: SlotContext) -> None:
    held: list[BidStatus] = []
    used = case.slot_history.attempt.bid if case.slot_history.attempt is not None else ""
    for one in case.bid_statuses:
        one.role, one.why = fixed_role(case, one)
        if one.role is Role.INCUMBENT:
            held.append(one)
        if one.bid.name == used:
            case.home = one
    case.incumbent = choose_incumbent(held, case.slot_history) if held else None
    if held or case.need is not NodeNeed.SEEK:
        release_late(case, [one.bid for one in held])
    release_unhealthy(case)
    release_replaced(case)


def release_late(case: SlotContext, held: Sequence[BidRecord]) -> None:
    """Release the bids beside the incumbent; a few rivals stay until one node is READY."""
    roles = {Role.CANDIDATE, Role.INCUMBENT}
    late = [one for one in case.bid_statuses if one.role in roles and one is not case.incumbent]
    late.sort(key=lambda one: (one.bid.granted_at or inf, one.bid.generation))
    rivals = [one for one in late if is_rival(case, one.bid)][:RIVALS_MAX]
    for one in late:
        stays = one in rivals or stays_beside(case, one.bid, held)
        one.role = Role.CANDIDATE if stays else Role.SURPLUS


def is_rival(case: SlotContext, bid: BidRecord) -> bool:
    """Whether a bid stays beside the granted one because its node may be READY earlier.

    Nodes cost nothing before they are READY, but they take capacity and quota: a bid stays only
    where no slot without a node waits, and nothing was refused. It must be as cheap.
    """
    lead = case.incumbent
    if lead is None or case.need is not NodeNeed.SEEK:
        return False
    if lead.bid.ready_at is not None or is_prepared(lead, case.slot.code_digest):
        return False
    offer, first = bid.offer, lead.bid.offer
    if (offer.rank, offer.tier) != (first.rank, first.tier):
        return False
    key = zone_stats_key(offer)
    stats = case.world.history.zone_stats.get(key)
    others = case.world.awaited.get(key, set()) - {case.slot.name}
    return not others and (stats is None or stats.refusal is None)


def fixed_role(case: SlotContext, one: BidStatus) -> tuple[Role, str]:
    """The role that follows from the bid alone; INCUMBENT means that it may be one."""
    slot, bid = case.slot, one.bid
    if bid.withdrawn_at is not None:
        return Role.WITHDRAWN, bid.withdrawn_why
    if case.need is NodeNeed.NONE:
        return Role.UNWANTED, "no longer needed"
    if dead := dead_reason(bid):
        return Role.DEAD, dead
    if case.need is NodeNeed.SEEK and offer_key(bid.offer) in slot.shut:
        return Role.SURPLUS, slot.held
    if case.need is NodeNeed.SEEK and is_outdated(bid, slot):
        why = "the job asks for another node type now"
        return (Role.DEAD if slot.exact else Role.OUTDATED), why
    if (found := deadline_role(case, bid)) is not None:
        return found
    if bid.granted_at is None:
        return candidate_role(case, bid)
    if case.need is not NodeNeed.SEEK:
        return Role.INCUMBENT, ""
    if bid.unhealthy_at is not None and bid.ready_at is None:
        return unhealthy_role(case, one, bid.unhealthy_at)
    one.spare = is_spare(case, bid)
    world, decided = case.world, is_being_replaced(case, bid)
    why, unhealthy_at = needs_replacement(
        one, world.observed, world.history, case.now, decided=decided, exact=slot.exact
    )
    if unhealthy_at is not None:
        case.wake_by(unhealthy_at)
        return Role.INCUMBENT, ""
    one.unfit = True
    return (Role.DEAD if slot.exact or one.spare else Role.UNHEALTHY), why


def is_spare(case: SlotContext, bid: BidRecord) -> bool:
    """Whether nothing was ever set up on it, and the slot holds a node that was requested before:
    then it is worth nothing to wait for, and costs a second node.
    """
    return not bid.prepared and any(
        other.granted_at is not None
        and other.asked_at < bid.asked_at
        and other.withdrawn_at is None
        and not dead_reason(other)
        for other in case.slot_history.bids.values()
    )


def is_being_replaced(case: SlotContext, bid: BidRecord) -> bool:
    """Whether another node was requested since the trouble of this one began, and is not gone."""
    since = min(bid.silent_at or inf, bid.unhealthy_at or inf)
    return since < inf and any(
        other.asked_at > since and other.withdrawn_at is None and not dead_reason(other)
        for other in case.slot_history.bids.values()
    )


def dead_reason(bid: BidRecord) -> str:
    """Why it can't fill the slot any more; "" if it can."""
    if bid.refusal is not None:
        return f"refused: {bid.sentence}"
    if bid.lost_at is not None:
        return f"it was {bid.lost_how}"
    return "it received a preemption notice" if bid.notice_at is not None else ""


def candidate_role(case: SlotContext, bid: BidRecord) -> tuple[Role, str]:
    """The role of a bid not granted yet: if not all may wait, the next zone gets its turn."""
    slot = case.slot
    most = 1 if slot.exact else case.world.desired.hedge
    if most is not None and len(slot.offers) > max(most, 1):
        due = bid.asked_at + slot.limits.patience_s
        if case.now >= due:
            return Role.DEAD, "not granted in time; trying the next zone"
        case.wake_by(due)
    return Role.CANDIDATE, ""


def unhealthy_role(case: SlotContext, one: BidStatus, since: float) -> tuple[Role, str]:
    """The role of a node that was never healthy: another is requested at once."""
    one.unfit = True
    what = f"it is unhealthy ({one.bid.unhealthy_state})"
    case.wake_by(since + UNHEALTHY_S_MAX)
    if case.slot.exact or case.now >= since + UNHEALTHY_S_MAX:
        return Role.DEAD, f"{what} since it was made"
    return Role.UNHEALTHY, what


def release_unhealthy(case: SlotContext) -> None:
    """Release a node that was never healthy once another is granted."""
    never = [
        one for one in case.bid_statuses if one.role is Role.UNHEALTHY and one.bid.ready_at is None
    ]
    newest = max(never, key=lambda one: one.bid.granted_at or 0.0, default=None)
    for one in never:
        if case.incumbent is not None or one is not newest:
            one.role = Role.SURPLUS


def release_replaced(case: SlotContext) -> None:
    """Release old nodes once the new one can take over."""
    new = case.incumbent
    if new is None or new.bid.ready_at is None or not new.whole:
        return
    ready = is_prepared(new, case.slot.code_digest)
    for one in case.bid_statuses:
        old = one.role in {Role.OUTDATED, Role.UNHEALTHY}
        if old and (ready or not has_running_attempt(case.slot_history, one.bid.name)):
            one.role = Role.SURPLUS


def apply_bid_table(case: SlotContext) -> None:
    for one in case.bid_statuses:
        match BIDS[one.role][one.stage]:
            case BidAction.WITHDRAW if may_withdraw(case, one):
                reason = one.why.removeprefix(f"{one.bid.name}: ")  # as recorded: it is sent again
                why = f"{one.bid.name}: {reason or 'another request was granted'}"
                zone = one.observation.zone if one.observation is not None else one.bid.offer.zone
                action = Withdraw(bid=one.bid.name, slot=case.slot.name, zone=zone)
                case.add_step(action, why)
            case BidAction.ASK:
                resend_ask(case, one.bid)
            case _:
                pass
        if one.role is not Role.INCUMBENT or one.stage is not BidPhase.READY or not one.whole:
            case.survey_within(5.0)
        look_why_silent(case, one)
    for observation in case.world.unknown.get(case.slot.name, ()):
        handle_unknown_bid(case, observation)


def look_why_silent(case: SlotContext, one: BidStatus) -> None:
    """Survey often for a moment when a READY node shuts down or is silent: it may be lost."""
    if one.stage is not BidPhase.READY:
        return
    until = [host.heard_at + FELL_SILENT_S for host in one.hosts if not host.reached]
    until += [(host.notice_at or 0.0) + LEAVING_S for host in one.hosts if host.is_leaving]
    if case.now < max(until, default=0.0):
        case.survey_within(SILENT_LOOK_S)


def may_withdraw(case: SlotContext, one: BidStatus) -> bool:
    """Whether nothing keeps it: no attempt, no pause of deletions, no outputs, no pending call."""
    if has_running_attempt(case.slot_history, one.bid.name):
        return False
    if case.world.frozen and case.slot.goal is not Goal.GONE:
        return False
    if one.role is Role.WITHDRAWN:
        if (one.bid.ready_at or 0.0) > (one.bid.withdrawn_at or 0.0):
            return True  # what was being created can be deleted now
        pause = min(AGAIN_S_MAX, AGAIN_S * 2.0 ** min(one.bid.withdrawals - 1, 10))
        due = (one.bid.withdrawn_at or 0.0) + pause
        case.wake_by(due)
        return case.now >= due
    if one.role is Role.UNWANTED:
        return not needs_collecting(case, one)
    if (until := fetching_until(case, one)) is not None:
        case.wake_by(until)
        return False
    return not is_log_draining(case, one) and not awaits_name(one.bid, case.now)


def is_log_draining(case: SlotContext, one: BidStatus) -> bool:
    """Whether the last lines of its log are still arriving."""
    attempt = case.slot_history.attempt
    if attempt is None or attempt.bid != one.bid.name or one.bid.lost_at is not None:
        return False
    until = (attempt.ended_at or 0.0) + DRAIN_S
    if case.now >= until or not has_undrained_log(one, attempt.id):
        return False
    case.wake_by(until)
    return True


def has_undrained_log(one: BidStatus, attempt: str) -> bool:
    """Whether the host still has log lines that are not here."""
    return any(
        host.reached and work.attempt == attempt and not work.drained
        for host in one.hosts
        for work in host.works
    )


def fetching_until(case: SlotContext, one: BidStatus) -> float | None:
    """Until when outputs are fetched from a node that goes away; None: there are none on it, they
    are here, or it is too late."""
    attempt, bid = case.slot_history.attempt, one.bid
    if not case.slot.outputs or attempt is None or attempt.bid != bid.name:
        return None
    if attempt.ended_at is None or bid.lost_at is not None or bid.withdrawn_at is not None:
        return None
    if bid.collected or bid.uncollected or not has_reached_host(one.hosts):
        return None
    until = attempt.ended_at + LEAVING_S_MAX if bid.notice_at is None else bid.notice_at + NOTICE_S
    return until if case.now < until else None


def needs_collecting(case: SlotContext, one: BidStatus) -> bool:
    """Whether outputs or logs must be fetched first, and can be."""
    attempt, bid = case.slot_history.attempt, one.bid
    if attempt is None or attempt.bid != bid.name or attempt.ended_at is None:
        return False
    if bid.collected or bid.lost_at is not None:
        return False
    if not case.slot.outputs and not has_undrained_log(one, attempt.id):
        return False
    again_at = refetch_at(case, bid)
    if again_at is not None:
        case.wake_by(again_at)
        return bid.uncollected_at < again_at
    insisted = case.need is not NodeNeed.NONE and not case.limit
    if insisted:
        return True
    if not case.slot.outputs:  # `herd down` waits for logs alone, and not for ever
        due = attempt.ended_at + LOGS_S_MAX
        case.wake_by(due)
        if case.now >= due:
            return False
    until = attempt.ended_at + COLLECT_S_MAX
    case.wake_by(until)
    there = one.whole or (has_reached_host(one.hosts) and case.now < until)
    return there and bid.uncollected < COLLECTS_MAX


def refetch_at(case: SlotContext, bid: BidRecord) -> float | None:
    """Return when outputs that would have filled our disk are fetched once more, and for the last
    time; None if they fit, or if the job is removed."""
    if bid.full_at is None or case.slot.goal is Goal.GONE:
        return None
    return bid.full_at + FULL_S


def handle_unknown_bid(case: SlotContext, observation: BidObservation) -> None:
    """Withdraw a bid without a record again if its withdrawal is recorded; else leave it alone."""
    named = split_bid_name(observation.bid)
    if named is None or named.generation not in case.slot_history.gone:
        return
    case.survey_within(5.0)
    leaving = observation.request in {RequestState.ENDING, RequestState.LEAVING} or (
        observation.request is None
        and all(node.word is NodeState.LEAVING for node in observation.nodes)
    )
    if leaving or observation.bid in case.world.observed.calling:
        return
    if case.world.frozen and case.slot.goal is not Goal.GONE:
        return
    why = f"{observation.bid} was deleted, but the cloud still lists it"
    case.add_step(Withdraw(bid=observation.bid, slot=case.slot.name, zone=observation.zone), why)


def resend_ask(case: SlotContext, bid: BidRecord) -> None:
    """Send a request again, under the same name, if it got no answer and is not listed.

    The second time at once (we may have died before the call), then later and later.
    """
    pause = AGAIN_S * 2.0 ** min(bid.sends - 2, 10) if bid.sends > 1 else 0.0
    due = bid.sent_at + min(AGAIN_S_MAX, pause)
    if case.now < due:
        case.wake_by(due)
        return
    ask = Ask(
        bid=bid.name,
        slot=bid.slot,
        generation=bid.generation,
        offer=bid.offer,
        nodes=bid.nodes,
        node_digest=bid.node_digest,
    )
    why = f"{bid.name} was requested, but the cloud does not list it"
    turn = (-1, bid.asked_at, bid.slot, bid.generation)
    case.requests.append(PendingAsk(turn=turn, ask=ask, why=why))


def ask_for_nodes(case: SlotContext) -> None:
    if case.need is not NodeNeed.SEEK or case.incumbent is not None or case.limit:
        return
    if case.slot.held and not case.slot.offers:
        return
    for slot in requestable_slots(case):
        request_offers(case, slot)


def request_offers(case: SlotContext, slot: Slot) -> None:
    """Request what this slot's offers allow next to the live bids for them."""
    slot_history, world = case.slot_history, case.world
    tiers = {offer.tier for offer in slot.offers}
    live = [one.bid for one in case.bid_statuses if one.role is Role.CANDIDATE]
    live = [bid for bid in live if bid.offer.tier in tiers]
    choice = choose_offers(
        slot, slot_history, live, world.history.zone_stats, world.probed, case.now
    )
    case.wake_by(choice.wake_at)
    case.waits += choice.why_not
    if choice.fatal:
        if not slot_history.bids:
            case.give_up(GiveUpCode.OFFERS, f"no node can be requested: {choice.fatal}")
        return
    many = bid_count(choice, slot, len(live), len(slot_history.bids), world.desired.hedge)
    many = min(many, firm_count(case, slot, live))
    poor = {one.bid.offer.zone for one in case.bid_statuses if one.unfit or is_given_up(one)}
    offers = sorted(choice.offers, key=lambda offer: offer.zone in poor)
    since = waiting_since(case)
    generation, instead = next_generation(case), reason_to_ask(case)
    for place, offer in enumerate(offers[:many]):
        generation += 1
        ask = Ask(
            bid=f"{slot.name}-g{generation}-{world.desired.owner}",
            slot=slot.name,
            generation=generation,
            offer=offer,
            nodes=slot.nodes,
            node_digest=slot.node_digest,
        )
        turn = (len(live) + place, since, slot.name, generation)
        why = f"{offer.type} ({offer.tier}) in {offer.zone} {instead}"
        case.requests.append(PendingAsk(turn=turn, ask=ask, why=why))
        world.probed.add(offer.zone)
        if offer.kind is RequestKind.DIRECT:
            world.probed.add(zone_stats_key(offer))


def is_given_up(one: BidStatus) -> bool:
    return one.role is Role.DEAD and one.bid.granted_at is None


def waiting_since(case: SlotContext) -> float:
    """When the slot began to wait for a node: the longest wait is served first."""
    slot_history, attempt = case.slot_history, case.slot_history.attempt
    if slot_history.searching_at is not None:
        return slot_history.searching_at
    losses = [bid.notice_at or bid.lost_at or 0.0 for bid in slot_history.bids.values()]
    ended_at = attempt.ended_at if attempt is not None else None
    marks = (case.slot.desired_since, ended_at or 0.0, *losses, *slot_history.freed.values())
    return min(case.now, max(marks))


def highest_generation(case: SlotContext) -> int:
    """The highest generation ever used for the slot, by any engine."""
    shown = case.world.unknown.get(case.slot.name, ())
    named = (split_bid_name(observation.bid) for observation in shown)
    numbers = (one.generation for one in named if one is not None)
    return max(case.slot_history.generation, *numbers) if shown else case.slot_history.generation


def next_generation(case: SlotContext) -> int:
    """The highest generation, counting what was just asked for the slot."""
    fresh = sum(one.turn[0] >= 0 for one in case.requests)
    return highest_generation(case) + fresh


def reason_to_ask(case: SlotContext) -> str:
    old = next(
        (one for one in case.bid_statuses if one.why and one.role is not Role.WITHDRAWN), None
    )
    return "for the job" if old is None else f"instead of {old.bid.name}: {old.why}"
