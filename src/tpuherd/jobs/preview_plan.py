"""Plans the next steps from the store and one look at the cloud."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from tpuherd.engine import desired_slots
from tpuherd.jobs.cloud_inventory import survey_cloud
from tpuherd.jobs.load_history import load_history
from tpuherd.jobs.open_project import Session
from tpuherd.model.observed import ObservedState
from tpuherd.model.slots_and_plan import Ask, PlannedStep, Withdraw
from tpuherd.planner.plan import plan
from tpuherd.ports import Survey
from tpuherd.sweeps.scheduler import slots_with_work


@dataclass(frozen=True, kw_only=True, slots=True)
class PlanPreview:
    """The next steps in the cloud, and the engine's latest message about each slot."""

    states: Mapping[str, str]
    frozen: str
    steps: Sequence[PlannedStep]

    def as_json(self) -> dict[str, Any]:
        """Return the output of `herd plan --json`."""
        steps = [step_as_json(step) for step in self.steps]
        return {"states": dict(self.states), "frozen": self.frozen, "steps": steps}


async def preview_plan(name: str | None, here: Session) -> PlanPreview:
    """Plan for one job, or for all."""
    inventory = await survey_cloud(here)
    rows = here.store.stored_jobs()
    if name is not None:
        rows = {name: here.get_job(name)}
    desired = desired_slots.load_desired_state(
        rows, here.place, owner=inventory.owner
    ).desired_slots
    history = load_history(here.store)
    now = here.clock.now()
    desired = replace(desired, slots=slots_with_work(desired.slots, history))
    found = plan(desired, observed_cloud(inventory.survey, now), history, now)
    messages = here.store.slot_messages()
    return PlanPreview(
        states={slot: messages.get(slot) or found.states.get(slot, "") for slot in desired.slots},
        frozen=found.frozen,
        steps=[step for step in found.steps if isinstance(step.action, Ask | Withdraw)
               and (name is None or step.action.slot in desired.slots)],
    )  # fmt: skip


def observed_cloud(survey: Survey, now: float) -> ObservedState:
    """Observe the cloud only, without the hosts."""
    return ObservedState(
        observations=survey.observations,
        zones=survey.zones,
        surveyed_at=survey.begun_at,
        awake_at=now,
    )


def step_as_json(step: PlannedStep) -> dict[str, str]:
    action = step.action
    assert isinstance(action, Ask | Withdraw)
    offer = action.offer if isinstance(action, Ask) else None
    return {
        "do": "ask" if offer else "withdraw",
        "bid": action.bid,
        "slot": action.slot,
        "zone": action.offer.zone if isinstance(action, Ask) else action.zone,
        "type": offer.type if offer else "",
        "tier": offer.tier if offer else "",
        "why": step.why,
    }
