"""Which slots need no new plan: nothing about them has changed, and their time has not come.

Of 5,000 slots most run undisturbed at any time. Their last plan, which had no step, is taken over
until the next survey of the cloud, after which every slot is planned anew.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from tpuherd.model.observed import HostStatus
from tpuherd.model.slot_history import SlotHistory, has_running_attempt
from tpuherd.model.slots_and_plan import Goal, Slot
from tpuherd.planner.policy import BidPhase
from tpuherd.planner.slot_input import PlanContext, SlotContext


@dataclass(frozen=True, kw_only=True, slots=True)
class SlotPlan:
    """What was found for one slot, and from what; it had no steps."""

    slot: Slot
    slot_history: SlotHistory
    hosts: tuple[tuple[str, tuple[HostStatus, ...]], ...]  #: by bid
    message: str
    wake_at: float
    survey_s: float
    rest: bool


@dataclass(frozen=True, kw_only=True, slots=True)
class SettledSlots:
    """The slots that were settled in a round, and what all of them shared."""

    world: PlanContext | None = None
    slots: Mapping[str, SlotPlan] = field(default_factory=dict)


NONE_SETTLED = SettledSlots()


def is_at_rest(case: SlotContext) -> bool:
    """Whether nothing is left to do for this slot."""
    slot_history = case.slot_history
    if slot_history.bids or has_running_attempt(slot_history):
        return False
    over = slot_history.gave_up_at is not None or (
        case.slot.goal is Goal.RUN and slot_history.done_at is not None
    )
    return case.slot.goal is Goal.GONE or over


def settled_in(before: SettledSlots, world: PlanContext) -> Mapping[str, SlotPlan]:
    """The settled slots, unless something that concerns all of them is new."""
    old = before.world
    if old is None or old.observed.observations is not world.observed.observations:
        return {}
    return before.slots if shared_facts(old) == shared_facts(world) else {}


def shared_facts(world: PlanContext) -> tuple[Any, ...]:
    """What the plan of a settled slot depends on beside the slot itself."""
    desired, observed, history = world.desired, world.observed, world.history
    seen = observed.zones, observed.surveyed_at, observed.awake_at, world.sure, world.frozen
    known = history.bad_nodes, history.started_at, history.frozen_at
    return desired.owner, desired.adopted, desired.hedge, *seen, *known


def still_settled(
    known: SlotPlan | None, slot: Slot, slot_history: SlotHistory, world: PlanContext
) -> SlotPlan | None:
    """The plan of a settled slot, if it holds."""
    if known is None or known.slot_history is not slot_history or world.now >= known.wake_at:
        return None
    if known.slot is not slot and known.slot != slot:
        return None
    observed = world.observed
    if slot.name in observed.working or slot.name in world.unknown:
        return None
    same = True
    for bid, hosts in known.hosts:
        now = observed.hosts.get(bid, ())
        if bid in observed.calling or (now is not hosts and not are_same(hosts, now)):
            return None
        same = same and now is hosts
    return known if same else replace(known, hosts=hosts_of(slot_history, world))


def are_same(before: tuple[HostStatus, ...], now: tuple[HostStatus, ...]) -> bool:
    """Whether hosts differ only in signs of life, which matter when their time has come."""
    if len(before) != len(now):
        return False
    return all(
        old is new or (old.used_at == new.used_at and deciding_facts(old) == deciding_facts(new))
        for old, new in zip(before, now, strict=True)
    )


def deciding_facts(host: HostStatus) -> tuple[Any, ...]:
    """What of a host's status may change a plan and wakes it: not every step or sign of life."""
    runs = [
        (one.attempt, one.word, one.exit, one.complete, one.termed, one.step is None, one.saved,
         one.drained)
        for one in host.works
    ]  # fmt: skip
    return host.incarnation, host.reached, host.boot, host.notice, host.outlook, host.trouble, runs


def hosts_of(
    slot_history: SlotHistory, world: PlanContext
) -> tuple[tuple[str, tuple[HostStatus, ...]], ...]:
    return tuple((bid, world.observed.hosts.get(bid, ())) for bid in slot_history.bids)


def keep_plan(case: SlotContext, *, rest: bool) -> SlotPlan | None:
    """The plan to take over in the next round; None if the slot is not settled."""
    name = case.slot.name
    if case.steps or case.requests or case.limit or case.open.held or name in case.world.unknown:
        return None
    if not rest and not runs_undisturbed(case):
        return None
    return SlotPlan(
        slot=case.slot,
        slot_history=case.slot_history,
        hosts=hosts_of(case.slot_history, case.world),
        message=case.state,
        wake_at=case.wake_at,
        survey_s=case.survey_s,
        rest=rest,
    )


def runs_undisturbed(case: SlotContext) -> bool:
    """Whether it has its one node, all hosts of it are reached, and nothing is done there."""
    one = case.incumbent
    if one is None or len(case.bid_statuses) > 1 or case.slot.name in case.world.observed.working:
        return False
    return one.whole and one.stage is BidPhase.READY and not one.unfit
