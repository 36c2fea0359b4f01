"""An engine that crashes repeatedly: an event, a line above command output, growing pauses."""

import asyncio
import os
from pathlib import Path
from time import time
from types import SimpleNamespace
from typing import cast

import pytest

from tpuherd.engine import engine_process
from tpuherd.engine.crash_records import (
    PAUSE_S,
    PAUSE_S_MAX,
    ROW_S,
    hold_lease,
    record_crash,
    record_kill,
)
from tpuherd.engine.dependencies import EndReason
from tpuherd.files import try_lock
from tpuherd.jobs import engine_control
from tpuherd.model.slots_and_plan import HistoryEvent
from tpuherd.ports import LeaseHolder
from tpuherd.settings.project_access import ProjectAccess
from tpuherd.store.database import Database
from tpuherd.store.engine_rest import is_at_rest
from tpuherd.store.schema import FORMAT

NOW = 1_800_000_000.0


def said(store: Database, kind: str, at: float, format: int = FORMAT) -> None:
    facts = {"epoch": 1, "why": "rest", "format": format}
    store.append_events([HistoryEvent(at=at, kind=kind, facts=facts)])


def test_repeated_crashes_are_events_a_first_line_and_longer_pauses(tmp_path: Path) -> None:
    store = Database(tmp_path, NOW)
    pauses = [record_crash(store, "OverflowError()", NOW + n) for n in range(9)]
    assert pauses[:3] == [PAUSE_S, 2 * PAUSE_S, 4 * PAUSE_S] and pauses[-1] == PAUSE_S_MAX
    found = [event.facts["count"] for _, event in store.read_events(kinds=("engine.crashed",))]
    assert found == list(range(1, 10))
    [trouble] = store.troubles.read()
    assert trouble.sentence == "it ended unexpectedly 9 times in a row: OverflowError()"
    assert "herd engine logs" in trouble.hint and "starts again in 5 m" in trouble.hint
    said(store, "engine.stopped", NOW + 10)
    assert record_crash(store, "again", NOW + 11) == PAUSE_S
    assert record_crash(store, "late", NOW + 12 + ROW_S) == PAUSE_S
    store.close()


def test_a_killed_engine_is_counted_by_the_next(tmp_path: Path) -> None:
    store = Database(tmp_path, NOW)
    record_kill(store, NOW)
    said(store, "engine.started", NOW)
    said(store, "engine.stopped", NOW + 1)
    record_kill(store, NOW + 2)
    said(store, "engine.started", NOW + 3, format=FORMAT - 1)
    record_kill(store, NOW + 4)  # it ended because this herd migrated its store
    assert not list(store.read_events(kinds=("engine.crashed",)))
    for n in range(6):
        said(store, "engine.started", NOW + 10 + n)
        record_kill(store, NOW + 10 + n)
    pauses = [
        event.facts["retry_in_s"] for _, event in store.read_events(kinds=("engine.crashed",))
    ]
    assert pauses == [0.0] * 6  # the command that starts it again does not wait
    assert "6 times in a row" in store.troubles.read()[0].sentence
    store.close()


def test_no_other_engine_leads_during_the_pause(tmp_path: Path) -> None:
    store, other = Database(tmp_path, NOW), Database(tmp_path, NOW)
    epoch = store.take_lease(LeaseHolder(pid=1, host="elsewhere"), time(), 0.1)
    assert epoch is not None
    asyncio.run(hold_lease(store, epoch, 0.3))
    store.renew_lease(epoch, time() + 60)
    assert other.take_lease(LeaseHolder(pid=2, host="elsewhere"), time(), 30.0) is None
    store.close()
    other.close()


def test_a_starting_engine_counts_as_running(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = Database(tmp_path, NOW)
    assert not engine_control.is_engine_running(store, NOW)
    held = try_lock(tmp_path / engine_control.STARTING)
    assert held is not None and engine_control.is_engine_running(store, NOW)
    os.close(held)
    assert not engine_control.is_engine_running(store, NOW)
    store.close()


@pytest.mark.parametrize("late", ["", "before its end is recorded", "after it"])
def test_an_engine_that_ends_at_rest_goes_on_for_a_job_that_came_meanwhile(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, late: str
) -> None:
    lives: list[int] = []

    async def end_at_rest(
        place: object, store: Database, environ: object, epoch: int, diary: object
    ) -> EndReason:
        lives.append(epoch)
        read = store.append_events([HistoryEvent(at=NOW, kind="engine.started")])
        came = HistoryEvent(at=NOW, kind="job.submitted", job="gpt")
        ended = HistoryEvent(at=NOW, kind="engine.stopped", facts={"code": "rest", "read": read})
        events = {
            "": [ended],
            "before its end is recorded": [came, ended],
            "after it": [ended, came],
        }
        store.append_events(events[late] if len(lives) == 1 else [ended])
        return EndReason.REST

    monkeypatch.setattr(engine_process, "run_until_ended", end_at_rest)
    place = SimpleNamespace(store_folder=tmp_path, database=None)
    why = engine_process.run_engine(cast(ProjectAccess, place), {}, aloud=False)
    assert why == "the engine has ended: rest"
    assert len(lives) == (2 if late else 1)
    store = Database(tmp_path, NOW)
    assert is_at_rest(store) and store.lease_holder(NOW) is None
    store.close()
