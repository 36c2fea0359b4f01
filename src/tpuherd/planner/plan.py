"""Decide what to do now: from the desired state, observations and history to a plan.

`plan()` is the entry point and calls `plan_slot()` for every slot. For each slot it
1. records what is new about its bids as events (observations_to_events.py),
2. gives the verdict on its latest attempt once all hosts have reported (verdict.py),
3. checks whether the slot is done or over a limit (retry_limits.py),
4. asks what its deadline demands, if it has one (deadline_plan.py, deadline_choice.py),
5. assigns a role to every bid and applies the bid table (bidding.py, policy.py),
6. chooses the gang's action: prepare, launch, stop, collect (gang_actions.py, policy.py),
7. requests nodes where one is needed (bidding.py, zone_choice.py),
8. writes the sentence that `herd why` shows (slot_messages.py).
Where users share a quota, fair_share.py first says who may have nodes of it.
A slot that needs no new plan is left out (settled_slots.py). SlotContext (slot_input.py) carries
the slot through these steps. Requests of all slots then share one budget of creates per minute.
Nothing here does I/O; engine/loop.py carries the plan out.
"""

from collections.abc import Collection, Iterator
from dataclasses import dataclass, field
from math import inf

from tpuherd.history.apply_zone_events import zone_stats_key
from tpuherd.model.observed import BidObservation, ObservedState
from tpuherd.model.slot_history import (
    BidRecord,
    GiveUpCode,
    History,
    SlotHistory,
    has_running_attempt,
)
from tpuherd.model.slots_and_plan import (
    DesiredSlots,
    EnginePlan,
    Goal,
    HistoryEvent,
    PlannedStep,
    RecordEvent,
    RequestKind,
    Slot,
)
from tpuherd.model.sweep_trials import TrialEnd
from tpuherd.planner import (
    bidding,
    deadline_plan,
    deletion_guard,
    fair_share,
    gang_actions,
    idle_nodes,
    retry_limits,
    slot_messages,
)
from tpuherd.planner.bid_status import (
    QUIET_S,
    BidStatus,
    NodeNeed,
    build_bid_status,
    has_reached_host,
    has_succeeded,
    host_fingerprint,
    node_need,
    silent_since,
)
from tpuherd.planner.data_moves import record_saves
from tpuherd.planner.gang_progress import Pending
from tpuherd.planner.observations_to_events import (
    find_bid_events,
    quarantine_events,
    silence_events,
    vanishing_events,
)
from tpuherd.planner.settled_slots import (
    NONE_SETTLED,
    SettledSlots,
    SlotPlan,
    is_at_rest,
    keep_plan,
    settled_in,
    still_settled,
)
from tpuherd.planner.slot_input import PlanContext, SlotContext
from tpuherd.planner.step_events import attempt_works, record_progress
from tpuherd.planner.verdict import AttemptEnd, judge_attempt
from tpuherd.planner.zone_choice import PendingAsk, admit_requests
from tpuherd.targets import split_bid_name

__all__ = ["find_orphans", "host_fingerprint", "plan"]

DIGITS_MAX = 6  #: of an attempt's number; what a host calls one with more is none of ours
SURVEY_S, QUICK_S, HELD_S = 60.0, 5.0, 3.0
NO_HISTORY = SlotHistory()


def plan(
    desired: DesiredSlots, observed: ObservedState, history: History, now: float
) -> EnginePlan:
    """Return the steps that bring the observed state closer to the desired one."""
    return plan_round(desired, observed, history, now, NONE_SETTLED)[0]


def plan_round(
    desired: DesiredSlots,
    observed: ObservedState,
    history: History,
    now: float,
    before: SettledSlots,
) -> tuple[EnginePlan, SettledSlots]:
    """Return the plan, and the slots that need no other one until something changes.

    `before`: those of the round before; only messages may differ from a plan without them.
    """
    desired, turns_at = fair_share.assign_turns(desired, history, now)
    world = build_plan_context(desired, observed, history, now)
    round = PlanRound(steps=list(freeze_steps(world)), wake_at=turns_at)
    settled = settled_in(before, world)
    for slot in slots_to_plan(desired, history, world.unknown):
        slot_history = history.slots.get(slot.name, NO_HISTORY)
        known = still_settled(settled.get(slot.name), slot, slot_history, world)
        if known is not None:
            round.add_settled(known)
        else:
            case = SlotContext(world=world, slot=slot, slot_history=slot_history, now=now)
            plan_slot(case)
            round.add_planned(case)
    per_min = desired.creates_per_min
    now_asked, later, room_at = admit_requests(round.requests, history.asks, per_min, now)
    round.steps += (PlannedStep(action=one.ask, why=one.why) for one in now_asked)
    for one in later:
        round.messages[one.ask.slot] = f"waiting for its turn: at most {per_min} creates a minute"
    if world.frozen:
        round.wake_at = min(round.wake_at, now + deletion_guard.BELIEVED_S)
        round.survey_s = min(round.survey_s, QUICK_S)
    found = EnginePlan(
        steps=tuple(round.steps),
        wake_at=min(round.wake_at, room_at),
        survey_s=round.survey_s,
        states=round.messages,
        frozen=world.frozen,
        rest=round.rest and not round.steps,
    )
    return found, SettledSlots(world=world, slots=round.settled)


@dataclass(kw_only=True, slots=True)
class PlanRound:
    """What the slots of one round add up to."""

    steps: list[PlannedStep]
    requests: list[PendingAsk] = field(default_factory=list)
    messages: dict[str, str] = field(default_factory=dict)
    settled: dict[str, SlotPlan] = field(default_factory=dict)
    wake_at: float = inf
    survey_s: float = SURVEY_S
    rest: bool = True

    def add_settled(self, known: SlotPlan) -> None:
        name = known.slot.name
        self.settled[name], self.messages[name] = known, known.message
        self.wake_at = min(self.wake_at, known.wake_at)
        self.survey_s = min(self.survey_s, known.survey_s)
        self.rest = self.rest and known.rest

    def add_planned(self, case: SlotContext) -> None:
        over = is_at_rest(case)
        self.steps += case.steps
        self.requests += case.requests
        self.messages[case.slot.name] = case.state
        self.wake_at = min(self.wake_at, case.wake_at)
        self.survey_s = min(self.survey_s, case.survey_s)
        self.rest = self.rest and over
        if (settled := keep_plan(case, rest=over)) is not None:
            self.settled[case.slot.name] = settled


def build_plan_context(
    desired: DesiredSlots, observed: ObservedState, history: History, now: float
) -> PlanContext:
    known: set[str] = set()
    probed: set[object] = set()
    awaited: dict[tuple[str, str, str], set[str]] = {}
    for slot_history in history.slots.values():
        known.update(slot_history.bids)
        waiting = [bid for bid in slot_history.bids.values() if is_waiting(bid)]
        for bid in waiting:
            if bid.answered_at is None:
                probed.add(bid.offer.zone)
            if bid.offer.kind is RequestKind.DIRECT:
                probed.add(zone_stats_key(bid.offer))
        if waiting and not any(map(deadline_plan.is_held, slot_history.bids.values())):
            for bid in waiting:
                awaited.setdefault(zone_stats_key(bid.offer), set()).add(bid.slot)
    unknown: dict[str, list[BidObservation]] = {}
    for name, observation in observed.observations.items():
        named = split_bid_name(name) if name not in known else None
        if named is not None and named.owner in {desired.owner, *desired.adopted}:
            unknown.setdefault(named.slot, []).append(observation)
    return PlanContext(
        desired=desired,
        observed=observed,
        history=history,
        now=now,
        sure=deletion_guard.can_trust_absence(observed, history, now),
        frozen=deletion_guard.freeze_reason(observed, history),
        unknown=unknown,
        probed=probed,
        awaited=awaited,
    )


def is_waiting(bid: BidRecord) -> bool:
    """Whether a request has no answer yet."""
    return bid.granted_at is None and bid.refusal is None and bid.withdrawn_at is None


def freeze_steps(world: PlanContext) -> Iterator[PlannedStep]:
    """Record when deletions are paused and when they resume."""
    if bool(world.frozen) == (world.history.frozen_at is not None):
        return
    kind, why = "engine.deletions_paused", world.frozen
    if not world.frozen:
        kind, why = (
            "engine.deletions_resumed",
            "the missing hosts or nodes are back, or their loss is confirmed",
        )
    yield PlannedStep(
        action=RecordEvent(event=HistoryEvent(at=world.now, kind=kind, facts={"why": why})), why=why
    )


def slots_to_plan(
    desired: DesiredSlots, history: History, unknown: Collection[str]
) -> Iterator[Slot]:
    """Every desired slot, then removed ones that still have bids or attempts."""
    yield from desired.slots.values()
    jobs = {slot.job for slot in desired.slots.values()}
    for name, slot_history in history.slots.items():
        if name in desired.slots or not (
            slot_history.bids or has_running_attempt(slot_history) or name in unknown
        ):
            continue
        job = name.rpartition("-")[0]
        if slot_history.dropped or job in jobs or is_fully_withdrawn(slot_history):
            yield Slot(
                name=name,
                job=job,
                goal=Goal.GONE,
                offers=(),
                node_digest="",
                code_digest="",
                desired_since=0.0,
            )


def is_fully_withdrawn(slot_history: SlotHistory) -> bool:
    return all(bid.withdrawn_at is not None for bid in slot_history.bids.values())


def plan_slot(case: SlotContext) -> None:
    record_observations(case)
    conclude_attempt(case)
    check_slot_end(case)
    case.need = node_need(case.slot, case.slot_history, case.now)
    deadline_plan.apply_deadline(case)
    bidding.assign_roles(case)
    idle_nodes.warn_of_idle_node(case)
    if idle := idle_nodes.idle_limit_reason(case):
        case.give_up(GiveUpCode.IDLE, idle)
    for due in retry_limits.limit_times(case.slot, case.slot_history, case.now):
        case.wake_by(due)
    if case.need is NodeNeed.HOLD:
        keeps = case.slot.limits
        case.wake_by((case.slot_history.done_at or inf) + keeps.done_keep_s)
        case.wake_by((case.slot_history.gave_up_at or inf) + keeps.failed_keep_s)
    state = gang_actions.choose_gang_action(case)
    bidding.apply_bid_table(case)
    bidding.ask_for_nodes(case)
    case.state = slot_messages.slot_message(case, state)


def record_observations(case: SlotContext) -> None:
    world, observed = case.world, case.world.observed
    for bid in tuple(case.slot_history.bids.values()):
        one = build_bid_status(bid, observed, case.now)
        case.bid_statuses.append(one)
        for note in find_bid_events(bid, one.stage, one.observation, one.hosts):
            case.record_event(note.kind, note.why, note.facts)
        for note in vanishing_events(bid, one.hosts, observed, sure=world.sure):
            case.record_event(note.kind, note.why, note.facts)
        record_silence(case, one)
    adopt_running_attempts(case)
    if case.steps:
        refresh_statuses(case)


def record_silence(case: SlotContext, one: BidStatus) -> None:
    """Record that hosts of a node in use have stopped answering, or that all answer again."""
    bid, attempt = one.bid, case.slot_history.attempt
    if bid.ready_at is None or bid.lost_at or bid.notice_at or bid.withdrawn_at:
        return
    if one.whole and bid.silent_at is None:
        return
    world, id = case.world, attempt.id if attempt is not None else ""
    since, due = silent_since(one, world.observed, world.history, id)
    if case.now < due < inf:
        others = has_running_attempt(case.slot_history, bid.name) and has_reached_host(one.hosts)
        case.wake_by(min(due, case.now + QUIET_S) if others else due)
    for note in silence_events(one, since if case.now >= due else inf):
        case.record_event(note.kind, note.why, note.facts)


def adopt_running_attempts(case: SlotContext) -> None:
    """Record attempts that run on our hosts but are not in the history: the store was lost."""
    known = case.slot_history.attempt.id if case.slot_history.attempt is not None else ""
    for one in case.bid_statuses:
        for host in one.hosts:
            for work in host.works:
                if work.attempt == known:
                    continue
                number = attempt_number(work.attempt, case.slot.name)
                if number <= case.slot_history.attempts or one.bid.withdrawn_at is not None:
                    continue
                facts = {
                    "attempt": work.attempt,
                    "number": number,
                    "bid": one.bid.name,
                    "code_digest": case.slot.code_digest,
                    "boots": [each.boot for each in one.hosts] if one.whole else [],
                }
                why = f"{work.attempt} was found on {host.name}"
                case.record_event("attempt.launched", why, facts)


def attempt_number(attempt: str, slot: str) -> int:
    """The 3 of gpt-0-a3-7kq; 0 if it is not an attempt of this slot."""
    head, _, _ = attempt.removeprefix(f"{slot}-a").partition("-")
    named = attempt.startswith(f"{slot}-a") and head.isdecimal() and len(head) <= DIGITS_MAX
    return int(head) if named else 0


def refresh_statuses(case: SlotContext) -> None:
    bids, observed = case.slot_history.bids, case.world.observed
    case.bid_statuses = [build_bid_status(bid, observed, case.now) for bid in bids.values()]


def conclude_attempt(case: SlotContext) -> None:
    attempt = case.slot_history.attempt
    if attempt is None or attempt.ended_at is not None:
        return
    record_progress(case)
    bid = case.slot_history.bids.get(attempt.bid)
    found = judge_attempt(case.slot, case.slot_history, bid, case.world.observed, case.now)
    if isinstance(found, Pending):
        case.open = found
        if found.begun:
            case.record_event(
                "attempt.started", "every host has started it", {"attempt": attempt.id}
            )
        case.wake_by(found.wake_at)
        # Links may hang in silence: who runs is looked after by the cloud's lists as well.
        case.survey_within(HELD_S if found.held else QUICK_S)
        return
    assert isinstance(found, AttemptEnd)
    record_saves(case, attempt_works(case))
    case.record_event("attempt.ended", found.why, found.event_facts(attempt))
    bid = case.slot_history.bids.get(attempt.bid)
    for note in quarantine_events(bid, case.world.history) if bid is not None else ():
        case.record_event(note.kind, note.why, note.facts)
    refresh_statuses(case)


def check_slot_end(case: SlotContext) -> None:
    slot, slot_history = case.slot, case.slot_history
    over = slot_history.attempt is not None and slot_history.attempt.ended_at is not None
    if slot_history.gave_up_at is not None or slot.goal is Goal.GONE:
        # A trial that succeeded while its job was being stopped does not run again.
        if over and slot.trials and has_succeeded(slot, slot_history):
            finish_slot(case)
        return
    if (
        slot.goal is Goal.RUN
        and slot_history.done_at is None
        and over
        and has_succeeded(slot, slot_history)
    ):
        finish_slot(case)
        return
    if slot.goal is Goal.RUN and slot_history.done_at is not None:
        return
    case.limit = retry_limits.reached_limit(slot, slot_history, case.now)
    if not case.limit or has_running_attempt(slot_history):
        return
    if not any(bidding.needs_collecting(case, one) for one in case.bid_statuses):
        if slot_history.trial is not None and retry_limits.reached_retry_limit(
            slot, slot_history, case.now
        ):
            case.end_trial(TrialEnd.FAILED, case.limit.why)
        else:
            case.give_up(case.limit.code, case.limit.why)
        case.limit = None


def finish_slot(case: SlotContext) -> None:
    """Mark the slot done once outputs and logs are fetched, or cannot be."""
    attempt = case.slot_history.attempt
    assert attempt is not None
    bid = case.slot_history.bids.get(attempt.bid)
    why = f"attempt {attempt.number} has succeeded"
    if bid is None or bid.lost_at is not None or bid.withdrawn_at is not None:
        if case.slot.outputs and (bid is None or not bid.collected):
            why = f"{why}; its node was lost before its outputs were fetched"
        case.mark_done(why)
        return
    case.need = node_need(case.slot, case.slot_history, case.now)
    one = next(one for one in case.bid_statuses if one.bid.name == bid.name)
    if not bidding.needs_collecting(case, one):
        if bid.full_at is not None and not bid.collected:
            why = f"{why}; its outputs did not all fit on the disk of the engine's machine"
        case.mark_done(why)


def find_orphans(
    desired: DesiredSlots, observed: ObservedState, history: History
) -> tuple[BidObservation, ...]:
    """Resources with our names that no event requested or withdrew."""
    world = build_plan_context(desired, observed, history, 0.0)
    named = {slot.name for slot in slots_to_plan(desired, history, ())}
    loose = [
        observation
        for slot, observations in world.unknown.items()
        for observation in observations
        if not was_withdrawn(history, slot, observation)
    ]
    held = [
        observed.observations[name]
        for slot, slot_history in history.slots.items()
        if slot not in named
        for name in slot_history.bids
        if name in observed.observations
    ]
    return (*loose, *held)


def was_withdrawn(history: History, slot: str, observation: BidObservation) -> bool:
    found, slot_history = split_bid_name(observation.bid), history.slots.get(slot)
    return found is not None and slot_history is not None and found.generation in slot_history.gone
