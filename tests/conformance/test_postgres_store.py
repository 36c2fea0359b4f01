"""A store in PostgreSQL, when its server dies or fills up; and moving jobs there."""

import json
import os
import select
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import cast

import pytest

from tests.conformance.postgres import Postgres, started_postgres
from tests.conformance.test_store import (
    NOW,
    TTL_S,
    event,
    expect_first_leader,
    fill_store_of_format_6,
    holder,
    new_job,
)
from tests.conformance.world import until
from tpuherd.engine.engine_process import release_when_possible
from tpuherd.errors import (
    HerdError,
    InvalidInput,
    NotAllowed,
    NotFound,
    NotReached,
    OperationFailed,
    Superseded,
)
from tpuherd.settings.folders import LocalFolders
from tpuherd.settings.project_access import (
    ProjectAccess,
    ProjectScope,
    find_owner_id,
    get_owner_id,
    resolve_access,
)
from tpuherd.settings.store_address import StoreAddress, parse_store_url, refuse_password
from tpuherd.store import event_table as log
from tpuherd.store.change_kind import move_to_file, move_to_server
from tpuherd.store.database import Database
from tpuherd.store.open_database import connect_server, open_database, refuse_other_login
from tpuherd.store.postgres import (
    PostgresConnection,
    PostgresServer,
    log_in,
    migrate_tables,
    read_format,
)
from tpuherd.store.schema import STEPS

MEMBER = "CREATE ROLE {0} LOGIN IN ROLE lab; ALTER ROLE {0} IN DATABASE {1} SET role = lab"
SECRET = "s3cr3t-canary"
LEAD = """
import sys, time
from tests.conformance.test_store import holder
from tpuherd.settings.store_address import parse_store_url
from tpuherd.store.database import Database
from tpuherd.store.open_database import connect_server
from pathlib import Path
address = parse_store_url(sys.argv[1], {}, origin="the URL")
store = Database(Path(sys.argv[2]), 0.0, connect_server(address, "project-demo"))
print(store.take_lease(holder("elsewhere"), time.time(), 3600.0), flush=True)
time.sleep(3600)
"""


@pytest.fixture(scope="module")
def server() -> Iterator[Postgres]:
    with started_postgres() as found:
        yield found


@pytest.fixture
def address(server: Postgres, request: pytest.FixtureRequest) -> StoreAddress:
    name = "".join(one for one in request.node.name.lower() if one.isalnum())[-40:]
    return server.create_database(f"d{name}")


def scope_of(home: Path, address: StoreAddress | None) -> ProjectScope:
    folders = LocalFolders(config=home / "config", state=home / "state", runtime=home / "run")
    return ProjectScope(world=None, project="demo", folders=folders, database=address)


def open_server(address: StoreAddress, folder: Path) -> Database:
    return Database(folder, NOW, connect_server(address, "project-demo"))


def test_a_killed_leader_elsewhere_is_replaced_long_before_its_lease_ends(
    address: StoreAddress, tmp_path: Path
) -> None:
    with (
        subprocess.Popen(
            [sys.executable, "-c", LEAD, address.url, str(tmp_path)], stdout=subprocess.PIPE
        ) as leader,
        closing(open_server(address, tmp_path)) as store,
    ):
        assert leader.stdout is not None
        epoch = int(leader.stdout.readline())
        now = epoch / 1000 + 1
        assert store.take_lease(holder(), now, TTL_S) is None
        os.kill(leader.pid, signal.SIGKILL)
        until(lambda: store.lease_holder(now) is None, "its end", seconds=60)
        second = store.take_lease(holder(), now, TTL_S)
        assert second is not None
        assert second > epoch


@pytest.mark.parametrize("words", [(), ("again",), ("again", "and again")])
def test_a_transaction_that_hangs_after_a_batch_is_ended_by_the_server(
    address: StoreAddress, tmp_path: Path, words: tuple[str, ...]
) -> None:
    """Whatever its last statement was."""
    with closing(open_server(address, tmp_path)) as store, pytest.raises(NotReached):
        store.put_slot_messages({"gpt-0": "runs", "gpt-1": "%s 'waits'"})
        assert store.slot_messages() == {"gpt-0": "runs", "gpt-1": "%s 'waits'"}
        server_side = cast("PostgresServer", store._driver)
        with server_side.write_transaction() as connection:
            connection.execute("SET idle_in_transaction_session_timeout = '100ms'")
            log.append_events(connection, [event(1)])
            connection.executemany("DELETE FROM states WHERE slot = ?", [(one,) for one in words])
            notice = select.poll()
            notice.register(server_side._raw.fileno(), select.POLLIN)
            assert notice.poll(20_000), "it goes on"


@pytest.mark.parametrize("role", ["postgres", "ann"])
def test_a_leader_that_hangs_within_a_write_is_replaced_when_its_lease_is_over(
    server: Postgres, address: StoreAddress, tmp_path: Path, role: str
) -> None:
    """Its connection is ended, in a lab with the roles of docs/howto/lab.md, too."""
    lab = (
        "DROP ROLE IF EXISTS ann, bob, lab; CREATE ROLE lab; GRANT pg_signal_backend TO lab;"
        f" GRANT CREATE ON DATABASE {address.database} TO lab"
    )
    if role == "ann":
        for words in (lab, *(MEMBER.format(name, address.database) for name in ("ann", "bob"))):
            server.ask(words)
    other_role = "bob" if role == "ann" else role
    roles = [server.address(address.database, name) for name in (role, other_role)]
    hanging, other = (open_server(one, tmp_path) for one in roles)
    with closing(hanging), closing(other):
        old = hanging.take_lease(holder("elsewhere"), NOW, 1.0)
        with pytest.raises(NotReached), hanging._driver.write_transaction() as connection:
            log.append_events(connection, [event(1)])
            until(lambda: other.lease_holder(NOW) is None, "the end of the lease")
            begun = time.monotonic()
            new = other.take_lease(holder(), NOW, TTL_S)
            assert time.monotonic() - begun < 5, "half of what it would wait for a lock"
            connection.execute("SELECT 1")
        with pytest.raises(Superseded):
            hanging.append_events([event(2)], epoch=old)
        assert other.append_events([event(3)], epoch=new) == 2
        assert [one.at for _, one in other.read_events()] == [NOW + 3]
    if role == "ann":
        server.ask(f"DROP DATABASE {address.database} WITH (FORCE)")


def test_a_store_goes_on_after_its_server_crashed(
    server: Postgres, address: StoreAddress, tmp_path: Path
) -> None:
    with closing(open_server(address, tmp_path)) as store:
        epoch = store.take_lease(holder(), NOW, TTL_S)
        assert epoch is not None
        store.append_events([event(1)], epoch=epoch)
        server.stop("immediate")
        try:
            for _ in range(2):
                with pytest.raises(NotReached, match="can't be reached") as told:
                    store.append_events([event(2)], epoch=epoch)
                assert "nothing is lost" in told.value.hint
            with pytest.raises(NotReached, match="can't be reached"):
                open_server(address, tmp_path)
            assert not release_when_possible(store, epoch, 0.0), "it does not wait forever"
        finally:
            server.start()
        assert store.append_events([event(2)], epoch=epoch) >= 2
        found = store.lease_holder(NOW + 1)
        assert found is not None
        assert found.epoch == epoch, "it leads on, and others see that it lives"
        assert [one.at for _, one in store.read_events()] == [NOW + 1, NOW + 2]
        assert release_when_possible(store, epoch, 0.0)
        assert store.lease_holder(NOW + 1) is None


def test_a_write_that_lost_its_answer_is_looked_up(
    server: Postgres, address: StoreAddress, tmp_path: Path
) -> None:
    """The connection ends before COMMIT: the server has no such write, and says so."""
    with closing(open_server(address, tmp_path)) as store:
        with pytest.raises(NotReached), store._driver.write_transaction() as connection:
            connection.execute("DELETE FROM jobs")
            pid = connection.execute("SELECT pg_backend_pid()").fetchone()[0]
            server.ask(f"SELECT pg_terminate_backend({pid}, 10000)")
        store.put_job(new_job())
        assert list(store.stored_jobs()) == ["gpt"]


ALL_RIGHTS = "GRANT USAGE ON SCHEMA {0} TO {1}; GRANT ALL ON ALL TABLES IN SCHEMA {0} TO {1}"
WRITES: tuple[Callable[[Database], object], ...] = (
    lambda store: store.put_job(new_job(), [event(2)]),
    lambda store: store.remove_job("gpt", [event(3)]),
    lambda store: store.append_events([event(4)]),
    lambda store: store.put_slot_messages({"gpt-0": "waits", "gpt-1": "runs"}),
    lambda store: store.put_slot_messages({}),
    lambda store: store.pack_events(before=NOW + 9, keep=0),
    lambda store: store.save_history(1, b"x"),
    lambda store: store.take_lease(holder(), NOW, TTL_S),
)
LACKS = {
    "schema": "REVOKE ALL ON SCHEMA {0} FROM {1}",
    "jobs": "REVOKE INSERT, UPDATE ON {0}.jobs FROM {1}",
    "events": "REVOKE INSERT ON {0}.events FROM {1}",
    "delete": "REVOKE DELETE ON ALL TABLES IN SCHEMA {0} FROM {1}",
    "select": "REVOKE SELECT ON {0}.events FROM {1}",
    "write": "REVOKE INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA {0} FROM {1}",
    "connect": "REVOKE CONNECT ON DATABASE {2} FROM PUBLIC",
    "everything": "ALTER ROLE {1} SET default_transaction_read_only = on",
}


@pytest.mark.parametrize("lack", LACKS)
def test_what_a_role_may_not_do_is_said_and_nothing_is_half_done(
    server: Postgres, address: StoreAddress, tmp_path: Path, lack: str
) -> None:
    """Whether it never could, or what it may do is taken away while herd runs."""
    words = '"project-demo"', f"poor_{lack}", address.database
    with closing(open_server(address, tmp_path)) as store, closing(log_in(address, "x")) as raw:
        store.put_job(new_job(), [event(1)])
        server.ask(f"CREATE ROLE {words[1]} LOGIN")
        server.ask(ALL_RIGHTS.format(*words), address.database)
        poor, refused = server.address(address.database, words[1]), 0
        tables = raw.execute("SELECT tablename FROM pg_tables WHERE schemaname = 'project-demo'")
        names = [name for (name,) in tables.fetchall()]

        def content() -> list[object]:
            return [raw.execute(f"SELECT * FROM {words[0]}.{one} t".encode()).fetchall()
                    for one in names]  # fmt: skip

        for late in (True, False):
            try:
                with closing(open_server(poor, tmp_path)) as theirs:
                    if late:
                        server.ask(LACKS[lack].format(*words), address.database)
                    for write in WRITES:
                        before = content()
                        try:
                            write(theirs)
                        except NotAllowed:
                            refused += 1
                            assert content() == before
            except NotAllowed as told:
                assert late is False
                refused += 1
                assert "restore" not in told.hint or "GRANT" in told.hint
        assert refused
        server.ask(f"GRANT CONNECT ON DATABASE {words[2]} TO PUBLIC")


def test_a_row_that_another_member_wrote_is_the_trouble_of_its_job(
    address: StoreAddress, tmp_path: Path
) -> None:
    with closing(open_server(address, tmp_path)) as store:
        store.put_job(new_job(), [event(1, kind="bid.granted")])
        for number, (column, value) in enumerate((
            ("goal", "?"), ("document", "null"), ("document", "{"), ("at", "NaN"), ("slot", "x"),
            ("made_at", "Infinity"), ("facts", "[]"), ("facts", "[" * 99_999),
        )):  # fmt: skip
            bad = f"bad{number}"
            store.put_job(new_job(bad), [event(2, job=bad, slot=f"{bad}-0", kind="bid.granted")])
            table = "events" if column in ("at", "slot", "facts") else "jobs"
            with store._driver.write_transaction() as connection:
                connection.execute(f"UPDATE {table} SET {column} = ? WHERE job = ?", (value, bad))
            store.malformed.found.clear()
            jobs, events = store.stored_jobs(), list(store.read_events())
            whole = list(store.read_events(job=bad, kinds=["bid.granted"]))
            assert (jobs[bad].document == {"name": bad}) == (table == "jobs"), column
            assert bool(whole) == (table == "jobs") and len(events) == number + 2, column
            assert "bad" in store.troubles.read()[0].sentence
        assert jobs["gpt"] == replace(new_job(), revision=1)


def test_a_newer_database_and_one_that_does_not_exist_are_refused(
    server: Postgres, address: StoreAddress, tmp_path: Path
) -> None:
    with closing(open_server(address, tmp_path)) as store:
        server.ask('UPDATE "project-demo".store_state SET format = 99', address.database)
        with pytest.raises(Superseded, match="a newer herd has migrated"):
            store.put_job(new_job())
    with pytest.raises(InvalidInput, match="written by a newer herd"):
        open_server(address, tmp_path)
    with pytest.raises(NotFound, match="does not exist") as told:
        open_server(server.address("nowhere"), tmp_path)
    assert told.value.hint == "create it: createdb nowhere"


def test_a_database_without_a_least_leader_gets_one_from_whoever_leads(
    address: StoreAddress, tmp_path: Path
) -> None:
    with closing(log_in(address, "project-demo")) as raw:
        migrate_tables(raw, "project-demo", STEPS[:4])
        assert read_format(raw) == 6
        fill_store_of_format_6(PostgresConnection(raw))
    with closing(open_server(address, tmp_path)) as store:
        expect_first_leader(store)


def test_a_full_disk_of_the_server_loses_nothing(
    server: Postgres, address: StoreAddress, tmp_path: Path
) -> None:
    """The error is injected: a trigger raises what PostgreSQL raises when its disk is full."""
    full = (
        'SET search_path TO "project-demo"; CREATE FUNCTION full_disk() RETURNS trigger AS $$ BEGIN'
        " RAISE disk_full; END $$ LANGUAGE plpgsql; CREATE TRIGGER full_disk BEFORE INSERT ON jobs"
        " EXECUTE FUNCTION full_disk()"
    )
    with closing(open_server(address, tmp_path)) as store:
        server.ask(full, address.database)
        with pytest.raises(OperationFailed, match=r"the disk of the store .* is full"):
            store.put_job(new_job(), [event(1)])
        assert list(store.read_events()) == []
        server.ask('DROP TRIGGER full_disk ON "project-demo".jobs', address.database)
        store.put_job(new_job(), [event(1)])
        assert len(list(store.read_events())) == 1


def test_users_of_one_database_share_the_owner_of_its_nodes(
    address: StoreAddress, tmp_path: Path
) -> None:
    ann, bob = (scope_of(tmp_path / name, address) for name in ("ann", "bob"))
    for user in (ann, bob):
        open_database(user, NOW).close()
    assert find_owner_id(bob) == find_owner_id(ann) == get_owner_id(ann.folders.config)


def test_users_of_one_database_share_the_login_on_its_hosts(
    address: StoreAddress, tmp_path: Path
) -> None:
    """Attempts and agents are those of a login: with another one an engine would not find them."""
    facts = {"project": "demo", "url": "http://127.0.0.1:9", "ssh_port": 9, "pid": 1}
    (tmp_path / "world.json").write_text(json.dumps(facts))

    def access_of(user: str) -> ProjectAccess:
        about = {"HOME": str(tmp_path / user), "USER": user, "HERD_STORE": address.url}
        return resolve_access(about, world=tmp_path)

    for user in ("ann", "bob"):
        assert access_of(user).login == user
        open_database(access_of(user), NOW).close()
        assert access_of(user).login == "ann"
    with closing(open_database(access_of("bob"), NOW)) as store:
        refuse_other_login(store, access_of("bob"))
        with pytest.raises(InvalidInput, match="run as ann on their hosts"):
            refuse_other_login(store, replace(access_of("bob"), login="bob"))


def test_jobs_move_into_postgresql_and_back(address: StoreAddress, tmp_path: Path) -> None:
    file, there = scope_of(tmp_path, None), scope_of(tmp_path, address)
    with closing(open_database(file, NOW)) as store:
        written = store.put_job(new_job(), [event(n) for n in range(1_200)])
        assert store.pack_events(before=NOW + 5_000, keep=5_000) == 1_000
        store.save_history(900, b"history")
        before = list(store.read_events())
        epoch = store.take_lease(holder(), NOW, TTL_S)
        assert epoch is not None
        with pytest.raises(OperationFailed, match="an engine is using the store"):
            move_to_server(file, address, NOW, login="ann")
        store.release_lease(epoch)
    with pytest.raises(InvalidInput, match="own store has jobs"):
        open_database(there, NOW)
    for _ in range(2):  # repeated, as after an interruption
        assert move_to_server(file, address, NOW, login="ann") == 1
    with pytest.raises(InvalidInput, match="were moved to PostgreSQL database"):
        open_database(file, NOW)
    with closing(open_database(there, NOW)) as store:
        assert store.stored_jobs() == {"gpt": written}
        assert list(store.read_events()) == before
        assert store.load_history() == (900, b"history")
        assert store.append_events([event(0)]) == 1_201
        second = store.take_lease(holder(), NOW, TTL_S)
        assert second is not None
        assert second > epoch
        store.release_lease(second)
    for _ in range(2):
        assert move_to_file(there, address, NOW) == 1
    with pytest.raises(InvalidInput, match="were moved to"):
        open_database(scope_of(tmp_path / "bob", address), NOW)
    with closing(open_database(file, NOW)) as store:
        assert len(list(store.read_events())) == 1_201
        assert store.append_events([event(0)]) == 1_202
    assert move_to_server(file, address, NOW, login="ann") == 1


def test_two_stores_with_jobs_are_not_merged(address: StoreAddress, tmp_path: Path) -> None:
    file, other = scope_of(tmp_path / "ann", None), scope_of(tmp_path / "bob", address)
    with closing(open_database(file, NOW)) as store:
        store.put_job(new_job(), [event(1)])
    with closing(open_database(other, NOW)) as store:
        store.put_job(new_job(), [event(1)])
    with pytest.raises(InvalidInput, match="already has jobs"):
        move_to_server(file, address, NOW, login="ann")
    open_database(file, NOW).close()  # nothing was moved


@pytest.mark.parametrize(
    "text",
    [
        f"mysql://ann:{SECRET}@db/herd",
        f"postgresql://ann:{SECRET}@db:port/herd",
        f"postgresql://ann@db/herd?password={SECRET}",
        f"postgresql://ann:{SECRET}@[db/herd",
    ],
)
def test_a_wrong_url_is_refused_without_its_password(text: str) -> None:
    with pytest.raises(InvalidInput) as told:
        parse_store_url(text, {}, origin="HERD_STORE")
    assert SECRET not in f"{told.value.sentence} {told.value.hint}"


def test_a_password_is_in_no_error_and_no_text_of_the_address(
    server: Postgres, address: StoreAddress, tmp_path: Path
) -> None:
    url = f"postgresql://ann:{SECRET}@{server.folder.name}.invalid/herd"
    found = parse_store_url(url, {}, origin="HERD_STORE")
    assert found.password == SECRET
    assert SECRET not in f"{found!r} {found.title} {found.url}"
    for one in (found, replace(address, url=address.url.replace("postgres@", f"{SECRET}@"))):
        with pytest.raises(HerdError) as told:
            open_server(replace(one, password=SECRET), tmp_path)
        assert SECRET not in f"{told.value.sentence} {told.value.hint}"
    with pytest.raises(InvalidInput, match="has a password"):
        refuse_password(url, origin="--store")
