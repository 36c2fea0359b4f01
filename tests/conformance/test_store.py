"""What every store promises, run on each implementation."""

import os
import socket
import sqlite3
import stat
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from itertools import count
from pathlib import Path
from typing import Any, cast

import pytest

from tests.conformance.postgres import Postgres, started_postgres
from tests.conformance.world import until
from tpuherd.errors import InvalidInput, NotReached, StoreDamaged, Superseded
from tpuherd.model.slots_and_plan import Goal, HistoryEvent
from tpuherd.model.stored_job import StoredJob
from tpuherd.ports import LeaseHolder, Store
from tpuherd.settings.folders import LocalFolders
from tpuherd.settings.project_access import ProjectScope
from tpuherd.settings.store_address import StoreAddress
from tpuherd.store import event_table as log
from tpuherd.store import job_table, lease, schema
from tpuherd.store.connection import Connection
from tpuherd.store.corruption import MARK
from tpuherd.store.database import Database
from tpuherd.store.event_table import CHANGE_KINDS
from tpuherd.store.open_database import connect_server

NOW = 1_800_000_000.0
TTL_S = 15.0
Open = Callable[[], Store]


@pytest.fixture(scope="module")
def postgres() -> Iterator[Postgres]:
    with started_postgres() as server:
        yield server


@pytest.fixture(scope="module")
def databases() -> Iterator[str]:
    """Names of databases, each used once."""
    return (f"lab{number}" for number in count())


@pytest.fixture(params=["sqlite", "postgresql"])
def open_store(
    request: pytest.FixtureRequest, tmp_path: Path, databases: Iterator[str]
) -> Iterator[Open]:
    """Opens the same store again and again, as other processes would."""
    opened: list[Database] = []
    address: StoreAddress | None = None
    if request.param == "postgresql":
        address = request.getfixturevalue("postgres").create_database(next(databases))

    def one() -> Store:
        driver = None if address is None else connect_server(address, "project-demo")
        opened.append(Database(tmp_path / "store", NOW, driver))
        return opened[-1]

    yield one
    for store in opened:
        store.close()


def new_job(job: str = "gpt", **changed: object) -> StoredJob:
    usual = {"job": job, "goal": Goal.RUN, "document": {"name": job, "run": "a\n'b' ☃"}}
    return StoredJob(**{**usual, "made_at": NOW, "changed_at": NOW, "who": "ann@desk"} | changed)  # type: ignore[arg-type]


def event(
    n: int, *, job: str = "gpt", slot: str = "gpt-0", kind: str = "bid.requested"
) -> HistoryEvent:
    return HistoryEvent(
        at=NOW + n, kind=kind, job=job, slot=slot, facts={"bid": f"{slot}-g{n}-7kq"}
    )


def holder(host: str = "") -> LeaseHolder:
    return LeaseHolder(pid=os.getpid(), host=host or socket.gethostname(), who="ann@desk")


# ---- jobs ----------------------------------------------------------------------------------------


def test_a_job_is_read_as_written_with_its_next_revision(open_store: Open) -> None:
    store, other = open_store(), open_store()
    assert store.stored_jobs() == {}
    first = store.put_job(new_job(), [event(1, kind="job.submitted")])
    assert first.revision == 1
    assert other.stored_jobs() == {"gpt": first}
    second = other.put_job(new_job(goal=Goal.GONE, snapshot="abc"), [event(2, kind="job.changed")])
    assert second.revision == 2
    assert store.stored_jobs() == {"gpt": second}
    assert [one.kind for _, one in store.read_events()] == ["job.submitted", "job.changed"]


@pytest.mark.parametrize(("expected", "fine"), [(None, True), (1, True), (0, False), (2, False)])
def test_a_write_with_another_expected_revision_changes_nothing(
    open_store: Open, expected: int | None, fine: bool
) -> None:
    store = open_store()
    store.put_job(new_job(), expected=0)
    if fine:
        assert store.put_job(new_job(snapshot="new"), expected=expected).revision == 2
        return
    with pytest.raises(Superseded, match="gpt was changed by another command"):
        store.put_job(new_job(snapshot="new"), [event(1)], expected=expected)
    assert store.stored_jobs()["gpt"].snapshot == ""
    assert list(store.read_events()) == []


def test_jobs_are_adopted_all_or_none(open_store: Open) -> None:
    store, other = open_store(), open_store()
    before = store.change_counter()
    store.add_jobs([new_job(), new_job(job="bert")], [event(1)])
    assert sorted(other.stored_jobs()) == ["bert", "gpt"]
    assert store.change_counter() != before
    with pytest.raises(Superseded, match="bert was changed by another command"):
        store.add_jobs([new_job(job="llama"), new_job(job="bert", snapshot="new")], [event(2)])
    assert sorted(other.stored_jobs()) == ["bert", "gpt"]
    assert len(list(store.read_events())) == 1


def test_a_job_keeps_whose_it_is(open_store: Open) -> None:
    open_store().add_jobs([new_job(user="ana"), new_job("bert")], [])
    assert {name: job.user for name, job in open_store().stored_jobs().items()} == {
        "gpt": "ana",
        "bert": "",
    }


def test_a_setting_is_read_as_written_and_changes_the_version(open_store: Open) -> None:
    store, other = open_store(), open_store()
    assert other.load_setting("shares") is None
    before, here = other.change_counter(), store.change_counter()
    store.put_setting("shares", {"users": {"ana": 2.0}}, [event(1)])
    assert other.load_setting("shares") == {"users": {"ana": 2.0}}
    assert other.change_counter() != before and store.change_counter() != here
    assert [one for _, one in other.read_events()] == [event(1)]


def test_a_setting_is_changed_from_what_it_is_at_that_moment(open_store: Open) -> None:
    store, other = cast(Database, open_store()), cast(Database, open_store())
    before = store.change_counter()
    for one in (store, other, store):
        one.change_setting("many", lambda now: {"n": (now or {"n": 0})["n"] + 1}, [event(1)])
    assert other.load_setting("many") == {"n": 3}
    assert store.change_counter() > before
    assert len(list(store.read_events())) == 3


def test_a_removed_job_is_gone_and_may_be_removed_again(open_store: Open) -> None:
    store = open_store()
    store.put_job(new_job())
    store.put_job(new_job("gpt2"))
    store.remove_job("gpt", [event(1, kind="job.removed")])
    store.remove_job("gpt")
    assert list(store.stored_jobs()) == ["gpt2"]
    assert [one.kind for _, one in store.read_events()] == ["job.removed"]
    assert store.put_job(new_job(), expected=0).revision == 1


def test_the_version_covers_jobs_here_and_everything_elsewhere(open_store: Open) -> None:
    store, other = open_store(), open_store()
    writes: list[tuple[Callable[[Store], object], bool]] = [
        (lambda one: one.put_job(new_job()), True),
        (lambda one: one.append_events([event(1)]), False),
        (lambda one: one.put_slot_messages({"gpt-0": "waits"}), False),
        (lambda one: one.remove_job("gpt"), True),
    ]
    for write, tells_itself in writes:
        before = store.change_counter(), other.change_counter()
        assert (store.change_counter(), other.change_counter()) == before
        write(store)
        assert (store.change_counter() != before[0]) is tells_itself
        assert other.change_counter() != before[1]


# ---- events --------------------------------------------------------------------------------------


def test_events_are_numbered_in_order_and_read_as_written(open_store: Open) -> None:
    store, other = open_store(), open_store()
    assert store.append_events([]) == 0
    told = [event(n) for n in range(1, 1203)]  # more than is read at once
    assert store.append_events(told[:700]) == 700
    assert other.append_events(told[700:]) == 1202
    assert list(store.read_events()) == list(enumerate(told, 1))
    assert list(store.read_events(after=1200)) == [(1201, told[1200]), (1202, told[1201])]
    assert list(store.read_events(after=1202)) == []


def test_events_are_selected_by_job_slot_kind_and_number(open_store: Open) -> None:
    store = open_store()
    told = [
        event(1, kind="job.submitted", slot=""),
        event(2),
        event(3, slot="gpt-1"),
        event(4, job="gpt2", slot="gpt2-0"),
        event(5, kind="bid.granted"),
    ]
    store.append_events(told)

    def chosen(**words: object) -> list[int]:
        return [seq for seq, _ in store.read_events(**words)]  # type: ignore[arg-type]

    assert chosen(job="gpt") == [1, 2, 3, 5]
    assert chosen(slot="gpt-0") == [2, 5]
    assert chosen(kinds=("job.submitted", "bid.granted")) == [1, 5]
    assert chosen(kinds=()) == []
    assert chosen(limit=2) == [1, 2]
    assert chosen(limit=2, newest=True) == [4, 5]
    assert chosen(job="gpt", limit=2, newest=True) == [3, 5]
    assert chosen(limit=9, newest=True, after=3) == [4, 5]
    assert chosen(limit=0) == []


def test_invalid_json_is_refused_with_its_whole_batch(open_store: Open) -> None:
    store = open_store()
    with pytest.raises(TypeError):
        store.append_events(
            [event(1), HistoryEvent(at=NOW, kind="bid.requested", facts={"offer": object()})]
        )
    assert list(store.read_events()) == []
    assert store.append_events([event(2)]) == 1


def test_routine_events_of_long_removed_jobs_are_pruned_and_nothing_else(open_store: Open) -> None:
    store, other = open_store(), open_store()
    kinds = ("attempt.saved", "attempt.ended", "job.removed")
    for job, since in (("old", 0), ("again", 0), ("new", 100)):
        store.append_events(
            [event(since + at, kind=kind, job=job) for at, kind in enumerate(kinds)]
        )
    store.append_events([event(3, kind="attempt.saved", job="old")])
    store.put_job(new_job(job="again"))
    before = [seq for seq, _ in store.read_events()]
    assert store.prune_events(["attempt.saved"], before=NOW + 50, most=1) == 1
    assert store.prune_events(["attempt.saved"], before=NOW + 50, most=100) == 0
    assert before[0] not in [seq for seq, _ in other.read_events()]
    assert [seq for seq, _ in other.read_events()] == before[1:], "the last is the mark of readers"
    assert store.append_events([event(9)]) == before[-1] + 1


# ---- lease ---------------------------------------------------------------------------------------


def move_lease(store: Store, seconds: float, *, by: str = "until") -> None:
    """Move the end of the lease, or its epoch, as if that much time had passed."""
    assert isinstance(store, Database)
    with store._driver.write_transaction() as connection:
        connection.execute(f"UPDATE lease SET {by} = {by} + ?", (seconds,))


def test_one_engine_at_a_time_has_the_lease(open_store: Open) -> None:
    """In PostgreSQL by the server's clock, which is about this machine's."""
    store, other, now = open_store(), open_store(), time.time()
    assert store.lease_holder(now) is None
    epoch = store.take_lease(holder(), now, TTL_S)
    assert epoch is not None
    assert epoch / 1000 == pytest.approx(now, abs=5)
    assert other.take_lease(holder(), now, TTL_S) is None
    found = other.lease_holder(now)
    assert found is not None
    assert (found.pid, found.epoch) == (os.getpid(), epoch)
    assert found.until == pytest.approx(now + TTL_S, abs=5)
    move_lease(store, -TTL_S / 2)
    store.renew_lease(epoch, now)
    move_lease(store, -TTL_S / 2)
    assert other.take_lease(holder(), now, TTL_S) is None
    store.release_lease(epoch)
    assert other.lease_holder(now) is None
    assert (other.take_lease(holder(), now, TTL_S) or 0) > epoch


def test_an_engine_that_slept_too_long_is_outdated_and_writes_nothing(open_store: Open) -> None:
    store, other, now = open_store(), open_store(), time.time()
    old = store.take_lease(holder(), now, TTL_S)
    assert old is not None
    move_lease(store, -TTL_S)
    assert store.lease_holder(now) is None
    store.append_events([event(1)], epoch=old)  # no other writer has appeared
    new = other.take_lease(holder(), now, TTL_S)
    assert new is not None
    assert new > old
    until(lambda: is_connected(store), "a connection")
    for late in (
        lambda: store.append_events([event(2)], epoch=old),
        lambda: store.renew_lease(old, now),
    ):
        with pytest.raises(Superseded, match="another engine took over"):
            late()
    store.release_lease(old)  # changes nothing
    assert isinstance(store, Database)
    store.close()
    assert other.lease_holder(now) is not None
    assert other.append_events([event(3)], epoch=new) == 2


def is_connected(store: Store) -> bool:
    """Whether it can be read: the server ends the connection of a leader that was replaced."""
    try:
        return store.change_counter() >= 0
    except NotReached:
        return False


def test_the_epoch_rises_even_if_the_clock_goes_back(open_store: Open) -> None:
    store, now = open_store(), time.time()
    first = store.take_lease(holder(), now, TTL_S)
    assert first is not None
    move_lease(store, 3_600_000, by="epoch")
    store.release_lease(first + 3_600_000)
    assert store.take_lease(holder(), now, TTL_S) == first + 3_600_001


def test_an_engine_below_the_least_version_does_not_lead(
    open_store: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    newer, older = open_store(), open_store()
    with monkeypatch.context() as upgraded:
        upgraded.setattr("tpuherd.store.lease.LEADER", lease.LEADER + 1)
        epoch = newer.take_lease(holder(), NOW, TTL_S)
        assert epoch is not None
        assert older.take_lease(holder(), NOW + 1, TTL_S) is None  # it leads: no reason to refuse
        newer.release_lease(epoch)
    for store in (older, newer):
        with pytest.raises(InvalidInput, match="led by an engine of a newer herd") as refused:
            store.take_lease(holder(), NOW + 2, TTL_S)
        assert "start the engine of the newer one" in refused.value.hint
    assert older.lease_holder(NOW + 3) is None
    older.put_job(new_job(), [event(1)])  # commands go on
    with monkeypatch.context() as upgraded:
        upgraded.setattr("tpuherd.store.lease.LEADER", lease.LEADER + 1)
        assert newer.take_lease(holder(), NOW + 4, TTL_S) is not None


def test_a_dead_engine_of_this_machine_is_replaced_at_once(open_store: Open) -> None:
    store, other = open_store(), open_store()
    assert isinstance(store, Database)
    first = store.take_lease(holder(), NOW, TTL_S)
    assert first is not None
    store.close()  # as the kernel does after kill -9; a server hears of it a moment later
    until(lambda: other.lease_holder(NOW + 1) is None, "the lock to go", seconds=TTL_S / 3)
    second = other.take_lease(holder(), NOW + 1, TTL_S)
    assert second is not None
    assert second > first


def test_a_dead_engine_elsewhere_is_replaced_after_its_lease(tmp_path: Path) -> None:
    store, other = Database(tmp_path, NOW), Database(tmp_path, NOW)
    assert store.take_lease(holder("elsewhere"), NOW, TTL_S) is not None
    store.close()
    assert other.take_lease(holder(), NOW + 1, TTL_S) is None
    assert other.take_lease(holder(), NOW + TTL_S, TTL_S) is not None
    other.close()


def test_an_engine_that_was_replaced_can_write_nothing_at_all(open_store: Open) -> None:
    store, other, now = open_store(), open_store(), time.time()
    assert store.take_lease(holder(), now, TTL_S) is not None
    move_lease(store, -TTL_S)
    assert other.take_lease(holder(), now, TTL_S) is not None
    until(lambda: is_connected(store), "a connection")
    for late in (
        lambda: store.put_job(new_job()),
        lambda: store.add_jobs([new_job()], []),
        lambda: store.remove_job("gpt"),
        lambda: store.append_events([event(1)]),
        lambda: store.save_history(1, b"late"),
        lambda: store.put_slot_messages({"gpt-0": "late"}),
        lambda: store.prune_events(["bid.ready"], before=NOW, most=1),
        lambda: store.pack_events(before=NOW, keep=0),
    ):
        with pytest.raises(Superseded, match="another engine took over"):
            late()
    assert (other.stored_jobs(), other.load_history(), other.slot_messages()) == ({}, None, {})
    assert list(other.read_events()) == []
    other.append_events([event(2)])  # the one that leads


def test_no_write_without_a_lease_when_an_epoch_is_given(open_store: Open) -> None:
    with pytest.raises(Superseded):
        open_store().append_events([event(1)], epoch=1)


# ---- trails and states ---------------------------------------------------------------------------


@pytest.mark.parametrize("kind", CHANGE_KINDS)
def test_a_plan_is_not_written_once_a_user_has_changed_a_job(open_store: Open, kind: str) -> None:
    store, user = open_store(), open_store()
    read = user.append_events([event(1, kind=kind)])
    planned = store.append_events([event(2)], unchanged_since=read)
    assert planned > read
    user.append_events([event(3, kind=kind)])
    assert store.append_events([event(4), event(5)], unchanged_since=planned) == 0
    assert [one.facts["bid"] for _, one in store.read_events(after=planned)] == ["gpt-0-g3-7kq"]


def test_the_last_snapshot_of_the_history_is_kept(open_store: Open) -> None:
    store, other = open_store(), open_store()
    assert store.load_history() is None
    store.save_history(7, b"the first")
    store.save_history(9, b"the second")
    assert other.load_history() == (9, b"the second")


def test_slot_states_are_those_of_the_last_plan(open_store: Open) -> None:
    store, other = open_store(), open_store()
    assert store.slot_messages() == {}
    store.put_slot_messages({"gpt-0": "runs", "gpt-1": "waits for capacity"})
    store.put_slot_messages({"gpt-1": "runs"})
    before = other.change_counter()
    store.put_slot_messages({"gpt-1": "runs"})  # nothing new: nothing is written
    assert other.slot_messages() == {"gpt-1": "runs"}
    assert other.change_counter() == before


# ---- the file ------------------------------------------------------------------------------------


def test_only_its_user_can_read_it(tmp_path: Path) -> None:
    before = os.umask(0)
    try:
        store = Database(tmp_path / "store", NOW)
        store.append_events([event(1)])
        store.secrets.put("gpt", "HF_TOKEN", "hf_x")
    finally:
        os.umask(before)
    for path in (tmp_path / "store").rglob("*"):
        mode = stat.S_IMODE(path.stat().st_mode)
        assert mode == (0o700 if path.is_dir() else 0o600), path
    assert stat.S_IMODE((tmp_path / "store").stat().st_mode) == 0o700
    store.close()


def test_secrets_are_kept_beside_the_store_and_deleted_with_the_job(tmp_path: Path) -> None:
    store = Database(tmp_path / "store", NOW)
    value = "line\r\nother ☃"
    store.secrets.put("gpt", "KEY", "old")
    store.secrets.put("gpt", "KEY", value)
    store.secrets.put("gpt2", "OTHER", "x")
    assert store.secrets.get("gpt") == {"KEY": value}
    store.secrets.remove("gpt")
    store.secrets.remove("gpt")
    assert store.secrets.get("gpt") == {}
    assert store.secrets.get("gpt2") == {"OTHER": "x"}
    store.close()
    assert value.encode() not in (tmp_path / "store" / "store.db").read_bytes()


def test_packed_events_are_read_like_all_others(open_store: Open) -> None:
    """Whatever is asked for, the answer is the same before and after."""
    store = open_store()
    assert isinstance(store, Database)
    names = [("gpt", "gpt-0"), ("gpt", "gpt-1"), ("bert", "bert-0"), ("", "")]
    kinds = ("bid.requested", "bid.ready", "attempt.saved")
    for start in range(0, 3_500, 500):
        store.append_events(
            [
                event(n, job=names[n % 4][0], slot=names[n % 4][1], kind=kinds[n % 3])
                for n in range(start, start + 500)
            ]
        )
    asked: tuple[dict[str, Any], ...] = (
        {},
        {"after": 999},
        {"after": 1_000, "limit": 700},
        {"after": 250, "job": "bert", "limit": 500},
        {"slot": "gpt-1", "kinds": ("attempt.saved",)},
        {"kinds": ("engine.started",)},
        {"limit": 1},
        {"limit": 1_800, "newest": True},
        {"job": "gpt", "limit": 1_400, "newest": True},
        {"job": "gpt", "limit": 9_000, "newest": True, "after": 600},
        {"job": "none", "limit": 3, "newest": True},
    )
    before = [list(store.read_events(**one)) for one in asked]
    pages = [store.events_before(seq, job="gpt", slot=None, limit=300) for seq in (400, 1_200)]
    reader = store.read_events()
    first = [next(reader) for _ in range(600)]
    assert store.pack_events(before=NOW + 998, keep=5_000) == 0  # the thousandth is newer
    assert store.pack_events(before=NOW + 1_000, keep=5_000) == 1_000
    assert store.pack_events(before=NOW, keep=1_200) == 1_000  # too many are newer
    assert store.pack_events(before=NOW, keep=1_500) == 0
    assert [*first, *reader] == before[0]  # also while they are being read
    assert [list(store.read_events(**one)) for one in asked] == before
    assert pages == [
        store.events_before(seq, job="gpt", slot=None, limit=300) for seq in (400, 1_200)
    ]
    assert store.append_events([event(0)]) == 3_501
    with store._driver.read_transaction() as connection:
        rows = connection.execute("SELECT length(content) FROM packed_events").fetchall()
        assert connection.execute("SELECT count(*) FROM events").fetchone() == (1_501,)
    assert len(rows) == 2
    assert max(size for (size,) in rows) < 20_000


def test_a_newer_store_is_refused_with_a_sentence(tmp_path: Path) -> None:
    Database(tmp_path, NOW).close()
    with sqlite3.connect(tmp_path / "store.db") as connection:
        connection.execute("PRAGMA user_version = 99")
    connection.close()
    with pytest.raises(InvalidInput, match="written by a newer herd") as refused:
        Database(tmp_path, NOW)
    assert "upgrade" in refused.value.hint
    assert not list(tmp_path.glob("*.broken-*"))


def test_a_store_that_a_newer_herd_migrates_meanwhile_is_left_alone(tmp_path: Path) -> None:
    """Its other tables are not damage: an old engine that is still open must not set it aside."""
    old = Database(tmp_path, NOW)
    epoch = old.take_lease(holder(), NOW, TTL_S)
    with closing(sqlite3.connect(tmp_path / "store.db")) as newer:
        newer.executescript(
            "ALTER TABLE events RENAME COLUMN facts TO content; DROP TABLE states;"
            " PRAGMA user_version = 99"
        )
    for use in (
        lambda: old.append_events([event(1)], epoch=epoch),
        lambda: list(old.read_events()),
        lambda: old.slot_messages(),
        lambda: old.renew_lease(epoch or 0, NOW),
    ):
        with pytest.raises(Superseded, match="a newer herd has migrated the store"):
            use()
    old.close()
    assert not (tmp_path / MARK).exists()
    with pytest.raises(InvalidInput, match="written by a newer herd"):
        Database(tmp_path, NOW)
    assert not list(tmp_path.glob("*.broken-*"))


@pytest.mark.parametrize("version", [1, 2])
def test_a_store_of_an_earlier_format_is_refused(tmp_path: Path, version: int) -> None:
    with sqlite3.connect(tmp_path / "store.db") as connection:
        connection.execute(f"PRAGMA user_version = {version}")
    connection.close()
    with pytest.raises(InvalidInput, match="written by an older herd") as refused:
        Database(tmp_path, NOW)
    assert "move it away" in refused.value.hint
    assert "herd engine adopt" in refused.value.hint
    assert not list(tmp_path.glob("*.broken-*"))


def test_an_older_store_is_migrated_step_by_step(tmp_path: Path) -> None:
    connection = sqlite3.connect(tmp_path / "s.db", isolation_level=None)
    schema.migrate_schema(connection)
    connection.execute("INSERT INTO states VALUES ('gpt-0', 'runs')")
    steps = [*schema.STEPS, "CREATE TABLE more (one INTEGER); INSERT INTO more VALUES (1)"]
    schema.migrate_schema(connection, steps)
    schema.migrate_schema(connection, steps)
    assert schema.schema_version(connection) == schema.OLDEST + len(schema.STEPS)
    assert connection.execute("SELECT * FROM states, more").fetchall() == [("gpt-0", "runs", 1)]
    with pytest.raises(sqlite3.Error):
        schema.migrate_schema(connection, [*steps, "CREATE TABLE less (one); nonsense"])
    assert schema.schema_version(connection) == schema.OLDEST + len(schema.STEPS)
    connection.close()


def test_a_store_without_a_least_leader_gets_one_from_whoever_leads(tmp_path: Path) -> None:
    with closing(sqlite3.connect(tmp_path / "store.db", isolation_level=None)) as connection:
        schema.migrate_schema(connection, schema.STEPS[:4])
        assert schema.schema_version(connection) == 6
        fill_store_of_format_6(connection)
    with closing(Database(tmp_path, NOW)) as store:
        expect_first_leader(store)


def fill_store_of_format_6(connection: Connection) -> None:
    """What an engine that has ended leaves."""
    job_table.put_job(connection, new_job(), None)
    log.append_events(connection, [event(1)])
    connection.execute(
        "INSERT INTO lease (one, ttl_s, pid, host, who, epoch, taken_at, until)"
        " VALUES (1, 15, 1, 'elsewhere', 'ann@x', 77, 1, 0)"
    )


def expect_first_leader(store: Database) -> None:
    """All is there as before, and the first engine names the least version."""
    assert list(store.stored_jobs()) == ["gpt"]
    assert [one.kind for _, one in store.read_events()] == ["bid.requested"]
    with store._driver.read_transaction() as connection:
        assert lease.read_least_leader(connection) == 0
    epoch = store.take_lease(holder(), NOW, TTL_S)
    assert epoch is not None
    assert epoch > 77
    with store._driver.read_transaction() as connection:
        assert lease.read_least_leader(connection) == lease.LEADER


def test_jobs_from_before_users_were_kept_belong_to_nobody_in_particular(tmp_path: Path) -> None:
    with closing(sqlite3.connect(tmp_path / "store.db", isolation_level=None)) as connection:
        for step in schema.STEPS[:3]:
            connection.executescript(step)
        connection.execute(f"PRAGMA user_version = {schema.OLDEST + 2}")
        connection.execute("INSERT INTO jobs VALUES ('gpt', 'run', '{}', '', 1, 1, 1, 'ann@x', 0)")
        jobs = job_table.read_jobs(connection, schema.MalformedRows())  # as a moved one is read
        assert jobs["gpt"].user == ""
    store = Database(tmp_path, NOW)
    assert (store.stored_jobs()["gpt"].user, store.stored_jobs()["gpt"].who) == ("", "ann@x")
    store.close()


def test_a_damaged_store_in_use_is_not_moved(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tpuherd.store.set_aside.LET_GO_S", 0.2)
    user = Database(tmp_path, NOW)
    user.put_job(new_job())
    (tmp_path / "store.damaged").touch()
    with pytest.raises(StoreDamaged, match="another process is using it") as refused:
        Database(tmp_path, NOW)
    assert "herd engine stop" in refused.value.hint
    for use in (user.change_counter, user.stored_jobs, lambda: user.append_events([event(1)])):
        with pytest.raises(StoreDamaged, match="is damaged"):  # and so it lets go of it
            use()
    user.close()
    after = Database(tmp_path, NOW)
    assert "the store was damaged" in after.recovery_message
    assert list(after.stored_jobs()) == ["gpt"]  # of its backup
    after.close()


def test_a_process_waiting_for_the_move_continues(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    user = Database(tmp_path, NOW)
    user.put_job(new_job())
    (tmp_path / "store.damaged").touch()
    quicker: list[Database] = []

    def wait(self: object, seconds: float) -> None:
        if not quicker:
            user.close()
            quicker.append(Database(tmp_path, NOW))

    monkeypatch.setattr("tpuherd.clock.WallClock.wait", wait)
    store = Database(tmp_path, NOW)
    assert (
        bool(quicker[0].recovery_message),
        store.recovery_message,
        list(store.stored_jobs()),
    ) == (True, "", ["gpt"])
    for one in (store, *quicker):
        one.close()


@pytest.mark.parametrize("replaced", [False, True])
def test_a_store_removed_while_in_use_is_noticed(tmp_path: Path, replaced: bool) -> None:
    store = Database(tmp_path, NOW)
    store.append_events([event(1)])
    (tmp_path / "store.db").rename(tmp_path / "gone")
    if replaced:
        (tmp_path / "store.db").touch()
    for use in (store.change_counter, lambda: store.append_events([event(2)])):
        with pytest.raises(Superseded, match="was removed while it was in use"):
            use()
    store.close()


def test_a_path_that_is_not_a_folder_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(Exception, match="can't be used") as refused:
        Database(tmp_path / "file", NOW)
    assert "file" in str(refused.value)


def test_each_scope_has_its_own_folder(tmp_path: Path) -> None:
    def store(world: Path | None) -> Path:
        folders = LocalFolders(config=tmp_path, state=tmp_path, runtime=tmp_path)
        return ProjectScope(world=world, project="p", folders=folders).store_folder

    assert store(None) == tmp_path / "engines" / "project-p"
    one, other = (store(tmp_path / name) for name in ("a", "b"))
    assert one != other
    assert one.parent == tmp_path / "engines"


def test_a_history_that_an_older_herd_wrote_is_ignored(tmp_path: Path) -> None:
    store = Database(tmp_path, NOW)
    with closing(sqlite3.connect(tmp_path / "store.db")) as connection, connection:
        connection.execute("INSERT INTO history VALUES (1, 7, '{\"v\": 1}')")
    assert store.load_history() is None
    store.close()
