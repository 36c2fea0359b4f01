"""Rebuilds the jobs and bids of a lost store from the cards of nodes and requests."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from tpuherd.jobfile.notify_fields import NOTIFY
from tpuherd.jobfile.read_job import JobSpec, read_fields
from tpuherd.model.observed import BidObservation, NodeState
from tpuherd.model.receivers import ReceiverKind
from tpuherd.model.slots_and_plan import Goal, HistoryEvent
from tpuherd.model.stored_job import StoredJob
from tpuherd.targets import split_bid_name

USER_MAX = 200  #: characters of a user's name that are kept
PRICES = ("price", "egress", "per_gib")  #: of an offer
NUMBER_MAX, LATEST = 1e6, 4e9  #: of an offer; the second until which a card may date from


@dataclass(frozen=True, kw_only=True, slots=True)
class RebuiltRecords:
    """What to write to a store that does not know these bids."""

    stored_jobs: tuple[StoredJob, ...]  #: jobs that the store does not have
    events: tuple[HistoryEvent, ...]  #: to write with them
    unknown: tuple[str, ...]  #: bids whose card is incomplete


def rebuild_records(
    observations: Iterable[BidObservation],
    known: Mapping[str, StoredJob],
    now: float,
    who: str,
) -> RebuiltRecords:
    """Adopt these bids, each into the job of its card; the newest card defines the job.

    Attempts on their hosts need nothing here: the plan picks up what it finds running.
    """
    jobs: dict[str, list[BidObservation]] = {}
    unknown: list[str] = []
    for observation in observations:
        named = split_bid_name(observation.bid)
        if named is None or not is_readable_card(observation, named.job):
            unknown.append(observation.bid)
        else:
            jobs.setdefault(named.job, []).append(observation)
    stored_jobs: list[StoredJob] = []
    events: list[HistoryEvent] = []
    for job, mine in sorted(jobs.items()):
        kind = "job.changed" if job in known else "job.submitted"
        if job not in known:
            stored_jobs.append(build_stored_job(job, mine, now, who))
        why = f"{who} adopted {', '.join(sorted(observation.bid for observation in mine))}"
        events.append(HistoryEvent(at=now, kind=kind, job=job, facts={"who": who, "why": why}))
        events += (build_adopted_event(observation, now, who) for observation in mine)
    return RebuiltRecords(
        stored_jobs=tuple(stored_jobs), events=tuple(events), unknown=tuple(sorted(unknown))
    )


def without_programs(found: RebuiltRecords) -> RebuiltRecords:
    """Leave out receivers of messages that are commands, and say so in the event.

    They run on this machine, and whoever may create nodes in the project may write a card.
    """
    clean = {one.job: drop_commands(one.document) for one in found.stored_jobs}
    bare = {one.job for one in found.stored_jobs if clean[one.job] != one.document}
    said = "; the commands of its notify were left out: `herd run FILE` adds them"
    return replace(
        found,
        stored_jobs=tuple(replace(one, document=clean[one.job]) for one in found.stored_jobs),
        events=tuple(
            replace(one, facts={**one.facts, "why": f"{one.facts['why']}{said}"})
            if one.job in bare and one.kind.startswith("job.")
            else one
            for one in found.events
        ),
    )


def drop_commands(document: Mapping[str, Any]) -> dict[str, Any]:
    """Return the job without receivers that are commands; without `notify` if no other is left."""
    receivers = NOTIFY.read(document.get("notify") or [], lambda *_: None) or ()
    kept = [one for one in receivers if one.kind is not ReceiverKind.COMMAND and not one.run]
    if len(kept) == len(receivers):
        return dict(document)
    rest = {name: value for name, value in document.items() if name != "notify"}
    return {**rest, "notify": NOTIFY.write(kept)} if kept else rest


def is_readable_card(observation: BidObservation, job: str) -> bool:
    """Whether the card names this job, and an offer that may have been requested."""
    document = observation.card.get("job")
    found = read_fields(document) if isinstance(document, Mapping) else None
    fits = isinstance(found, JobSpec) and found.name == job
    return fits and bool(observation.card.get("offer")) and has_plausible_numbers(observation.card)


def has_plausible_numbers(card: Mapping[str, Any]) -> bool:
    """Whether its times can be shown, and its prices be added."""
    counts = [card["offer"].get(name) or 0 for name in ("rank", "hosts", *PRICES)]
    times = [card.get(name) or 0 for name in ("made_at", "asked_at")]
    return all(0 <= one <= NUMBER_MAX for one in counts) and all(0 <= at <= LATEST for at in times)


def build_stored_job(
    job: str, observations: Iterable[BidObservation], now: float, who: str
) -> StoredJob:
    """Build the job from its newest card."""
    card = max(
        observations, key=lambda observation: float(observation.card.get("asked_at") or 0.0)
    ).card
    return StoredJob(
        job=job,
        goal=Goal(card.get("goal", Goal.RUN)),
        document=dict(card["job"]),
        snapshot=str(card.get("snapshot", "")),
        made_at=float(card.get("made_at") or now),
        changed_at=now,
        who=who,
        user=str(card.get("user", ""))[:USER_MAX],
    )


def build_adopted_event(observation: BidObservation, now: float, who: str) -> HistoryEvent:
    named, card = split_bid_name(observation.bid), observation.card
    assert named is not None
    asked_at = float(card.get("asked_at") or now)
    facts: dict[str, Any] = {
        "bid": observation.bid,
        "generation": named.generation,
        "offer": {**card["offer"], "zone": observation.zone},  # whatever the card says
        "nodes": int(card["job"].get("slices", 1)),
        "node_digest": str(card.get("node_digest", "")),
        "asked_at": asked_at,
        "answered_at": now,
        "why": f"{who} adopted it",
    }
    # The time of the grant is lost, so costs count from the request.
    if observation.nodes:
        facts["granted_at"] = asked_at
    if observation.nodes and all(node.word is NodeState.READY for node in observation.nodes):
        facts["ready_at"] = asked_at
    return HistoryEvent(at=now, kind="bid.adopted", job=named.job, slot=named.slot, facts=facts)
