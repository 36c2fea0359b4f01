"""Decides what the jobs, the engine and the context of this machine mean: pure functions."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from tpuherd.checks.check_results import CheckResult, CheckStatus
from tpuherd.checks.judge_machine import machine_result
from tpuherd.errors import HerdError, NoLogin
from tpuherd.model.trouble import TroubleRecord
from tpuherd.ports import LeaseHolder
from tpuherd.views.format_text import format_span
from tpuherd.views.trouble_line import trouble_line

CREATE_CONTEXT = "herd context add NAME --project PROJECT, then herd context use NAME"


@dataclass(frozen=True, kw_only=True, slots=True)
class EngineFacts:
    """The engine of a project, as its store shows it."""

    holder: LeaseHolder | None
    version: str  #: that the engine recorded when it started; empty: none
    wanted: bool  #: whether a job may need an engine
    troubles: Sequence[TroubleRecord]


def judge_context(title: str, chosen_by: str, error: HerdError | None) -> CheckResult:
    """`error`: why the chosen cloud can't be used, if so."""
    if error is None or isinstance(error, NoLogin):  # the login is a check of its own
        return machine_result("context", CheckStatus.OK, f"{title}, chosen by {chosen_by}")
    return machine_result(
        "context", CheckStatus.PROBLEM, error.sentence, error.hint or CREATE_CONTEXT
    )


def judge_store(jobs: int | None, notices: Sequence[str], error: HerdError | None) -> CheckResult:
    """`jobs`: how many it has; None: there is no store yet."""
    if error is not None:
        return machine_result("store", CheckStatus.PROBLEM, error.sentence, error.hint)
    if notices:
        return machine_result(
            "store", CheckStatus.WARNING, notices[0], "herd engine acknowledge (once you know)"
        )
    if jobs is None:
        return machine_result("store", CheckStatus.OK, "there are no jobs yet")
    return machine_result("store", CheckStatus.OK, f"{jobs} job{'s' if jobs != 1 else ''}")


def judge_engine(facts: EngineFacts, herd: str, now: float) -> list[CheckResult]:
    """One result for the engine, and one for each trouble."""
    holder = facts.holder
    found = [
        machine_result(
            "engine", CheckStatus.WARNING, trouble_line(replace(one, hint=""), now), one.hint
        )
        for one in facts.troubles
    ]
    if holder is None and facts.wanted:
        found.append(
            machine_result(
                "engine",
                CheckStatus.PROBLEM,
                "no engine runs, though there are jobs that are not at rest",
                "herd engine start",
            )
        )
    elif holder is None and not found:
        found.append(machine_result("engine", CheckStatus.OK, "none runs, and no job needs one"))
    elif holder is not None and facts.version and facts.version != herd:
        found.append(
            machine_result(
                "engine",
                CheckStatus.WARNING,
                f"the engine (pid {holder.pid} on {holder.host}) runs version {facts.version},"
                f" this is {herd}",
                "herd engine stop, then herd engine start (attempts go on meanwhile)",
            )
        )
    elif holder is not None:
        since = format_span(max(0.0, now - holder.taken_at))
        found.append(
            machine_result(
                "engine", CheckStatus.OK, f"pid {holder.pid} on {holder.host}, for {since}"
            )
        )
    return found
