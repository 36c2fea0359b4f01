"""What `herd plan` does: judges by the store and one look at the cloud."""

from tpuherd import wished
from tpuherd.cli.console import Console
from tpuherd.cli.desk import desk, say, say_json
from tpuherd.cli.errand import Home
from tpuherd.core.facts import Observed
from tpuherd.core.model import Ask, Step, Withdraw
from tpuherd.core.plan import plan
from tpuherd.core.view_text import lined
from tpuherd.desk.standing import trails_of
from tpuherd.desk.surveyed import look
from tpuherd.ports import Survey


async def planned(name: str | None, json_: bool, console: Console, home: Home) -> int:
    """Steps in the cloud, which need no word of a host; of slots what the engine last said."""
    with desk(console, home, "herd plan") as here:
        seen = await look(here)
        rows = here.store.wishes()
        if name is not None:
            rows = {name: here.wish(name)}
        wishes = wished.of_place(rows, here.place, owner=seen.owner).wishes
        trails = trails_of(here.store)
        now = here.clock.now()
        found = plan(wishes, observed(seen.survey, now), trails, now)
        said = here.store.states()
    states = {slot: said.get(slot) or found.states.get(slot, "") for slot in wishes.slots}
    steps = [step for step in found.steps if isinstance(step.action, Ask | Withdraw)
             and (name is None or step.action.slot in wishes.slots)]  # fmt: skip
    if json_:
        rows_ = [as_json(step) for step in steps]
        await say_json(console, {"states": states, "frozen": found.frozen, "steps": rows_})
        return 0
    if found.frozen:
        await say(console, f"nothing is deleted now: {found.frozen}")
    lines = [(slot, "", sentence) for slot, sentence in states.items()]
    lines += [row(step) for step in steps]
    await say(console, lined(lines) if lines else "nothing is wished")
    return 0


def observed(survey: Survey, now: float) -> Observed:
    """One look at the cloud, and none at hosts."""
    return Observed(
        sights=survey.sights, zones=survey.zones, surveyed_at=survey.begun_at, awake_at=now
    )


def as_json(step: Step) -> dict[str, str]:
    """One of them, for programs."""
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


def row(step: Step) -> tuple[str, str, str]:
    """The same for people."""
    told = as_json(step)
    what = f"ask for {told['type']} in" if told["do"] == "ask" else "withdraw from"
    return told["bid"], f"{what} {told['zone']}", told["why"]
