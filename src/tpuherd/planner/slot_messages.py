"""The sentence a user reads for a slot: what it is waiting for, since when, and what is next."""

from math import inf

from tpuherd.model.slot_history import BidRecord
from tpuherd.model.slots_and_plan import Goal
from tpuherd.planner.bid_status import HALTS_MAX, BidStatus, NodeNeed
from tpuherd.planner.bidding import needs_collecting, refetch_at
from tpuherd.planner.gang_actions import may_still_run_elsewhere
from tpuherd.planner.idle_nodes import idle_note
from tpuherd.planner.policy import BidPhase, GangState, Role
from tpuherd.planner.retry_limits import format_age, format_times, pause_until
from tpuherd.planner.slot_input import SlotContext


def slot_message(case: SlotContext, state: GangState) -> str:
    """What `herd why` says about the slot."""
    found = phase_message(case, state)
    return f"{found}; {case.deadline_note}" if case.deadline_note and not case.limit else found


def phase_message(case: SlotContext, state: GangState) -> str:
    """How far it is, without what its deadline demands."""
    if case.need is NodeNeed.NONE:
        return ending_message(case)
    if case.limit:
        return f"is being ended: {case.limit.why}"
    if case.slot_history.attempt is not None and case.slot_history.attempt.ended_at is None:
        return attempt_message(case, state)
    if case.need is NodeNeed.HOLD:
        return holding_message(case)
    status = case.incumbent
    if status is None:
        return searching_message(case)
    return granted_node_message(case, status, state) + idle_note(case)


def ending_message(case: SlotContext) -> str:
    slot_history = case.slot_history
    head = "not needed"
    if case.slot.goal is not Goal.GONE:
        head = (
            f"gave up: {slot_history.gave_up_why}"
            if slot_history.gave_up_at is not None
            else "done"
        )
    if not slot_history.bids:
        return f"{head}; nothing is left"
    if case.world.frozen and case.slot.goal is not Goal.GONE:
        return f"{head}; not deleted now: {case.world.frozen}"
    if slot_history.attempt is not None and slot_history.attempt.ended_at is None:
        return f"{head}; attempt {slot_history.attempt.number} is being stopped"
    fetched = [one for one in case.bid_statuses if needs_collecting(case, one)]
    if fetched:
        full = full_disk_message(case, fetched[0].bid)
        if full:
            return f"{head}; {full}"
        what = "its outputs and the last lines" if case.slot.outputs else "the last lines"
        return f"{head}; fetching {what} of its log first"
    seen = {
        one.bid.name: one.observation.state
        for one in case.bid_statuses
        if one.observation is not None
    }
    names = [
        f"{name} ({seen[name]})" if seen.get(name) else name for name in sorted(slot_history.bids)
    ]
    return f"{head}; deleting {', '.join(names)}"


def attempt_message(case: SlotContext, state: GangState) -> str:
    attempt = case.slot_history.attempt
    assert attempt is not None
    here = case.home
    word = "item" if case.slot.items else "trial"
    trial = "" if attempt.trial is None else f"{word} {attempt.trial}, "
    where = f"{trial}attempt {attempt.number} on {attempt.bid}"
    if here is not None:
        where = f"{where} in {here.bid.offer.zone}"
    if state is GangState.STOPPING:
        return f"{where} is being stopped: {attempt.stopping_why}"
    if case.open.broken:
        return f"{where} will be stopped: {case.open.broken}"
    quiet = [host.name for host in here.hosts if not host.reached] if here is not None else []
    if quiet:
        return f"{where} runs; not responding: {', '.join(quiet)}"
    if case.open.held and attempt.started_at is not None:
        return f"{where} seems to have ended; waiting for every host and the cloud to confirm"
    since = attempt.started_at
    if since is None:
        held = [f"{host.name}: {host.held}" for host in here.hosts if host.held] if here else []
        waits = f", once its chips are free: {'; '.join(held)}" if held else ""
        return f"{where} is being started{waits}"
    return f"{where} has been running for {format_age(case.now - since)}"


def full_disk_message(case: SlotContext, bid: BidRecord) -> str:
    """Say what may be done while a node keeps outputs that do not fit here; "" if they do."""
    again_at = refetch_at(case, bid)
    if again_at is None:
        return ""
    return (
        "its outputs would fill the disk of the engine's machine, so only a part was fetched; make"
        " room there or copy them elsewhere: they are fetched again in"
        f" {format_age(max(0.0, again_at - case.now))}, then the node is deleted"
    )


def holding_message(case: SlotContext) -> str:
    slot_history, limits = case.slot_history, case.slot.limits
    if slot_history.gave_up_at is not None:
        until = slot_history.gave_up_at + limits.failed_keep_s
        return f"gave up: {slot_history.gave_up_why}; {kept_words(case, until)}"
    if slot_history.done_at is not None:
        return f"done; {kept_words(case, slot_history.done_at + limits.done_keep_s)}"
    full = "" if case.home is None else full_disk_message(case, case.home.bid)
    fetching = "fetching its outputs and logs before the node is deleted"
    return f"has succeeded; {full or fetching}"


def kept_words(case: SlotContext, until: float) -> str:
    if until == inf:
        return f"the node stays until `herd down {case.slot.job}`"
    return f"the node is kept for {format_age(until - case.now)} more"


def searching_message(case: SlotContext) -> str:
    asked = [one for one in case.bid_statuses if one.role is Role.CANDIDATE]
    parts: list[str] = []
    if asked:
        since = min(one.bid.asked_at for one in asked)
        zones = ", ".join(sorted({one.bid.offer.zone for one in asked}))
        parts.append(f"waiting for capacity in {zones} for {format_age(case.now - since)}")
    new = sorted({one.ask.offer.zone for one in case.requests if one.turn[0] >= 0})
    if new:
        parts.append(f"requesting in {', '.join(new)}")
    parts += case.waits
    if case.slot.held and not parts:
        parts.append(case.slot.held)
    old = [
        one for one in case.bid_statuses if one.role in {Role.DEAD, Role.OUTDATED, Role.UNHEALTHY}
    ]
    parts += [f"{one.bid.name}: {one.why}" for one in old if one.why]
    return "; ".join(parts) or "waiting until its last node is deleted"


def granted_node_message(case: SlotContext, status: BidStatus, state: GangState) -> str:
    name, bid = status.bid.name, status.bid
    where = f"{name} in {bid.offer.zone}"
    if bid.ready_at is None and bid.unhealthy_at is None:
        age = format_age(case.now - (bid.granted_at or case.now))
        return f"{where} is being created ({age} so far)"
    if status.stage is BidPhase.UNKNOWN:
        reported_state = status.observation and status.observation.state
        return f"{where} is in a state that herd does not know ({reported_state})"
    if bid.unhealthy_at is not None:
        since = format_age(case.now - bid.unhealthy_at)
        return (
            f"{where} is unhealthy ({bid.unhealthy_state}), for {since}; waiting for it to recover"
        )
    if leaving := next((one for one in status.hosts if one.is_leaving), None):
        return f"{where} has a host that shuts down, {leaving.name}; waiting for it to come back"
    if not status.whole:
        reached = sum(host.reached for host in status.hosts)
        trouble = next((f": {one.trouble}" for one in status.hosts if one.trouble), "")
        many = bid.offer.hosts * bid.nodes
        return f"{where} is READY, {reached} of {many} hosts reached{trouble}"
    if bid.halts:
        return (
            f"{where} still runs an attempt that has ended; it was told to stop, {bid.halts} of"
            f" {HALTS_MAX} times before another node is requested"
        )
    until = pause_until(case.slot_history, bid)
    if case.now < until:
        return f"{where} will be tried again soon: {case.slot_history.failed_why}"
    if case.slot.name in case.world.observed.working or state is GangState.BARE:
        return f"{where} is being set up"
    if case.slot.goal is Goal.IDLE:
        return f"{where} is ready for use"
    if may_still_run_elsewhere(case, status):
        return f"{where} is prepared; {old_node_message(case)}"
    if case.slot.trials and case.slot_history.trial is None:
        return f"{where} is prepared; waiting for {'an item' if case.slot.items else 'a trial'}"
    return f"{where} is prepared; starting the command"


def old_node_message(case: SlotContext) -> str:
    """What the next attempt waits for while the last one may still run on a node."""
    attempt, old = case.slot_history.attempt, case.home
    assert attempt is not None and old is not None
    asked = ""
    if old.bid.withdrawn_at is not None:
        age = format_age(case.now - old.bid.withdrawn_at)
        asked = f" (asked {format_times(old.bid.withdrawals)}, the last time {age} ago)"
    return (
        f"waiting until the cloud says that {old.bid.name}, on which attempt {attempt.number} may"
        f" still run, is stopped or gone{asked}"
    )
