"""Who works on which trial of a sweep: what they told, who is pruned, who waits, who takes what."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from hashlib import sha256
from math import inf, isfinite
from typing import Any

from tpuherd.history.apply_event import apply_event
from tpuherd.model.observed import HostRun, ObservedState, RunState
from tpuherd.model.search import Search, count_trials
from tpuherd.model.slot_history import BidRecord, History, SlotHistory, has_running_attempt
from tpuherd.model.slots_and_plan import Goal, HistoryEvent, Slot
from tpuherd.model.sweep_trials import Sweep, TrialEnd, TrialRecord, TrialUsage, Value
from tpuherd.sweeps.pruning import prune_reason
from tpuherd.sweeps.search_space import suggest_point

#: What a trial tells is noted no more often than this, and later on with each hundredth of its age.
TOLD_S, TOLD_SHARE = 5.0, 0.01


@dataclass(frozen=True, kw_only=True, slots=True)
class SweepAdvisor:
    """What decides on trials by what others have told."""

    suggest: Callable[[Search, Sweep], Mapping[str, Value]] = lambda search, sweep: suggest_point(
        search, len(sweep.trials)
    )  #: the parameters of the next one
    hopeless: Callable[[Search, Sweep, TrialRecord], str] = (
        prune_reason  #: why one is pruned, or ""
    )


OURS = SweepAdvisor()


@dataclass(kw_only=True, slots=True)
class SweepStep:
    """One job's sweep while it is looked at: what is remembered after each thing that is found."""

    job: str
    search: Search
    slots: Sequence[Slot]
    observed: ObservedState
    trails: History
    now: float
    advice: SweepAdvisor = OURS
    events: list[HistoryEvent] = field(default_factory=list)
    wake_at: float = inf

    @property
    def sweep(self) -> Sweep:
        """As it is by now."""
        return self.trails.sweeps.get(self.job, Sweep())

    def slot_history(self, slot: str) -> SlotHistory:
        """What the slot has lived through by now."""
        return self.trails.slots.get(slot) or SlotHistory()

    def record_event(self, kind: str, why: str, slot: str, **facts: Any) -> None:
        """Notes an event, and goes on from what is remembered then."""
        facts["why"] = why
        event = HistoryEvent(at=self.now, kind=kind, job=self.job, slot=slot, facts=facts)
        self.trails = apply_event(self.trails, event)
        self.events.append(event)


def run_step(turn: SweepStep) -> None:
    """Everything that is to be decided now, in the order in which it depends on each other."""
    for trial in turn.sweep.unfinished:
        if trial.given_at is not None:
            read_metrics(turn, trial)
    for trial in turn.sweep.unfinished:
        if trial.given_at is not None:
            release_trial(turn, trial)
    free = [slot for slot in turn.slots if is_free_slot(slot, turn.slot_history(slot.name))]
    for slot in [one for one in free if is_ready_slot(one, turn.slot_history(one.name))]:
        assign_trial(turn, slot)
    if turn.slots and turn.slots[0].goal is Goal.RUN:
        finish_slots(turn)


# ---- what trials tell ----------------------------------------------------------------------------


def read_metrics(turn: SweepStep, trial: TrialRecord) -> None:
    """What it has told since; and its end, if there is no hope."""
    trail = turn.slot_history(trial.slot)
    attempt = trail.attempt
    if not turn.search.metric or attempt is None or attempt.trial != trial.number:
        return
    if attempt.ended_at is None:
        turn.wake_at = min(turn.wake_at, turn.now + TOLD_S)
    found = latest_value(turn, trial, trail)
    if found is None:
        return
    step, value, last = found
    known = (trial.step, trial.value, trial.lost)
    pause_s = max(TOLD_S, TOLD_SHARE * (turn.now - trial.made_at))
    due = last or trial.told_at is None or turn.now >= trial.told_at + pause_s
    if known == (step, value, value is None) or not due:
        return
    if value is None and trial.lost:
        return
    shown = "no number" if value is None else f"{value:g}"
    why = f"trial {trial.number}: {turn.search.metric} {shown} at step {step}"
    turn.record_event("trial.reported", why, trial.slot, trial=trial.number, step=step, value=value)
    why = "" if last else turn.advice.hopeless(
        turn.search, turn.sweep, turn.sweep.trials[trial.number]
    )  # fmt: skip
    if why:
        end_trial(turn, trial, TrialEnd.PRUNED, why)


def latest_value(
    turn: SweepStep, trial: TrialRecord, trail: SlotHistory
) -> tuple[int, float | None, bool] | None:
    """The last step with its value, of the first host that tells; and whether it is the end."""
    assert trail.attempt is not None
    for host in turn.observed.hosts.get(trail.attempt.bid, ()):
        for work in host.works:
            value = work.metrics.get(turn.search.metric)
            if work.attempt == trail.attempt.id and value is not None:
                return work.step or 0, value if isfinite(value) else None, has_run_ended(work)
    return None


def has_run_ended(work: HostRun) -> bool:
    """It says no more."""
    return work.complete or work.word in {RunState.ENDED, RunState.LOST}


def end_trial(turn: SweepStep, trial: TrialRecord, how: TrialEnd, why: str) -> None:
    """It is over; its slot is stopped, and takes another one."""
    turn.record_event("trial.ended", why, trial.slot, trial=trial.number, outcome=str(how))


# ---- who waits -----------------------------------------------------------------------------------


def release_trial(turn: SweepStep, trial: TrialRecord) -> None:
    """Its node is gone, and nobody can be running it any more: it waits for any slot."""
    trail = turn.slot_history(trial.slot)
    wished = any(slot.name == trial.slot for slot in turn.slots)
    if has_running_attempt(trail) or not is_surely_over(trail):
        return
    stays = wished and trail.gave_up_at is None and any(map(is_staying, trail.bids.values()))
    if stays and trail.trial == trial.number:
        return
    spent = TrialUsage(
        failures=trail.failures,
        preemptions=trail.preemptions,
        stalls=trail.stalls,
        saved=trail.saved,
        since=trail.first_launch_at,
    )
    why = f"trial {trial.number} goes on where a slot is free: {trial.slot} has no node"
    if not wished or trail.gave_up_at is not None:
        why = f"trial {trial.number} goes on where a slot is free: {trial.slot} is not wanted"
    turn.record_event("trial.waiting", why, trial.slot, trial=trial.number, usage=asdict(spent))


def is_surely_over(trail: SlotHistory) -> bool:
    """No host that lives on may still run its last attempt."""
    attempt = trail.attempt
    if attempt is None or attempt.sure:
        return True
    bid = trail.bids.get(attempt.bid)
    return bid is None or bid.lost_at is not None


def is_staying(bid: BidRecord) -> bool:
    """A node that is there, and stays as far as is known."""
    gone = bid.lost_at is not None or bid.noticed_at is not None or bid.withdrawn_at is not None
    return bid.ready_at is not None and not gone


# ---- who takes what ------------------------------------------------------------------------------


def is_free_slot(slot: Slot, trail: SlotHistory) -> bool:
    """It has nothing to do, and might."""
    over = trail.done_at is not None or trail.gave_up_at is not None
    return slot.goal is Goal.RUN and trail.trial is None and not over


def is_ready_slot(slot: Slot, trail: SlotHistory) -> bool:
    """It could start a command at once."""
    return not has_running_attempt(trail) and any(
        is_staying(bid) and bid.sick_at is None and bid.prepared == slot.code_digest
        for bid in trail.bids.values()
    )


def assign_trial(turn: SweepStep, slot: Slot) -> None:
    """What was interrupted goes first; then a new one, if there is another to come."""
    sweep = turn.sweep
    trial = next((one for one in sweep.trials if one.is_waiting), None)
    if trial is None:
        if len(sweep.trials) >= count_trials(turn.search):
            return
        make_trial(turn, slot)
        trial = turn.sweep.trials[-1]
    resumed = trial.attempts > 0
    why = f"{slot.name} is free: trial {trial.number} {'goes on' if resumed else 'begins'}"
    facts = {"trial": trial.number, "resumed": resumed, "usage": asdict(trial.spent)}
    turn.record_event("trial.assigned", why, slot.name, **facts)


def make_trial(turn: SweepStep, slot: Slot) -> None:
    """The next trial, by what is known when a slot is ready for it."""
    search, number = turn.search, len(turn.sweep.trials)
    params = dict(turn.advice.suggest(search, turn.sweep))
    said = ", ".join(f"{name}={value_text(value)}" for name, value in params.items())
    turn.record_event(
        "trial.created", f"trial {number}: {said}", "", trial=number, params=params,
        run_id=run_id(turn.job, number, slot.wished_at), metric=search.metric,
        direction=search.goal,
    )  # fmt: skip


def run_id(job: str, number: int, wished_at: float) -> str:
    """The same for every attempt of a trial; another where the job was wished anew."""
    word = sha256(f"{job} t{number} {wished_at!r}".encode()).hexdigest()[:8]
    return f"{job}-t{number}-{word}"


def value_text(value: Value) -> str:
    """As commands read it."""
    return str(value).lower() if isinstance(value, bool) else str(value)


# ---- the end -------------------------------------------------------------------------------------


def finish_slots(turn: SweepStep) -> None:
    """Slots for which no trial is left are done: their nodes go back."""
    free = [slot for slot in turn.slots if is_free_slot(slot, turn.slot_history(slot.name))]
    sweep = turn.sweep
    left = sum(one.is_waiting for one in sweep.trials) + max(
        0, count_trials(turn.search) - len(sweep.trials)
    )
    if len(free) <= left:
        return
    for slot in sorted(free, key=lambda one: slot_rank(one, turn.slot_history(one.name)))[left:]:
        if has_running_attempt(turn.slot_history(slot.name)):
            continue  # what was pruned there is being stopped
        if not sweep.unfinished and not left and not has_success(sweep):
            last = sweep.trials[-1].why if sweep.trials else "there was none"
            turn.record_event("slot.gave_up", f"no trial has succeeded: {last}", slot.name)
        else:
            turn.record_event("slot.done", "no trial of the sweep is left for it", slot.name)


def slot_rank(slot: Slot, trail: SlotHistory) -> tuple[bool, bool, bool]:
    """Those that are next to begin come first, else in their order."""
    bids = trail.bids.values()
    return (
        not is_ready_slot(slot, trail),
        not any(map(is_staying, bids)),
        not any(bid.granted_at is not None and bid.withdrawn_at is None for bid in bids),
    )


def has_success(sweep: Sweep) -> bool:
    """Anything has come of it."""
    return any(one.how is TrialEnd.COMPLETE for one in sweep.trials)


def sweeps_with_slots(
    searches: Mapping[str, Search], slots: Mapping[str, Slot]
) -> Iterator[tuple[str, Search, Sequence[Slot]]]:
    """Each sweep with the slots of its job."""
    by_job: dict[str, list[Slot]] = {job: [] for job in searches}
    for slot in slots.values():
        if slot.job in by_job:
            by_job[slot.job].append(slot)
    for job, search in searches.items():
        yield job, search, by_job[job]
