"""The store is damaged with and without a running engine: no job is forgotten."""

import json
from collections.abc import Iterator
from random import Random

import pytest

from tests.conformance.world import until
from tests.integration.engines import Owner, owner

pytestmark = pytest.mark.real


@pytest.fixture
def user() -> Iterator[Owner]:
    with owner() as found:
        yield found


def overwrite_heads(user: Owner) -> None:
    """The first 4 kB of the file and of its write-ahead file."""
    for name in ("store.db", "store.db-wal"):
        with (user.store_folder / name).open("r+b") as stream:
            stream.write(Random(1).randbytes(4096))


@pytest.mark.parametrize("engine_lives", [True, False])
def test_jobs_continue_and_every_reading_command_reports_it_until_acknowledged(
    user: Owner, engine_lives: bool
) -> None:
    user.job("gpt", "sleep 3600", accelerator="v4-8")
    user.happened("attempt.started")
    node = user.events("attempt.started")[0].facts["bid"]
    if not engine_lives:
        assert user.kill_engine()
    overwrite_heads(user)
    listed = user.herd("ls", "--json")
    assert listed.returncode == 0, listed.stderr
    assert [one["job"] for one in json.loads(listed.stdout)] == ["gpt"]
    aside = next(user.store_folder.glob("store.db.broken-*Z"))
    for words in (("ls",), ("why", "gpt"), ("status", "gpt"), ("events",), ("types", "--zones")):
        done = user.herd(*words)
        assert done.returncode == 0
        assert f"the store was damaged; the damaged file is now {aside}" in done.stderr, words
        assert "herd engine acknowledge" in done.stderr
    recovered = user.happened("store.recovered", seconds=60)
    assert recovered.facts["bids"] == []  # nothing was forgotten
    assert user.engine() is not None
    running = "has been running for"
    until(lambda: running in user.herd("why", "gpt").stdout, "it to run", seconds=60)
    assert len(user.events("attempt.launched")) == 1 and len(user.events("bid.requested")) >= 1
    assert [name.rpartition("/")[2] for name in user.all_there_is()].count(node) >= 1
    assert user.herd("engine", "acknowledge").returncode == 0
    assert "damaged" not in user.herd("ls").stderr
    down = user.herd("down", "gpt", "--yes", seconds=120)
    assert down.returncode == 0, down.stderr
    assert not user.all_there_is()


def test_lost_jobs_are_read_from_the_cloud_again(user: Owner) -> None:
    user.job("gpt", "sleep 3600", accelerator="v4-8")
    user.happened("attempt.started")
    user.herd("engine", "stop")
    (user.store_folder / "store.db").write_bytes(b"no database at all" * 999)
    assert user.herd("ls").returncode == 0
    recovered = user.happened("store.recovered", seconds=60)
    assert recovered.facts["bids"]
    assert user.happened("attempt.launched").facts["bid"] in recovered.facts["bids"]
    assert [one["job"] for one in json.loads(user.herd("ls", "--json").stdout)] == ["gpt"]
