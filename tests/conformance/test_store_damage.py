"""A damaged store is moved aside with a message; its readable part is kept."""

import os
import shutil
import signal
import sqlite3
import sys
from collections.abc import Callable
from contextlib import closing, suppress
from dataclasses import dataclass
from pathlib import Path
from random import Random

import pytest

from tpuherd.errors import StoreDamaged
from tpuherd.model.slots_and_plan import Goal, HistoryEvent
from tpuherd.model.stored_job import StoredJob
from tpuherd.store.database import Database
from tpuherd.store.set_aside import SET_ASIDE, acknowledge_notices, read_notices

NOW = 1_800_000_000.0
JOBS = tuple(f"job{n}" for n in range(30))
EVENTS = 1200
PAGE = 4096


@dataclass(frozen=True)
class Files:
    """A store's files as an engine leaves them that was killed."""

    folder: Path

    @property
    def db(self) -> Path:
        return self.folder / "store.db"

    @property
    def wal(self) -> Path:
        return self.folder / "store.db-wal"


def new_job(job: str) -> StoredJob:
    document = {"name": job, "run": "x" * 300}
    return StoredJob(
        job=job, goal=Goal.RUN, document=document, made_at=NOW, changed_at=NOW, who="ann"
    )


def event(number: int) -> HistoryEvent:
    job = JOBS[number % len(JOBS)]
    return HistoryEvent(
        at=NOW + number, kind="bid.requested", job=job, slot=f"{job}-0", facts={"n": number}
    )


def filled(folder: Path, *, moved: bool) -> Files:
    """With jobs, events and a history; where it is `moved` the write-ahead file is nearly empty."""
    origin = folder / "origin"
    store = Database(origin, NOW)
    for job in JOBS:
        store.put_job(new_job(job), [HistoryEvent(at=NOW, kind="job.submitted", job=job)])
    for first in range(0, EVENTS, 100):
        store.append_events([event(n) for n in range(first, first + 100)])
    store.save_history(EVENTS, b"history")
    if moved:
        with sqlite3.connect(origin / "store.db") as connection:
            connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        store.append_events([event(EVENTS)])
    shutil.copytree(origin, folder / "store")  # as kill -9 leaves it
    store.close()
    (folder / "store/store.opened").unlink()
    return Files(folder / "store")


def overwrite(file: Path, start: int, piece: bytes) -> None:
    with file.open("r+b") as stream:
        stream.seek(start)
        stream.write(piece)


def noise(size: int) -> bytes:
    return Random(1).randbytes(size)


def first_page_and_wal_head(files: Files) -> None:
    overwrite(files.db, 0, noise(PAGE))
    overwrite(files.wal, 0, noise(PAGE))


def first_page_and_wal(files: Files) -> None:
    overwrite(files.db, 0, noise(PAGE))
    overwrite(files.wal, 0, noise(files.wal.stat().st_size))


def first_page(files: Files) -> None:
    overwrite(files.db, 0, noise(PAGE))


def zeroed_head(files: Files) -> None:
    overwrite(files.db, 0, bytes(100))


def halved(files: Files) -> None:
    files.wal.unlink()
    os.truncate(files.db, files.db.stat().st_size // 2 // PAGE * PAGE)


def torn_short(files: Files) -> None:
    """Cut in the midst of a page."""
    files.wal.unlink()
    os.truncate(files.db, files.db.stat().st_size - PAGE // 2)


def zeroed_pages(files: Files) -> None:
    overwrite(files.db, 20 * PAGE, bytes(5 * PAGE))


def torn_pages(files: Files) -> None:
    overwrite(files.db, 20 * PAGE + 1000, noise(2 * PAGE))


def no_database(files: Files) -> None:
    files.db.write_bytes(b"no database at all" * 999)
    files.wal.unlink()


def no_events(files: Files) -> None:
    with sqlite3.connect(files.db) as connection:
        connection.execute("DROP TABLE events")


def no_jobs(files: Files) -> None:
    with sqlite3.connect(files.db) as connection:
        connection.execute("DROP TABLE jobs")


def nonsense_in_a_row(files: Files) -> None:
    with sqlite3.connect(files.db) as connection:
        connection.execute("UPDATE events SET facts = '{' WHERE seq = 700")
        connection.execute("UPDATE jobs SET goal = 'nonsense' WHERE job = 'job3'")


def emptied(files: Files) -> None:
    files.db.write_bytes(b"")


def met(folder: Path) -> Database:
    """The store as a command finds it that reads all, or the one after it."""
    with suppress(StoreDamaged):
        store = Database(folder, NOW)
        try:
            if store.recovery_message:
                return store
            store.stored_jobs(), list(store.read_events())
        finally:
            if not store.recovery_message:
                store.close()
    return Database(folder, NOW)


ALL = len(JOBS) + EVENTS


@pytest.mark.parametrize(
    ("moved", "harm", "jobs", "events"),
    [
        (False, first_page_and_wal_head, 30, ALL),
        (True, first_page_and_wal_head, 30, ALL),
        (False, first_page, 30, ALL),
        (True, first_page, 30, ALL + 1),
        (True, first_page_and_wal, 30, ALL),
        (False, first_page_and_wal, 0, 0),
        (True, zeroed_head, 30, ALL + 1),
        (True, halved, 30, 250),
        (True, torn_short, 30, ALL - 100),
        (True, zeroed_pages, 30, 900),
        (True, torn_pages, 30, 900),
        (False, no_database, 0, 0),
        (False, no_events, 30, 0),
        (False, no_jobs, 0, ALL),
        (True, nonsense_in_a_row, 29, ALL),
        (False, emptied, 30, ALL),
    ],
)
def test_the_readable_part_of_a_damaged_store_is_kept(
    tmp_path: Path, moved: bool, harm: Callable[[Files], None], jobs: int, events: int
) -> None:
    files = filled(tmp_path, moved=moved)
    harm(files)
    damaged = files.db.read_bytes()
    store = met(files.folder)
    aside = files.folder / "store.db.broken-20270115T080000Z"
    assert str(aside) in store.recovery_message
    if harm not in (zeroed_pages, torn_pages, nonsense_in_a_row):  # SQLite had it open before
        assert aside.read_bytes() == damaged
    assert len(store.stored_jobs()) == jobs
    assert all(one == {**new_job(job).document} for job, one in
               ((job, one.document) for job, one in store.stored_jobs().items()))  # fmt: skip
    found = list(store.read_events())
    assert found[-1][1].kind == SET_ASIDE
    assert found[-1][1].facts["why"] == store.recovery_message
    known = {len(JOBS) + n + 1: event(n) for n in range(EVENTS + 1)}
    assert all(one == known[seq] for seq, one in found[:-1] if seq > len(JOBS))
    assert len(found) - 1 >= events
    if events >= ALL and jobs == len(JOBS) and harm is not nonsense_in_a_row:
        assert "could not read" not in store.recovery_message or harm is first_page_and_wal_head
    elif harm is not torn_short:  # it lost what was not in the file yet: nothing tells of that
        assert "could not read" in store.recovery_message or (jobs, events) == (0, 0)
    store.close()
    again = Database(files.folder, NOW)
    assert again.recovery_message == ""
    assert len(again.stored_jobs()) == jobs and len(list(again.read_events())) == len(found)
    assert again.append_events([event(1)]) == found[-1][0] + 1
    again.close()
    assert read_notices(files.folder) == {aside.name: store.recovery_message}
    assert acknowledge_notices(files.folder) == 1
    assert read_notices(files.folder) == {} and acknowledge_notices(files.folder) == 0


def killed_at(folder: Path, step: int) -> bool:
    """Open the store in a child that kill -9 hits before its n-th change of the disk; whether it
    was hit."""
    child = os.fork()
    if child:
        return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == -signal.SIGKILL
    left = step

    def count(name: str, arguments: tuple[object, ...]) -> None:
        nonlocal left
        changes = name in ("os.rename", "os.remove", "os.truncate", "sqlite3.connect") or (
            name == "open" and isinstance(arguments[2], int) and arguments[2] & 3 != os.O_RDONLY
        )
        if changes:
            left -= 1
            if left < 0:
                os.kill(os.getpid(), signal.SIGKILL)

    sys.addaudithook(count)
    for _ in range(2):  # some damage is met only when it is read
        with suppress(StoreDamaged), closing(Database(folder, NOW)) as store:
            list(store.read_events())
    os._exit(0)


@pytest.mark.parametrize("harm", [first_page_and_wal_head, zeroed_pages])
def test_kill_9_while_a_damaged_store_is_moved_loses_nothing(
    tmp_path: Path, harm: Callable[[Files], None]
) -> None:
    files = filled(tmp_path, moved=True)
    harm(files)
    shutil.copytree(files.folder, tmp_path / "sound")
    sound = met(tmp_path / "sound")
    jobs, events = list(sound.stored_jobs()), [one for _, one in sound.read_events()][:-1]
    sound.close()
    hit = True
    step = 0
    while hit:
        folder = tmp_path / f"try{step}"
        shutil.copytree(files.folder, folder)
        hit = killed_at(folder, step)
        for again in (1, 2):  # and whoever goes on may be killed, too
            killed_at(folder, step // again)
        store = met(folder)
        assert list(store.stored_jobs()) == jobs, step
        assert [one for _, one in store.read_events() if one.kind != SET_ASIDE] == events, step
        assert len(read_notices(folder)) == 1, step
        assert len(list(folder.glob("store.db.broken-*Z"))) == 1, step
        assert not list(folder.glob("*.new")) and not list(folder.glob("*.reading")), step
        store.close()
        shutil.rmtree(folder)
        step += 1
    assert step > 12


def test_packed_events_of_a_damaged_store_are_kept(tmp_path: Path) -> None:
    store = Database(tmp_path, NOW)
    for job in JOBS:
        store.put_job(new_job(job), [HistoryEvent(at=NOW, kind="job.submitted", job=job)])
    for _ in range(3):
        store.append_events([event(n) for n in range(EVENTS)])
    store.put_setting("shares", {"users": {"ana": 2}})
    assert [store.pack_events(before=NOW, keep=1_000) for _ in range(3)] == [1_000, 1_000, 0]
    before = list(store.read_events())
    store.close()
    with closing(sqlite3.connect(tmp_path / "store.db", isolation_level=None)) as connection:
        connection.execute("UPDATE packed_events SET content = x'00' WHERE last = 1000")
        connection.execute("DROP TABLE states")
    with suppress(StoreDamaged):
        Database(tmp_path, NOW)
    store = Database(tmp_path, NOW)
    *after, (seq, aside) = store.read_events()
    assert after == before[1_000:]
    assert (seq, aside.kind) == (before[-1][0] + 1, SET_ASIDE)
    assert "could not read up to 1000 events" in aside.facts["why"]
    assert aside.facts["lost_jobs"] == []
    assert store.load_setting("shares") == {"users": {"ana": 2}}
    store.close()
