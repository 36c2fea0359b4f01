"""The state directory's disk is full while the engine runs: users are told, and jobs continue."""

import os
import subprocess
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from time import time

import pytest

from tests.conformance.world import until
from tests.integration.engines import Owner, owner
from tpuherd.model.slots_and_plan import HistoryEvent
from tpuherd.store.database import Database

pytestmark = [pytest.mark.real, pytest.mark.root, pytest.mark.needs("mount")]
FULL = "the disk is full"
FILLER = {"text": "x" * 100_000}
RENEW_S = 10.0  #: the engine writes at least so often


@pytest.fixture
def user() -> Iterator[Owner]:
    """A user whose store is on a disk of 40 MiB."""
    with owner() as found:
        folder = found.store_folder
        folder.mkdir(parents=True)
        words = ["mount", "-t", "tmpfs", "-o", "size=40m", "none", str(folder)]
        if subprocess.run(words, capture_output=True).returncode:
            pytest.skip("may not mount here")
        try:
            yield found
        finally:
            found.leave_all()
            subprocess.run(["umount", "-l", str(folder)], check=True)


def fill_disk(folder: Path) -> Path:
    """Not a byte is left; what takes the room."""
    stuffing = folder / "stuffing"
    with pytest.raises(OSError, match="No space left"), stuffing.open("wb", 0) as stream:
        while True:
            stream.write(b"x" * 4096)
    return stuffing


def test_a_full_disk_is_shown_at_once_and_recorded_when_there_is_room(
    user: Owner,
) -> None:
    user.job("gpt", "sleep 3600", accelerator="v4-8")
    user.happened("attempt.started")
    assert FULL not in user.herd("engine", "status").stderr
    stuffing = fill_disk(user.store_folder)
    until(
        lambda: FULL in user.herd("engine", "status").stderr, "engine status", seconds=3 * RENEW_S
    )
    assert FULL in user.herd("why", "gpt").stdout
    assert not user.events("engine.problem")  # it can't be written yet
    stuffing.unlink()
    trouble = user.happened("engine.problem", seconds=60)
    assert FULL in str(trouble.facts["message"])
    assert FULL in user.herd("events").stdout
    until(lambda: FULL not in user.herd("engine", "status").stderr, "an end", seconds=60)
    assert len(user.events("attempt.launched")) == 1


def test_a_backup_without_room_leaves_the_old_one_and_stops_nothing(user: Owner) -> None:
    folder = user.store_folder
    user.job("gpt", "sleep 3600", accelerator="v4-8")
    user.happened("attempt.started")
    with closing(Database(folder, time())) as store:  # 8 MB, more than SQLite's log grows to
        for _ in range(80):
            store.append_events([HistoryEvent(at=time(), kind="test.filler", facts=FILLER)])
    user.job("next", "sleep 3600", accelerator="v4-8")
    backup = folder / "store.db.backup"
    before = backup.read_bytes()
    stuffing = fill_disk(folder)
    os.truncate(stuffing, stuffing.stat().st_size - (6 << 20))
    user.job("more", "sleep 3600", accelerator="v4-8")
    assert backup.read_bytes() == before
    assert not (folder / "store.db.backup.new").exists()
    listed = user.herd("ls").stdout
    assert "the store's backup" in listed and FULL in listed
    user.happened("attempt.started", many=3)
    stuffing.unlink()
    user.herd("down", "more", "--yes")
    assert "the store's backup" not in user.herd("ls").stdout
    assert backup.read_bytes() != before
    user.herd("engine", "stop")
    (folder / "store.db").write_bytes(b"no database at all" * 999)
    stuffing = fill_disk(folder)
    os.truncate(stuffing, stuffing.stat().st_size - 100_000)  # enough for a blank store
    done = user.herd("ls")
    assert done.returncode and FULL in done.stderr
    stuffing.unlink()
    assert "next" in user.herd("ls").stdout
