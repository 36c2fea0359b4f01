"""What the newest sights and words mean for a bid, as events: granted, READY, sick, lost, gone."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from tpuherd.model.observed import HostWord, NodeWord, Observed, Sight
from tpuherd.model.slot_history import Bid, Trails
from tpuherd.model.slots_and_plan import Refusal
from tpuherd.planner.bid_status import FAULTS_MAX, speaking
from tpuherd.planner.policy import Stage
from tpuherd.planner.retry_limits import times

THERE = {Stage.GRANTED, Stage.READY, Stage.SICK}
OVER = {Stage.LOST, Stage.ENDING, Stage.LEAVING}


@dataclass(frozen=True, kw_only=True, slots=True)
class Note:
    """An event of one bid, before it is dated."""

    kind: str
    why: str
    facts: Mapping[str, Any]


def notes(
    bid: Bid, stage: Stage, sight: Sight | None, hosts: tuple[HostWord, ...]
) -> Iterator[Note]:
    """What is to be remembered of this bid."""
    if sight is None:
        yield from of_none(bid, stage)
    elif stage not in {Stage.CALLING, Stage.HIDDEN}:
        yield from of_sight(bid, stage, sight)
    if hosts and bid.noticed_at is None and bid.withdrawn_at is None:
        yield from of_hosts(bid, hosts)


def of_sight(bid: Bid, stage: Stage, sight: Sight) -> Iterator[Note]:
    """A bid that the cloud shows."""
    if bid.missed_at is not None:
        yield note("bid.seen", bid, "the cloud shows it again")
    if stage in THERE and bid.granted_at is None:
        yield note("bid.granted", bid, f"granted in {bid.offer.zone}")
    if stage is Stage.READY and bid.ready_at is None:
        yield note("bid.ready", bid, "READY")
    if stage is Stage.READY and bid.sick_at is not None:
        yield note("bid.well", bid, "well again")
    if stage is Stage.SICK and bid.sick_at is None:
        state = next(one.health or one.state for one in sight.nodes if one.word is NodeWord.SICK)
        yield note("bid.sick", bid, f"the cloud calls it {state}", state=state)
    if stage is Stage.REFUSED and bid.refusal is None:
        refusal, sentence = sight.refusal or Refusal.BROKEN, sight.sentence or sight.state
        yield note("bid.refused", bid, sentence, refusal=str(refusal), sentence=sentence)
    if stage not in OVER or bid.lost_at is not None:
        return
    if bid.withdrawn_at is None:
        how = ended_how(stage, sight)
        yield note("bid.lost", bid, f"{bid.name} was {how}", how=how)
    elif bid.granted_at is not None and bid.freed_at is None and not sight.nodes:
        yield note("bid.freed", bid, "its nodes are gone; its request is still being deleted")


def of_hosts(bid: Bid, hosts: tuple[HostWord, ...]) -> Iterator[Note]:
    """The first host that was told that it goes away."""
    told = next((host for host in hosts if host.deadly), None)
    if told is not None:
        why = f"{told.name} was told: {told.notice}"
        yield note("bid.noticed", bid, why, host=told.name, what=told.notice)


def of_none(bid: Bid, stage: Stage) -> Iterator[Note]:
    """A bid that the cloud does not show, in a zone that answered after it was asked for."""
    if stage is Stage.VANISHED and bid.withdrawn_at is not None:
        yield note("bid.gone", bid, "not there any more")
    elif bid.refusal is not None and stage is Stage.UNSEEN:
        yield note("bid.gone", bid, "refused, and not there")


def missing(
    bid: Bid, hosts: tuple[HostWord, ...], observed: Observed, *, sure: bool
) -> Iterator[Note]:
    """One that was there, and is not shown: believed when seen twice, and nobody speaks there."""
    known = bid.granted_at is not None and bid.lost_at is None and bid.withdrawn_at is None
    fresh = bid.offer.zone in observed.zones and observed.surveyed_at > bid.sent_at
    if not known or not fresh or bid.name in observed.sights or bid.name in observed.calling:
        return
    if speaking(hosts):
        return
    if bid.missed_at is None:
        yield note("bid.missed", bid, "the cloud's lists do not show it")
    elif observed.surveyed_at > bid.missed_at and sure:
        yield note("bid.lost", bid, f"{bid.name} vanished from the cloud's lists", how="vanished")


def ended_how(stage: Stage, sight: Sight) -> str:
    """In the cloud's own word, if it has one."""
    if stage is Stage.LEAVING:
        return "deleted by somebody"
    for node in sight.nodes:
        if node.word is NodeWord.LOST:
            return node.state.lower() or "lost"
    return (sight.state or "lost").lower()


def quarantine(bid: Bid, trails: Trails) -> Iterator[Note]:
    """A node whose chips did not come up twice in a row is not tried any more."""
    if bid.faults >= FAULTS_MAX and bid.name not in trails.bad_nodes:
        why = f"its chips did not come up {times(bid.faults)} in a row"
        yield Note(kind="node.quarantined", why=why, facts={"node": bid.name, "why": why})


def note(kind: str, bid: Bid, why: str, **facts: Any) -> Note:
    return Note(kind=kind, why=why, facts={"bid": bid.name, **facts})
