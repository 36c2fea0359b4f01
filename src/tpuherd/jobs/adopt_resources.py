"""Takes over what bears an owner's name: ours that the store has lost, or another's."""

from collections.abc import Iterable
from dataclasses import dataclass

from tpuherd.errors import NotFound, Unfit
from tpuherd.jobfile.jobs_from_cards import adopted
from tpuherd.jobs.cloud_inventory import Seen, look, named
from tpuherd.jobs.load_history import trails_of
from tpuherd.jobs.open_project import Desk, who
from tpuherd.model.observed import Sight
from tpuherd.settings import project_settings


@dataclass(frozen=True, kw_only=True, slots=True)
class TakenOver:
    """What came of it."""

    bids: tuple[str, ...]
    unknown: tuple[str, ...]  #: whose job stands nowhere

    def as_json(self) -> dict[str, list[str]]:
        """As `herd adopt --json` tells it."""
        jobs = sorted({named(bid).job for bid in self.bids})
        return {"jobs": jobs, "adopted": list(self.bids), "unknown": list(self.unknown)}


async def take_over(owner: str | None, here: Desk) -> TakenOver:
    """That owner's, or our own that the store knows nothing of."""
    seen = await look(here)
    sights = loose(owner, seen, here)
    found = adopted(sights, here.store.wishes(), here.clock.now(), who())
    refuse_clash([one for one in sights if one.bid not in found.unknown], here)
    if owner is not None and owner != seen.owner:
        place = here.place
        project_settings.adopt(here.config, world=place.world, project=place.project, owner=owner)
    here.store.adopt(found.wishes, found.events)
    bids = sorted({one.bid for one in sights} - set(found.unknown))
    return TakenOver(bids=tuple(bids), unknown=found.unknown)


def loose(owner: str | None, seen: Seen, here: Desk) -> list[Sight]:
    """What bears that owner's name, or ours, and the store knows nothing of."""
    if owner is None:
        return list(seen.strays(trails_of(here.store)).values())
    owners = {named(bid).owner for bid in seen.survey.sights}
    if owner not in owners:
        others = sorted(owners - seen.owners)
        there = f": there is {', '.join(others)}" if others else ""
        raise NotFound(f"nothing bears the name of an owner {owner}{there}")
    return list(seen.strays(trails_of(here.store), of=frozenset((owner,))).values())


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
