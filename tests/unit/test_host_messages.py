"""Messages of agents and scripts are typed and bounded at the edge, or refused with a sentence."""

import json
import math
from typing import Any

import pytest

from tpuherd.engine import agent_updates
from tpuherd.engine.host_messages import (
    AgentEvent,
    AttemptHeartbeat,
    AttemptsReply,
    InvalidMessage,
    parse_attempt,
    parse_message,
    parse_notice,
    parse_report,
)
from tpuherd.model.observed import HostRun, RunState
from tpuherd.planner.plan import attempt_number
from tpuherd_host.agent.effects import step_reports
from tpuherd_host.agent.state_machine.state import Stage, task_json
from tpuherd_host.agent.state_machine.state import Task as AgentWork

HUGE = 10**400
WELL = {"id": "gpt-0-a1-7kq", "kind": "attempt", "phase": "running", "slot": "gpt-0"}
ATTEMPTS: list[dict[str, Any]] = [
    {"id": "../../x"},
    {"id": ".."},
    {"id": "a/b"},
    {"id": "a\n"},
    {"id": "x" * 101},
    {"id": None},
    {"kind": "pet"},
    {"phase": "levitating"},
    {"phase": 7},
    {"started": "soon"},
    {"started": math.nan},
    {"ended": math.inf},
    {"ended": HUGE},
    {"exit": "0"},
    {"exit": HUGE},
    {"signal": -9},
    {"stage": 1.5},
    {"tail": "text"},
    {"tail": ["x" * 5000]},
    {"tail": ["x"] * 1000},
    {"why": "x" * 100_000},
    {"report": [1]},
    {"slot": "x" * 1000},
]


@pytest.mark.parametrize("wrong", ATTEMPTS, ids=lambda one: f"{one}"[:40])
def test_an_invalid_attempt_is_refused_with_a_sentence(wrong: dict[str, Any]) -> None:
    assert parse_attempt(WELL).id == "gpt-0-a1-7kq"
    with pytest.raises(InvalidMessage) as refused:
        parse_attempt(WELL | wrong)
    assert len(str(refused.value)) < 400


@pytest.mark.parametrize("kind", ["attempt", "setup", "command"])
@pytest.mark.parametrize("phase", ["waiting", "running", "closing", "ended", "lost"])
def test_task_messages_of_an_agent_are_parsed(kind: str, phase: str) -> None:
    work = AgentWork("gpt-0-a1-7kq", kind, (Stage(("true",)),), 1.0, phase=phase, slot="gpt-0")
    told = parse_attempt(json.loads(json.dumps(task_json(work))))
    assert (told.id, told.kind, told.phase) == (work.id, kind, phase)


@pytest.mark.parametrize("content", [[], "x", None, {"attempts": 7}, {"notices": []}])
def test_a_list_of_another_shape_is_refused(content: object) -> None:
    with pytest.raises(InvalidMessage):
        parse_message(AttemptsReply, content)


@pytest.mark.parametrize(
    "content",
    [{}, {"event": 7}, {"event": "step", "attempt": "../x"}, {"event": "step", "report": "x"}],
)
def test_an_event_of_another_shape_is_refused(content: object) -> None:
    with pytest.raises(InvalidMessage):
        parse_message(AgentEvent, content)
    with pytest.raises(InvalidMessage):
        parse_message(AttemptHeartbeat, content)


@pytest.mark.parametrize("what", ["levitation", 7, None])
def test_an_unknown_notice_is_refused(what: object) -> None:
    assert parse_notice({"what": "preempted", "value": "TRUE"}).value == "TRUE"
    with pytest.raises(InvalidMessage):
        parse_notice({"what": what, "value": "TRUE"})


def test_only_valid_parts_of_a_report_are_taken() -> None:
    wrong = {
        "step": HUGE, "saved": -1, "resumed": "five", "restore_s": math.nan, "step_s": math.inf,
        "complete": "yes", "loss": HUGE, "time": 1e300,
    }  # fmt: skip
    report = parse_report({**wrong, "accuracy": 0.5})
    assert sorted(report.refused) == sorted(wrong)
    assert report.metrics == {"accuracy": 0.5}
    work = HostRun(attempt="a", word=RunState.RUNNING, step=4)
    assert agent_updates.merge_step_report(work, report, 10.0).step == 4


def test_a_loss_that_is_not_a_number_is_passed_on() -> None:
    metrics = parse_report({"loss": math.nan, "norm": math.inf}).metrics
    assert math.isnan(metrics["loss"]) and metrics["norm"] == math.inf


def test_checkpoints_that_stay_are_no_metrics() -> None:
    report = parse_report({"saved": 9, "best_step": 6, "milestone": -4, "loss": 1})
    assert (report.marks, report.metrics) == ({"best_step": 6}, {"loss": 1.0})
    assert report.refused == ("milestone",)
    work = HostRun(attempt="a", word=RunState.RUNNING, marks={"best_step": 3, "milestone": 4})
    merged = agent_updates.merge_step_report(work, report, 10.0)
    assert merged.marks == {"best_step": 6, "milestone": 4}


def test_a_report_has_a_limited_number_of_metrics() -> None:
    report = parse_report({f"m{number}": number for number in range(1000)})
    assert len(report.metrics) == 64
    assert len(report.refused) == 936


def test_a_step_is_never_in_the_future() -> None:
    work = HostRun(attempt="a", word=RunState.RUNNING)
    assert (
        agent_updates.merge_step_report(
            work, parse_report({"step": 1, "time": 1e10}), 10.0
        ).stepped_at
        == 10.0
    )


def test_the_agent_drops_oversized_parts_of_a_datagram() -> None:
    said = {"attempt": "a", "step": 3, "loss": HUGE, "notes": [1], "text": "x" * 5000, "ok": "yes"}
    told = step_reports.parse_report(json.dumps(said).encode())
    assert told is not None
    assert told.content == {
        "attempt": "a", "step": 3, "ok": "yes", "refused": ["loss", "notes", "text"],
    }  # fmt: skip
    assert sorted(parse_report(told.content).refused) == ["loss", "notes", "text"]


@pytest.mark.parametrize("text", [b"", b"\xff", b"[1]", b"[" * 8000, b'{"a":' * 1500])
def test_the_agent_drops_datagrams_that_are_no_objects(text: bytes) -> None:
    assert step_reports.parse_report(text) is None


def test_no_host_can_exhaust_attempt_numbers() -> None:
    assert attempt_number("gpt-0-a3-7kq", "gpt-0") == 3
    assert attempt_number(f"gpt-0-a{'9' * 60}-7kq", "gpt-0") == 0
