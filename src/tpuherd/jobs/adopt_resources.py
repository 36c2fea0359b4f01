"""Adopts cloud resources that the store does not know: lost ones of ours, or another owner's."""

from collections.abc import Iterable
from dataclasses import dataclass

from tpuherd.errors import InvalidInput, NotFound
from tpuherd.jobfile.jobs_from_cards import rebuild_records
from tpuherd.jobs.cloud_inventory import CloudInventory, parse_bid_name, survey_cloud
from tpuherd.jobs.load_history import load_history
from tpuherd.jobs.open_project import Session, user_at_machine
from tpuherd.model.observed import BidObservation
from tpuherd.settings import project_settings


@dataclass(frozen=True, kw_only=True, slots=True)
class AdoptionResult:
    bids: tuple[str, ...]
    unknown: tuple[str, ...]  #: bids whose job is not known

    def as_json(self) -> dict[str, list[str]]:
        """Return the output of `herd adopt --json`."""
        jobs = sorted({parse_bid_name(bid).job for bid in self.bids})
        return {"jobs": jobs, "adopted": list(self.bids), "unknown": list(self.unknown)}


async def adopt_resources(owner: str | None, here: Session) -> AdoptionResult:
    """Adopt that owner's resources, or our own ones that the store does not know."""
    inventory = await survey_cloud(here)
    observations = find_unknown_bids(owner, inventory, here)
    found = rebuild_records(
        observations, here.store.stored_jobs(), here.clock.now(), user_at_machine()
    )
    refuse_job_clash([one for one in observations if one.bid not in found.unknown], here)
    if owner is not None and owner != inventory.owner:
        place = here.place
        project_settings.adopt_owner(
            here.config_folder, world=place.world, project=place.project, owner=owner
        )
    here.store.add_jobs(found.stored_jobs, found.events)
    bids = sorted({one.bid for one in observations} - set(found.unknown))
    return AdoptionResult(bids=tuple(bids), unknown=found.unknown)


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
