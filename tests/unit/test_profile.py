"""What `herd profile` sends to JAX's profiler, and how it tells the cost."""

from pathlib import Path
from typing import Any

import pytest

from tpuherd.commands.profiler_messages import TraceOrder, is_trace_empty, profile_request
from tpuherd.commands.running_attempts import RunningAttempt
from tpuherd.commands.take_profile import HostTrace, StepWatch
from tpuherd.engine.host_messages import AttemptStatus, parse_report
from tpuherd.views.profile_lines import cost_line, profile_lines
from tpuherd_host.agent.host.runtime_metrics import InvalidMetrics, iterate_fields


def test_the_request_has_the_fields_of_the_profiler_service() -> None:
    order = TraceOrder(milliseconds=1500, folder="/tmp/x", session="s", name="gpt-0-w0")
    found = {field: content for field, _, content in iterate_fields(profile_request(order))}
    assert found[1] == 1500
    assert (found[5], found[6], found[7]) == (b"/tmp/x", b"s", b"gpt-0-w0")
    options = found[4]
    assert isinstance(options, bytes)
    assert {field: value for field, _, value in iterate_fields(options)}[9] == 1500


@pytest.mark.parametrize(
    ("reply", "empty"), [(b"", False), (b"\x38\x01", True), (b"\x38\x00", False)]
)
def test_an_empty_trace_is_seen(reply: bytes, empty: bool) -> None:
    assert is_trace_empty(reply) == empty


def test_an_answer_that_is_no_message_is_refused() -> None:
    with pytest.raises(InvalidMetrics):
        is_trace_empty(b"\x38")


def report(at: float, step: int, attempt: str = "a") -> RunningAttempt:
    return RunningAttempt(
        status=AttemptStatus(id=attempt), report=parse_report({"time": at, "step": step})
    )


def test_the_step_time_is_of_the_steps_that_were_reported_meanwhile() -> None:
    watch = StepWatch()
    for at, step in ((99.0, 10), (99.0, 10), (100.0, 20), (101.0, 22), (101.0, 22), (102.0, 24)):
        watch.add_report([report(at, step), report(at, 7 * step, "other")], "a")
    assert watch.step_s == 0.5  # not with the step before, when nothing was traced yet


def test_too_few_reports_tell_no_step_time() -> None:
    watch = StepWatch()
    for at, step in ((99.0, 10), (100.0, 20), (101.0, 20)):
        watch.add_report([report(at, step)], "a")
    assert watch.step_s is None


def trace(before: float | None, during: float | None, **more: Any) -> HostTrace:
    return HostTrace(
        **{"host": "gpt-0/w0", **more}, slot="gpt-0", file=Path("x"), bytes=1_500_000,
        step_s_before=before, step_s_during=during,
    )  # fmt: skip


@pytest.mark.parametrize(
    ("before", "during", "line"),
    [
        (0.12, 0.131, "a step took 120 ms before, 131 ms while it was traced: 9 % more"),
        (2.0, 1.9, "a step took 2 s before, 1.9 s while it was traced: 5 % less"),
        (0.12, 0.12, "a step took 120 ms before, 120 ms while it was traced: about the same"),
    ],
)
def test_the_cost_is_a_sentence(before: float, during: float, line: str) -> None:
    assert cost_line([trace(before, during)]) == line


@pytest.mark.parametrize("steps", [(None, 0.1), (0.1, None), (0.0, 0.1)])
def test_an_unknown_cost_is_said_to_be(steps: tuple[float | None, float | None]) -> None:
    assert cost_line([trace(*steps)]).startswith("what the trace cost is not known")


def test_equal_hosts_are_folded() -> None:
    traces = [trace(0.1, 0.1, host=f"gpt-0/w{worker}") for worker in range(4)]
    assert next(profile_lines(traces, 5.0, "profile-gpt")) == (
        "traced gpt-0/w[0-3] for 5 s: 6 MB in profile-gpt"
    )
