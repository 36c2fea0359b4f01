"""The real W&B and TensorBoard over several attempts: one run, one curve, one sentence."""

import json
import os
import socket
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from tests.conformance.world import client
from tests.integration.wandb_server import KEY, Service, serving

SRC = Path(__file__).parents[2] / "src"
PROGRAM = Path(__file__).parent / "clients" / "train_tracked.py"
INTERRUPTED, UNFIT = 75, 78
CURVE = [(step, 0.5 ** (step + 1)) for step in range(12)]

pytestmark = [pytest.mark.real, pytest.mark.heavy]


@dataclass
class Bench:
    """Where programs are run that tell this service."""

    folder: Path
    service: Service
    more: dict[str, str] = field(default_factory=dict)

    def environ(self) -> dict[str, str]:
        return {
            "PATH": os.environ["PATH"],
            "HOME": str(self.folder),
            "PYTHONPATH": str(SRC),
            "JAX_PLATFORMS": "cpu",
            "WANDB_BASE_URL": self.service.url,
            "WANDB_ERROR_REPORTING": "false",
            "HERD_WORKERS": "1",
            "HERD_RUN_ID": "gpt-0-abc",
            "HERD_JOB": "gpt",
            "HERD_CHECKPOINT": str(self.folder / "runs"),
            **self.more,
        }

    def start(self, *words: object, **more: str) -> subprocess.Popen[str]:
        return subprocess.Popen(
            [client("wandb"), PROGRAM, *map(str, words)],
            cwd=self.folder,
            env={**self.environ(), **more},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )

    def run(self, *words: object, **more: str) -> tuple[int, str]:
        with self.start(*words, **more) as process:
            try:
                log = process.communicate(timeout=200)[0]
            finally:
                process.kill()
        return process.returncode, log


@pytest.fixture
def bench(tmp_path: Path) -> Iterator[Bench]:
    with serving() as service:
        yield Bench(tmp_path, service)
        assert service.strange == []


def test_three_attempts_are_one_run_with_one_curve(bench: Bench) -> None:
    bench.more["WANDB_API_KEY"] = KEY
    for at in (3, 8):
        status, log = bench.run("--at", at, "--do", "term")
        assert status == INTERRUPTED, log[-3000:]
    status, log = bench.run()
    assert status == 0, log[-3000:]
    assert list(bench.service.runs) == ["gpt-0-abc"]
    run = bench.service.runs["gpt-0-abc"]
    assert (run.project, run.group, run.curve("loss")) == ("p", "gpt", CURVE)
    assert run.config["lr"] == {"value": 1.0}
    assert run.exits[0] == INTERRUPTED
    assert run.exits[-1] == 0


def test_repeated_steps_are_in_the_curve_once(bench: Bench) -> None:
    bench.more["WANDB_API_KEY"] = KEY
    board = bench.folder / "board"
    doomed = ("--every", 1000, "--at", 8, "--do", "kill", "--board", board)
    status, log = bench.run(*doomed)
    assert status == -9, log[-3000:]
    before = len(bench.service.runs["gpt-0-abc"].curve("loss"))
    assert before > 2, "nothing was told before the end"
    status, log = bench.run("--board", board)
    assert status == 0, log[-3000:]
    assert "resumed at step 2" in log
    assert bench.service.runs["gpt-0-abc"].curve("loss") == CURVE
    assert scalars(board) == CURVE


def scalars(folder: Path) -> list[tuple[int, float]]:
    """What TensorBoard shows of a folder."""
    read = (
        "import json, sys\n"
        "from tensorboard.backend.event_processing.event_accumulator import EventAccumulator\n"
        "found = EventAccumulator(sys.argv[1])\n"
        "found.Reload()\n"
        "print(json.dumps([[one.step, one.value] for one in found.Scalars('loss')]))\n"
    )
    said = subprocess.run(
        [client("wandb"), "-c", read, folder], check=True, capture_output=True, text=True
    )
    return [(step, value) for step, value in json.loads(said.stdout.splitlines()[-1])]


@pytest.mark.parametrize("key", ["", "0" * 40], ids=["none", "wrong"])
def test_without_its_key_one_host_prints_one_sentence(bench: Bench, key: str) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
    pod = {"HERD_COORDINATOR": f"127.0.0.1:{port}", "HERD_WORKERS": "2"}
    if key:
        pod["WANDB_API_KEY"] = key
    both = [bench.start(**pod, HERD_WORKER=str(index)) for index in range(2)]
    logs = [one.communicate(timeout=200)[0] for one in both]
    assert [one.returncode for one in both] == [UNFIT] * 2, logs
    said = [line for log in logs for line in log.splitlines() if line.startswith("herd: ")]
    assert len(said) == 1, said
    assert said[0].startswith("herd: W&B refused the run: ")
    assert "secrets: [WANDB_API_KEY]" in said[0]
    assert "Traceback" not in logs[0] + logs[1]
    assert bench.service.runs == {}


def test_an_outage_of_the_service_is_retried(bench: Bench) -> None:
    """With any other status than 78 it is tried again."""
    away = {"WANDB_BASE_URL": "http://127.0.0.1:9", "WANDB_INIT_TIMEOUT": "3"}
    status, log = bench.run(WANDB_API_KEY=KEY, **away)
    assert status == 1, log[-3000:]
    assert "herd: W&B refused the run: " in log
    assert "Traceback" not in log


def test_only_the_main_process_writes(bench: Bench) -> None:
    bench.more["WANDB_API_KEY"] = KEY
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
    pod = {"HERD_COORDINATOR": f"127.0.0.1:{port}", "HERD_WORKERS": "2"}
    both = [bench.start(**pod, HERD_WORKER=str(index)) for index in range(2)]
    logs = [one.communicate(timeout=200)[0] for one in both]
    assert [one.returncode for one in both] == [0, 0], logs
    run = bench.service.runs["gpt-0-abc"]
    assert (run.curve("loss"), len(run.exits)) == (CURVE, 1)
    assert not any("wandb" in line for line in logs[1].splitlines()), logs[1]


def test_offline_runs_become_one_curve(bench: Bench) -> None:
    for words, end in ((("--at", 3, "--do", "term"), INTERRUPTED), ((), 0)):
        status, log = bench.run(*words, WANDB_MODE="offline")
        assert status == end, log[-3000:]
    assert bench.service.runs == {}
    folders = sorted((bench.folder / "wandb").glob("offline-run-*"))
    assert len(folders) == 2
    sync: list[str | Path] = [client("wandb").with_name("wandb"), "sync", *folders]
    environ = {**bench.environ(), "WANDB_API_KEY": KEY}
    subprocess.run(sync, cwd=bench.folder, env=environ, check=True, capture_output=True)
    run = bench.service.runs["gpt-0-abc"]
    assert run.curve("loss") == CURVE
