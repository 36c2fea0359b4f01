"""What checkpoints cost that are moved between a bucket and a node of another region, as events.

The size is what the script reports of its last checkpoint; a checkpoint is assumed to be moved
once when it is saved, and once when an attempt resumes from it. A script that reports no sizes, and
a price that nobody knows, give no event: nothing is guessed.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from tpuherd.model.observed import HostRun
from tpuherd.planner.slot_input import SlotContext

GIB = 1 << 30


def record_saves(case: SlotContext, works: Sequence[HostRun]) -> None:
    """Book the checkpoints that the attempt has written since the last time."""
    attempt = case.slot_history.attempt
    assert attempt is not None
    saves = int(max((work.saving.get("saves", 0.0) for work in works), default=0.0))
    size = max((work.saving.get("save_bytes", 0.0) for work in works), default=0.0)
    fresh = saves - attempt.saves_booked
    if fresh > 0:
        record_move(case, fresh * size, {"what": "saved", "saves": saves})


def record_restore(case: SlotContext, facts: Mapping[str, Any]) -> None:
    """Book the checkpoint from which an attempt resumed."""
    size = case.slot_history.save_bytes
    if facts.get("resumed") and size:
        record_move(case, size, {"what": "read"})


def record_move(case: SlotContext, size: float, facts: Mapping[str, Any]) -> None:
    attempt = case.slot_history.attempt
    bid = case.slot_history.bids.get(attempt.bid) if attempt is not None else None
    if attempt is None or bid is None or not bid.offer.per_gib or size <= 0:
        return
    dollars = size / GIB * bid.offer.per_gib
    way = "read from" if facts["what"] == "read" else "saved to"
    why = f"{size / GIB:,.2f} GiB of checkpoints were {way} a bucket in another region"
    case.record_event("slot.data_moved", why, {
        "attempt": attempt.id, "zone": bid.offer.zone, "bytes": round(size),
        "dollars": round(dollars, 6), **facts,
    })  # fmt: skip
