"""Processes outside of JAX's pod: workers of loaders, and programs without JAX."""

import sys
from pathlib import Path

import pytest

from tests.conformance.world import client
from tests.integration.test_train_pods import UNFIT, Pod, statuses, well
from tpuherd_host.train.join_pod import LACKS_JAX, TRAINS_AGAIN

PROGRAMS = Path(__file__).parent / "clients"

pytestmark = [pytest.mark.real]


@pytest.fixture
def pod(tmp_path: Path) -> Pod:
    return Pod(client("inside"), tmp_path, PROGRAMS / "train_workers.py")


def test_workers_know_the_pod_and_do_not_join_it(pod: Pod) -> None:
    ended = pod.run("spawn")
    well(ended)
    for index, one in enumerate(ended):
        mine, *place = one.said["me"]
        assert (place, one.said["is_main"]) == ([index, 2], index == 0)
        assert one.said["total"] == 4 * 2 * 2, "each step adds one for each chip of both hosts"
        told = one.said["workers"]
        assert {worker for worker, *_ in told}.isdisjoint({mine})
        assert {tuple(rest) for _, *rest in told} == {(index, 2, 2, False, 3)}
        assert "herd:" not in one.log


@pytest.mark.parametrize("what", ["trains", "starts"])
def test_a_worker_that_would_train_prints_how_to_write_it(pod: Pod, what: str) -> None:
    """The script trains without asking for its name, or begins workers in a worker."""
    (ended,) = pod.run("spawn", what, count=1)
    assert ended.status == UNFIT
    told = [line for line in ended.log.splitlines() if line.startswith("herd:")]
    assert told == [f"herd: error: {TRAINS_AGAIN}"]
    assert "Traceback" not in ended.log


@pytest.fixture
def plain(tmp_path: Path) -> Pod:
    return Pod(Path(sys.executable), tmp_path, PROGRAMS / "train_plain.py")


def test_without_jax_each_host_knows_its_place(plain: Pod) -> None:
    ended = plain.run(count=4)
    well(ended)
    said = [one.said for one in ended]
    assert [(one["index"], one["count"], one["is_main"]) for one in said] == [
        (0, 4, True), (1, 4, False), (2, 4, False), (3, 4, False),
    ]  # fmt: skip
    seen = [tuple(sample) for one in said for sample in one["seen"]]
    assert len(seen) == len(set(seen)) == 4 * 8, "each sample once over all hosts"
    assert sorted(shard for one in said for shard in one["shards"]) == list(range(8))


def test_a_missing_jax_is_one_sentence(plain: Pod, tmp_path: Path) -> None:
    for count in (1, 2):
        ended = plain.run(tmp_path / "saved", "arrays", count=count)
        assert statuses(ended) == [UNFIT] * count
        for one in ended:
            assert one.log.splitlines() == [f"herd: error: {LACKS_JAX}"]
    (ended_late,) = plain.run("", "imports", count=1)
    assert (ended_late.status, ended_late.log) == (UNFIT, f"herd: error: {LACKS_JAX}\n")
