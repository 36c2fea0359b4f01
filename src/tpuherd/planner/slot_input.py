"""The planner's working state for one slot: the slot, its history and its bids."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from math import inf
from typing import Any

from tpuherd.history.apply_event import apply_slot_event
from tpuherd.model.observed import BidObservation, ObservedState
from tpuherd.model.slot_history import AttemptRecord, GiveUpCode, History, SlotHistory
from tpuherd.model.slots_and_plan import (
    Action,
    DesiredSlots,
    HistoryEvent,
    PlannedStep,
    RecordEvent,
    Slot,
)
from tpuherd.model.sweep_trials import Sweep, TrialEnd
from tpuherd.planner.bid_status import BidStatus, NodeNeed
from tpuherd.planner.deadline_choice import DeadlineMode
from tpuherd.planner.gang_progress import Pending
from tpuherd.planner.retry_limits import ReachedLimit, has_timed_out
from tpuherd.planner.zone_choice import PendingAsk

TIMED_OUT, FAILED_FOR_GOOD = 124, 5  #: exit statuses of items that have none of their own


@dataclass(frozen=True, kw_only=True, slots=True)
class PlanContext:
    """What all slots share."""

    desired: DesiredSlots
    observed: ObservedState
    history: History
    now: float
    sure: bool  #: what the lists don't show is not there
    frozen: str  #: why nothing is deleted now
    unknown: Mapping[
        str, Sequence[BidObservation]
    ]  #: by slot: bids with our names that are not in the history
    probed: set[object]  #: zones that a slot is currently trying after a refusal
    #: slots without a granted node, by the zones, types and tiers that they wait for
    awaited: Mapping[tuple[str, str, str], set[str]] = field(default_factory=dict)


@dataclass(kw_only=True, slots=True)
class SlotContext:
    """The mutable state of planning one slot: what has been found so far."""

    world: PlanContext
    slot: Slot
    slot_history: SlotHistory
    now: float
    need: NodeNeed = NodeNeed.SEEK
    limit: ReachedLimit | None = None  #: the limit that ends it
    bid_statuses: list[BidStatus] = field(default_factory=list)
    incumbent: BidStatus | None = None
    home: BidStatus | None = None  #: the bid of the latest attempt
    open: Pending = field(default_factory=Pending)
    steps: list[PlannedStep] = field(default_factory=list)
    requests: list[PendingAsk] = field(default_factory=list)
    wake_at: float = inf
    survey_s: float = 60.0
    waits: tuple[str, ...] = ()  #: why some zones are not asked now
    deadline_mode: DeadlineMode | None = None  #: None: it has no deadline, or needs no nodes
    deadline_note: str = ""
    state: str = ""

    def record_event(self, kind: str, why: str, facts: Mapping[str, Any]) -> None:
        """Record an event, and apply it to the slot's history."""
        facts = {**facts, "why": why}
        slot = self.slot
        event = HistoryEvent(at=self.now, kind=kind, job=slot.job, slot=slot.name, facts=facts)
        self.slot_history = apply_slot_event(self.slot_history, event)
        self.steps.append(PlannedStep(action=RecordEvent(event=event), why=why))

    def mark_done(self, why: str) -> None:
        """End the slot, or the trial that it works on, as successful."""
        if self.slot.trials:
            self.end_trial(TrialEnd.COMPLETE, f"{why}{self.unreported_note()}")
        else:
            self.record_event("slot.done", why, {})

    def unreported_note(self) -> str:
        """Say that the trial has never reported the metric by which trials are compared."""
        sweep = self.world.history.sweeps.get(self.slot.job, Sweep())
        known = [one for one in sweep.trials if one.number == self.slot_history.trial]
        if sweep.metric and known and known[0].reported_at is None:
            return f"; it has never reported {sweep.metric}"
        return ""

    def give_up(self, code: GiveUpCode, why: str) -> None:
        self.record_event("slot.gave_up", why, {"code": str(code)})
        self.wake_at = self.now

    def end_trial(self, how: TrialEnd, why: str) -> None:
        facts: dict[str, Any] = {"trial": self.slot_history.trial, "outcome": str(how)}
        attempt = self.slot_history.attempt
        if self.slot.items and attempt is not None:
            facts["attempt"] = attempt.id
            if how is TrialEnd.FAILED:
                facts |= {"exit": self.item_exit(attempt), "lines": list(attempt.lines)}
        self.record_event("trial.ended", why, facts)
        self.wake_at = self.now

    def item_exit(self, attempt: AttemptRecord) -> int:
        """The exit status of a failed item."""
        if has_timed_out(self.slot, self.slot_history, self.now):
            return TIMED_OUT
        return attempt.exit or FAILED_FOR_GOOD

    def add_step(self, action: Action, why: str) -> None:
        self.steps.append(PlannedStep(action=action, why=why))

    def wake_by(self, at: float) -> None:
        """Plan again at this time, unless it has passed."""
        if at > self.now:
            self.wake_at = min(self.wake_at, at)

    def survey_within(self, seconds: float) -> None:
        self.survey_s = min(self.survey_s, seconds)
