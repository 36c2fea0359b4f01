"""Rebuild a lost or damaged store from what the cloud shows under our names, all at once."""

from collections.abc import Callable, Mapping

from tpuherd.catalogue import zones
from tpuherd.engine import observe
from tpuherd.engine.dependencies import EngineDeps
from tpuherd.engine.event_log import RECOVERED, EventLog
from tpuherd.errors import HerdError
from tpuherd.jobfile.jobs_from_cards import rebuild_records, without_programs
from tpuherd.model.observed import BidObservation
from tpuherd.model.slots_and_plan import HistoryEvent
from tpuherd.model.stored_job import StoredJob
from tpuherd.ports import Survey
from tpuherd.targets import fold_names, split_bid_name

SILENT_S = 300.0  #: how long to wait for a silent zone, whose resources would become orphans
EVERYWHERE = frozenset(zones())  #: lost bids may be in any zone


def recover_store(
    parts: EngineDeps, past: EventLog, survey: Survey, since: float, shout: Callable[[str], None]
) -> bool:
    """Adopt all bids the store does not know; False if it is too early."""
    now = parts.clock.now()
    try:
        lost = past.unrecovered_loss()
        late = now >= since + SILENT_S and not (lost and lost.facts.get("jobs"))
        if EVERYWHERE - survey.zones and not late:
            return False  # a node there would become an orphan, and its job request another
        known = parts.store.stored_jobs()
        if lost is None and not past.is_blank():
            return True  # a job was submitted meanwhile: herd engine adopt does it
        dropped = past.dropped_jobs()
        observations = [
            one
            for one in observe.own_observations(survey, parts.owner)
            if is_unknown(one, past, known) and not was_dropped(one, dropped, known)
        ]
        found = without_programs(rebuild_records(observations, known, now, parts.who))
        events = list(found.events)
        if lost is not None:
            events.append(recovered_event(observations, now))
        # In one transaction: a job without its bids would request new ones, and a store
        # that knows some jobs would make the others orphans.
        parts.store.add_jobs(found.stored_jobs, events)
    except HerdError as error:
        shout(error.sentence)
        return False
    for bid in found.unknown:
        shout(f"{bid} has a name of herd but no job in its metadata; list it with herd gc")
    return True


def is_unknown(observation: BidObservation, past: EventLog, known: Mapping[str, StoredJob]) -> bool:
    named = split_bid_name(observation.bid)
    if named is None:
        return False
    stored_job, made = known.get(named.job), observation.card.get("made_at")
    if stored_job is None:
        return True
    slot_history = past.history.slots.get(named.slot)
    other_job = isinstance(made, int | float) and made != stored_job.made_at
    return not other_job and (slot_history is None or observation.bid not in slot_history.bids)


def was_dropped(
    observation: BidObservation, dropped: Mapping[str, float], known: Mapping[str, StoredJob]
) -> bool:
    """Whether its job was removed since, so that adopting it would restore the job."""
    named, made = split_bid_name(observation.bid), observation.card.get("made_at")
    if named is None or named.job in known or not isinstance(made, int | float):
        return False
    return named.job in dropped and made <= dropped[named.job]


def recovered_event(observations: list[BidObservation], now: float) -> HistoryEvent:
    bids = sorted(observation.bid for observation in observations)
    what = fold_names(bids) if bids else "nothing"
    why = f"{what} found in the cloud was missing from the damaged store"
    return HistoryEvent(at=now, kind=RECOVERED, facts={"bids": bids, "why": why})
