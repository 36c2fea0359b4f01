"""Asks hosts which attempts of jobs run on them, and how far those are."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from tpuherd.commands.chip_use import NONSENSE, HostTasks, parse_answer
from tpuherd.engine.host_messages import (
    AttemptStatus,
    InvalidMessage,
    StepReport,
    parse_attempt,
    parse_report,
)
from tpuherd.errors import OperationFailed
from tpuherd.model.chip_readings import TrainingReading
from tpuherd.ports import Link, RpcRequest
from tpuherd_host.agent.state_machine.state import RUNNING


@dataclass(frozen=True, kw_only=True, slots=True)
class RunningAttempt:
    """An attempt whose command runs on a host."""

    status: AttemptStatus
    report: StepReport


async def list_running_attempts(link: Link) -> list[RunningAttempt]:
    """Return the attempts whose command runs; OperationFailed if the answer makes no sense."""
    tasks = parse_answer(HostTasks, await link.call(RpcRequest(name="attempts")))
    return parse_running_attempts(tasks.attempts)


def parse_running_attempts(attempts: Sequence[Any]) -> list[RunningAttempt]:
    try:
        found = [parse_attempt(one) for one in attempts]
    except InvalidMessage as error:
        raise OperationFailed(NONSENSE.format(str(error)[:300])) from error
    return [
        RunningAttempt(status=one, report=parse_report(one.report))
        for one in found
        if one.kind == "attempt" and one.phase == RUNNING
    ]


def find_training(attempts: Sequence[Any], now: float) -> TrainingReading | None:
    """Return how far the attempt is that reported last; `now` is by the host's clock."""
    found = [
        TrainingReading(
            slot=one.status.slot, attempt=one.status.number,
            step=one.report.step, step_s=one.report.step_s,
            age_s=max(0.0, now - (one.report.time or now)),
        )
        for one in parse_running_attempts(attempts)
    ]  # fmt: skip
    return min(found, key=lambda one: (one.step is None, one.age_s), default=None)
