"""The state directory's disk is full while the engine runs: users are told, and jobs continue."""

import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.conformance.world import until
from tests.integration.engines import Owner, owner

pytestmark = [pytest.mark.real, pytest.mark.root, pytest.mark.needs("mount")]
FULL = "the disk is full"
RENEW_S = 10.0  #: the engine writes at least so often


@pytest.fixture
def user() -> Iterator[Owner]:
    """Somebody whose store is on a disk of 2 MiB."""
    with owner() as found:
        folder = found.store_folder
        folder.mkdir(parents=True)
        words = ["mount", "-t", "tmpfs", "-o", "size=2m", "none", str(folder)]
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
