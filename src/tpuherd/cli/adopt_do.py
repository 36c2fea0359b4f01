"""What `herd adopt` does: wishes and bids out of the cards that nodes carry."""

from collections.abc import Iterable

from tpuherd import config
from tpuherd.cli.console import Console
from tpuherd.cli.desk import desk, say, say_json
from tpuherd.cli.errand import Home
from tpuherd.core.adopt import Adoption
from tpuherd.core.adopt import adopted as taken_over
from tpuherd.core.facts import Sight
from tpuherd.core.targets import fold
from tpuherd.desk.desk import Desk, who
from tpuherd.desk.standing import trails_of
from tpuherd.desk.surveyed import Seen, look, named
from tpuherd.ports import NotFound, Unfit


async def adopted(owner: str | None, json_: bool, console: Console, home: Home) -> int:
    """Theirs, or our own that the store has lost."""
    with desk(console, home, "herd adopt") as here:
        seen = await look(here)
        sights = loose(owner, seen, here)
        wishes = here.store.wishes()
        found = taken_over(sights, wishes, here.clock.now(), who())
        refuse_clash([one for one in sights if one.bid not in found.unknown], here)
        if owner is not None and owner != seen.owner:
            place = here.place
            config.adopt(here.config, world=place.world, project=place.project, owner=owner)
        write(found, here)
    bids = sorted({one.bid for one in sights} - set(found.unknown))
    if json_:
        jobs = sorted({named(bid).job for bid in bids})
        await say_json(console, {"jobs": jobs, "adopted": bids, "unknown": list(found.unknown)})
        return 0
    await say(console, f"{fold(bids)} adopted" if bids else "there is nothing to adopt")
    if found.unknown:
        left = fold(found.unknown)
        await console.tell(f"{left}: no job stands in their metadata; herd gc deletes them")
    return 0


def loose(owner: str | None, seen: Seen, here: Desk) -> list[Sight]:
    """What bears that owner's name, or ours, and the store knows nothing of."""
    owners = {named(bid).owner for bid in seen.survey.sights}
    if owner is not None and owner not in owners:
        others = sorted(owners - seen.owners)
        there = f": there is {', '.join(others)}" if others else ""
        raise NotFound(f"nothing bears the name of an owner {owner}{there}")
    wanted = {owner} if owner is not None else seen.owners
    known = {bid for trail in trails_of(here.store).slots.values() for bid in trail.bids}
    return [
        sight
        for bid, sight in seen.survey.sights.items()
        if named(bid).owner in wanted and bid not in known
    ]


def refuse_clash(sights: Iterable[Sight], here: Desk) -> None:
    """Two jobs of one name can't be one."""
    wishes = here.store.wishes()
    for sight in sights:
        wish, made = wishes.get(named(sight.bid).job), sight.card.get("made_at")
        if wish is not None and isinstance(made, int | float) and made != wish.made_at:
            raise Unfit(
                f"{wish.job} is another job here than that of {sight.bid}",
                hint=f"herd down {wish.job} first, or herd gc {sight.bid}",
            )


def write(found: Adoption, here: Desk) -> None:
    """Into the store: the wishes, each with its events, then what is of known ones."""
    for wish in found.wishes:
        lines = [event for event in found.events if event.job == wish.job]
        here.store.put(wish, lines, expected=0)
    new = {wish.job for wish in found.wishes}
    here.store.append([event for event in found.events if event.job not in new])
