"""Nothing grows with time: what is held after so many losses is held after twice as many."""

from collections.abc import Mapping
from typing import Any

import pytest
from bench.rigs.long_storm import run_storm

from tpuherd.engine import event_log, loop
from tpuherd.history import apply_bid_events
from tpuherd_sim.model import world
from tpuherd_sim.tpu import operations

HOURS = 1 / 24


def test_engine_world_and_store_stay_as_large_as_they_are(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is kept for a time is kept for less here, so that hours show what months do."""
    monkeypatch.setattr(apply_bid_events, "GONE_KEPT", 5)
    monkeypatch.setattr(event_log, "UNPACKED", 100)
    monkeypatch.setattr("tpuherd.store.packed_events.PACKED", 20)
    monkeypatch.setattr(loop, "SAVE_S", 600.0)
    monkeypatch.setattr(world, "LOG_LINES_MAX", 60)
    monkeypatch.setattr(operations, "DAY_S", 3600.0)
    _, early, _, _, late = run_storm(2, 15 * HOURS, 3 * HOURS)
    assert late["events"] > 2 * early["events"]
    assert late["engine_bytes"] < 1.1 * early["engine_bytes"], grown(early, late, "kinds")
    assert late["world_bytes"] < 1.1 * early["world_bytes"], grown(early, late, "world_kinds")
    assert late["unpacked"] < 250 < late["events"]
    assert late["history_bytes"] < 1.1 * early["history_bytes"]


def grown(early: Mapping[str, Any], late: Mapping[str, Any], which: str) -> str:
    """The types of which there are most more objects."""
    more = late[which].copy()
    more.subtract(early[which])
    return str(more.most_common(8))
