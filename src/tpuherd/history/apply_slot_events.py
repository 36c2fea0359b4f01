"""Apply events to a slot's history: its attempts, its retry limits, its end."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from tpuherd.history.apply_bid_events import SlotEventHandler, bid_setter, resolve_values, with_bid
from tpuherd.model.slot_history import AttemptRecord, BidRecord, SlotHistory, Verdict
from tpuherd.model.slots_and_plan import HistoryEvent
from tpuherd.model.sweep_trials import TrialUsage, read_usage


def apply_launched(slot_history: SlotHistory, event: HistoryEvent) -> SlotHistory:
    facts, last = event.facts, slot_history.attempt
    boots = tuple(facts.get("boots", ()))
    if last is not None and last.id == facts["attempt"]:
        again = replace(last, launched_at=event.at, launches=last.launches + 1, boots=boots)
        return replace(slot_history, attempt=again)
    attempt = AttemptRecord(
        id=facts["attempt"],
        number=facts["number"],
        bid=facts["bid"],
        code_digest=facts["code_digest"],
        launched_at=event.at,
        boots=boots,
        trial=facts.get("trial"),
    )
    first = event.at if slot_history.first_launch_at is None else slot_history.first_launch_at
    many = max(slot_history.attempts, attempt.number)
    slot_history = replace(slot_history, attempt=attempt, attempts=many, first_launch_at=first)
    return bid_setter(collected=False, uncollected=0, full_at=None, idle_at=None, halts=0)(
        slot_history, event
    )


def apply_stopping(slot_history: SlotHistory, event: HistoryEvent) -> SlotHistory:
    attempt, facts = slot_history.attempt, event.facts
    if attempt is None or attempt.id != facts["attempt"] or attempt.ended_at is not None:
        slot_history = replace(slot_history, halted_at=event.at)
        bid = slot_history.bids.get(facts.get("bid", ""))
        if bid is None:
            return slot_history
        return with_bid(slot_history, replace(bid, halts=bid.halts + 1))
    attempt = replace(
        attempt,
        stopping_at=event.at,
        stops=attempt.stops + 1,
        stopping_why=attempt.stopping_why or facts["why"],
        stopping_s=float(facts["grace_s"]),
        stalled=attempt.stalled or bool(facts.get("stacks")),
        node_fault=attempt.node_fault or bool(facts.get("node_fault")),
        last_at=attempt.last_at if attempt.stopping_at is not None else facts.get("last_at"),
    )
    return replace(slot_history, attempt=attempt)


def attempt_setter(**changes: Any) -> SlotEventHandler:
    """A handler that changes the latest attempt, if the event names it."""

    def change(slot_history: SlotHistory, event: HistoryEvent) -> SlotHistory:
        attempt = slot_history.attempt
        if attempt is None or attempt.id != event.facts["attempt"]:
            return slot_history
        return replace(slot_history, attempt=replace(attempt, **resolve_values(changes, event)))

    return change


def apply_first_step(slot_history: SlotHistory, event: HistoryEvent) -> SlotHistory:
    slot_history = replace(attempt_setter(first_step_at="$at")(slot_history, event), faults=0)
    attempt = slot_history.attempt
    if attempt is None or attempt.id != event.facts["attempt"]:
        return slot_history
    bid = slot_history.bids.get(attempt.bid)
    start_s = event.at - attempt.launched_at
    if bid is not None and bid.ready_at is not None and bid.prepared_at is not None:
        start_s += max(0.0, bid.prepared_at - bid.ready_at)
    return replace(slot_history, start_s=max(0.0, start_s))


def note_pace(slot_history: SlotHistory, facts: Mapping[str, Any]) -> SlotHistory:
    """Remember how many steps its run has and how long one takes, if the script reports it."""
    known = {name: facts[name] for name in ("total", "step_s", "save_bytes") if facts.get(name)}
    return replace(slot_history, **known) if known else slot_history


def apply_saved(slot_history: SlotHistory, event: HistoryEvent) -> SlotHistory:
    if slot_history.attempt is None or slot_history.attempt.id != event.facts["attempt"]:
        return slot_history
    slot_history = note_pace(slot_history, event.facts)
    return forgive_after_progress(
        attempt_setter(saved="$step", saved_at="$at")(slot_history, event), event.facts["step"]
    )


def forgive_after_progress(slot_history: SlotHistory, step: int | None) -> SlotHistory:
    """Reset failures once a checkpoint is further than all before."""
    if step is None or (slot_history.saved is not None and step <= slot_history.saved):
        return slot_history
    bids = {
        name: replace(bid, faults=0, node_failures=0) for name, bid in slot_history.bids.items()
    }
    return replace(slot_history, saved=step, failures=0, stalls=0, faults=0, bids=bids)


def apply_ended(slot_history: SlotHistory, event: HistoryEvent) -> SlotHistory:
    facts, attempt = event.facts, slot_history.attempt
    if attempt is None or attempt.id != facts["attempt"] or attempt.ended_at is not None:
        return slot_history
    verdict = Verdict(facts["verdict"])
    attempt = replace(
        attempt,
        ended_at=event.at,
        verdict=verdict,
        host=str(facts.get("host", "")),
        exit=facts.get("exit"),
        lines=tuple(facts.get("lines", ())),
        finding=str(facts.get("finding", "")),
        saved=facts.get("saved", attempt.saved),
        sure=bool(facts.get("sure", True)),
        unfit=bool(facts.get("unfit")),
    )
    if attempt.started_at is not None:
        last_at = min(event.at, facts.get("last_at") or event.at)
        ran_s = slot_history.ran_s + max(0.0, last_at - attempt.started_at)
        slot_history = replace(slot_history, ran_s=ran_s)
    slot_history = note_pace(slot_history, facts)
    slot_history = forgive_after_progress(replace(slot_history, attempt=attempt), attempt.saved)
    bid, chips = slot_history.bids.get(attempt.bid), bool(facts.get("chips"))
    if bid is not None and not facts.get("shut_down"):
        slot_history = with_bid(slot_history, update_node_failures(bid, verdict, chips=chips))
    if chips:
        slot_history = replace(slot_history, faults=slot_history.faults + 1)
    if attempt.trial != slot_history.trial:
        return slot_history  # of a trial that has ended: it counts no longer
    if verdict in COUNTS:
        name = COUNTS[verdict]
        slot_history = replace(slot_history, **{name: getattr(slot_history, name) + 1})
    if verdict in {Verdict.FAILURE, Verdict.NODE_FAULT, Verdict.LOST}:
        slot_history = replace(
            slot_history, failed_at=event.at, failed_why=str(facts.get("why", ""))
        )
    return slot_history


#: Which budget an end burns.
COUNTS = {
    Verdict.FAILURE: "failures",
    Verdict.PREEMPTED: "preemptions",
    Verdict.STALLED: "stalls",
}


def update_node_failures(bid: BidRecord, verdict: Verdict, *, chips: bool) -> BidRecord:
    match verdict:
        case Verdict.NODE_FAULT | Verdict.LOST if chips:
            return replace(bid, faults=bid.faults + 1)
        case Verdict.NODE_FAULT | Verdict.LOST:
            return replace(bid, faults=0, node_failures=bid.node_failures + 1)
        case Verdict.SUCCESS | Verdict.FAILURE | Verdict.STALLED:
            return replace(bid, faults=0, node_failures=0)
        case _:
            return bid


def apply_unprepared(slot_history: SlotHistory, event: HistoryEvent) -> SlotHistory:
    facts = event.facts
    bid = slot_history.bids.get(facts.get("bid", ""))
    if bid is None:
        return slot_history
    bid = replace(bid, prepared="", prepared_on=())
    if facts.get("missing"):  # a secret, or the code: neither node nor command is to blame
        bid = replace(bid, missing_inputs=bid.missing_inputs + 1)
    else:
        bid = replace(bid, unprepared=bid.unprepared + 1)
    slot_history = with_bid(slot_history, bid)
    # A host that went away is no failure of the user's commands.
    own = any(host.get("exit") for host in facts["hosts"])
    if facts.get("early"):
        return slot_history  # nor is one that was still booting
    return replace(
        slot_history,
        failures=slot_history.failures + own,
        failed_at=event.at,
        failed_why=str(facts["message"]),
        unpreparable=bool(facts.get("unfit")),
    )


def start_afresh(slot_history: SlotHistory, event: HistoryEvent) -> SlotHistory:
    """A job submitted again starts from nothing, except that names are not reused."""
    last = slot_history.attempt
    if last is not None and last.ended_at is not None:
        last = replace(last, verdict=Verdict.STOPPED)
    return replace(
        forgive_failures(slot_history, event),
        attempt=last,
        preemptions=0,
        saved=None,
        first_launch_at=None,
        done_at=None,
        spent=0.0,
        moved=0.0,
        save_bytes=0,
        trial=None,
        total=None,
        step_s=None,
        ran_s=0.0,
        deadline_mode="",
    )


def forgive_failures(slot_history: SlotHistory, event: HistoryEvent) -> SlotHistory:
    """Reset failures after the user changed or resumed the job: no node is to blame for them."""
    bids = slot_history.bids.items()
    return replace(
        slot_history,
        bids={name: replace(bid, unprepared=0, missing_inputs=0) for name, bid in bids},
        failures=0,
        stalls=0,
        faults=0,
        failed_at=None,
        failed_why="",
        unpreparable=False,
        gave_up_at=None,
        gave_up_why="",
        unfit={},
        dropped=False,
    )


def apply_job_stopped(slot_history: SlotHistory, event: HistoryEvent) -> SlotHistory:
    """The running attempt ends, even if the job is resumed before the engine looks."""
    last = slot_history.attempt
    if last is None or last.ended_at is not None:
        return slot_history
    return replace(slot_history, attempt=replace(last, unwanted=True))


def apply_dropped(slot_history: SlotHistory, event: HistoryEvent) -> SlotHistory:
    return replace(apply_job_stopped(slot_history, event), dropped=True, trial=None)


def apply_trial_given(slot_history: SlotHistory, event: HistoryEvent) -> SlotHistory:
    """Take on a trial, with what it has used of its retry limits."""
    return with_trial(slot_history, event.facts["trial"], read_usage(event.facts["usage"]))


def apply_trial_left(slot_history: SlotHistory, event: HistoryEvent) -> SlotHistory:
    return (
        with_trial(slot_history, None, TrialUsage())
        if slot_history.trial == event.facts["trial"]
        else slot_history
    )


def apply_map_started(slot_history: SlotHistory, event: HistoryEvent) -> SlotHistory:
    """Its items are new: what the slot ran or runs is none of them."""
    last = slot_history.attempt
    last = last if last is None or last.trial is None else replace(last, trial=EARLIER)
    return replace(
        with_trial(forgive_failures(slot_history, event), None, TrialUsage()), attempt=last
    )


def with_trial(slot_history: SlotHistory, trial: int | None, spent: TrialUsage) -> SlotHistory:
    return replace(
        slot_history,
        trial=trial,
        failures=spent.failures,
        preemptions=spent.preemptions,
        stalls=spent.stalls,
        saved=spent.saved,
        first_launch_at=spent.since,
        failed_at=None,
        failed_why="",
    )


def apply_data_moved(slot_history: SlotHistory, event: HistoryEvent) -> SlotHistory:
    facts, attempt = event.facts, slot_history.attempt
    dollars = float(facts["dollars"])
    if attempt is not None and attempt.id == facts["attempt"] and facts.get("saves"):
        attempt = replace(attempt, saves_booked=int(facts["saves"]))
    return replace(
        slot_history,
        attempt=attempt,
        spent=slot_history.spent + dollars,
        moved=slot_history.moved + dollars,
    )


def note_deadline(slot_history: SlotHistory, event: HistoryEvent) -> SlotHistory:
    return replace(slot_history, deadline_mode=str(event.facts["mode"]))


EARLIER = -1  #: the trial of an attempt that ran an item of an earlier map

SLOTS: Mapping[str, SlotEventHandler] = {
    "job.submitted": start_afresh,
    "job.changed": forgive_failures,
    "job.stopped": apply_job_stopped,
    "job.resumed": forgive_failures,
    "job.removed": apply_dropped,
    "slot.data_moved": apply_data_moved,
    "slot.deadline_mode": note_deadline,
    "slot.deadline_missed": note_deadline,
    "slot.setup_failed": apply_unprepared,
    "slot.done": lambda slot_history, event: replace(slot_history, done_at=event.at),
    "slot.gave_up": lambda slot_history, event: replace(
        slot_history, gave_up_at=event.at, gave_up_why=str(event.facts["why"])
    ),
    "map.started": apply_map_started,
    "trial.assigned": apply_trial_given,
    "trial.waiting": apply_trial_left,
    "trial.ended": apply_trial_left,
    "attempt.launched": apply_launched,
    "attempt.started": attempt_setter(started_at="$at"),
    "attempt.first_step": apply_first_step,
    "attempt.saved": apply_saved,
    "attempt.stopping": apply_stopping,
    "attempt.ended": apply_ended,
}
