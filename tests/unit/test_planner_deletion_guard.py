"""When too many hosts or nodes disappear at once, deletions wait."""

from dataclasses import replace
from itertools import product
from typing import Any

from tests.unit.planner_scenes import NOW, bid, host, seen, sight
from tpuherd.model.observed import (
    NodeState,
    ObservedState,
)
from tpuherd.model.slot_history import History, SlotHistory
from tpuherd.planner import (
    deletion_guard,
)


def fleet(nodes: int, silent: int, hosts: int = 2, **changes: Any) -> tuple[ObservedState, History]:
    history, sights, words = {}, {}, {}
    for number in range(nodes):
        name = f"gpt-{number}-g1-me"
        mine = bid(name=name, slot=f"gpt-{number}", granted_at=1.0, **changes)
        history[f"gpt-{number}"] = SlotHistory(bids={name: mine})
        sights[name] = replace(sight(NodeState.READY), bid=name)
        words[name] = tuple(
            host(worker, node=name, reached=number * hosts + worker >= silent)
            for worker in range(hosts)
        )
    return seen(observations=sights, hosts=words), History(slots=history)


def test_mass_silence_is_more_than_half_and_at_least_four() -> None:
    for nodes, silent in product(range(1, 6), range(11)):
        observed, history = fleet(nodes, silent)
        quiet = min(silent, nodes * 2)
        expected = quiet >= 4 and quiet > nodes
        assert bool(deletion_guard.silence_reason(observed, history)) == expected, (nodes, silent)
        assert deletion_guard.freeze_reason(observed, history) == deletion_guard.silence_reason(
            observed, history
        )


def test_silence_that_the_cloud_explains_is_no_mass_silence() -> None:
    observed, history = fleet(3, 6)
    lost = {name: sight(NodeState.LOST) for name in observed.observations}
    assert not deletion_guard.silence_reason(replace(observed, observations=lost), history)
    assert not deletion_guard.silence_reason(replace(observed, observations={}), history)
    never = {
        name: tuple(replace(one, heard_at=0.0) for one in words)
        for name, words in observed.hosts.items()
    }
    assert not deletion_guard.silence_reason(replace(observed, hosts=never), history)
    for changes in ({"lost_at": 1.0}, {"withdrawn_at": 1.0}, {"granted_at": None}):
        mine = {
            name: replace(
                slot_history,
                bids={key: replace(one, **changes) for key, one in slot_history.bids.items()},
            )
            for name, slot_history in history.slots.items()
        }
        assert not deletion_guard.silence_reason(observed, History(slots=mine))
        assert not deletion_guard.empty_list_reason(seen(), History(slots=mine))


def test_an_empty_list_is_suspect_if_two_bids_vanish_and_none_remains() -> None:
    for nodes, left in product(range(4), range(4)):
        observed, history = fleet(nodes, 99)
        names = list(observed.observations)
        shown = {name: observed.observations[name] for name in names[:left]}
        expected = nodes >= 2 and left == 0
        empty = replace(observed, observations=shown)
        assert bool(deletion_guard.empty_list_reason(empty, history)) == expected
        assert not deletion_guard.empty_list_reason(replace(empty, zones=frozenset()), history)
        assert not deletion_guard.empty_list_reason(replace(empty, surveyed_at=NOW - 900), history)
    observed, history = fleet(3, 5)
    assert not deletion_guard.empty_list_reason(replace(observed, observations={}), history)
    assert not deletion_guard.freeze_reason(replace(observed, observations={}), history)


def test_a_suspect_list_is_believed_if_it_repeats_after_a_minute() -> None:
    for frozen, surveyed, expected in [
        (None, 0.0, True),
        (NOW - 60, NOW - 1, True),
        (NOW - 59, NOW - 1, False),
        (NOW - 60, NOW - 60, False),
    ]:
        observed = seen(surveyed_at=surveyed)
        assert (
            deletion_guard.can_trust_absence(observed, History(frozen_at=frozen), NOW) == expected
        )
