"""What can be wrong with a store in PostgreSQL: one sentence each, and the password nowhere."""

import asyncio
import json
import os
import signal
import socket
import tarfile
import threading
from collections.abc import Callable, Iterator
from contextlib import closing, suppress
from pathlib import Path

import pytest

from tests.conformance.postgres import Postgres, started_postgres
from tests.conformance.test_store import NOW, event, new_job
from tests.conformance.world import until
from tests.integration.test_canary import forms
from tpuherd.cli import via_client
from tpuherd.cli.main import run
from tpuherd.errors import InvalidInput, OperationFailed
from tpuherd.jobs import engine_control
from tpuherd.ports import LeaseHolder
from tpuherd.settings.project_access import ProjectScope, resolve_scope
from tpuherd.store.database import Database
from tpuherd.store.open_database import open_database

SECRET = "canary-store-5b1d0e93f7"
Herd = Callable[..., tuple[int, str]]


@pytest.fixture(scope="module")
def server() -> Iterator[Postgres]:
    """One on which ann needs a password, and anybody else none."""
    with started_postgres() as found:
        found.ask(f"CREATE ROLE ann LOGIN PASSWORD '{SECRET}'")
        rules = found.folder / "data/pg_hba.conf"
        rules.write_text(f"local all ann scram-sha-256\n{rules.read_text()}")
        found.ask("SELECT pg_reload_conf()")
        yield found


@pytest.fixture(scope="module")
def odd_port() -> Iterator[int]:
    """A server that has no TLS, as PostgreSQL's answer to such a request says."""
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def answer() -> None:
            while True:
                try:
                    taken, _ = listener.accept()
                except OSError:
                    return
                with taken:
                    taken.recv(8)
                    taken.sendall(b"N")

        threading.Thread(target=answer, daemon=True).start()
        yield listener.getsockname()[1]
        listener.shutdown(socket.SHUT_RDWR)


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for name in ("XDG_STATE_HOME", "XDG_CONFIG_HOME", "XDG_RUNTIME_DIR", "PGPASSWORD"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("USER", "ann")
    facts = {"project": "demo", "url": "http://127.0.0.1:9", "ssh_port": 9, "pid": 1}
    (tmp_path / "world").mkdir()
    (tmp_path / "world/world.json").write_text(json.dumps(facts))
    monkeypatch.setenv("HERD_WORLD", str(tmp_path / "world"))
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def herd(home: Path, capfd: pytest.CaptureFixture[str]) -> Iterator[Herd]:
    def herd(*words: str) -> tuple[int, str]:
        status = run(words)
        said = capfd.readouterr()
        return status, said.out + said.err

    yield herd
    for pid in processes_of(home):  # an engine that a command started
        os.kill(pid, signal.SIGTERM)
    until(lambda: not list(processes_of(home)), "the engine to end")


def processes_of(home: Path) -> Iterator[int]:
    """Find the processes that were started with this home."""
    for file in Path("/proc").glob("[0-9]*/environ"):
        with suppress(OSError):  # it has ended, or is another user's
            if f"HOME={home}".encode() in file.read_bytes().split(b"\0"):
                yield int(file.parent.name)


@pytest.fixture
def database(server: Postgres, request: pytest.FixtureRequest) -> str:
    name = "".join(one for one in request.node.name.lower() if one.isalnum())[-40:]
    server.ask(f"CREATE DATABASE m{name}")
    server.ask(f"GRANT ALL ON DATABASE m{name} TO ann")
    return f"m{name}"


def scope_of(home: Path) -> ProjectScope:
    return resolve_scope(os.environ, world=home / "world")


WRONG = (
    ("postgresql://ann:{secret}@/nowhere?host={folder}", 4, "does not exist; create it: createdb"),
    ("postgresql://ann:{secret}x@/{database}?host={folder}", 6, "refuses the login"),
    ("postgresql://ann@/{database}?host={folder}", 6, "refuses the login"),
    ("postgresql://ann:{secret}@127.0.0.1:1/herd", 7, "can't be reached"),
    ("postgresql://ann:{secret}@nowhere.invalid/herd", 7, "can't be reached"),
    (
        "postgresql://ann:{secret}@127.0.0.1:{port}/herd?sslmode=require",
        6,
        "with the TLS that its URL asks for",
    ),
    ("mysql://ann:{secret}@db/herd", 2, "is not a URL of PostgreSQL"),
    ("{secret}", 2, "is not a URL of PostgreSQL"),
    ("postgresql://ann@db/herd?password={secret}", 2, "has a password among its options"),
    (
        "postgresql://ann:{secret}@/{database}?host={folder}&sslmode=maybe",
        2,
        "an option that is not valid",
    ),
)


@pytest.mark.parametrize(("url", "status", "words"), WRONG)
def test_a_store_that_can_not_be_used_is_one_sentence(
    url: str, status: int, words: str, server: Postgres, odd_port: int, herd: Herd,
    database: str, monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    named = url.format(folder=server.folder, secret=SECRET, port=odd_port, database=database)
    monkeypatch.setenv("HERD_STORE", named)
    for command in (("ls",), ("engine", "run"), ("engine", "store", "move", "here")):
        found, said = herd(*command)
        assert (found, words in said) == (status, True), (command, said)
        assert said.count("\n") == 1, said
        assert SECRET not in said


def test_a_role_that_may_only_read_leaves_nothing_of_a_job_behind(
    server: Postgres, herd: Herd, database: str, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HERD_STORE", server.url(database))
    assert herd("ls")[0] == 0
    schema = server.ask("SELECT nspname FROM pg_namespace WHERE nspname ~ '^world'", database)
    server.ask("CREATE ROLE reader LOGIN")
    for right in ("USAGE ON SCHEMA", "SELECT ON ALL TABLES IN SCHEMA"):
        server.ask(f'GRANT {right} "{schema}" TO reader', database)
    monkeypatch.setenv("HERD_STORE", server.url(database, "reader"))
    secret = f"secrets: {{KEY: {{command: 'echo {SECRET[:9]}; echo {SECRET}'}}}}\n"
    (home / "job.yaml").write_text(f"name: gpt\naccelerator: v4-8\nrun: 'true'\n{secret}")
    status, said = herd("run", "job.yaml", "--yes", "--detach")
    assert (status, said.count("permission denied"), SECRET in said) == (2, 1, False), said
    left = [file for file in home.rglob("*") if file.is_file() and file.name != "job.yaml"]
    assert not [file for file in left if SECRET.encode() in file.read_bytes()]


def test_jobs_in_both_places_a_newer_database_and_a_second_leader_are_refused(
    home: Path, herd: Herd, server: Postgres, database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HERD_STORE", server.url(database))
    with closing(open_database(scope_of(home), NOW)) as store:
        holder = LeaseHolder(pid=1, host="elsewhere", who="bob@elsewhere")
        assert store.take_lease(holder, NOW, 3600.0)
        assert herd("engine", "run") == (0, "another engine runs\n")
        here = Database(scope_of(home).store_folder, NOW)
        here.put_job(new_job(), [event(1)])
        for command in (("engine", "run"), ("ls",)):
            found, said = herd(*command)
            assert (found, "own store has jobs" in said, said.count("\n")) == (2, True, 1), said
        assert list(here.stored_jobs()) == ["gpt"]
        here.remove_job("gpt")
        here.close()
        schema = f'"{scope_of(home).store_folder.name}"'
        server.ask(f"UPDATE {schema}.store_state SET format = 99", database)
    for command in (("engine", "run"), ("ls",)):
        found, said = herd(*command)
        assert (found, "written by a newer herd" in said, said.count("\n")) == (2, True, 1), said


def test_the_password_is_in_no_file_process_or_report(
    home: Path, herd: Herd, server: Postgres, database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    url = f"postgresql://ann:{SECRET}@/{database}?host={server.folder}"
    monkeypatch.setenv("HERD_STORE", url)
    with closing(open_database(scope_of(home), NOW)) as store:
        told = event(1)
        store.put_job(new_job(), [told])
        said = herd("ls")[1] + herd("context", "list", "--json")[1] + herd("events", "gpt")[1]
        _, page = herd("check", "--report", "bug.tar.gz")
    texts = {file: file.read_bytes() for file in home.rglob("*") if file.is_file()}
    with tarfile.open(home / "bug.tar.gz") as bundle:
        for member in bundle:
            if packed := bundle.extractfile(member):
                texts[home / "bug" / member.name] = packed.read()
    (jobs,) = [text for file, text in texts.items() if file.name == "jobs.json"]
    assert b'"job": "gpt"' in jobs
    arguments = b"".join(file.read_bytes() for file in Path("/proc").glob("self/cmdline"))
    for form in forms(SECRET):
        assert form not in (said + page).encode() + arguments
        assert [str(file) for file, text in texts.items() if form in text] == []
    assert herd("engine", "store", "move", url)[0] == 2  # its arguments are for all to see
    assert herd("context", "add", "lab", "--world", "world", "--store", url)[0] == 2


def test_a_report_needs_no_server(
    home: Path, herd: Herd, server: Postgres, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HERD_STORE", f"postgresql://ann:{SECRET}@/nowhere?host={server.folder}")
    status, said = herd("check", "--report", "bug.tar.gz")
    assert status == 1, said
    assert "does not exist" in said
    assert (home / "bug.tar.gz").exists()


def test_a_shared_store_is_not_carried_to_another_machine(
    home: Path, server: Postgres, database: str, herd: Herd, monkeypatch: pytest.MonkeyPatch
) -> None:
    world = str(home / "world")
    assert herd("context", "add", "lab", "--world", world, "--via", "vm")[0] == 0
    monkeypatch.delenv("HERD_WORLD")
    said = {**os.environ, "HERD_STORE": server.url(database)}
    with pytest.raises(InvalidInput, match="the commands of lab run on vm, which does not get it"):
        via_client.find_remote_machine(said)
    assert herd("context", "add", "lab", "--world", world, "--store", server.url(database))[0] == 0
    far = via_client.find_remote_machine(os.environ)
    assert far is not None
    assert "login" not in far.letter["context"], "it is that of the store's users"


def test_an_engine_of_another_account_is_not_stopped(
    home: Path, server: Postgres, database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HERD_STORE", server.url(database))
    scope = scope_of(home)

    def refuse(*_: object) -> None:
        raise PermissionError

    with closing(open_database(scope, NOW)) as store:
        holder = LeaseHolder(pid=os.getpid(), host=socket.gethostname(), who="bob@here")
        assert store.take_lease(holder, NOW, 3600.0)
        monkeypatch.setattr(os, "kill", refuse)
        with pytest.raises(OperationFailed, match="the engine is bob@here's"):
            asyncio.run(engine_control.stop_engine(scope))
