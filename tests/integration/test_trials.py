"""Trials of a sweep on a slot that is killed and stopped, by processes alone, without W&B."""

import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import pytest

SRC = Path(__file__).parents[2] / "src"
INTERRUPTED = 75
WITHIN_S = 60.0
#: What `wandb agent` does, as far as it concerns us: it takes trials from a file.
AGENT = """
import os, signal, subprocess, sys
from pathlib import Path
assert sys.argv[1:] == ["agent", "--forward-signals", "lab/p/s1"], sys.argv
told = []
child = None
def hear(number, frame):
    told.append(number)
    if child:
        child.send_signal(number)
signal.signal(signal.SIGTERM, hear)
store = Path(os.environ["TRIALS"])
while not told:
    words = store.read_text().splitlines()
    if not words:
        break
    store.write_text("".join(line + "\\n" for line in words[1:]))
    run = words[0].split()[0]
    place = Path("wandb/sweep-s1", run).absolute()
    place.parent.mkdir(parents=True, exist_ok=True)
    place.write_text("parameters of " + run)
    environ = {**os.environ, "WANDB_RUN_ID": run, "WANDB_SWEEP_ID": "s1",
               "WANDB_SWEEP_PARAM_PATH": str(place)}
    child = subprocess.Popen(["/usr/bin/env", "python", *words[0].split()[1:]], env=environ,
                             process_group=0)
    child.wait()
    child = None
"""
#: A training with steps of 0.1 s, whose progress is in a file.
TRAIN = """
import json, os, signal, socket, sys, time
from pathlib import Path
steps, lr, status = int(sys.argv[1]), sys.argv[2], int(sys.argv[3])
place = Path(os.environ["HERD_CHECKPOINT"], os.environ["RUN_ID"], "step")
place.parent.mkdir(parents=True, exist_ok=True)
start = int(place.read_text()) if place.exists() else 0
signal.signal(signal.SIGTERM, lambda *_: sys.exit(75))
names = ("WANDB_RUN_ID", "WANDB_RESUME", "WANDB_SWEEP_ID", "HERD_RUN_ID")
told = {name: os.environ.get(name) for name in names}
told["parameters"] = Path(os.environ["WANDB_SWEEP_PARAM_PATH"]).read_text()
told |= {"start": start, "lr": lr, "python": sys.executable}
print("BEGUN " + json.dumps(told), flush=True)
line = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
for step in range(start, steps):
    time.sleep(0.1)
    place.write_text(str(step + 1))
    report = {"attempt": "a", "step": step + 1, "saved": step + 1, "loss": 0.5}
    line.sendto(json.dumps(report).encode(), os.environ["HERD_STEPS"])
line.sendto(json.dumps({"step": steps, "complete": True}).encode(), os.environ["HERD_STEPS"])
print("ENDED " + os.environ["RUN_ID"], flush=True)
sys.exit(status)
"""


@dataclass
class Slot:
    """A slot, its checkpoint folder, and the reports that its agent received."""

    folder: Path
    report_socket: socket.socket
    nodes: list["subprocess.Popen[str]"] = field(default_factory=list)

    def trials(self, *lines: str) -> None:
        (self.folder / "trials").write_text("".join(f"{line}\n" for line in lines))

    def node(self) -> "subprocess.Popen[str]":
        home = self.folder / f"node-{len(self.nodes)}"
        home.mkdir()
        (home / "train.py").write_text(TRAIN)
        library = self.folder / "library"
        environ = {
            "PATH": "/usr/bin:/bin",
            "HOME": str(home),
            "PYTHONPATH": f"{SRC}:{library}",
            "TRIALS": str(self.folder / "trials"),
            "WANDB_API_KEY": "secret",
            "HERD_CHECKPOINT": str(self.folder / "runs"),
            "RUN_ID": "search-0",
            "HERD_RUN_ID": "search-0",
            "HERD_WORK": f"a{len(self.nodes)}",
            "HERD_STEPS": str(self.folder / "steps"),
        }
        with (self.folder / "log").open("a") as log:
            node = subprocess.Popen(
                [sys.executable, "-m", "tpuherd_host.train.wandb_agent", "lab/p/s1"],
                cwd=home, env=environ, stdout=log, stderr=subprocess.STDOUT, text=True,
                start_new_session=True,
            )  # fmt: skip
        self.nodes.append(node)
        return node

    def log(self, word: str = "") -> list[str]:
        lines = (self.folder / "log").read_text().splitlines()
        return [line.removeprefix(f"{word} ") for line in lines if line.startswith(word)]

    def begun(self) -> list[dict[str, Any]]:
        return [json.loads(line) for line in self.log("BEGUN")]

    def heard(self) -> list[dict[str, Any]]:
        found = []
        while True:
            try:
                found.append(json.loads(self.report_socket.recv(8192)))
            except BlockingIOError:
                return found

    def note(self) -> dict[str, Any]:
        told: dict[str, Any] = json.loads((self.folder / "runs/search-0/trial.json").read_text())
        return told


def of_session(leader: int) -> list[int]:
    """All processes of a node: it has a session of its own."""
    found = []
    for entry in Path("/proc").glob("[0-9]*"):
        try:
            if int((entry / "stat").read_text().rpartition(")")[2].split()[3]) == leader:
                found.append(int(entry.name))
        except (OSError, ValueError):
            continue
    return found


def vanish(node: "subprocess.Popen[str]") -> None:
    for process in of_session(node.pid):
        os.kill(process, signal.SIGKILL)
    node.wait(timeout=WITHIN_S)


def until(true: Callable[[], object], what: str) -> None:
    end = time.monotonic() + WITHIN_S
    while not true():
        assert time.monotonic() < end, f"waited in vain for {what}"
        time.sleep(0.02)


def reached(file: Path, step: int) -> bool:
    return file.exists() and int(file.read_text() or 0) >= step


@pytest.fixture
def slot(tmp_path: Path) -> Iterator[Slot]:
    library = tmp_path / "library"
    (library / "wandb").mkdir(parents=True)
    (library / "wandb/__init__.py").write_text("")
    (library / "wandb/__main__.py").write_text(AGENT)
    (library / "wandb-0.dist-info").mkdir()
    (library / "wandb-0.dist-info/METADATA").write_text("Name: wandb\nVersion: 0\n")
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as report_socket:
        report_socket.bind(str(tmp_path / "steps"))
        report_socket.setblocking(False)
        one = Slot(tmp_path, report_socket)
        yield one
        for node in one.nodes:
            vanish(node)


pytestmark = [pytest.mark.real]


def test_a_trial_continues_after_its_node_vanished(slot: Slot) -> None:
    slot.trials("t1 train.py 3 0.1 0", "t2 train.py 30 0.2 0", "t3 train.py 3 0.3 0")
    first = slot.node()
    until(lambda: (slot.folder / "runs/t2/step").exists(), "the second trial's steps")
    note = slot.note()
    assert (note["run"], note["before"]) == ("t2", 3)
    assert "secret" not in json.dumps(note)
    vanish(first)
    assert slot.node().wait(timeout=WITHIN_S) == 0, slot.log()
    begun = slot.begun()
    assert [(one["WANDB_RUN_ID"], one["lr"]) for one in begun] == [
        ("t1", "0.1"), ("t2", "0.2"), ("t2", "0.2"), ("t3", "0.3"),
    ]  # fmt: skip
    assert begun[2]["start"] > 0
    for one in begun:
        run = one["WANDB_RUN_ID"]
        assert one["HERD_RUN_ID"] == run
        assert one["parameters"] == f"parameters of {run}"
        assert (one["WANDB_RESUME"], one["WANDB_SWEEP_ID"]) == ("allow", "s1")
        assert one["python"] == sys.executable
    assert slot.log("ENDED") == ["t1", "t2", "t3"]
    assert slot.note()["over"]


def test_the_steps_of_a_slot_only_grow_and_are_never_complete(slot: Slot) -> None:
    slot.trials("t1 train.py 5 0.1 0", "t2 train.py 4 0.2 0")
    assert slot.node().wait(timeout=WITHIN_S) == 0, slot.log()
    heard = slot.heard()
    steps = [one["step"] for one in heard]
    assert steps == sorted(steps)
    assert steps[-1] == 9
    assert not any("complete" in one for one in heard)
    assert {one["loss"] for one in heard if "loss" in one} == {0.5}


def test_a_stop_keeps_the_trial_for_the_next_node(slot: Slot) -> None:
    slot.trials("t1 train.py 20 0.1 0", "t2 train.py 2 0.2 0")
    first = slot.node()
    until(lambda: (slot.folder / "runs/t1/step").exists(), "the first steps")
    first.terminate()
    assert first.wait(timeout=WITHIN_S) == INTERRUPTED, slot.log()
    until(lambda: not of_session(first.pid), "the node to be at rest")
    assert slot.note()["run"] == "t1"
    assert slot.node().wait(timeout=WITHIN_S) == 0, slot.log()
    assert [one["WANDB_RUN_ID"] for one in slot.begun()] == ["t1", "t1", "t2"]
    assert slot.log("ENDED") == ["t1", "t2"]


def test_a_second_stop_keeps_the_resumed_trial_again(slot: Slot) -> None:
    slot.trials("t1 train.py 30 0.1 0")
    step = slot.folder / "runs/t1/step"
    for at in (1, 6):
        node = slot.node()
        until(partial(reached, step, at), f"step {at}")
        node.terminate()
        assert node.wait(timeout=WITHIN_S) == INTERRUPTED, slot.log()
    assert slot.node().wait(timeout=WITHIN_S) == 0, slot.log()
    assert len(slot.begun()) == 3
    assert slot.log("ENDED") == ["t1"]


def test_a_failing_trial_is_over_and_three_in_a_row_are_reported(slot: Slot) -> None:
    slot.trials("t1 train.py 1 0.1 1", "t2 train.py 1 0.2 0", "t3 train.py 1 0.3 1")
    assert slot.node().wait(timeout=WITHIN_S) == 0, slot.log()
    slot.trials(*(f"t{number} train.py 1 0.1 1" for number in (4, 5)))
    assert slot.node().wait(timeout=WITHIN_S) == 0, slot.log()
    slot.trials(*(f"t{number} train.py 1 0.1 1" for number in (6, 7, 8)))
    assert slot.node().wait(timeout=WITHIN_S) == 1, slot.log()
    assert "failures in a row" in slot.log("herd: ")[-1]
    assert slot.node().wait(timeout=WITHIN_S) == 0, "what failed before is no matter"
    assert len(slot.begun()) == 8


def test_a_trial_that_lost_another_host_is_retried(slot: Slot) -> None:
    slot.trials("t1 train.py 1 0.1 76", "t2 train.py 1 0.2 0")
    assert slot.node().wait(timeout=WITHIN_S) == 0, slot.log()
    assert [one["WANDB_RUN_ID"] for one in slot.begun()] == ["t1", "t1", "t1", "t2"]
