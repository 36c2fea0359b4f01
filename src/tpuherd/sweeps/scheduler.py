"""Schedules the trials of a sweep: reads metrics, prunes, releases and assigns."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from hashlib import sha256
from math import inf, isfinite
from typing import Any

from tpuherd.history.apply_event import apply_event
from tpuherd.model.observed import HostRun, HostStatus, ObservedState, RunState
from tpuherd.model.search import Search, count_trials
from tpuherd.model.slot_history import (
    BidRecord,
    GiveUpCode,
    History,
    SlotHistory,
    has_running_attempt,
)
from tpuherd.model.slots_and_plan import Goal, HistoryEvent, Slot
from tpuherd.model.sweep_trials import Sweep, TrialEnd, TrialRecord, TrialUsage, Value
from tpuherd.sweeps.pruning import prune_reason
from tpuherd.sweeps.search_space import suggest_point

#: Metrics are recorded at most this often: every 5 s, later every hundredth of the trial's age.
METRIC_PAUSE_S, METRIC_PAUSE_SHARE = 5.0, 0.01


@dataclass(frozen=True, kw_only=True, slots=True)
class SweepAdvisor:
    """The functions that decide on trials from the results of others."""

    suggest: Callable[[Search, Sweep], Mapping[str, Value]] = lambda search, sweep: suggest_point(
        search, sweep.made
    )  #: the next trial's parameters
    hopeless: Callable[[Search, Sweep, TrialRecord], str] = (
        prune_reason  #: why to prune a trial, or ""
    )


OURS = SweepAdvisor()


@dataclass(kw_only=True, slots=True)
class SweepStep:
    """One pass over a job's sweep; the history is updated after each recorded event."""

    job: str
    search: Search
    slots: Sequence[Slot]
    observed: ObservedState
    history: History
    now: float
    advice: SweepAdvisor = OURS
    events: list[HistoryEvent] = field(default_factory=list)
    wake_at: float = inf

    @property
    def sweep(self) -> Sweep:
        """The sweep as of the latest event."""
        return self.history.sweeps.get(self.job, Sweep())

    def slot_history(self, slot: str) -> SlotHistory:
        """Return the slot's history as of the latest event."""
        return self.history.slots.get(slot) or SlotHistory()

    def record_event(self, kind: str, why: str, slot: str, **facts: Any) -> None:
        """Record an event and apply it to the history."""
        facts["why"] = why
        event = HistoryEvent(at=self.now, kind=kind, job=self.job, slot=slot, facts=facts)
        self.history = apply_event(self.history, event)
        self.events.append(event)


def run_step(turn: SweepStep) -> None:
    """Decide everything that is due now, in the order of dependence."""
    for trial in turn.sweep.unfinished:
        if trial.given_at is not None:
            read_metrics(turn, trial)
    for trial in turn.sweep.unfinished:
        if trial.given_at is not None:
            release_trial(turn, trial)
    free = [slot for slot in turn.slots if is_free_slot(slot, turn.slot_history(slot.name))]
    ready = [one for one in free if is_ready_slot(one, turn.slot_history(one.name))]
    for slot in ready if ready and not has_unknown_work(turn) else ():
        assign_trial(turn, slot)
    if turn.search.items:
        end_map(turn)
    if turn.slots and turn.slots[0].goal is Goal.RUN and not turn.search.keep:
        finish_slots(turn)


# ---- metrics -------------------------------------------------------------------------------------


def read_metrics(turn: SweepStep, trial: TrialRecord) -> None:
    """Record the latest metric of a trial, and prune the trial if it is hopeless."""
    history = turn.slot_history(trial.slot)
    attempt = history.attempt
    if not turn.search.metric or attempt is None or attempt.trial != trial.number:
        return
    if attempt.ended_at is None:
        turn.wake_at = min(turn.wake_at, turn.now + METRIC_PAUSE_S)
    found = latest_value(turn, trial, history)
    if found is None:
        return
    step, value, last = found
    known = (trial.step, trial.value, trial.lost)
    pause_s = max(METRIC_PAUSE_S, METRIC_PAUSE_SHARE * (turn.now - trial.made_at))
    due = last or trial.reported_at is None or turn.now >= trial.reported_at + pause_s
    if known == (step, value, value is None) or not due:
        return
    if value is None and trial.lost:
        return
    shown = "not finite" if value is None else f"{value:g}"
    why = f"trial {trial.number}: {turn.search.metric} {shown} at step {step}"
    turn.record_event("trial.reported", why, trial.slot, trial=trial.number, step=step, value=value)
    why = "" if last else turn.advice.hopeless(
        turn.search, turn.sweep, turn.sweep.find_trial(trial.number) or trial
    )  # fmt: skip
    if why:
        end_trial(turn, trial, TrialEnd.PRUNED, why)


def latest_value(
    turn: SweepStep, trial: TrialRecord, history: SlotHistory
) -> tuple[int, float | None, bool] | None:
    """Return the latest step, its value, and whether the run ended, from the first host that
    reports.
    """
    assert history.attempt is not None
    for host in turn.observed.hosts.get(history.attempt.bid, ()):
        for work in host.works:
            value = work.metrics.get(turn.search.metric)
            if work.attempt == history.attempt.id and value is not None:
                return work.step or 0, value if isfinite(value) else None, has_run_ended(work)
    return None


def has_run_ended(work: HostRun) -> bool:
    return work.complete or work.word in {RunState.ENDED, RunState.LOST}


def end_trial(turn: SweepStep, trial: TrialRecord, how: TrialEnd, why: str) -> None:
    """End the trial; its slot is stopped and takes another one."""
    turn.record_event("trial.ended", why, trial.slot, trial=trial.number, outcome=str(how))


# ---- release -------------------------------------------------------------------------------------


def release_trial(turn: SweepStep, trial: TrialRecord) -> None:
    """Make a trial wait for any slot once its node is gone and it can't be running any more."""
    history = turn.slot_history(trial.slot)
    is_desired = any(slot.name == trial.slot for slot in turn.slots)
    if has_running_attempt(history) or not is_surely_over(history, turn.observed):
        return
    stays = (
        is_desired and history.gave_up_at is None and any(map(is_staying, history.bids.values()))
    )
    if stays and history.trial == trial.number:
        return
    spent = TrialUsage(
        failures=history.failures,
        preemptions=history.preemptions,
        stalls=history.stalls,
        saved=history.saved,
        since=history.first_launch_at,
    )
    lacking = "has no node"
    if not is_desired or history.gave_up_at is not None:
        lacking = "is no longer needed"
    why = f"{trial_title(turn, trial.number)} waits for a free slot: {trial.slot} {lacking}"
    turn.record_event("trial.waiting", why, trial.slot, trial=trial.number, usage=asdict(spent))


def is_surely_over(history: SlotHistory, observed: ObservedState) -> bool:
    """Whether no host can still be running the slot's last attempt: all have reported its end, or
    say now that it does not run, or the cloud has said that its node is stopped or gone.
    """
    attempt = history.attempt
    if attempt is None or attempt.sure:
        return True
    bid = history.bids.get(attempt.bid)
    if bid is None or bid.nodes_deleted_at is not None:
        return True
    hosts = observed.hosts.get(bid.name, ())
    return len(hosts) >= bid.offer.hosts * bid.nodes and all(
        host.reached and not runs_on(host, attempt.id) for host in hosts
    )


def runs_on(host: HostStatus, attempt: str) -> bool:
    return any(work.attempt == attempt and not has_run_ended(work) for work in host.works)


def is_staying(bid: BidRecord) -> bool:
    """Whether the node exists and is not about to go."""
    gone = bid.lost_at is not None or bid.notice_at is not None or bid.withdrawn_at is not None
    return bid.ready_at is not None and not gone


# ---- assignment ----------------------------------------------------------------------------------


def is_free_slot(slot: Slot, history: SlotHistory) -> bool:
    """Whether the slot has no trial and could take one."""
    over = history.done_at is not None or history.gave_up_at is not None
    return slot.goal is not Goal.GONE and history.trial is None and not over


def is_ready_slot(slot: Slot, history: SlotHistory) -> bool:
    """Whether the slot could start a command at once."""
    return not has_running_attempt(history) and any(
        is_staying(bid) and bid.unhealthy_at is None and bid.prepared == slot.code_digest
        for bid in history.bids.values()
    )


def has_unknown_work(turn: SweepStep) -> bool:
    """Whether a node of this job may still run a trial of which the history does not know.

    After a lost store any trial may be that one, and none may run twice at a time.
    """
    return any(
        may_run_unknown_trial(history, turn)
        for name, history in turn.history.slots.items()
        if name.rpartition("-")[0] == turn.job
    )


def may_run_unknown_trial(history: SlotHistory, turn: SweepStep) -> bool:
    attempt = history.attempt
    if attempt is not None and (attempt.trial is None or attempt.trial >= turn.sweep.made):
        # It was found on a host, or the creation of its trial was lost.
        return has_running_attempt(history) or not is_surely_over(history, turn.observed)
    return attempt is None and any(
        bid.adopted and is_staying(bid) and not bid.prepared for bid in history.bids.values()
    )


def assign_trial(turn: SweepStep, slot: Slot) -> None:
    """Give the slot an interrupted trial, or else a new one if any is left."""
    sweep = turn.sweep
    trial = next((one for one in sweep.trials if one.is_waiting), None)
    if trial is None:
        number = next(iter(sweep.again), sweep.made)
        if number >= count_trials(turn.search):
            return
        make_trial(turn, slot, number)
        trial = turn.sweep.find_trial(number)
        assert trial is not None
    resumed = trial.attempts > 0
    how = ("runs again" if turn.search.items else "resumes") if resumed else "starts"
    why = f"{slot.name} is free: {trial_title(turn, trial.number)} {how}"
    facts = {"trial": trial.number, "resumed": resumed, "usage": asdict(trial.spent)}
    turn.record_event("trial.assigned", why, slot.name, **facts)


def make_trial(turn: SweepStep, slot: Slot, number: int) -> None:
    """Create the next trial, choosing its parameters from what is known now."""
    search = turn.search
    params = dict(turn.advice.suggest(search, turn.sweep))
    values = ", ".join(
        value_text(value) if search.items else f"{name}={value_text(value)}"
        for name, value in params.items()
    )
    turn.record_event(
        "trial.created", f"{trial_title(turn, number)}: {values}", "", trial=number, params=params,
        run_id=run_id(turn.job, number, slot.desired_since), metric=search.metric,
        direction=search.goal,
    )  # fmt: skip


def trial_title(turn: SweepStep, number: int) -> str:
    """trial 3, or item 3 of a map"""
    return f"{'item' if turn.search.items else 'trial'} {number}"


def run_id(job: str, number: int, desired_since: float) -> str:
    """Return an id that all attempts of a trial share; it changes if the job is submitted anew."""
    word = sha256(f"{job} t{number} {desired_since!r}".encode()).hexdigest()[:8]
    return f"{job}-t{number}-{word}"


def value_text(value: Value) -> str:
    """Return the value as a command-line argument."""
    return str(value).lower() if isinstance(value, bool) else str(value)


# ---- the end -------------------------------------------------------------------------------------


def finish_slots(turn: SweepStep) -> None:
    """End slots for which no trial is left, so that their nodes are deleted."""
    free = [slot for slot in turn.slots if is_free_slot(slot, turn.slot_history(slot.name))]
    sweep = turn.sweep
    left = count_left(turn)
    if len(free) <= left:
        return
    for slot in sorted(free, key=lambda one: slot_rank(one, turn.slot_history(one.name)))[left:]:
        if has_running_attempt(turn.slot_history(slot.name)):
            continue  # its pruned trial is being stopped
        if not turn.search.items and not sweep.unfinished and not left and not sweep.complete:
            last = sweep.trials[-1].why if sweep.trials else "no trial was run"
            why, code = f"no trial has succeeded: {last}", str(GiveUpCode.TRIALS)
            turn.record_event("slot.gave_up", why, slot.name, code=code)
        else:
            what = "items" if turn.search.items else "trials"
            turn.record_event("slot.done", f"no {what} are left", slot.name)


def count_left(turn: SweepStep) -> int:
    """The number of trials that no slot has: waiting ones, and those to be created."""
    sweep = turn.sweep
    waiting = sum(one.is_waiting for one in sweep.trials) + len(sweep.again)
    return waiting + max(0, count_trials(turn.search) - sweep.made)


def end_map(turn: SweepStep) -> None:
    """Record once that all items have ended."""
    sweep = turn.sweep
    if sweep.is_over or sweep.unfinished or count_left(turn) or not sweep.items:
        return
    why = f"all {sweep.made} items have ended: {sweep.complete} succeeded"
    if sweep.failed:
        why = f"{why}, {len(sweep.failed)} failed"
    facts = {"complete": sweep.complete, "failed": len(sweep.failed), "exit": sweep.worst}
    turn.record_event("map.ended", why, "", **facts)


def slot_rank(slot: Slot, history: SlotHistory) -> tuple[bool, bool, bool]:
    """Sort slots by how soon they could start."""
    bids = history.bids.values()
    return (
        not is_ready_slot(slot, history),
        not any(map(is_staying, bids)),
        not any(bid.granted_at is not None and bid.withdrawn_at is None for bid in bids),
    )


def slots_with_work(slots: Mapping[str, Slot], history: History) -> Mapping[str, Slot]:
    """The slots, where those of nodes that `herd up` keeps have the goal to run while they have an
    item.
    """
    return {
        name: replace(slot, goal=Goal.RUN)
        if slot.trials and slot.goal is Goal.IDLE and has_trial(history, name)
        else slot
        for name, slot in slots.items()
    }


def has_trial(history: History, slot: str) -> bool:
    known = history.slots.get(slot)
    return known is not None and known.trial is not None


def sweeps_with_slots(
    searches: Mapping[str, Search], slots: Mapping[str, Slot]
) -> Iterator[tuple[str, Search, Sequence[Slot]]]:
    by_job: dict[str, list[Slot]] = {job: [] for job in searches}
    for slot in slots.values():
        if slot.job in by_job:
            by_job[slot.job].append(slot)
    for job, search in searches.items():
        yield job, search, by_job[job]
