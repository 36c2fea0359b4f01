"""A damaged store is moved aside with a message; its newest sound backup takes its place."""

import os
import shutil
import signal
import sqlite3
import sys
from collections.abc import Callable
from contextlib import closing, suppress
from dataclasses import replace
from pathlib import Path
from random import Random

import pytest

from tpuherd.errors import InvalidInput, StoreDamaged
from tpuherd.model.slots_and_plan import Goal, HistoryEvent
from tpuherd.model.stored_job import StoredJob
from tpuherd.store.backup import DRAFT, back_up
from tpuherd.store.corruption import NAME
from tpuherd.store.database import Database
from tpuherd.store.set_aside import (
    SET_ASIDE,
    acknowledge_restoration,
    awaits_acknowledgement,
    read_notices,
)

NOW = 1_800_000_000.0
JOBS = tuple(f"job{n}" for n in range(30))
EVENTS = 1200
PAGE = 4096
NOISE = Random(1).randbytes(PAGE)
WAL = f"{NAME}-wal"


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


def filled(folder: Path) -> Path:
    """With jobs, events, a history and two backups; the write-ahead file is nearly empty."""
    origin = folder / "origin"
    store = Database(origin, NOW)
    for job in JOBS:
        store.put_job(new_job(job), [HistoryEvent(at=NOW, kind="job.submitted", job=job)])
    for first in range(0, EVENTS, 100):
        store.append_events([event(n) for n in range(first, first + 100)])
    store.save_history(EVENTS, b"history")
    with sqlite3.connect(origin / "store.db") as connection:
        connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    store.append_events([event(EVENTS)])
    shutil.copytree(origin, folder / "store")  # as kill -9 leaves it
    store.close()
    (folder / "store/store.opened").unlink()
    return folder / "store"


def overwrite(file: Path, start: int, piece: bytes) -> None:
    with file.open("r+b") as stream:
        stream.seek(start)
        stream.write(piece)


def torn_heads(folder: Path) -> None:
    overwrite(folder / NAME, 0, NOISE)
    overwrite(folder / WAL, 0, NOISE)


def torn_short(folder: Path) -> None:
    """Cut in the midst of a page."""
    (folder / WAL).unlink()
    os.truncate(folder / NAME, (folder / NAME).stat().st_size - PAGE // 2)


def zeroed_pages(folder: Path) -> None:
    overwrite(folder / NAME, 20 * PAGE, bytes(5 * PAGE))


def no_database(folder: Path) -> None:
    (folder / NAME).write_bytes(b"no database at all" * 999)
    (folder / WAL).unlink(missing_ok=True)


def nonsense(folder: Path) -> None:
    with sqlite3.connect(folder / NAME) as connection:
        connection.execute("UPDATE events SET facts = '{' WHERE seq = 700")
        connection.execute("UPDATE jobs SET goal = 'nonsense' WHERE job = 'job3'")


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


def read_twice(folder: Path) -> None:
    """Some damage is met only when it is read."""
    for _ in range(2):
        with suppress(StoreDamaged), closing(Database(folder, NOW)) as store:
            list(store.read_events())


def killed_at(folder: Path, step: int, work: Callable[[Path], None] = read_twice) -> bool:
    """Work on the store in a child that kill -9 hits before its n-th change of the disk; whether it
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
    work(folder)
    os._exit(0)


@pytest.mark.parametrize("harm", [torn_heads, zeroed_pages])
def test_kill_9_while_a_damaged_store_is_moved_loses_nothing(
    tmp_path: Path, harm: Callable[[Path], None]
) -> None:
    damaged = filled(tmp_path)
    harm(damaged)
    shutil.copytree(damaged, tmp_path / "sound")
    sound = met(tmp_path / "sound")
    jobs, events = list(sound.stored_jobs()), [one for _, one in sound.read_events()][:-1]
    sound.close()
    hit, step = True, 0
    while hit:
        folder = tmp_path / f"try{step}"
        shutil.copytree(damaged, folder)
        hit = killed_at(folder, step)
        for again in (1, 2):  # and whoever goes on may be killed, too
            killed_at(folder, step // again)
        store = met(folder)
        assert list(store.stored_jobs()) == jobs, step
        assert [one for _, one in store.read_events() if one.kind != SET_ASIDE] == events, step
        assert len(read_notices(folder)) == 1, step
        assert len(list(folder.glob("store.db.broken-*Z"))) == 1, step
        assert not list(folder.glob("*.new*")), step
        store.close()
        shutil.rmtree(folder)
        step += 1
    assert step > 12


@pytest.mark.parametrize("harm", [torn_heads, torn_short, zeroed_pages, no_database, nonsense])
def test_the_backup_takes_the_place_of_a_damaged_store(
    tmp_path: Path, harm: Callable[[Path], None]
) -> None:
    folder = filled(tmp_path)
    harm(folder)
    damaged = (folder / NAME).read_bytes()
    store = met(folder)
    aside = folder / "store.db.broken-20270115T080000Z"
    assert harm in (zeroed_pages, nonsense) or aside.read_bytes() == damaged
    assert f"the damaged file is now {aside}. Its backup of 20" in store.recovery_message
    assert "herd engine acknowledge" in store.recovery_message
    assert store.stored_jobs() == {job: replace(new_job(job), revision=1) for job in JOBS}
    *before, (seq, last) = store.read_events()
    assert [one.kind for _, one in before] == ["job.submitted"] * len(JOBS)
    assert last.kind == SET_ASIDE and last.facts["why"] == store.recovery_message
    assert seq > 1_000_000  # the numbers of lost events are not used again
    store.close()
    again = Database(folder, NOW)
    assert (again.recovery_message, len(again.stored_jobs())) == ("", len(JOBS))
    assert again.append_events([event(1)]) == seq + 1
    assert read_notices(folder) == {aside.name: store.recovery_message}
    assert awaits_acknowledgement(again)
    assert [acknowledge_restoration(again, folder) for _ in range(2)] == [True, False]
    assert read_notices(folder) == {} and not awaits_acknowledgement(again)
    again.close()


@pytest.mark.parametrize("backups", ["none", "damaged"])
def test_without_a_sound_backup_the_new_store_is_blank(tmp_path: Path, backups: str) -> None:
    folder = filled(tmp_path)
    zeroed_pages(folder)
    for made in folder.glob("store.db.backup*"):
        made.unlink() if backups == "none" else overwrite(made, PAGE, NOISE * 2)
    store = met(folder)
    assert "There was no sound backup" in store.recovery_message
    assert not store.stored_jobs()
    ((seq, last),) = store.read_events()
    assert last.kind == SET_ASIDE and seq > 1_000_000 and not awaits_acknowledgement(store)
    store.close()


def test_a_backup_of_a_newer_herd_is_left_to_it(tmp_path: Path) -> None:
    folder = filled(tmp_path)
    no_database(folder)
    for made in folder.glob("store.db.backup*"):
        with closing(sqlite3.connect(made)) as newer:
            newer.execute("PRAGMA user_version = 99")
    for _ in range(2):
        with pytest.raises(InvalidInput, match="newer herd"):
            Database(folder, NOW)


def test_backups_are_two_private_files_of_which_the_older_one_helps_if_the_newest_is_damaged(
    tmp_path: Path,
) -> None:
    folder = filled(tmp_path)
    made = sorted(folder.glob("store.db.backup*"))
    assert [one.name for one in made] == ["store.db.backup", "store.db.backup-older"]
    assert all(one.stat().st_mode & 0o777 == 0o600 for one in made)
    zeroed_pages(folder)
    overwrite(made[0], PAGE, NOISE * 2)
    with closing(Database(folder, NOW)) as store, pytest.raises(StoreDamaged):
        store.put_job(new_job("new"))  # it is in no backup: its user is told
    with closing(Database(folder, NOW)) as store:
        assert sorted(store.stored_jobs()) == sorted(JOBS[:-1])


def test_kill_9_during_a_backup_leaves_one_that_can_be_restored(tmp_path: Path) -> None:
    hit, step = True, 0
    while hit:
        folder = tmp_path / f"try{step}"
        store = Database(folder, NOW)
        for job in JOBS[:3]:
            store.put_job(new_job(job))
        store.close()
        hit = killed_at(folder, step, back_up)
        no_database(folder)
        store = met(folder)
        assert sorted(store.stored_jobs()) in (list(JOBS[:2]), list(JOBS[:3])), step
        back_up(folder)
        assert not (folder / DRAFT).exists(), step
        store.close()
        step += 1
    assert step > 3
