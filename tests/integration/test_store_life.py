"""The store with several processes, killed ones too, and on full or read-only disks."""

import os
import signal
import sqlite3
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from random import Random
from tempfile import TemporaryDirectory
from time import monotonic, sleep, time

import pytest

from tpuherd.cli.main import run
from tpuherd.errors import HerdError, NotAllowed, OperationFailed
from tpuherd.model.slots_and_plan import Goal, HistoryEvent
from tpuherd.model.stored_job import StoredJob
from tpuherd.store.database import Database

pytestmark = pytest.mark.real
NOW = 1_800_000_000.0
#: Writes as an engine does, and says of each write that it is done.
WRITER = """
import os, socket, sys, time
from pathlib import Path
from tpuherd.model.slots_and_plan import HistoryEvent
from tpuherd.ports import LeaseHolder
from tpuherd.store.database import Database

folder, name, many = Path(sys.argv[1]), sys.argv[2], int(sys.argv[3])
engine = sys.argv[4] == "engine"
store = Database(folder, time.time())
holder = LeaseHolder(pid=os.getpid(), host=socket.gethostname())
epoch = None
while engine and epoch is None:
    epoch = store.take_lease(holder, time.time(), 30.0)
for n in range(many):
    events = [HistoryEvent(at=time.time(), kind="bid.requested", slot=name,
                           job=name.rpartition("-")[0], facts={"n": n, "part": part})
              for part in range(3)]
    line = f"{n} {store.append_events(events, epoch=epoch)}\\n"  # told whole, or not at all
    print(line, end="", flush=True)
"""
Begin = Callable[..., "subprocess.Popen[str]"]


@pytest.fixture
def begin(tmp_path: Path) -> Iterator[Begin]:
    """Starts writers, and sees to their end."""
    running: list[subprocess.Popen[str]] = []

    def begin(name: str, many: int, kind: str = "command") -> "subprocess.Popen[str]":
        words = [sys.executable, "-c", WRITER, str(tmp_path / "store"), name, str(many), kind]
        running.append(subprocess.Popen(words, stdout=subprocess.PIPE, text=True))
        return running[-1]

    yield begin
    for process in running:
        process.kill()
        process.wait()
        assert process.stdout is not None
        process.stdout.close()


def check(store: Database, name: str) -> int:
    """How many writes of it are there: each whole, in order, once."""
    found = [(event.facts["n"], event.facts["part"]) for _, event in store.read_events(slot=name)]
    writes = len(found) // 3
    assert found == [(n, part) for n in range(writes) for part in range(3)]
    return writes


def test_several_processes_write_a_new_store_at_once_and_nothing_is_lost(
    tmp_path: Path, begin: Begin
) -> None:
    writers = [begin(f"s-{n}", 40) for n in range(6)]
    assert [writer.wait(timeout=120) for writer in writers] == [0] * 6
    store = Database(tmp_path / "store", NOW)
    assert [check(store, f"s-{n}") for n in range(6)] == [40] * 6
    assert [seq for seq, _ in store.read_events()] == list(range(1, 721))
    store.close()


@pytest.mark.parametrize("seed", range(5))
def test_acknowledged_writes_survive_kill_9(tmp_path: Path, begin: Begin, seed: int) -> None:
    chance = Random(seed)
    store = Database(tmp_path / "store", NOW)
    told = 0
    for life in range(4):
        engine = begin(f"e-{life}", 100_000, "engine")
        assert engine.stdout is not None
        last = ""
        for _ in range(chance.randrange(1, 30)):
            last = engine.stdout.readline()
        sleep(chance.random() / 100)
        os.kill(engine.pid, signal.SIGKILL)
        engine.wait()
        rest = engine.stdout.read().splitlines()
        done, seq = map(int, (rest[-1] if rest and rest[-1].count(" ") else last).split())
        assert check(store, f"e-{life}") in (done + 1, done + 2)
        assert seq > told  # the lease of the dead one was taken over at once
        told = seq
        assert store.lease_holder(time()) is None
    store.close()


@pytest.fixture
def small(tmp_path: Path) -> Iterator[Path]:
    """A disk of one MiB."""
    folder = tmp_path / "small"
    folder.mkdir()
    words = ["mount", "-t", "tmpfs", "-o", "size=1m", "none", str(folder)]
    if subprocess.run(words, capture_output=True).returncode:
        pytest.skip("may not mount here")
    yield folder
    subprocess.run(["umount", "-l", str(folder)], check=True)


def event(size: int = 100) -> HistoryEvent:
    return HistoryEvent(at=NOW, kind="bid.requested", job="gpt", facts={"why": "x" * size})


@pytest.mark.root
@pytest.mark.needs("mount")
def test_a_full_disk_is_reported_nothing_is_lost_and_work_continues(small: Path) -> None:
    store = Database(small / "store", NOW)
    new_job = StoredJob(job="gpt", goal=Goal.RUN, document={}, made_at=NOW, changed_at=NOW)
    store.put_job(new_job)
    stuffing = small / "stuffing"
    written = store.append_events([event()])
    with pytest.raises(OSError, match="No space left"), stuffing.open("wb", 0) as stream:
        while True:
            stream.write(b"x" * 4096)
    end = monotonic() + 60
    with pytest.raises(OperationFailed, match="the disk is full") as refused:
        while monotonic() < end:
            written = store.append_events([event(5000)])
    assert "free some space" in refused.value.hint
    with pytest.raises(OperationFailed, match="the disk is full"):
        store.secrets.put("gpt", "KEY", "x" * 5000)
    assert list(store.stored_jobs()) == ["gpt"]
    assert [seq for seq, _ in store.read_events()] == list(range(1, written + 1))
    stuffing.unlink()
    assert store.append_events([event(5000)]) == written + 1
    store.secrets.put("gpt", "KEY", "x")
    store.close()
    again = Database(small / "store", NOW)
    assert again.recovery_message == ""
    assert [seq for seq, _ in again.read_events()] == list(range(1, written + 2))
    again.close()


def stuffed(folder: Path) -> Path:
    """Not a byte is left; what takes the room."""
    with (
        pytest.raises(OSError, match="No space left"),
        (folder / "stuffing").open("wb", 0) as stream,
    ):
        while True:
            stream.write(b"x" * 4096)
    return folder / "stuffing"


@pytest.mark.root
@pytest.mark.needs("mount")
def test_a_full_disk_is_reported_by_commands_that_write_beside_the_store(
    small: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "code").mkdir()
    monkeypatch.chdir(tmp_path / "code")
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("XDG_STATE_HOME", str(small))
    monkeypatch.delenv("XDG_CONFIG_HOME", raising=False)
    monkeypatch.delenv("HERD_WORLD", raising=False)
    assert run(["context", "add", "lab", "--project", "p"]) == 0
    grant = ["--zone", "us-central2-b", "--type", "v4", "--tier", "spot"]
    assert run(["context", "grant", *grant]) == 0
    words = ["run", "--name", "gpt", "--accelerator", "v4-8", "--detach", "--", "true"]
    assert run([*words[:-2], "--dry-run", *words[-2:]]) == 0  # now there are folders
    stuffing = stuffed(small)
    capfd.readouterr()
    assert run(words) == 1
    assert capfd.readouterr().err.startswith("herd run: the disk is full")
    stuffing.unlink()


@pytest.mark.root
@pytest.mark.needs("mount")
def test_a_full_disk_is_reported_when_the_store_is_new(small: Path) -> None:
    stuffing = stuffed(small)
    with pytest.raises(OperationFailed, match="the disk is full"):
        Database(small / "store", NOW)
    stuffing.unlink()
    Database(small / "store", NOW).close()


@pytest.mark.root
@pytest.mark.needs("mount")
def test_a_read_only_disk_is_reported(small: Path) -> None:
    store = Database(small / "store", NOW)
    store.append_events([event()])
    store.close()
    subprocess.run(["mount", "-o", "remount,ro", str(small)], check=True)
    with pytest.raises(NotAllowed) as refused:
        Database(small / "store", NOW)
    assert str(small / "store") in refused.value.sentence
    subprocess.run(["mount", "-o", "remount,rw", str(small)], check=True)
    again = Database(small / "store", NOW)
    assert len(list(again.read_events())) == 1
    again.close()


@pytest.fixture
def open_to_all() -> Iterator[Path]:
    """A folder into which everybody may look."""
    with TemporaryDirectory() as name:
        Path(name).chmod(0o755)
        yield Path(name)


@pytest.mark.root
def test_a_store_of_another_user_is_reported(open_to_all: Path) -> None:
    """As the user nobody, in a process of his own."""
    Database(open_to_all / "store", NOW).close()
    child = os.fork()
    if not child:
        try:
            os.setuid(65534)
            Database(open_to_all / "store", NOW)
        except HerdError as error:
            os._exit(0 if isinstance(error, NotAllowed) else 1)
        os._exit(2)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


def test_a_store_that_is_busy_for_long_is_reported(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tpuherd.store.sqlite_file.BUSY_S", 0.2)
    store = Database(tmp_path, NOW)
    hog = sqlite3.connect(tmp_path / "store.db", isolation_level=None)
    hog.execute("BEGIN IMMEDIATE")
    with pytest.raises(OperationFailed, match="is locked by another process"):
        store.append_events([event()])
    assert list(store.read_events()) == []
    hog.execute("ROLLBACK")
    assert store.append_events([event()]) == 1
    hog.close()
    store.close()
