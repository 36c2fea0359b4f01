"""The real `wandb agent` on preempted slots: every trial ends once, in one curve."""

import json
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from tests.conformance.world import client
from tests.integration.engines import owner
from tests.integration.wandb_server import (
    KEY,
    SUMMARY,
    Search,
    Service,
    Tracked,
    serving,
)

SRC = Path(__file__).parents[2] / "src"
PROGRAM = Path(__file__).parent / "clients" / "train_tracked.py"
INTERRUPTED, UNFIT = 75, 78
WITHIN_S = 120.0

pytestmark = [pytest.mark.real, pytest.mark.heavy]


@dataclass
class Node:
    """A machine of a slot, with a disk that goes when it goes; and what runs on it."""

    folder: Path
    name: str
    process: subprocess.Popen[str]

    def processes(self) -> list[int]:
        """All that it runs."""
        found = []
        for entry in Path("/proc").glob("[0-9]*"):
            try:
                if f"NODE={self.name}\0".encode() in (entry / "environ").read_bytes():
                    found.append(int(entry.name))
            except OSError:
                continue
        return found

    def vanish(self) -> None:
        """The power goes."""
        for process in self.processes():
            os.kill(process, signal.SIGKILL)
        self.process.wait(timeout=60)
        shutil.rmtree(self.folder)

    def log(self) -> str:
        return (self.folder / "log").read_text()

    def ended(self) -> int:
        status = self.process.wait(timeout=WITHIN_S)
        until(lambda: not self.processes(), f"{self.name} to be at rest")
        return status


@dataclass
class Slot:
    """What outlives its nodes."""

    folder: Path
    service: Service
    more: dict[str, str] = field(default_factory=dict)
    nodes: list[Node] = field(default_factory=list)

    def node(self, *words: str, **more: str) -> Node:
        name = f"{self.folder.name}-{len(self.nodes)}"
        folder = self.folder / name
        folder.mkdir()
        shutil.copy(PROGRAM, folder / "train.py")
        environ = {
            "PATH": os.environ["PATH"],
            "HOME": str(folder),
            "PYTHONPATH": str(SRC),
            "JAX_PLATFORMS": "cpu",
            "WANDB_BASE_URL": self.service.url,
            "WANDB_API_KEY": KEY,
            "WANDB_ERROR_REPORTING": "false",
            "WANDB_X_FILE_STREAM_TRANSMIT_INTERVAL": "0.5",  # of itself it sends every 15 s
            "HERD_WORKERS": "1",
            "NODE": name,
            "HERD_WORK": name,
            "HERD_RUN_ID": "search-0-abc",
            "RUN_ID": "search-0-abc",
            "HERD_JOB": "search",
            "HERD_CHECKPOINT": str(self.folder / "runs"),
            **self.more,
            **more,
        }
        with (folder / "log").open("w") as log:
            process = subprocess.Popen(
                [client("wandb"), "-m", "tpuherd_host.train.wandb_agent", *words],
                cwd=folder,
                env={key: value for key, value in environ.items() if value},
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                text=True,
            )
        self.nodes.append(Node(folder, name, process))
        return self.nodes[-1]

    def close(self) -> None:
        for node in self.nodes:
            for process in node.processes():
                os.kill(process, signal.SIGKILL)
            node.process.wait(timeout=60)


@pytest.fixture
def slot(tmp_path: Path) -> Iterator[Slot]:
    with serving() as service:
        one = Slot(tmp_path, service)
        try:
            yield one
        finally:
            one.close()
        assert service.strange == []


def until(true: Callable[[], object], what: str) -> None:
    end = time.monotonic() + WITHIN_S
    while not true():
        assert time.monotonic() < end, f"waited in vain for {what}"
        time.sleep(0.05)


def saved(slot: Slot, run: str) -> int:
    """The newest whole checkpoint of a trial."""
    steps = [int(one.parent.name.removeprefix("step-"))
             for one in (slot.folder / "runs" / run).glob("step-*/whole.json")]  # fmt: skip
    return max(steps, default=0)


def curves(slot: Slot) -> dict[str, list[tuple[int, float]]]:
    return {name: run.curve("loss") for name, run in slot.service.runs.items()}


def whole(*rates: float, steps: int = 12) -> dict[str, list[tuple[int, float]]]:
    """The curves of trials with these rates."""
    return {
        f"s1-{number}": [(step, rate / 2 ** (step + 1)) for step in range(steps)]
        for number, rate in enumerate(rates, 1)
    }


def three(service: Service) -> Search:
    return service.search("s1", [{"lr": lr, "pause": 0.3} for lr in (1.0, 2.0, 4.0)])


def test_trials_continue_after_their_node_vanished(slot: Slot) -> None:
    search = three(slot.service)
    first = slot.node("lab/p/s1")
    until(lambda: len(curves(slot).get("s1-2", ())) > 4, "the second trial to be under way")
    first.vanish()
    second = slot.node("lab/p/s1")
    assert second.ended() == 0, second.log()
    assert "resuming trial s1-2" in second.log()
    resumed = re.search(r"resumed at step (\d+)", second.log())
    assert resumed is not None
    assert int(resumed[1]) > 3
    assert curves(slot) == whole(1.0, 2.0, 4.0)
    runs = slot.service.runs.values()
    assert [(run.sweep, run.group, run.config["lr"]["value"]) for run in runs] == [
        ("s1", "search", 1.0),
        ("s1", "search", 2.0),
        ("s1", "search", 4.0),
    ]
    assert sorted(search.given) == ["s1-1", "s1-2", "s1-3"], "none was begun twice"


def test_a_stop_saves_the_trial_and_the_next_node_resumes_it(slot: Slot) -> None:
    three(slot.service)
    first = slot.node("lab/p/s1")
    until(lambda: saved(slot, "s1-1") > 3, "the first trial to be under way")
    first.process.terminate()
    assert first.ended() == INTERRUPTED, first.log()
    stopped = re.search(r"saved at step (\d+)", first.log())
    assert stopped is not None, first.log()
    shutil.rmtree(first.folder)
    second = slot.node("lab/p/s1")
    assert second.ended() == 0, second.log()
    assert f"resumed at step {stopped[1]}" in second.log()
    assert curves(slot) == whole(1.0, 2.0, 4.0)
    assert "Traceback" not in second.log()


def test_a_trial_stopped_by_the_service_is_not_restarted(slot: Slot) -> None:
    search = slot.service.search("s1", [{"lr": 1.0, "pause": 1.0}, {"lr": 2.0}])
    first = slot.node("lab/p/s1")
    until(lambda: saved(slot, "s1-1") > 1, "the first trial to be under way")
    search.hopeless.add("s1-1")
    assert first.ended() == 0, first.log()
    assert len(curves(slot)["s1-1"]) < 12
    assert curves(slot)["s1-2"] == whole(1.0, 2.0)["s1-2"]


def test_a_pod_runs_each_trial_on_all_its_hosts(slot: Slot) -> None:
    three(slot.service)
    slot.more["HERD_WORKERS"] = "2"
    hosts: list[Node] = []
    for number in (0, 1):  # the first pod vanishes, the second ends
        with socket.create_server(("127.0.0.1", 0)) as server:
            coordinator = f"127.0.0.1:{server.getsockname()[1]}"
        pod = {"HERD_COORDINATOR": coordinator, "HERD_WORK": f"search-0-a{number}"}
        hosts = [slot.node("lab/p/s1", **pod, HERD_WORKER=str(one)) for one in (0, 1)]
        if number == 0:
            until(lambda: len(curves(slot).get("s1-1", ())) > 4, "the first trial to get on")
            for one in hosts:
                one.vanish()
    assert [one.ended() for one in hosts] == [0, 0], [one.log() for one in hosts]
    assert curves(slot) == whole(1.0, 2.0, 4.0)
    assert "resumed at step" in hosts[0].log()
    assert "wandb: " not in hosts[1].log()


@pytest.mark.parametrize(
    ("words", "more", "sentence"),
    [
        (["lab/p/s1"], {"WANDB_API_KEY": ""}, "W&B has no key"),
        (["lab/p/s1"], {"HERD_CHECKPOINT": ""}, "give the job `checkpoint:"),
        ([], {}, "name the sweep"),
    ],
)
def test_bad_input_is_one_sentence_of_one_host(
    slot: Slot, words: list[str], more: dict[str, str], sentence: str
) -> None:
    both = [slot.node(*words, **more, HERD_WORKER=str(one), HERD_WORKERS="2") for one in (0, 1)]
    assert [one.ended() for one in both] == [UNFIT, UNFIT]
    said = both[0].log().splitlines()
    assert len(said) == 1, said
    assert sentence in said[0]
    assert both[1].log() == ""


def test_a_swarm_of_agents_outlives_its_nodes(tmp_path: Path) -> None:
    code = tmp_path / "code"
    code.mkdir()
    shutil.copy(PROGRAM, code / "train.py")
    python = client("wandb")
    # Hosts with walls round them would have no way to the service, which is on this machine.
    options = ("--time-scale", "60", "--hosts", "processes", "--offer", str(python.parents[1]))
    rates = (1.0, 2.0, 4.0, 8.0)
    with serving() as service, owner(*options) as user:
        service.search("s1", [{"lr": lr, "pause": 1.0} for lr in rates])
        user.bucket("trials")
        job = {
            "name": "search",
            "accelerator": "v4-8",
            "copies": 2,
            "workdir": str(code),
            "run": f"{python} -m tpuherd_host.train.wandb_agent lab/p/s1",
            "secrets": ["WANDB_API_KEY"],
            "env": {
                "WANDB_BASE_URL": service.url,
                "WANDB_ERROR_REPORTING": "false",
                "WANDB_X_FILE_STREAM_TRANSMIT_INTERVAL": "0.5",
            },
            "checkpoint": "gs://trials/search",
        }
        (tmp_path / "job.yaml").write_text(json.dumps(job))
        words = ("run", tmp_path / "job.yaml", "--detach", "--yes")
        done = user.herd(*words, env={"WANDB_API_KEY": KEY})
        assert done.returncode == 0, done.stderr
        until(lambda: sum(len(run.curve("loss")) > 4 for run in list(service.runs.values())) == 2,
              "a trial on each slot to get on")  # fmt: skip
        user.world.herd("preempt", "search-0-*", "--no-notice")
        done = user.herd("wait", "search", seconds=300)
        said = "\n".join(line for lines in user.said().values() for line in lines)
        assert done.returncode == 0, done.stderr + said
        curves = {name: run.curve("loss") for name, run in service.runs.items()}
        assert curves == whole(*rates)
        assert said.count("resuming trial") == 1
        assert len(user.events("attempt.launched")) == 3
        assert KEY not in said
        for file in user.store_folder.rglob("*"):
            if file.is_file() and "secrets" not in str(file.relative_to(user.store_folder)):
                assert KEY.encode() not in file.read_bytes(), file
    assert (service.strange, service.refused) == ([], 0)


#: The parts of examples/tpucare that ask W&B, with the real client.
EXAMPLES = """
import wandb
from examples.tpucare.pod import steps_done
config = {"wandb": {"entity": "lab", "project": "gpt", "name": "gpt-0"},
          "training": {"checkpoint_interval": 100}}
print(steps_done(config), wandb.sweep({"method": "random"}, entity="lab", project="gpt"))
"""


def test_the_tpucare_examples_ask_the_real_client(tmp_path: Path) -> None:
    packages = next(client("wandb").parents[1].glob("lib/python3*/site-packages"))
    with serving() as service:
        summary = {SUMMARY: {0: json.dumps({"_step": 1234})}}
        service.runs["gpt-0"] = Tracked(id="gpt-0", project="gpt", files=summary)
        environ = {"PATH": os.environ["PATH"], "HOME": str(tmp_path), "WANDB_BASE_URL": service.url,
                   "WANDB_API_KEY": KEY, "PYTHONPATH": f"{SRC.parent}:{packages}"}  # fmt: skip
        done = subprocess.run([sys.executable, "-c", EXAMPLES], env=environ, cwd=tmp_path,
                              capture_output=True, text=True, timeout=WITHIN_S)  # fmt: skip
        assert done.returncode == 0, done.stderr
        assert done.stdout.splitlines()[-1] == f"1200 {next(reversed(service.searches))}"
