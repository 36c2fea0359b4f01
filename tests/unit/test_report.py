"""How a command without our library reports its progress: from Python, and from a shell."""

import json
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tpuherd_host import report
from tpuherd_host.agent.state_machine.messages import StepReported
from tpuherd_host.agent.state_machine.reducer import reduce_event
from tpuherd_host.agent.state_machine.rpc_methods import PURE
from tpuherd_host.agent.state_machine.state import ATTEMPT, AgentState, Task
from tpuherd_host.agent.threaded_methods import THREADED


@pytest.fixture
def agent(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[socket.socket]:
    """Somebody who listens as an agent does."""
    monkeypatch.setenv("HERD_STEPS", str(tmp_path / "steps"))
    monkeypatch.setenv("HERD_WORK", "gpt-0-a1-7kq")
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as report_socket:
        report_socket.bind(str(tmp_path / "steps"))
        report_socket.settimeout(10.0)
        yield report_socket


def test_a_report_is_one_datagram(agent: socket.socket) -> None:
    assert report.report(step=3, loss=2)
    assert json.loads(agent.recv(8192)) == {"attempt": "gpt-0-a1-7kq", "step": 3, "loss": 2.0}
    assert report.report(complete=True)
    assert json.loads(agent.recv(8192)) == {"attempt": "gpt-0-a1-7kq", "complete": True}


def test_a_shell_sends_the_same_report(agent: socket.socket) -> None:
    words = [sys.executable, "-m", "tpuherd_host.report", "step=3", "loss=1e-3", "complete"]
    assert subprocess.run(words).returncode == 0
    told = {"attempt": "gpt-0-a1-7kq", "step": 3, "loss": 0.001, "complete": True}
    assert json.loads(agent.recv(8192)) == told


def test_without_an_agent_a_report_does_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("HERD_STEPS", raising=False)
    assert not report.report(step=1)
    monkeypatch.setenv("HERD_STEPS", str(tmp_path / "nobody"))
    assert not report.report(step=1)


@pytest.mark.parametrize("words", [[], ["loss=much"], ["step=1.5"], ["loss"]])
def test_invalid_reports_are_refused(words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert report.main(words) == 2
    assert "usage: python3 -m tpuherd_host.report" in capsys.readouterr().err


def heard(*reports: dict[str, object]) -> dict[str, object]:
    """What an agent keeps of reports that come within a moment."""
    state = AgentState(
        hello={}, boot="b", works={"x-1": Task("x-1", ATTEMPT, (), 0.0, phase="running")}
    )
    for told in reports:
        state, _ = reduce_event(
            state, StepReported({"attempt": "x-1", **told}), 100.0, PURE, THREADED
        )
    return dict(state.works["x-1"].report or {})


def test_a_bare_complete_keeps_the_last_numbers() -> None:
    told = heard({"step": 39, "loss": 3.0}, {"step": 40, "loss": 2.0}, {"complete": True})
    assert told == {"step": 40, "loss": 2.0, "complete": True, "time": 100.0}


def test_a_script_with_endless_names_uses_bounded_memory() -> None:
    reports: list[dict[str, object]] = [{f"loss at {at}": 1.0} for at in range(1000)]
    told = heard(*reports)
    assert len(told) <= 65
    assert "loss at 999" in told
