"""What bears our name and is nobody's wish: found, and deleted where it is named."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tpuherd.errors import NotFound
from tpuherd.jobs.cloud_inventory import described, look, named, per_hour, withdraw, withdrawal
from tpuherd.jobs.load_history import trails_of
from tpuherd.jobs.open_project import Desk, who
from tpuherd.model.observed import Sight
from tpuherd.model.slot_history import Bid, Trails
from tpuherd.targets import fold


@dataclass(frozen=True, kw_only=True, slots=True)
class Collected:
    """What is left, and what is being deleted."""

    strays: Mapping[str, Sight]
    withdrawn: Sequence[str]
    zones: int  #: so many have answered
    silent: Sequence[str]

    def as_json(self) -> dict[str, Any]:
        """As `herd gc --json` tells it."""
        strays = [stray(sight) for sight in self.strays.values()]
        return {"strays": strays, "withdrawn": list(self.withdrawn), "silent": list(self.silent)}


async def collect(names: Sequence[str], here: Desk) -> Collected | None:
    """Carry recorded withdrawals out, and delete what is named; None where the user says no."""
    seen = await look(here)
    trails = trails_of(here.store)
    held = bids(trails)
    again = {bid: sight for bid, sight in seen.ours.items()
             if bid in held and held[bid].withdrawn_at is not None}  # fmt: skip
    strays = seen.strays(trails)
    for name in names:
        if name not in strays:
            raise NotFound(missing(name, strays, held))
    await withdraw(seen, again.values())
    taken = {name: strays[name] for name in names}
    if taken:
        question = f"{fold(taken)} {'goes' if len(taken) == 1 else 'go'}, with all that is there"
        if not await here.talk.agree(question):
            return None
        now, why = here.clock.now(), f"{who()} collected it"
        here.store.append([withdrawal(sight, now, why) for sight in taken.values()])
        await withdraw(seen, taken.values())
    return Collected(
        strays={bid: sight for bid, sight in sorted(strays.items()) if bid not in taken},
        withdrawn=sorted({**taken, **again}),
        zones=len(seen.survey.zones),
        silent=sorted(seen.silent),
    )


def bids(trails: Trails) -> Mapping[str, Bid]:
    """All that the store knows of."""
    return {name: bid for trail in trails.slots.values() for name, bid in trail.bids.items()}


def missing(name: str, strays: Mapping[str, Sight], held: Mapping[str, Bid]) -> str:
    """The sentence for what can't be deleted so."""
    if name in held:
        return f"{name} is wished for: herd down {named(name).job} gives it back"
    there = f": there is {fold(strays)}" if strays else ""
    return f"nothing that is left over is called {name}{there}"


def stray(sight: Sight) -> dict[str, object]:
    """One, as JSON."""
    return {"name": sight.bid, "zone": sight.zone, "state": described(sight),
            "nodes": len(sight.nodes), "per_hour": per_hour(sight),
            "command": f"herd gc {sight.bid}"}  # fmt: skip
