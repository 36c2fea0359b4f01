"""What `herd gc` does: shows strays, and carries out what is recorded."""

from collections.abc import Mapping

from tpuherd.cli.console import Console
from tpuherd.cli.desk import desk, dollars, say, say_json
from tpuherd.cli.errand import ABORTED, Home
from tpuherd.core.facts import Sight
from tpuherd.core.targets import fold
from tpuherd.core.trail import Bid, Trails
from tpuherd.core.view_text import lined
from tpuherd.desk.desk import who
from tpuherd.desk.standing import trails_of
from tpuherd.desk.surveyed import described, look, named, per_hour, withdraw, withdrawal
from tpuherd.ports import NotFound


async def collected(
    names: tuple[str, ...], yes: bool, json_: bool, console: Console, home: Home
) -> int:
    """Look, carry out, show; delete what is named."""
    with desk(console, home, "herd gc", yes=yes, begins=False) as here:
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
            question = (
                f"{fold(taken)} {'goes' if len(taken) == 1 else 'go'}, with all that is there"
            )
            if not await here.talk.agree(question):
                return ABORTED
            now, why = here.clock.now(), f"{who()} collected it"
            here.store.append([withdrawal(sight, now, why) for sight in taken.values()])
            await withdraw(seen, taken.values())
    left = {bid: sight for bid, sight in strays.items() if bid not in taken}
    if json_:
        await say_json(console, {
            "strays": [stray(sight) for sight in left.values()],
            "withdrawn": sorted({**taken, **again}), "silent": sorted(seen.silent),
        })  # fmt: skip
        return 0
    for bid in sorted({**taken, **again}):
        await say(console, f"{bid} is being deleted")
    if left:
        await say(console, strays_table(left))
    elif not taken and not again:
        await say(console, f"nothing is left over in {len(seen.survey.zones)} zones")
    if seen.silent:
        await console.tell(f"no answer from {', '.join(sorted(seen.silent))}")
    return 0


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


def strays_table(strays: Mapping[str, Sight]) -> str:
    """With what they cost, and the one command for each."""
    rows = [("NAME", "ZONE", "STATE", "PER HOUR", "DELETE IT BY")]
    for bid, sight in sorted(strays.items()):
        price = dollars(per_hour(sight))
        rows.append((bid, sight.zone, described(sight), price, f"herd gc {bid}"))
    return lined(rows) + "\nherd adopt takes over those whose job is known"
