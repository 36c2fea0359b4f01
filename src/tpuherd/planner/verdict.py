"""Decide how an attempt ended: one verdict for the whole gang, once all hosts have reported."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from tpuherd.diagnosis.explain import name_failure
from tpuherd.diagnosis.first_failure import (
    chips_failed,
    find_cause,
    has_own_cause,
    python_error,
)
from tpuherd.model.observed import EndCode, HostRun, HostStatus, ObservedState, RunState
from tpuherd.model.slot_history import UNFIT, AttemptRecord, BidRecord, SlotHistory, Verdict
from tpuherd.model.slots_and_plan import Slot
from tpuherd.planner.bid_status import build_bid_status, is_stopped_or_gone
from tpuherd.planner.gang_progress import (
    Gang,
    GangMember,
    Pending,
    build_gang,
    describe_end,
    pending_state,
)
from tpuherd.planner.step_events import checkpoint_facts

LINES = 20  #: last lines kept of the host that failed first
GOING = Pending()
INTERRUPTED = 75  #: the exit status of a script with `Run` that has saved and is to be run again
OUTSIDE = "ended by a signal that herd did not send; `herd stop {}` cancels for good"
NO_COMMAND = {126, 127}  #: as shells say it: there is no such program, or it can't be executed
#: What Python says of code that no other try can run.
BROKEN = ("ModuleNotFoundError: ", "SyntaxError: ", "IndentationError: ", "TabError: ")
BRIEF_S = 1.0  #: a command whose program is missing ends within this time
LATE_S = 60.0  #: hosts of a gang must start within this time of each other
CHIPS_MAX = 4  #: in a row, on any nodes: then the command is the cause


@dataclass(frozen=True, kw_only=True, slots=True)
class AttemptEnd:
    verdict: Verdict
    why: str
    host: str = ""
    exit: int | None = None
    lines: tuple[str, ...] = ()
    finding: str = ""  #: the rule that explains it
    saved: int | None = None
    marks: Mapping[str, float] = field(default_factory=dict)  #: of its checkpoints
    step: int | None = None  #: the highest that any host reported
    last_at: float | None = None  #: the last sign of life
    sure: bool = True
    chips: bool = False
    unfit: bool = False  #: no other try can help
    shut_down: bool = False  #: a host was, in order: neither script nor node is to blame

    def event_facts(self, attempt: AttemptRecord) -> dict[str, Any]:
        return {
            "attempt": attempt.id,
            "verdict": str(self.verdict),
            "host": self.host,
            "exit": self.exit,
            "lines": list(self.lines),
            "finding": self.finding,
            "saved": self.saved,
            **self.marks,
            "step": self.step,
            "last_at": self.last_at,
            "sure": self.sure,
            "chips": self.chips,
            "unfit": self.unfit,
            "shut_down": self.shut_down,
            "bid": attempt.bid,
        }


def judge_attempt(
    slot: Slot,
    slot_history: SlotHistory,
    bid: BidRecord | None,
    observed: ObservedState,
    now: float,
) -> AttemptEnd | Pending:
    attempt = slot_history.attempt
    assert attempt is not None
    if bid is None:
        return AttemptEnd(verdict=Verdict.LOST, why="its node is no longer known")
    if is_undisturbed(attempt, bid, observed.hosts.get(bid.name, ())):
        return GOING
    gang = build_gang(slot, attempt, bid, observed)
    if pending := pending_state(gang, now):
        return pending
    gone = is_stopped_or_gone(build_bid_status(bid, observed, now), ended_nodes(gang))
    return gang_verdict(gang, slot_history.faults, sure=gang.whole or gone)


def ended_nodes(gang: Gang) -> list[str]:
    """The nodes all of whose hosts have reported its end."""
    over = Counter(one.host.node for one in gang.members if one.over)
    return [node for node, many in over.items() if many >= gang.bid.offer.hosts]


def is_undisturbed(attempt: AttemptRecord, bid: BidRecord, hosts: tuple[HostStatus, ...]) -> bool:
    """Whether it has started and every responding host reports that it runs."""
    if attempt.started_at is None or attempt.stopping_at is not None:
        return False
    if bid.lost_at is not None or bid.notice_at is not None:
        return False
    for host in hosts:
        if host.boot not in attempt.boots or host.is_leaving:
            return False
        for work in host.works:
            if work.attempt == attempt.id:
                if work.word is not RunState.RUNNING:
                    return False
                break
        else:
            return False
    return True


def gang_verdict(gang: Gang, faults: int, *, sure: bool) -> AttemptEnd:
    """The verdict from all reports; the weightiest reason wins. `sure`: it can't run any more."""
    attempt = gang.attempt
    works = [one.work for one in gang.members if one.work is not None]
    saved = max((work.saved for work in works if work.saved is not None), default=attempt.saved)
    kind, why, one = node_verdict(gang, works) or command_verdict(gang, works, faults)
    work = one.work if one is not None else None
    return AttemptEnd(
        verdict=kind,
        why=why,
        host=one.host.name if one is not None else "",
        exit=work.exit if work is not None else None,
        lines=tuple(work.tail[-LINES:]) if work is not None else (),
        finding=explain_end(kind, works if work is None else (work,)),
        saved=saved,
        marks=checkpoint_facts(works),
        step=max((work.step for work in works if work.step is not None), default=None),
        last_at=attempt_last_sign(attempt, kind, works, work),
        sure=sure,
        chips=kind is Verdict.NODE_FAULT and one is not None and one.has_failed,
        unfit=kind is Verdict.FAILURE and is_unfit(work, gang),
        shut_down=kind is Verdict.NODE_FAULT and was_shut_down(gang, one),
    )


def was_shut_down(gang: Gang, culprit: GangMember | None) -> bool:
    """Whether a host shuts down in order, or did so and is back already."""
    back = culprit is not None and bool(culprit.lost) and culprit.was_sent_term
    return back or gang.leaving_host is not None


def explain_end(kind: Verdict, works: Iterable[HostRun]) -> str:
    """The rule that explains a bad end by the last lines of a host; "" if none does."""
    if kind not in {Verdict.FAILURE, Verdict.NODE_FAULT, Verdict.STALLED}:
        return ""
    return name_failure(
        (work.tail, -work.signal if work.signal else work.exit)
        for work in works
        if not (work.code is EndCode.OUTSIDE and work.why)  # who has ended it is known
    )


def is_unfit(work: HostRun | None, gang: Gang) -> bool:
    """Whether retrying cannot help: the script says so, or every host lacks a program or module."""
    if work is not None and work.exit == UNFIT:
        return True
    if not gang.whole:
        return False
    return all(map(lacks_program, gang.members)) or all(map(cannot_run, gang.members))


def lacks_program(one: GangMember) -> bool:
    """Whether this host's shell failed at once because the program does not exist."""
    work = one.work
    if work is None or not one.has_failed or work.exit not in NO_COMMAND or work.step is not None:
        return False
    return (
        work.ended is not None
        and work.started is not None
        and (work.ended - work.started <= BRIEF_S)
    )


def cannot_run(one: GangMember) -> bool:
    """Whether this host's Python cannot run the script, or lacks a module that it imports."""
    work = one.work
    if work is None or not one.has_failed or work.step is not None:
        return False
    return python_error(work.tail).startswith(BROKEN)


def attempt_last_sign(
    attempt: AttemptRecord, kind: Verdict, works: Sequence[HostRun], culprit: HostRun | None
) -> float | None:
    """When the attempt last made progress on any host.

    Progress after we told it to stop does not count; then the last sign before that does.
    """
    if kind is Verdict.FAILURE and culprit is not None:
        return run_last_sign(culprit)
    lost = kind in {Verdict.PREEMPTED, Verdict.NODE_FAULT, Verdict.LOST}
    mute = kind is not Verdict.STALLED and all(map(is_mute, works))
    found = gang_last_sign(works, heard=lost or mute)
    if kind is Verdict.SUCCESS or attempt.last_at is None:
        return found
    return attempt.last_at if found is None else min(attempt.last_at, found)


def gang_last_sign(works: Sequence[HostRun], *, heard: bool) -> float | None:
    """When any host last made progress, or if `heard` counts, all of them were last heard of:
    a lost node worked until then, and of a command that never says anything no more is known.
    """
    signs = [run_last_sign(work) for work in works]
    if heard and works:
        signs.append(min(run_last_sign(work, heard=True) for work in works))
    return max(signs, default=None)


def is_mute(work: HostRun) -> bool:
    """Whether it has neither reported a step nor printed anything."""
    return work.step is None and (work.logged_at or 0.0) <= (work.started or 0.0)


def run_last_sign(work: HostRun, *, heard: bool = False) -> float:
    """When a host last made progress; an end that it did not cause itself does not count."""
    shown = max(work.stepped_at or 0.0, work.logged_at or 0.0, work.started or 0.0)
    shown = max(shown, work.heard_at) if heard else shown
    if work.ended is None:
        return shown
    killed = work.termed or work.deadman or work.word is RunState.LOST
    return min(shown, work.ended) if killed else work.ended


VerdictReason = tuple[Verdict, str, GangMember | None]


def node_verdict(gang: Gang, works: Sequence[HostRun]) -> VerdictReason | None:
    """Verdicts that outweigh exit codes: completion, the cloud, a notice, a reboot, silence."""
    bid = gang.bid
    if any(work.complete for work in works):
        return Verdict.SUCCESS, "the run is complete", None
    if bid.lost_at is not None:
        return Verdict.PREEMPTED, f"{bid.name} was {bid.lost_how}", None
    if bid.notice_at is not None:
        return Verdict.PREEMPTED, f"{bid.name} received a preemption notice", None
    if (leaving := gang.leaving_host) is not None:
        return Verdict.NODE_FAULT, f"{leaving.name} was shut down", None
    for one in gang.members:
        if one.lost:
            return Verdict.NODE_FAULT, one.lost, one
    silent = next((one for one in gang.members if not one.over and not one.host.reached), None)
    broken = gang.attempt.stopping_at is None or any(one.has_failed for one in gang.members)
    if silent is not None and broken:
        return Verdict.NODE_FAULT, f"{silent.host.name} does not respond", silent
    return None


def command_verdict(gang: Gang, works: Sequence[HostRun], faults: int) -> VerdictReason:
    """The verdict of exit codes and our own stop, on a healthy node."""
    attempt = gang.attempt
    termed = any(work.termed for work in works)
    cleaned = next((one for one in gang.members if was_cleaned(one)), None)
    if cleaned is not None and cleaned.work is not None:
        # What others of the gang end with now is a consequence.
        return Verdict.STOPPED, f"{cleaned.host.name} was {cleaned.work.why}", None
    culprit = first_failed_member(
        gang.members, told_to_end=termed or attempt.stopping_at is not None
    )
    if culprit is not None:
        late = find_late_start(gang, culprit)
        if late is not None:
            why = f"{late.host.name} started long after {culprit.host.name}, which ended first"
            return Verdict.NODE_FAULT, why, None
        return failure_verdict(gang, culprit, faults)
    if gang.whole and not termed and all(work.exit == 0 for work in works):
        # Be it that a stop was on its way: it did not reach anybody in time.
        return Verdict.SUCCESS, "every host succeeded", None
    if attempt.stopping_at is not None:
        return stop_verdict(attempt), attempt.stopping_why, None
    if termed:
        return Verdict.LOST, "something other than herd stopped it", None
    return Verdict.LOST, "for an unknown reason", None


def stop_verdict(attempt: AttemptRecord) -> Verdict:
    if attempt.stalled:
        return Verdict.STALLED
    return Verdict.NODE_FAULT if attempt.node_fault else Verdict.STOPPED


def find_late_start(gang: Gang, culprit: GangMember) -> GangMember | None:
    """A host that started so late that the failed host gave up waiting for it."""
    works = [one.work for one in gang.members if one.work is not None]
    if gang.attempt.first_step_at is not None or any(one.step is not None for one in works):
        return None
    first = culprit.work.started if culprit.work is not None else None
    for one in gang.members:
        began = one.work.started if one.work is not None else None
        if first is not None and began is not None and began > first + LATE_S:
            return one
    return None


def was_cleaned(one: GangMember) -> bool:
    """Whether a user's `herd clean` ended it, before anything else stopped it."""
    work = one.work
    return one.over and work is not None and work.code is EndCode.CLEANED


def first_failed_member(members: Sequence[GangMember], *, told_to_end: bool) -> GangMember | None:
    """The earliest host whose log shows its own cause, else the first that ended.

    `told_to_end`: some host was told to end, so that others may have ended because of that.
    """
    failed = sorted(
        (
            one
            for one in members
            if one.has_failed and not (told_to_end and has_saved_and_left(one))
        ),
        key=lambda one: (one.work.ended or 0.0 if one.work is not None else 0.0, one.host.worker),
    )
    for one in failed:
        if one.work is not None and has_own_cause(one.work.tail, one.work.exit, one.work.signal):
            return one
    return failed[0] if failed else None


def has_saved_and_left(one: GangMember) -> bool:
    """Whether it ended like a `Run` whose gang agreed to stop."""
    return one.work is not None and one.work.exit == INTERRUPTED


def was_ended_from_outside(work: HostRun) -> bool:
    """Whether a signal that herd did not send has ended it; one with `Run` has saved first."""
    return work.code is EndCode.OUTSIDE or work.exit == INTERRUPTED


def failure_verdict(gang: Gang, culprit: GangMember, faults: int) -> VerdictReason:
    attempt = gang.attempt
    assert culprit.work is not None
    how = f"{culprit.host.name} {describe_end(culprit.work)}"
    begun = attempt.first_step_at is not None or culprit.work.step is not None
    unborn = culprit.work.code is EndCode.UNBORN
    cause = find_cause(culprit.work.tail)
    because = f": {cause}" if cause else ""
    if was_ended_from_outside(culprit.work):
        by = f": {culprit.work.why}" if culprit.work.why else because
        how = f"{how}: it was {OUTSIDE.format(gang.slot.job)}{by}"
        return Verdict.FAILURE, how, culprit
    if begun or not (unborn or chips_failed(culprit.work.tail)):
        return Verdict.FAILURE, how + because, culprit
    if unborn:
        how = f"{how}: {culprit.work.why}"
    if faults >= CHIPS_MAX:
        return (
            Verdict.FAILURE,
            f"{how}: its chips fail to initialize on every node{because}",
            culprit,
        )
    chips = "" if unborn else f": its chips failed to initialize{because}"
    return Verdict.NODE_FAULT, how + chips, culprit
