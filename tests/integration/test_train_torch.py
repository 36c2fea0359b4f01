"""Trainings with PyTorch on four hosts: without JAX, and as the loader of a Flax training."""

from pathlib import Path
from typing import Any

import pytest

from tests.conformance.world import client
from tests.integration.test_train_pods import INTERRUPTED, Ended, Pod, statuses, well

PROGRAMS = Path(__file__).parent / "clients"
BATCH, HOSTS = 8, 4

pytestmark = [pytest.mark.real, pytest.mark.heavy, pytest.mark.timeout(900)]


def samples(ended: list[Ended]) -> list[tuple[float, float]]:
    """What all hosts have read, with the step."""
    return [(step, number) for one in ended for step, number in one.said["seen"]]


def test_a_plain_loop_stops_on_all_hosts_and_resumes(tmp_path: Path) -> None:
    pod = Pod(client("torch"), tmp_path, PROGRAMS / "train_torch_plain.py", 300)
    whole = pod.run(tmp_path, 6, count=HOSTS)
    well(whole)
    assert [one.said["index"] for one in whole] == [0, 1, 2, 3]
    assert {one.said["count"] for one in whole} == {HOSTS}
    assert [one.said["is_main"] for one in whole] == [True, False, False, False]
    read = samples(whole)
    assert len(set(read)) == len(read) == 6 * BATCH, "each sample once over all hosts"
    (tmp_path / "saved").mkdir()
    first = pod.run(tmp_path / "saved", 6, 2, 3, count=HOSTS)
    assert statuses(first) == [INTERRUPTED] * HOSTS, "\n".join(one.log[-2000:] for one in first)
    last = pod.run(tmp_path / "saved", 6, count=HOSTS)
    well(last)
    assert {one.said["start"] for one in last} == {4}, "told in step 2, stopping is true in step 3"
    assert sorted(samples(first) + samples(last)) == sorted(read)
    assert last[0].said["weights"] == pytest.approx(whole[0].said["weights"], rel=1e-5)


@pytest.mark.parametrize("how", ["forkserver", "spawn"])
def test_flax_with_a_loader_of_three_workers(tmp_path: Path, how: str) -> None:
    pod = Pod(client("torch"), tmp_path, PROGRAMS / "train_flax.py", 500)
    ended = pod.run(tmp_path / "saved", how, 8, count=HOSTS, chips=1)
    well(ended)
    read = samples(ended)
    assert len(set(read)) == len(read) == 8 * BATCH
    assert len({tuple(one.said["losses"]) for one in ended}) == 1
    for index, one in enumerate(ended):
        *place, process = one.said["me"]
        assert place == [index, HOSTS]
        assert {tuple(reader[:2]) for reader in one.said["readers"]} == {(index, HOSTS)}
        processes = {reader[2] for reader in one.said["readers"]}
        assert len(processes) == 3
        assert process not in processes
        assert "herd:" not in one.log


def test_the_recipe_resumes_as_if_nothing_had_been(tmp_path: Path) -> None:
    recipe = PROGRAMS.parents[2] / "examples" / "recipes" / "pytorch.py"
    pod = Pod(client("torch"), tmp_path, recipe, 300)

    def last_line(run: str, steps: int) -> str:
        more: dict[str, Any] = {"HERD_CHECKPOINT": str(tmp_path / "saved"), "RUN_ID": run}
        ended = pod.run("--steps", steps, count=2, **more)
        well(ended)
        assert ("resumed at step 50\n" in ended[0].log) == (run == "cut" and steps == 120)
        (line,) = [line for line in ended[0].log.splitlines() if line.startswith(f"step {steps} ")]
        return line

    last_line("cut", 50)
    assert last_line("cut", 120) == last_line("calm", 120)
    names = sorted(file.name for file in (tmp_path / "saved" / "cut").iterdir())
    assert names == ["step-000000100.pt", "step-000000120.pt"]
