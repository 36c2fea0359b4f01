"""One slot before the judge: its wish, its trail as it is after the newest notes, its bids."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from math import inf
from typing import Any

from tpuherd.history.apply_event import fold_trail
from tpuherd.model.observed import Observed, Sight
from tpuherd.model.slot_history import Trail, Trails
from tpuherd.model.slots_and_plan import Action, Event, Record, Slot, Step, Wishes
from tpuherd.model.sweep_trials import How
from tpuherd.planner.bid_status import Need, Standing
from tpuherd.planner.gang_progress import Open
from tpuherd.planner.zone_choice import Request


@dataclass(frozen=True, kw_only=True, slots=True)
class World:
    """What all slots share."""

    wishes: Wishes
    observed: Observed
    trails: Trails
    now: float
    sure: bool  #: what the lists don't show is not there
    frozen: str  #: why nothing is deleted now
    unknown: Mapping[str, Sequence[Sight]]  #: by slot: what bears our name, and no trail knows
    probed: set[object]  #: seasons that somebody tries just now after a refusal


@dataclass(kw_only=True, slots=True)
class Case:
    """The one thing here that changes while it is looked at: what has been found so far."""

    world: World
    slot: Slot
    trail: Trail
    now: float
    need: Need = Need.SEEK
    limit: str = ""  #: the limit that ends it
    standings: list[Standing] = field(default_factory=list)
    incumbent: Standing | None = None
    home: Standing | None = None  #: the bid of the latest attempt
    open: Open = field(default_factory=Open)
    steps: list[Step] = field(default_factory=list)
    requests: list[Request] = field(default_factory=list)
    wake_at: float = inf
    survey_s: float = 60.0
    waits: tuple[str, ...] = ()  #: why some zones are not asked now
    state: str = ""

    def record(self, kind: str, why: str, facts: Mapping[str, Any]) -> None:
        """Notes an event, and goes on from what is remembered then."""
        facts = {**facts, "why": why}
        slot = self.slot
        event = Event(at=self.now, kind=kind, job=slot.job, slot=slot.name, facts=facts)
        self.trail = fold_trail(self.trail, event)
        self.steps.append(Step(action=Record(event=event), why=why))

    def done(self, why: str) -> None:
        """The end of the slot, or of the trial that it was given."""
        if self.slot.trials:
            self.end_trial(How.COMPLETE, why)
        else:
            self.record("slot.done", why, {})

    def give_up(self, why: str) -> None:
        """The end of the slot, for a reason."""
        self.record("slot.gave_up", why, {})
        self.wake_at = self.now

    def end_trial(self, how: How, why: str) -> None:
        """The slot is free for another one."""
        self.record("trial.ended", why, {"trial": self.trail.trial, "how": str(how)})
        self.wake_at = self.now

    def step(self, action: Action, why: str) -> None:
        """Something to be done."""
        self.steps.append(Step(action=action, why=why))

    def wake(self, at: float) -> None:
        """Think again by then; what is past already is thought of now."""
        if at > self.now:
            self.wake_at = min(self.wake_at, at)

    def survey(self, seconds: float) -> None:
        """Look at the cloud at least this often."""
        self.survey_s = min(self.survey_s, seconds)
