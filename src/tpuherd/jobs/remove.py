"""Removes jobs with everything they have, and verifies that nothing is left."""

from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from dataclasses import dataclass

from tpuherd.errors import NotFound
from tpuherd.jobs.cloud_inventory import (
    CloudInventory,
    parse_bid_name,
    survey_cloud,
    withdraw_bids,
    withdrawal_event,
)
from tpuherd.jobs.load_history import load_history
from tpuherd.jobs.open_project import Session, no_job_message, user_at_machine
from tpuherd.model.observed import BidObservation
from tpuherd.model.slot_history import History, SlotHistory
from tpuherd.model.slots_and_plan import HistoryEvent
from tpuherd.model.stored_job import StoredJob
from tpuherd.store.notify_secrets import notify_key
from tpuherd.store.set_aside import HELD, awaits_acknowledgement
from tpuherd.sync.snapshot_store import open_archive
from tpuherd.targets import fold_names

LOOK_S = 2.0
STUCK_S = 180.0  #: deleting a suspended request usually takes half of this


@dataclass(frozen=True, kw_only=True, slots=True)
class RemovalPreview:
    """What a removal would delete."""

    jobs: tuple[str, ...]
    known: tuple[str, ...]  #: those that the store knows
    orphans: Mapping[str, BidObservation]  #: those that it does not know
    losses: tuple[str, ...]  #: one line per loss

    @property
    def question(self) -> str:
        return f"this removes {fold_names(self.jobs)}, with its nodes and everything on them"


def removal_preview(
    names: Sequence[str], inventory: CloudInventory, here: Session
) -> RemovalPreview:
    """Preview the removal of the jobs with exactly these names, or of all jobs."""
    stored_jobs = here.store.stored_jobs()
    histories = load_history(here.store)
    for name in names:
        if name in stored_jobs:
            here.check_user(stored_jobs[name])
    ours = [name for name, stored in stored_jobs.items() if here.is_ours(stored)]
    # What belongs to no job may be another's.
    shared = not names and (bool(here.acting_for) or len(ours) < len(stored_jobs))
    orphans = {
        bid: observation
        for bid, observation in inventory.find_orphans(histories).items()
        if not shared and (not names or parse_bid_name(bid).job in names)
    }
    held = sorted(
        {name.rpartition("-")[0] for name, history in histories.slots.items() if history.bids}
        - stored_jobs.keys()
    )
    known = tuple(dict.fromkeys((*(stored_jobs if names else ours), *(() if shared else held))))
    there = tuple(dict.fromkeys((*known, *sorted(parse_bid_name(bid).job for bid in orphans))))
    for name in names:
        if name not in there:
            raise NotFound(no_job_message(name, stored_jobs))
    jobs = tuple(dict.fromkeys(names)) or there
    return RemovalPreview(
        jobs=jobs,
        known=tuple(job for job in jobs if job in known),
        orphans=orphans,
        losses=tuple(
            line for job in jobs for line in job_losses(job, stored_jobs, histories, orphans)
        ),
    )


def job_losses(
    job: str,
    jobs: Mapping[str, StoredJob],
    histories: History,
    orphans: Mapping[str, BidObservation],
) -> list[str]:
    slots = {
        name: history for name, history in histories.slots.items() if name.rpartition("-")[0] == job
    }
    lines = [
        f"{name}: {parts}" for name, history in slots.items() if (parts := slot_losses(history))
    ]
    lines += [
        f"{bid} in {observation.zone}, which no job uses"
        for bid, observation in orphans.items()
        if parse_bid_name(bid).job == job
    ]
    outputs = job in jobs and jobs[job].document.get("outputs")
    if outputs and any(history.bids for history in slots.values()):
        lines.append(f"{job}: outputs that are not collected yet")
    return lines or [f"{job}: it has no node"]


def slot_losses(history: SlotHistory) -> str:
    nodes = [one for one in history.bids.values() if one.ready_at is not None and not one.lost_at]
    asked = len(history.bids) - len(nodes)
    parts = [f"the node in {one.offer.zone} ({one.offer.type}, {one.offer.tier})" for one in nodes]
    parts += [f"{asked} request{'s' if asked > 1 else ''}"] if asked else []
    attempt = history.attempt
    if attempt is not None and attempt.ended_at is None:
        saved = "nothing saved yet" if history.saved is None else f"saved at step {history.saved}"
        parts.append(f"running attempt {attempt.number}, {saved}")
    return ", ".join(parts)


async def remove_jobs(found: RemovalPreview, inventory: CloudInventory, here: Session) -> None:
    """Delete the jobs; the engine deletes their nodes, and bids it does not know are deleted
    here.
    """
    now, stored_jobs = here.clock.now(), here.store.stored_jobs()
    archive = open_archive(here.place.folders.state)
    for job in found.known:
        stored = stored_jobs.get(job)
        whose = here.name_other_user(stored) if stored is not None else ""
        facts = {"who": user_at_machine(), "why": f"{user_at_machine()} removed it{whose}"}
        if stored is not None and stored.user:
            facts["user"] = stored.user
        here.store.remove_job(job, [HistoryEvent(at=now, kind="job.removed", job=job, facts=facts)])
        here.store.secrets.remove(job)
        here.store.secrets.remove(notify_key(job))
        archive.pin_snapshots(job, ())
    why = f"{user_at_machine()} removed its job"
    if found.orphans:
        here.store.append_events(
            [withdrawal_event(observation, now, why) for observation in found.orphans.values()]
        )
        await withdraw_bids(inventory, found.orphans.values())


async def wait_until_gone(
    jobs: Sequence[str], here: Session
) -> AsyncIterator[tuple[str, CloudInventory]]:
    """Yield what is still there at each look, until all zones answered and list nothing: ""."""
    while True:
        history = load_history(here.store)
        inventory = await survey_cloud(here)
        there = [bid for bid in inventory.own_bids if parse_bid_name(bid).job in jobs]
        late = stuck_bids(there, history, here.clock.now())
        left = [bid for bid in there if bid not in late] or not_yet_returned(jobs, history)
        silent = sorted(inventory.silent_zones)
        if left:
            yield f"still deleting {fold_names(left)}{remaining_reasons(left, here)}", inventory
        elif silent:
            yield f"no answer from {', '.join(silent)}", inventory
        else:
            proved = gone_events(jobs, history, inventory.survey.begun_at, here.clock.now())
            if events := [one for one in proved if one.facts["bid"] not in there]:
                here.store.append_events(events)
            yield "", inventory
            return
        await here.clock.sleep(LOOK_S)


def stuck_bids(there: Sequence[str], histories: History, now: float) -> set[str]:
    """Return withdrawn requests without a node that the cloud has long failed to delete.

    They cost nothing, and the engine deletes them as soon as the cloud allows it.
    """
    bids = (bid for history in histories.slots.values() for bid in history.bids.values())
    return {
        bid.name
        for bid in bids
        if bid.name in there
        and bid.nodes_deleted_at is not None
        and now >= bid.nodes_deleted_at + STUCK_S
    }


def remaining_reasons(bids: Sequence[str], here: Session) -> str:
    """Say why these bids still exist: no engine runs or may delete, or what it says about each."""
    if here.store.lease_holder(here.clock.now()) is None:
        return ": no engine is running yet to delete them"
    if awaits_acknowledgement(here.store):
        return f": {HELD}"
    states = here.store.slot_messages()
    slots = sorted({parse_bid_name(bid).slot for bid in bids})
    parts = dict.fromkeys(state for slot in slots if (state := states.get(slot)))
    return f": {'; '.join(parts)}" if parts else ""


def not_yet_returned(jobs: Sequence[str], histories: History) -> list[str]:
    """Return bids that were requested and not yet deleted: they may still appear in a list."""
    mine = (history for slot, history in histories.slots.items() if slot.rpartition("-")[0] in jobs)
    bids = (bid for history in mine for bid in history.bids.values())
    return [bid.name for bid in bids if bid.withdrawn_at is None and bid.refusal is None]


def gone_events(
    jobs: Sequence[str], histories: History, listed_at: float, now: float
) -> Iterator[HistoryEvent]:
    """Return end events for bids withdrawn before a list that no longer shows them."""
    for slot, history in histories.slots.items():
        job = slot.rpartition("-")[0]
        for bid in history.bids.values() if job in jobs else ():
            if bid.withdrawn_at is not None and listed_at > max(bid.withdrawn_at, bid.sent_at):
                facts = {"bid": bid.name, "why": "no longer exists"}
                yield HistoryEvent(at=now, kind="bid.deleted", job=job, slot=slot, facts=facts)
