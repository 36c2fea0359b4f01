"""The store is damaged with and without a running engine: no job is forgotten."""

import json
from collections.abc import Iterator
from random import Random

import pytest

from tests.conformance.world import until
from tests.integration.engines import Owner, owner

pytestmark = pytest.mark.real
ACKNOWLEDGE = "herd engine acknowledge"


@pytest.fixture
def user() -> Iterator[Owner]:
    with owner() as found:
        yield found


def overwrite_heads(user: Owner) -> None:
    """The first 4 kB of the file and of its write-ahead file."""
    for name in ("store.db", "store.db-wal"):
        with (user.store_folder / name).open("r+b") as stream:
            stream.write(Random(1).randbytes(4096))


def listed_jobs(user: Owner) -> list[str]:
    done = user.herd("ls", "--json")
    assert done.returncode == 0, done.stderr
    return [one["job"] for one in json.loads(done.stdout)]


@pytest.mark.parametrize("engine_lives", [True, False])
def test_attempts_continue_and_every_reading_command_names_the_command_that_ends_the_hold(
    user: Owner, engine_lives: bool
) -> None:
    user.job("gpt", "echo begun; sleep 3600", accelerator="v4-8")
    user.happened("attempt.started")
    began = user.events("attempt.started")[0].facts
    node, attempt = began["bid"], began["attempt"]
    if not engine_lives:
        assert user.kill_engine()
    overwrite_heads(user)
    assert listed_jobs(user) == ["gpt"]
    aside = next(user.store_folder.glob("store.db.broken-*Z"))
    for words in (("ls",), ("why", "gpt"), ("status", "gpt"), ("events",), ("types", "--zones")):
        done = user.herd(*words)
        assert done.returncode == 0
        assert f"the store was damaged; the damaged file is now {aside}" in done.stderr, words
        assert ACKNOWLEDGE in done.stderr
    recovered = user.happened("store.recovered", seconds=60)
    assert node in recovered.facts["bids"]  # it was requested after the backup
    until(lambda: ACKNOWLEDGE in user.herd("why", "gpt").stdout, "why to say so", seconds=60)
    user.job("more", "sleep 3600", accelerator="v4-8")
    until(lambda: ACKNOWLEDGE in user.herd("why", "more").stdout, "why to say so", seconds=60)
    assert not user.events("bid.requested")
    assert user.herd("engine", "acknowledge").returncode == 0
    user.happened("bid.requested", seconds=60)
    running = "has been running for"
    until(lambda: running in user.herd("why", "gpt").stdout, "it to run", seconds=60)
    assert [log for log in user.said() if log.startswith("gpt-0-a")] == [f"{attempt}/0"]
    assert [name.rpartition("/")[2] for name in user.all_there_is()].count(node) >= 1
    assert "damaged" not in user.herd("ls").stderr
    down = user.herd("down", "--all", "--yes", seconds=120)
    assert down.returncode == 0, down.stderr
    assert not user.all_there_is()


def test_without_a_backup_jobs_are_read_from_the_cloud_again(user: Owner) -> None:
    user.job("gpt", "sleep 3600", accelerator="v4-8")
    user.happened("attempt.started")
    user.herd("engine", "stop")
    (user.store_folder / "store.db").write_bytes(b"no database at all" * 999)
    for backup in user.store_folder.glob("store.db.backup*"):
        backup.unlink()
    assert user.herd("ls").returncode == 0
    recovered = user.happened("store.recovered", seconds=60)
    assert recovered.facts["bids"]
    assert user.happened("attempt.launched").facts["bid"] in recovered.facts["bids"]
    assert listed_jobs(user) == ["gpt"]
