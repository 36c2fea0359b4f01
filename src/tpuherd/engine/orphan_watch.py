"""Notices what carries our name in the cloud and belongs to no job; deletes nothing."""

from collections.abc import Iterator, Mapping
from math import inf

from tpuherd.history.apply_zone_events import FOUND, GONE, ORPHAN_KINDS, current_orphans
from tpuherd.model.observed import BidObservation, ObservedState
from tpuherd.model.slot_history import History
from tpuherd.model.slots_and_plan import DesiredSlots, HistoryEvent
from tpuherd.planner.plan import find_orphans
from tpuherd.ports import Store

LOOK_S = 60.0  #: seen in two looks that far apart, it is an orphan


class OrphanWatch:
    """The orphans that were found, by this engine or an earlier one."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._known: dict[str, str] | None = None  #: by name, with the zone
        self._seen: set[str] = set()  #: in the look before
        self._looked_at = -inf

    def find_changes(
        self, desired: DesiredSlots, observed: ObservedState, history: History, now: float
    ) -> list[HistoryEvent]:
        """Return events of orphans that are new or gone."""
        if now < self._looked_at + LOOK_S:
            return []
        self._looked_at = now
        if self._known is None:
            events = self._store.read_events(kinds=ORPHAN_KINDS)
            self._known = current_orphans(event for _, event in events)
        there = {one.bid: one for one in find_orphans(desired, observed, history)}
        changes = list(self._changes(there, observed, now))
        self._seen = set(there)
        return changes

    def _changes(
        self, there: Mapping[str, BidObservation], observed: ObservedState, now: float
    ) -> Iterator[HistoryEvent]:
        assert self._known is not None
        for name, one in there.items():
            if name in self._seen and name not in self._known:
                self._known[name] = one.zone
                yield HistoryEvent(at=now, kind=FOUND, facts=orphan_facts(one))
        for name in sorted(self._known.keys() - there.keys() - self._seen):
            if self._known[name] in observed.zones:
                del self._known[name]
                facts = {"bid": name, "why": "no orphan is seen under this name"}
                yield HistoryEvent(at=now, kind=GONE, facts=facts)


def orphan_facts(observation: BidObservation) -> dict[str, object]:
    """Its facts, with the price that its card names."""
    offer = observation.card.get("offer")
    price = offer.get("price") if isinstance(offer, Mapping) else None
    costs = (price if isinstance(price, int | float) else None) if observation.nodes else 0.0
    state = observation.state or ", ".join(sorted({node.state for node in observation.nodes}))
    why = "it carries our name and belongs to no job: `herd gc` lists and deletes it"
    return {
        "bid": observation.bid, "zone": observation.zone, "state": state, "per_hour": costs,
        "why": why,
    }  # fmt: skip
