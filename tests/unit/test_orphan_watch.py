"""Orphans: told when two looks have shown them, and gone only if their zone says so."""

from pathlib import Path

from tpuherd.engine.orphan_watch import LOOK_S, OrphanWatch
from tpuherd.history.apply_zone_events import current_orphans
from tpuherd.model.observed import BidObservation, NodeObservation, NodeState, ObservedState
from tpuherd.model.slot_history import History
from tpuherd.model.slots_and_plan import DesiredSlots, HistoryEvent
from tpuherd.store.database import Database

NOBODY = DesiredSlots(slots={}, owner="7kq")
NODE = NodeObservation(
    name="old-0-g1-7kq", word=NodeState.READY, state="READY", incarnation="1", hosts=1
)


def seen(*names: str, zones: tuple[str, ...] = ("z",)) -> ObservedState:
    card = {"offer": {"price": 12.5}}
    bids = {name: BidObservation(bid=name, zone="z", nodes=(NODE,), card=card) for name in names}
    return ObservedState(observations=bids, zones=frozenset(zones), surveyed_at=1.0)


def look(watch: OrphanWatch, observed: ObservedState, number: int) -> list[HistoryEvent]:
    return watch.find_changes(NOBODY, observed, History(), number * LOOK_S)


def test_an_orphan_is_found_in_the_second_look_once_and_gone_when_its_zone_says_so(
    tmp_path: Path,
) -> None:
    store = Database(tmp_path, 0.0)
    watch, old = OrphanWatch(store), seen("old-0-g1-7kq")
    assert look(watch, old, 0) == []
    assert watch.find_changes(NOBODY, old, History(), 1.0) == [], "too soon to tell"
    (found,) = look(watch, old, 1)
    assert (found.kind, found.job) == ("orphan.found", "")
    assert found.facts["per_hour"] == 12.5 and found.facts["zone"] == "z"
    assert look(watch, old, 2) == []
    store.append_events([found])
    later = OrphanWatch(store)
    assert [look(later, old, number) for number in (0, 1)] == [[], []], "known by the log"
    assert [look(later, seen(zones=()), number) for number in (2, 3)] == [[], []], "no answer"
    (gone,) = look(later, seen(), 4)
    assert (gone.kind, gone.facts["bid"]) == ("orphan.gone", "old-0-g1-7kq")
    assert current_orphans([found]) == {"old-0-g1-7kq": "z"}
    assert current_orphans([found, gone]) == {}
    store.close()


def test_others_and_a_strange_card_are_left_alone(tmp_path: Path) -> None:
    store = Database(tmp_path, 0.0)
    watch = OrphanWatch(store)
    strange = BidObservation(bid="old-0-g1-7kq", zone="z", nodes=(NODE,), card={"offer": [1]})
    observed = ObservedState(
        observations={"old-0-g1-7kq": strange, "it-0-g1-abc": seen("x").observations["x"]},
        zones=frozenset("z"),
        surveyed_at=1.0,
    )
    look(watch, observed, 0)
    (found,) = look(watch, observed, 1)
    assert (found.facts["bid"], found.facts["per_hour"]) == ("old-0-g1-7kq", None)
    store.close()
