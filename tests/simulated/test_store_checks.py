"""What `herd check` says about the jobs and the engine of a world, by its store alone."""

import asyncio
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tpuherd._version import __version__
from tpuherd.checks.check_results import CheckStatus
from tpuherd.checks.machine_checks import check_engine, check_store
from tpuherd.checks.machine_facts import Machine
from tpuherd.checks.run_checks import run_checks
from tpuherd.clock import WallClock
from tpuherd.model.slots_and_plan import Goal, HistoryEvent
from tpuherd.model.stored_job import StoredJob
from tpuherd.ports import LeaseHolder
from tpuherd.settings.project_access import resolve_scope
from tpuherd.store.corruption import MARK
from tpuherd.store.database import Database
from tpuherd.store.engine_rest import REST

OK, WARNING, PROBLEM = CheckStatus.OK, CheckStatus.WARNING, CheckStatus.PROBLEM
NOW = WallClock().now()


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    environ = {"HOME": str(tmp_path), "PATH": "/usr/bin:/bin"}
    return Machine(environ=environ, world=tmp_path / "w", clock=WallClock())


@pytest.fixture
def store(machine: Machine) -> Iterator[Database]:
    folder = resolve_scope(machine.environ, world=machine.world).store_folder
    opened = Database(folder, NOW)
    document = {"name": "gpt", "accelerator": ["v4-8"], "run": "x"}
    job = StoredJob(
        job="gpt", goal=Goal.RUN, document=document, made_at=NOW, changed_at=NOW, who="ada"
    )
    opened.put_job(job, [HistoryEvent(at=NOW, kind="job.submitted", job="gpt", facts={})])
    yield opened
    opened.close()


def look(machine: Machine, function: Any) -> list[tuple[CheckStatus, str]]:
    check = "engine" if function is check_engine else "store"
    found = asyncio.run(
        run_checks({check: lambda: function(machine)}, where="here", clock=machine.clock)
    )
    return [(one.status, one.found) for one in found]


def test_an_engine_is_missed_while_a_job_is_not_at_rest(machine: Machine, store: Database) -> None:
    missing = (PROBLEM, "no engine runs, though there are jobs that are not at rest")
    assert look(machine, check_engine) == [missing]
    holder = LeaseHolder(pid=7, host="elsewhere", who="ada@elsewhere")
    epoch = store.take_lease(holder, NOW, 1e9)  # however long the tests before took
    assert epoch is not None
    (found,) = look(machine, check_engine)
    assert (found[0], found[1].startswith("pid 7 on elsewhere, for ")) == (OK, True)
    started = {"pid": 7, "host": "elsewhere", "version": "0.0.1", "epoch": epoch}
    store.append_events([HistoryEvent(at=NOW, kind="engine.started", facts=started)])
    (found,) = look(machine, check_engine)
    assert found == (
        WARNING,
        f"the engine (pid 7 on elsewhere) runs version 0.0.1, this is {__version__}",
    )
    store.troubles.record_trouble("cloud", "it is down", now=NOW)
    assert [one[0] for one in look(machine, check_engine)] == [WARNING, WARNING]
    store.troubles.end_trouble("cloud")
    store.append_events(
        [HistoryEvent(at=NOW, kind="engine.stopped", facts={"code": REST, "epoch": epoch})]
    )
    store.release_lease(epoch)
    assert look(machine, check_engine) == [(OK, "none runs, and no job needs one")]


def test_a_store_that_was_damaged(machine: Machine, store: Database) -> None:
    assert look(machine, check_store) == [(OK, "1 job")]
    store.close()
    (store.folder / "store.db").write_bytes(b"nonsense" * 999)
    (found,) = look(machine, check_store)
    assert found[0] is not OK, found
    (store.folder / MARK).touch()
    (found,) = look(machine, check_store)
    assert (found[0], "the store was damaged" in found[1]) == (WARNING, True)
