"""Choose and plan the next action for a slot's gang, from its state and its goal."""

from statistics import median

from tpuherd.model.observed import HostRun
from tpuherd.model.slot_history import Verdict, has_running_attempt
from tpuherd.model.slots_and_plan import Collect, Goal, Launch, Prepare, Stop
from tpuherd.planner.bid_status import (
    BidStatus,
    NodeNeed,
    is_current_attempt,
    is_prepared,
    is_stopped_or_gone,
    silent_hosts,
)
from tpuherd.planner.bidding import fetching_until, needs_collecting, refetch_at
from tpuherd.planner.gang_progress import LIVE, NOTICE_S
from tpuherd.planner.policy import GANG, BidPhase, GangAction, GangState, Role
from tpuherd.planner.retry_limits import format_age, pause_until
from tpuherd.planner.slot_input import SlotContext
from tpuherd.planner.verdict import gang_last_sign, is_mute

NOT_SET_UP = "is READY but not set up for this code"
NEARLY_READY_S = 1.0  #: between surveys once all hosts of a new node answer
UNCOLLECTED_S, UNCOLLECTED_S_MAX = 15.0, 300.0  #: bringing back is tried again, later and later
AFTER = {Verdict.SUCCESS: GangState.SUCCEEDED, Verdict.FAILURE: GangState.FAILED}


def choose_gang_action(case: SlotContext) -> GangState:
    """Apply the gang table, and return the gang's state."""
    status = gang_bid(case)
    state = gang_state(case, status)
    goal, why = gang_goal(case)
    action = GANG[state][goal]
    if case.slot.name in case.world.observed.working:
        fetch_from_leaving_node(case)
        # A stop does not wait for what else is done there: it overtakes the start itself, too.
        if action is GangAction.STOP:
            stop_attempt(case, state, why)
        return state
    # What runs on a node that goes ends with it: a host that says so for ever must not keep it.
    if goal is not Goal.GONE and stop_older_attempt(case):
        return state
    fetch_from_leaving_node(case)
    if action is GangAction.STOP:
        stop_attempt(case, state, why)
    elif has_running_attempt(case.slot_history):
        resend_to_hosts(case)
        prepare_replacement(case)
    elif status is not None:
        if action is GangAction.PREPARE:
            prepare_hosts(case, status)
        elif action is GangAction.LAUNCH:
            launch_attempt(case, status)
        elif action is GangAction.COLLECT:
            collect_outputs(case, status)
        elif state is GangState.BOOTING:
            prepare_ahead(case, status)
    return state


def gang_bid(case: SlotContext) -> BidStatus | None:
    """The bid that the gang is on, or will be on."""
    if has_running_attempt(case.slot_history):
        return case.home
    if case.incumbent is not None:
        return case.incumbent
    roles = {Role.OUTDATED} if case.need is NodeNeed.SEEK else {Role.UNWANTED}
    ready = (one for one in case.bid_statuses if one.role in roles and one.bid.ready_at is not None)
    return min(ready, key=lambda one: one is not case.home, default=None)


def gang_state(case: SlotContext, status: BidStatus | None) -> GangState:
    slot_history = case.slot_history
    if slot_history.attempt is not None and slot_history.attempt.ended_at is None:
        if slot_history.attempt.stopping_at is not None:
            return GangState.STOPPING
        if case.open.broken:
            return GangState.DOOMED
        return GangState.STALLED if stall_reason(case, status) else GangState.RUNNING
    if status is None:
        return GangState.NOWHERE
    if status.stage in {BidPhase.UNKNOWN, BidPhase.CALLING}:
        return GangState.UNKNOWN
    if status.bid.ready_at is None:
        return GangState.BOOTING
    if any(host.is_leaving for host in status.hosts):
        return GangState.SILENT
    there, ended = status.whole, is_current_attempt(case.slot, slot_history) and status is case.home
    if there and ended and (case.need is not NodeNeed.SEEK or case.limit):
        return state_after_attempt(case)
    if (
        not there
        or status.stage not in {BidPhase.READY, BidPhase.HIDDEN}
        or status.bid.unhealthy_at is not None
    ):
        heard = bool(silent_hosts(status))
        return (
            GangState.SILENT
            if heard or there or status.stage is not BidPhase.READY
            else GangState.BOOTING
        )
    if not is_prepared(status, case.slot.code_digest):
        return GangState.BARE
    return state_after_attempt(case) if ended else GangState.PREPARED


def state_after_attempt(case: SlotContext) -> GangState:
    attempt = case.slot_history.attempt
    verdict = attempt.verdict if attempt is not None else None
    return (
        AFTER.get(verdict, GangState.INTERRUPTED) if verdict is not None else GangState.INTERRUPTED
    )


def gang_goal(case: SlotContext) -> tuple[Goal, str]:
    """The gang's goal for now, and why if it is not the slot's own."""
    slot, slot_history = case.slot, case.slot_history
    if case.limit:
        return Goal.GONE, case.limit.why
    if case.need is NodeNeed.NONE or slot_history.gave_up_at is not None:
        return Goal.GONE, "it is no longer needed"
    if slot.goal is Goal.RUN and slot_history.done_at is not None:
        return Goal.GONE, "it is done"
    if has_running_attempt(slot_history) and slot_history.attempt is not None:
        here = case.home
        if slot_history.attempt.unwanted:
            return Goal.IDLE, "the job was stopped"
        if not is_current_attempt(slot, slot_history):
            return Goal.IDLE, f"its {'item' if slot.items else 'trial'} is over"
        if slot_history.attempt.code_digest != slot.code_digest and not slot.patient:
            return Goal.IDLE, "its code has changed"
        if here is None or here.role in {Role.DEAD, Role.SURPLUS, Role.WITHDRAWN}:
            return (
                Goal.IDLE,
                here.why if here is not None and here.why else "its node is going away",
            )
    return slot.goal, "the job should not run now"


def stall_reason(case: SlotContext, status: BidStatus | None) -> str:
    """Why the attempt counts as stalled; "" if it does not."""
    slot_history, limits = case.slot_history, case.slot.limits
    if status is None or slot_history.attempt is None or not status.whole:
        return ""
    works = [one for one in attempt_runs(status, slot_history.attempt.id) if one.word in LIVE]
    if len(works) < len(status.hosts) or not works:
        return ""
    begun = slot_history.attempt.first_step_at is not None or any(
        one.step is not None for one in works
    )
    limit_s = limits.first_step_s
    if begun:
        paces = [one.step_s for one in works if one.step_s is not None]
        limit_s = max(limits.stall_s, 20 * median(paces)) if paces else limits.stall_s
    launched = slot_history.attempt.started_at or slot_history.attempt.launched_at
    since = max(
        max(one.stepped_at or 0.0, one.logged_at or 0.0, one.started or launched) for one in works
    )
    since = max(since, case.world.observed.awake_at)  # earlier reports were not received
    case.wake_by(since + limit_s)
    # The agents' last report counts, not the clock: this machine may have slept.
    if max(host.heard_at for host in status.hosts) < since + limit_s:
        return ""
    what = "step and no log output" if begun else "first step and no log output"
    return f"no {what} for {format_age(limit_s)}"


def attempt_runs(status: BidStatus, attempt: str) -> list[HostRun]:
    return [work for host in status.hosts for work in host.works if work.attempt == attempt]


def stop_attempt(case: SlotContext, state: GangState, why: str) -> None:
    attempt, here = case.slot_history.attempt, case.home
    if attempt is None or here is None:
        return
    doomed = here.bid.lost_at is not None or here.bid.notice_at is not None
    brief = doomed or any(host.is_leaving for host in here.hosts)
    limits, works = case.slot.limits, attempt_runs(here, attempt.id)
    reason = why
    if state is GangState.DOOMED:
        reason = case.open.broken
    elif state is GangState.STALLED:
        reason = stall_reason(case, here)
    case.add_step(
        Stop(
            bid=attempt.bid,
            slot=case.slot.name,
            attempt=attempt.id,
            grace_s=limits.notice_grace_s if brief else limits.grace_s,
            stacks=state is GangState.STALLED,
            last_at=gang_last_sign(
                works,
                heard=state is not GangState.STALLED
                and (here.unfit or doomed or all(map(is_mute, works))),
            ),
            node_fault=here.unfit and case.slot.goal is Goal.RUN,
        ),
        reason,
    )


def resend_to_hosts(case: SlotContext) -> None:
    """Send a launch or stop again to hosts that missed it."""
    attempt, here = case.slot_history.attempt, case.home
    if attempt is None or here is None:
        return
    if case.open.absent and not attempt.stopping_at:
        boots = tuple(host.boot for host in here.hosts)
        case.add_step(
            Launch(
                bid=attempt.bid,
                slot=case.slot.name,
                attempt=attempt.id,
                number=attempt.number,
                resume=attempt.number > 1,
                code_digest=attempt.code_digest,
                boots=boots,
                trial=attempt.trial,
            ),
            f"{case.open.absent} has not started attempt {attempt.number}",
        )
    elif case.open.deaf:
        case.add_step(
            Stop(
                bid=attempt.bid,
                slot=case.slot.name,
                attempt=attempt.id,
                grace_s=attempt.stopping_s,
                stacks=False,
                last_at=attempt.last_at,
                node_fault=attempt.node_fault,
            ),
            attempt.stopping_why,
        )


def prepare_replacement(case: SlotContext) -> None:
    """Set up the successor while the old node still works."""
    new = case.incumbent
    if new is None or new is case.home or case.slot.goal is Goal.GONE or case.limit:
        return
    ready = new.stage in {BidPhase.READY, BidPhase.HIDDEN} and new.bid.ready_at is not None
    if ready and new.whole and not is_prepared(new, case.slot.code_digest):
        prepare_hosts(case, new)


def prepare_ahead(case: SlotContext, status: BidStatus) -> None:
    """Set up hosts that answer before the cloud says READY. If that fails, wait for READY."""
    bid, slot = status.bid, case.slot
    if status.stage is not BidPhase.GRANTED or not status.whole or not slot.boots_ahead:
        return
    case.survey_within(NEARLY_READY_S)
    if bid.unprepared or bid.missing_inputs or is_prepared(status, slot.code_digest):
        return
    prepare_hosts(case, status, "is not READY yet, but all of its hosts answer")


def prepare_hosts(case: SlotContext, status: BidStatus, how: str = NOT_SET_UP) -> None:
    until = pause_until(case.slot_history, status.bid)
    if case.now < until:
        case.wake_by(until)
        return
    slot = case.slot
    what = f"{status.bid.name} {how}"
    case.add_step(Prepare(bid=status.bid.name, slot=slot.name, code_digest=slot.code_digest), what)


def launch_attempt(case: SlotContext, status: BidStatus) -> None:
    """Launch the next attempt once the last one has certainly ended everywhere."""
    slot_history, slot = case.slot_history, case.slot
    until = pause_until(slot_history, status.bid)
    if case.now < until:
        case.wake_by(until)
        return
    if slot.trials and slot_history.trial is None:
        return
    if may_still_run_elsewhere(case, status):
        return
    many = slot_history.attempts + 1
    last = slot_history.attempt
    why = f"{status.bid.name} is prepared"
    if last is not None and last.verdict is not None and slot_history.first_launch_at is not None:
        why = f"{why}, and attempt {last.number} ended: {last.verdict}"
    case.add_step(
        Launch(
            bid=status.bid.name,
            slot=slot.name,
            attempt=attempt_name(slot.name, many, case.world.desired.owner),
            number=many,
            resume=slot_history.first_launch_at is not None,
            code_digest=slot.code_digest,
            boots=tuple(host.boot for host in status.hosts),
            trial=slot_history.trial if slot.trials else None,
        ),
        why,
    )


def attempt_name(slot: str, number: int, owner: str) -> str:
    return f"{slot}-a{number}-{owner}"


def may_still_run_elsewhere(case: SlotContext, status: BidStatus) -> bool:
    """Whether the last attempt may still run on another node: until all of its hosts report its
    end, or the cloud says that the node is stopped or gone.
    """
    attempt, here = case.slot_history.attempt, case.home
    if attempt is None or attempt.sure or here is None or here is status:
        return False
    if is_stopped_or_gone(here):
        return False
    works = attempt_runs(here, attempt.id)
    heard_of_all = here.whole and all(work.word not in LIVE for work in works)
    return not heard_of_all


def stop_older_attempt(case: SlotContext) -> bool:
    """Stop an attempt that had counted as ended but is still running."""
    attempt = case.slot_history.attempt
    current = attempt.id if attempt is not None and attempt.ended_at is None else ""
    for one in case.bid_statuses:
        for host in () if one.unfit else one.hosts:  # what can't be ended ends with its node
            for work in host.works:
                if work.attempt == current or work.word not in LIVE or not host.reached:
                    continue
                last = case.slot_history.halted_at
                due = 0.0 if last is None else last + case.slot.limits.grace_s + NOTICE_S
                case.wake_by(due)
                if case.now < due:
                    return True
                why = f"{work.attempt} has ended but still runs on {host.name}"
                case.add_step(
                    Stop(
                        bid=one.bid.name,
                        slot=case.slot.name,
                        attempt=work.attempt,
                        grace_s=case.slot.limits.grace_s,
                    ),
                    why,
                )
                return True
    return False


def fetch_from_leaving_node(case: SlotContext) -> None:
    """Fetch outputs of the last attempt from a node that will not be used again, while it is there.
    The next attempt does not wait for them."""
    home = case.home
    if home is None or home.stage is BidPhase.CALLING or home.role is Role.INCUMBENT:
        return
    if home.role is Role.UNWANTED and home.bid.notice_at is None:
        return  # it is kept until all has come
    until = fetching_until(case, home)
    if until is not None:
        left_s = until - case.now
        reason = home.why.removeprefix(f"{home.bid.name}: ") or "another node replaces it"
        why = f"{home.bid.name} is there for at most {format_age(left_s)} more: {reason}"
        attempt = case.slot_history.attempt.id if case.slot_history.attempt else ""
        case.add_step(
            Collect(bid=home.bid.name, slot=case.slot.name, attempt=attempt, within_s=left_s), why
        )


def collect_outputs(case: SlotContext, status: BidStatus) -> None:
    attempt, bid = case.slot_history.attempt, status.bid
    if attempt is None or not needs_collecting(case, status) or not status.whole:
        return
    if bid.uncollected:
        pause = UNCOLLECTED_S * 2 ** min(bid.uncollected - 1, 10)
        until = bid.uncollected_at + min(UNCOLLECTED_S_MAX, pause)
        until = max(until, refetch_at(case, bid) or 0.0)
        if case.now < until:
            case.wake_by(until)
            return
    why = f"attempt {attempt.number} ended: {attempt.verdict}"
    case.add_step(Collect(bid=bid.name, slot=case.slot.name, attempt=attempt.id), why)
