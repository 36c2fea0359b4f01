"""Translate what agents report into the planner's types; pure."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import pairwise
from statistics import median

from tpuherd.engine.host_messages import AttemptStatus, Pause, StepReport, parse_report
from tpuherd.model.observed import EndCode, HostRun, HostStatus, Outlook, RunState
from tpuherd_host.agent.state_machine.rpc_attempts import DEADLY, WORDS_MAX
from tpuherd_host.agent.state_machine.state import CLOSING, ENDED, FREEING, LOST, SWEEPING

STEPS_KEPT = 21  #: reports in the median duration of a step
TAIL = 30  #: lines
NOTHING = frozenset({"", "NONE", "FALSE"})  #: values of a notice without an event
ALIVE = frozenset({RunState.SETUP, RunState.RUNNING, RunState.ENDING})
OUTLOOKS = {("preempted", "TRUE"): Outlook.GONE, ("shutdown", "TERM"): Outlook.OFF}
WEIGHTS = tuple(Outlook)
ENDING = frozenset({SWEEPING, FREEING, CLOSING})


def merge_attempt_status(status: AttemptStatus, before: HostRun | None, now: float) -> HostRun:
    """Combine an agent's status of an attempt with what is known of it here."""
    known = before or HostRun(attempt=status.id, word=RunState.ABSENT)
    heard = replace(
        known,
        word=run_state(status),
        started=status.started,
        ended=status.ended,
        exit=status.exit,
        signal=status.signal,
        termed=status.stopped,
        deadman=status.deadman,
        why=status.why or "",
        code=end_code(status),
        tail=status.tail[-TAIL:],
        logged_at=last_output_time(status, known, now),
    )
    return merge_step_report(heard, parse_report(status.report), now, heard=True)


def end_code(status: AttemptStatus) -> EndCode:
    """Why it ended; unknown if the agent says nothing, or a code of a later version."""
    return EndCode(status.code) if status.code in set(EndCode) else EndCode.UNKNOWN


def last_output_time(status: AttemptStatus, known: HostRun, now: float) -> float:
    """When its log last grew: as seen here, or as the agent reports for output not seen."""
    grew = min(status.logged or 0.0, now)
    return max(known.logged_at or 0.0, grew) or status.started or now


def run_state(status: AttemptStatus) -> RunState:
    """The state of a run; one that is being stopped is ending, whatever its phase."""
    if status.phase == ENDED:
        return RunState.ENDED
    if status.phase == LOST:
        return RunState.LOST
    if status.phase in ENDING or status.stopped:
        return RunState.ENDING
    if status.stage < status.stages - 1:
        return RunState.SETUP
    return RunState.RUNNING


def mark_unlisted_lost(known: HostRun, boot: str, now: float) -> HostRun:
    """Mark an attempt lost that its agent's complete list omits: none of it runs there."""
    if known.word in (RunState.ENDED, RunState.LOST, RunState.ABSENT):
        return known
    why = f"its agent has no record of it any longer (boot {boot[:13]})"
    return replace(
        known, word=RunState.LOST, ended=known.ended or now, why=why, code=EndCode.UNKNOWN
    )


def merge_step_report(
    known: HostRun, report: StepReport, now: float, *, heard: bool = False
) -> HostRun:
    """Add what the script reported of its steps, and if so that its agent was `heard` now."""
    step, saved, metrics = report.step, report.saved, report.metrics
    heard_at = now if heard and known.word in ALIVE else known.heard_at
    if step is None and saved is None and not report.complete and not metrics:
        return known if heard_at == known.heard_at else replace(known, heard_at=heard_at)
    newer = step is not None and step != known.step
    # Use our clock if the step was received live: a host's clock may be wrong.
    at = now if known.step is not None or report.time is None else min(report.time, now)
    return replace(
        known,
        step=known.step if step is None else step,
        resumed=report.resumed if known.resumed is None else known.resumed,
        restore_s=report.restore_s or known.restore_s,
        startup={**known.startup, **report.startup},
        saved=known.saved if saved is None else max(saved, known.saved or 0),
        marks={**known.marks, **report.marks},
        saving={**known.saving, **report.saving},
        complete=known.complete or report.complete,
        stepped_at=at if newer else known.stepped_at,
        step_s=report.step_s or known.step_s,
        total=report.total or known.total,
        metrics=join_metrics(known.metrics, metrics),
        heard_at=heard_at,
    )


def join_metrics(known: Mapping[str, float], new: Mapping[str, float]) -> Mapping[str, float]:
    """Update the known values; of further names, keep no more than one report may have."""
    added = [name for name in new if name not in known][: max(0, WORDS_MAX - len(known))]
    kept = {name: value for name, value in new.items() if name in known}
    return {**known, **kept, **{name: new[name] for name in added}}


def median_step_time(steps: Sequence[tuple[float, int]]) -> float | None:
    """The median duration of a step, by the times of its reports."""
    gaps = [
        (at - before) / (step - earlier)
        for (before, earlier), (at, step) in pairwise(steps)
        if step > earlier and at > before
    ]
    return median(gaps) if gaps else None


def apply_pauses(host: HostStatus, pauses: Sequence[Pause], now: float) -> HostStatus:
    """Add when its agent stood still; it says how long ago that ended."""
    if not pauses and not host.pauses:
        return host
    return replace(host, pauses=tuple((now - one.ago_s, one.s) for one in pauses))


def apply_boot(host: HostStatus, boot: str) -> HostStatus:
    """Note which boot of the host answers: another one is told of no notice of the one before."""
    if boot == host.boot or host.outlook is Outlook.GONE:
        return replace(host, boot=boot)
    return replace(host, boot=boot, notice="", notice_at=None, outlook=Outlook.STAYS)


def apply_notice(host: HostStatus, key: str, value: str, at: float) -> HostStatus:
    """Add a notice of the host. A preemption notice is never withdrawn."""
    mine = host.notice.partition(" ")[0] in ("", key)
    if value in NOTHING:
        if not mine or host.outlook is Outlook.GONE:
            return host
        return replace(host, notice="", notice_at=None, outlook=Outlook.STAYS)
    outlook = Outlook.STAYS
    if value in DEADLY.get(key, ()):
        outlook = OUTLOOKS.get((key, value), Outlook.RETURNS)
    if WEIGHTS.index(outlook) < WEIGHTS.index(host.outlook):
        return host
    return replace(
        host,
        notice=key if value == "TRUE" else f"{key} {value}",
        notice_at=at if host.outlook is Outlook.STAYS else host.notice_at,
        outlook=outlook,
    )
