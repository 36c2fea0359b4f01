"""Apply an event to the history, and turn planned steps into events."""

from collections.abc import Iterable, Mapping
from dataclasses import asdict, replace

from tpuherd.history.apply_bid_events import BIDS, SlotEventHandler
from tpuherd.history.apply_slot_events import SLOTS
from tpuherd.history.apply_trial_events import SWEEPS, apply_trial_event
from tpuherd.history.apply_zone_events import LEARNS
from tpuherd.history.event_kinds import has_required_facts
from tpuherd.model.slot_history import History, SlotHistory
from tpuherd.model.slots_and_plan import (
    Ask,
    HistoryEvent,
    Launch,
    PlannedStep,
    RecordEvent,
    Stop,
    Withdraw,
)
from tpuherd.model.sweep_trials import Sweep

FOLDS: Mapping[str, SlotEventHandler] = {**BIDS, **SLOTS}


def apply_event(history: History, event: HistoryEvent) -> History:
    """Return the history after this event; unknown and incomplete ones change nothing."""
    known = event.kind in FOLDS or event.kind in LEARNS or event.kind in SWEEPS
    return apply_events(history, (event,)) if known and has_required_facts(event) else history


def apply_events(history: History, events: Iterable[HistoryEvent]) -> History:
    """Return the history after these events. Thousands of slots are copied once for all of them."""
    slots = dict(history.slots)
    history = replace(history, slots=slots)
    for event in events:
        if not has_required_facts(event):
            continue
        if event.kind in LEARNS:
            history = LEARNS[event.kind](history, event)
        if event.kind in SWEEPS:
            history = apply_to_sweep(history, event)
        if event.kind in FOLDS and not is_of_lost_trial(history, event):
            names = (event.slot,) if event.slot else slots_of_job(history, event)
            for name in names:
                slots[name] = apply_slot_event(slots.get(name, SlotHistory()), event)
    return history


def is_of_lost_trial(history: History, event: HistoryEvent) -> bool:
    """Whether a slot got a trial of which nothing else is known: it will get one anew."""
    if event.kind != "trial.assigned":
        return False
    return history.sweeps.get(event.job, Sweep()).find_trial(event.facts["trial"]) is None


def apply_to_sweep(history: History, event: HistoryEvent) -> History:
    before = history.sweeps.get(event.job, Sweep())
    after = apply_trial_event(before, event)
    return history if after == before else replace(
        history, sweeps={**history.sweeps, event.job: after}
    )  # fmt: skip


def apply_slot_event(slot_history: SlotHistory, event: HistoryEvent) -> SlotHistory:
    return FOLDS[event.kind](slot_history, event) if event.kind in FOLDS else slot_history


def slots_of_job(history: History, event: HistoryEvent) -> tuple[str, ...]:
    return tuple(name for name in history.slots if name.rpartition("-")[0] == event.job)


def events_before_step(step: PlannedStep, now: float) -> tuple[HistoryEvent, ...]:
    """The events to record before a step is carried out."""
    match step.action:
        case RecordEvent(event=event):
            return (event,)
        case Ask() as ask:
            kind, facts = (
                "bid.requested",
                {
                    "bid": ask.bid,
                    "generation": ask.generation,
                    "offer": asdict(ask.offer),
                    "nodes": ask.nodes,
                    "node_digest": ask.node_digest,
                },
            )
        case Withdraw() as withdraw:
            kind, facts = "bid.withdrawn", {"bid": withdraw.bid, "zone": withdraw.zone}
        case Launch() as launch:
            kind, facts = (
                "attempt.launched",
                {
                    "attempt": launch.attempt,
                    "number": launch.number,
                    "bid": launch.bid,
                    "code_digest": launch.code_digest,
                    "boots": list(launch.boots),
                    **({} if launch.trial is None else {"trial": launch.trial}),
                },
            )
        case Stop() as stop:
            kind, facts = (
                "attempt.stopping",
                {
                    "attempt": stop.attempt,
                    "grace_s": stop.grace_s,
                    "bid": stop.bid,
                    "stacks": stop.stacks,
                    **({} if stop.last_at is None else {"last_at": stop.last_at}),
                    **({"node_fault": True} if stop.node_fault else {}),
                },
            )
        case _:
            return ()
    slot = step.action.slot
    job = slot.rpartition("-")[0]
    return (HistoryEvent(at=now, kind=kind, job=job, slot=slot, facts=facts | {"why": step.why}),)
