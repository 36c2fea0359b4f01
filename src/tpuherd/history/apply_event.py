"""What the event log comes to: each event changes what is remembered, and each step is an event."""

from collections.abc import Mapping
from dataclasses import asdict, replace

from tpuherd.history.apply_bid_events import BIDS, SlotEventHandler
from tpuherd.history.apply_slot_events import SLOTS
from tpuherd.history.apply_trial_events import SWEEPS, apply_trial_event
from tpuherd.history.apply_zone_events import LEARNS
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

#: Every kind of event, and the facts without which it says nothing.
KINDS: Mapping[str, frozenset[str]] = {
    kind: frozenset(facts.split())
    for kind, facts in {
        "wish.made": "",
        "wish.changed": "",
        "wish.stopped": "",
        "wish.resumed": "",
        "wish.dropped": "",
        "bid.asked": "bid generation offer nodes node_digest",
        "bid.answered": "bid",
        "bid.refused": "bid refusal sentence",
        "bid.granted": "bid",
        "bid.ready": "bid",
        "bid.sick": "bid state",
        "bid.well": "bid",
        "bid.noticed": "bid host what",
        "bid.missed": "bid",
        "bid.seen": "bid",
        "bid.lost": "bid how",
        "bid.freed": "bid",
        "bid.withdrawn": "bid",
        "bid.gone": "bid",
        "bid.adopted": "bid generation offer nodes node_digest",
        "node.quarantined": "node why",
        "host.nonsense": "host what many",
        "host.failed": "host what",
        "log.trimmed": "host attempt",
        "log.removed": "log",
        "slot.prepared": "bid code_digest on",
        "slot.unprepared": "bid sentence hosts",
        "slot.collected": "bid attempt",
        "slot.uncollected": "bid attempt sentence",
        "slot.done": "why",
        "slot.gave_up": "why",
        "attempt.launched": "attempt number bid code_digest",
        "attempt.started": "attempt",
        "attempt.stepped": "attempt",
        "attempt.saved": "attempt step",
        "attempt.stopping": "attempt why grace_s",
        "attempt.ended": "attempt verdict",
        "attempt.stacks": "attempt file",
        "trial.made": "trial params run",
        "trial.given": "trial resumed spent",
        "trial.waits": "trial spent why",
        "trial.told": "trial step value",
        "trial.ended": "trial how why",
        "engine.started": "",
        "engine.stopped": "",
        "engine.crashed": "why",
        "engine.frozen": "why",
        "engine.thawed": "",
        "engine.trouble": "sentence",
    }.items()
}

#: They come so often that a story is better without them, and so is the store when it is old.
ROUTINE = frozenset(
    {"attempt.saved", "bid.answered", "bid.missed", "bid.seen", "trial.told"}
)  # fmt: skip

FOLDS: Mapping[str, SlotEventHandler] = {**BIDS, **SLOTS}


def apply_event(trails: History, event: HistoryEvent) -> History:
    """What is remembered after this event; what a newer engine wrote is passed over."""
    if not KINDS.get(event.kind, frozenset()) <= event.facts.keys():
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
                "bid.asked",
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
