"""Real JAX programs of several processes: stopped, killed, damaged, and on other shapes."""

import json
import os
import re
import shutil
import socket
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.conformance.world import client

SRC = Path(__file__).parents[2] / "src"
PROGRAM = Path(__file__).parent / "clients" / "train_tiny.py"
FORMS = [pytest.param("pieces"), pytest.param("orbax", marks=pytest.mark.heavy)]
INTERRUPTED, PEER_LOST, UNFIT = 75, 76, 78

pytestmark = [pytest.mark.real]


@dataclass(frozen=True)
class Ended:
    """How one process ended."""

    status: int
    said: dict[str, Any]
    log: str


@dataclass(frozen=True)
class Pod:
    """Processes of this machine that are one program."""

    python: Path
    cache: Path
    program: Path = PROGRAM
    within_s: float = 150

    def run(
        self, *words: object, count: int = 2, chips: int = 2, lame: int = -1, **more: Any
    ) -> list[Ended]:
        with socket.create_server(("127.0.0.1", 0)) as server:
            port = server.getsockname()[1]
        processes = [
            subprocess.Popen(
                [self.python, self.program, *map(str, words)],
                env={
                    "PATH": os.environ["PATH"],
                    "HOME": str(self.cache),
                    "PYTHONPATH": str(SRC),
                    "JAX_PLATFORMS": "cpu",
                    "JAX_NUM_CPU_DEVICES": str(chips - (index == lame)),
                    "HERD_COORDINATOR": f"127.0.0.1:{port}",
                    "HERD_WORKERS": str(count),
                    "HERD_WORKER": str(index),
                    **more,
                },
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
            )
            for index in range(count)
        ]
        try:
            logs = [process.communicate(timeout=self.within_s)[0] for process in processes]
        finally:
            for process in processes:
                process.kill()
        return [
            Ended(process.wait(), found(log), log)
            for process, log in zip(processes, logs, strict=True)
        ]


def found(log: str) -> dict[str, Any]:
    """What the program says in its last line, where it comes so far."""
    lines = [line for line in log.splitlines() if line.startswith('{"start"')]
    said: dict[str, Any] = json.loads(lines[-1]) if lines else {}
    return said


def statuses(ended: Sequence[Ended]) -> list[int]:
    return [one.status for one in ended]


def well(ended: Sequence[Ended]) -> dict[str, Any]:
    assert set(statuses(ended)) == {0}, "\n".join(one.log[-3000:] for one in ended)
    return ended[0].said


def bereft(one: Ended) -> bool:
    """Whether it ended because another did: by our word, or by JAX's once heartbeats are missed."""
    ours = one.status == PEER_LOST and "herd: another process is gone" in one.log
    return ours or (one.status == -6 and "another task died" in one.log)


@pytest.fixture(scope="module")
def cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("home")


@pytest.fixture(params=FORMS)
def form(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def pod(form: str, cache: Path) -> Pod:
    return Pod(client("train" if form == "orbax" else "inside"), cache)


@pytest.fixture(scope="module")
def calm() -> dict[str, dict[str, Any]]:
    """What the program says when nothing happens to it, by form."""
    return {}


def undisturbed(pod: Pod, form: str, calm: dict[str, dict[str, Any]], folder: Path) -> Any:
    if form not in calm:
        calm[form] = well(pod.run(folder / "calm", "--form", form))
    return calm[form]


def test_three_preemptions_change_not_a_bit(
    pod: Pod, form: str, calm: dict[str, dict[str, Any]], tmp_path: Path
) -> None:
    place = tmp_path / "runs"
    for at, who in ((2, 1), (5, 0), (8, 1)):
        ended = pod.run(place, "--form", form, "--at", at, "--who", who, "--do", "term")
        assert statuses(ended) == [INTERRUPTED] * 2, ended[0].log[-3000:]
        stopped = re.search(r"stopped before step (\d+), saved at step (\d+)", ended[0].log)
        assert stopped is not None
        assert stopped[1] == stopped[2], "something was lost"
        assert "stopped before" not in ended[1].log
    last = well(pod.run(place, "--form", form))
    assert last["start"] > 8
    assert last["record"] == {"seen": last["start"]}
    whole = undisturbed(pod, form, calm, tmp_path)
    assert (last["bits"], last["n"], last["loss"]) == (whole["bits"], 12, whole["loss"])


def test_a_killed_host_costs_only_unsaved_steps(
    pod: Pod, form: str, calm: dict[str, dict[str, Any]], tmp_path: Path
) -> None:
    doomed = (
        "--every",
        1000,
        "--at",
        7,
        "--who",
        1,
    )  # the others are in a step then, not in a save
    ended = pod.run(tmp_path / "p", "--form", form, *doomed, "--do", "kill")
    assert bereft(ended[0])
    assert ended[1].status == -9
    last = well(pod.run(tmp_path / "p", "--form", form))
    assert 0 < last["start"] <= 7
    assert last["bits"] == undisturbed(pod, form, calm, tmp_path)["bits"]


def test_the_failing_host_keeps_its_status(pod: Pod, form: str, tmp_path: Path) -> None:
    doomed = ("--every", 1000, "--at", 7, "--who", 1)
    ended = pod.run(tmp_path / "p", "--form", form, *doomed, "--do", "raise")
    assert bereft(ended[0])
    assert ended[1].status == 1
    assert "a mistake of the script" in ended[1].log


@pytest.mark.parametrize(("count", "chips"), [(1, 2), (2, 1), (1, 4)])
def test_training_continues_with_other_hosts_and_chips(
    pod: Pod, form: str, calm: dict[str, dict[str, Any]], tmp_path: Path, count: int, chips: int
) -> None:
    place = tmp_path / "p"
    pod.run(place, "--form", form, "--at", 5, "--do", "term")
    last = pod.run(place, "--form", form, count=count, chips=chips)
    said = well(last)
    whole = undisturbed(pod, form, calm, tmp_path)
    assert said["start"] > 5
    assert said["loss"] == pytest.approx(whole["loss"], rel=1e-5)
    both: dict[int, list[list[int]]] = {}
    for one in last:
        for step, samples in one.said["seen"]:
            both.setdefault(step, []).extend(samples)
    ours = dict(whole["seen"])
    for step, samples in both.items():
        assert len(samples) == 16
        assert samples[:8] == ours[step], "the first half is what the first of two hosts had"


def test_an_incomplete_checkpoint_is_skipped_and_named(
    pod: Pod, form: str, calm: dict[str, dict[str, Any]], tmp_path: Path
) -> None:
    place = tmp_path / "p"
    well(pod.run(place, "--form", form, "--steps", 6))
    newest, older = sorted((one.name for one in place.glob("step-*")), reverse=True)[:2]
    assert (newest, older) == ("step-00000006", "step-00000005")
    shutil.copytree(place / newest, place / "step-00000007")
    (place / "step-00000007" / "whole.json").unlink()
    files = [file for file in (place / newest).rglob("*") if file.is_file()]
    largest = max(
        (file for file in files if file.name != "whole.json"), key=lambda file: file.stat().st_size
    )
    content = bytearray(largest.read_bytes())
    content[-9] ^= 1
    largest.write_bytes(content)
    ended = pod.run(place, "--form", form)
    last = well(ended)
    assert last["start"] == 5
    assert "skipped the checkpoint of step 7: its save was cut short" in ended[0].log
    assert "skipped the checkpoint of step 6: " in ended[0].log
    assert "was changed after it was written" in ended[0].log
    assert "skipped" not in ended[1].log
    assert last["bits"] == undisturbed(pod, form, calm, tmp_path)["bits"]
    steps = sorted(one.name for one in place.glob("step-*"))
    assert steps == ["step-00000011", "step-00000012"]


def refused(ended: Sequence[Ended], sentence: str, status: int = UNFIT) -> None:
    assert statuses(ended) == [status] * len(ended), ended[0].log[-3000:]
    told = [line for one in ended for line in one.log.splitlines() if line.startswith("herd:")]
    assert len(told) == 1, told
    assert sentence in told[0]
    assert "Traceback" not in ended[0].log


def test_bad_input_is_one_sentence_on_one_host(cache: Path, tmp_path: Path) -> None:
    pod = Pod(client("inside"), cache)
    place = tmp_path / "p"
    refused(pod.run(place, "--batch", 18), "a batch of 18 can't be divided among 4 chips")
    too_few = "all shards together have 100 samples, fewer than one batch of 200"
    refused(pod.run(place, "--batch", 200), too_few)
    refused(pod.run(place, "--batch", 200, count=1), too_few)
    well(pod.run(place, "--steps", 2))
    refused(
        pod.run(place, "--width", 9),
        "belongs to another model: ['w'] is [16, 8] in the checkpoint, [16, 9] in the program",
    )
    refused(
        pod.run(place, lame=1),
        "the hosts are not alike: the number of chips in use is 1 for process 1 on "
        f"{socket.gethostname()}, but 2 for the other 1",
    )
    refused(pod.run("gs://nobody/x"), "gs://nobody/x: no access token from the metadata server", 1)
