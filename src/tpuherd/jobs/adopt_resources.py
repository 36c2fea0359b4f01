"""Adopts cloud resources that the store does not know: lost ones of ours, or another owner's."""

from collections.abc import Iterable, Sequence

from tpuherd.errors import InvalidInput, NotFound
from tpuherd.jobfile.jobs_from_cards import rebuild_records, without_programs
from tpuherd.jobs.cloud_inventory import CloudInventory, parse_bid_name, survey_cloud
from tpuherd.jobs.load_history import load_history
from tpuherd.jobs.open_project import Session, user_at_machine
from tpuherd.model.observed import BidObservation
from tpuherd.results import Adoption
from tpuherd.settings import project_settings


async def adopt_resources(owner: str | None, here: Session) -> Adoption:
    """Adopt that owner's resources, or our own ones that the store does not know."""
    inventory = await survey_cloud(here)
    observations = find_unknown_bids(owner, inventory, here)
    known, now = here.store.stored_jobs(), here.clock.now()
    found = without_programs(rebuild_records(observations, known, now, user_at_machine()))
    refuse_job_clash([one for one in observations if one.bid not in found.unknown], here)
    if owner is not None and owner != inventory.owner:
        place = here.place
        project_settings.adopt_owner(
            here.config_folder, world=place.world, project=place.project, owner=owner
        )
    here.store.add_jobs(found.stored_jobs, found.events)
    bids = sorted({one.bid for one in observations} - set(found.unknown))
    return adoption_result(bids, found.unknown)


def adoption_result(bids: Sequence[str], unknown: Sequence[str] = ()) -> Adoption:
    jobs = sorted({parse_bid_name(bid).job for bid in bids})
    return Adoption(jobs=tuple(jobs), adopted=tuple(bids), unknown=tuple(unknown))


def find_unknown_bids(
    owner: str | None, inventory: CloudInventory, here: Session
) -> list[BidObservation]:
    """Return the bids of that owner, or ours, that the store does not know."""
    if owner is None:
        return list(inventory.find_orphans(load_history(here.store)).values())
    owners = {parse_bid_name(bid).owner for bid in inventory.survey.observations}
    if owner not in owners:
        others = sorted(owners - inventory.owners)
        there = f"; owners are {', '.join(others)}" if others else ""
        raise NotFound(f"nothing here belongs to an owner {owner}{there}")
    return list(inventory.find_orphans(load_history(here.store), of=frozenset((owner,))).values())


def refuse_job_clash(observations: Iterable[BidObservation], here: Session) -> None:
    """Refuse a bid whose job has the same name as a different job of ours."""
    jobs = here.store.stored_jobs()
    for observation in observations:
        stored, made_at = (
            jobs.get(parse_bid_name(observation.bid).job),
            observation.card.get("made_at"),
        )
        if stored is not None and isinstance(made_at, int | float) and made_at != stored.made_at:
            raise InvalidInput(
                f"{observation.bid} belongs to a different job than the {stored.job} known here",
                hint=f"run `herd down {stored.job}` first, or `herd gc {observation.bid}`",
            )
