"""What the event log comes to: each event changes what is remembered, and each step is an event."""

from collections.abc import Mapping
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


def apply_event(trails: History, event: HistoryEvent) -> History:
    """What is remembered after this event; what a newer engine wrote is passed over."""
    if not has_required_facts(event):
        return trails
    if event.kind in LEARNS:
        trails = LEARNS[event.kind](trails, event)
    if event.kind in SWEEPS:
        trails = apply_to_sweep(trails, event)
    if event.kind not in FOLDS:
        return trails
    names = (event.slot,) if event.slot else slots_of_job(trails, event)
    slots = dict(trails.slots)
    for name in names:
        slots[name] = apply_slot_event(slots.get(name, SlotHistory()), event)
    return replace(trails, slots=slots)


def apply_to_sweep(trails: History, event: HistoryEvent) -> History:
    """With what it tells of its job's sweep, if that has any trials."""
    before = trails.sweeps.get(event.job, Sweep())
    after = apply_trial_event(before, event)
    return trails if after == before else replace(
        trails, sweeps={**trails.sweeps, event.job: after}
    )  # fmt: skip


def apply_slot_event(trail: SlotHistory, event: HistoryEvent) -> SlotHistory:
    """The same for the one slot that it tells of."""
    return FOLDS[event.kind](trail, event) if event.kind in FOLDS else trail


def slots_of_job(trails: History, event: HistoryEvent) -> tuple[str, ...]:
    """All slots that the wish's job ever had."""
    return tuple(name for name in trails.slots if name.rpartition("-")[0] == event.job)


def events_before_step(step: PlannedStep, now: float) -> tuple[HistoryEvent, ...]:
    """What is written down before a step is taken."""
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
