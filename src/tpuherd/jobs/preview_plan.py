"""Plans the next steps from the store and one look at the cloud."""

from dataclasses import replace

from tpuherd.engine import desired_slots
from tpuherd.jobs.cloud_inventory import survey_cloud
from tpuherd.jobs.load_history import load_history
from tpuherd.jobs.open_project import Session
from tpuherd.model.lab_shares import SHARES, parse_shares
from tpuherd.model.observed import ObservedState
from tpuherd.model.slots_and_plan import Action, Ask, Withdraw
from tpuherd.planner.plan import plan
from tpuherd.ports import Survey
from tpuherd.results import Plan, PlanStep
from tpuherd.store.set_aside import awaits_acknowledgement
from tpuherd.sweeps.scheduler import slots_with_work


async def preview_plan(name: str | None, here: Session) -> Plan:
    """Plan for one job, or for all."""
    inventory = await survey_cloud(here)
    rows = here.store.stored_jobs()
    if name is not None:
        rows = {name: here.get_job(name)}
    desired = desired_slots.load_desired_state(
        rows,
        here.place,
        owner=inventory.owner,
        shares=parse_shares(here.store.load_setting(SHARES)),
    ).desired_slots
    history = load_history(here.store)
    now = here.clock.now()
    desired = replace(desired, slots=slots_with_work(desired.slots, history))
    found = plan(desired, observed_cloud(inventory.survey, now), history, now)
    messages = here.store.slot_messages()
    is_held = awaits_acknowledgement(here.store)
    steps = (cloud_step(step.action, step.why) for step in (() if is_held else found.steps))
    return Plan(
        states={slot: messages.get(slot) or found.states.get(slot, "") for slot in desired.slots},
        frozen=found.frozen,
        steps=tuple(one for one in steps if one and (name is None or one.slot in desired.slots)),
    )


def cloud_step(action: Action, why: str) -> PlanStep | None:
    """A step in the cloud; None if it is another step."""
    if isinstance(action, Withdraw):
        names = {"bid": action.bid, "slot": action.slot, "zone": action.zone}
        return PlanStep(do="withdraw", **names, type="", tier="", why=why)
    if isinstance(action, Ask):
        offer = action.offer
        names = {"bid": action.bid, "slot": action.slot, "zone": offer.zone}
        return PlanStep(do="ask", **names, type=offer.type, tier=offer.tier, why=why)
    return None


def observed_cloud(survey: Survey, now: float) -> ObservedState:
    """Observe the cloud only, without the hosts."""
    return ObservedState(
        observations=survey.observations,
        zones=survey.zones,
        surveyed_at=survey.begun_at,
        awake_at=now,
    )
