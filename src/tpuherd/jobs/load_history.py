"""Loads what the store remembers of slots, starting at the engine's last snapshot."""

from tpuherd.cache_codec import decode_cache
from tpuherd.history.apply_event import apply_events
from tpuherd.history.apply_zone_events import WAITS_S
from tpuherd.model.slot_history import History, SlotHistory
from tpuherd.model.stored_job import StoredJob
from tpuherd.store.database import Database


def load_history(store: Database) -> History:
    seq, content = store.load_history() or (0, b"")
    history = decode_cache(History, content)
    if history is None:
        seq, history = 0, History()
    return apply_events(history, (event for _, event in store.read_events(after=seq)))


def slot_histories(store: Database, stored: StoredJob) -> list[SlotHistory]:
    history = load_history(store)
    return [history.slots.get(slot, SlotHistory()) for slot in stored.slot_names]


def has_finished(store: Database, stored: StoredJob) -> bool:
    """Whether all slots are done or have given up."""
    return all(
        history.done_at is not None or history.gave_up_at is not None
        for history in slot_histories(store, stored)
    )


def refused_zones(store: Database) -> set[str]:
    """Return the zones whose last refusal was for quota, a role, an API or a reservation."""
    zone_stats = load_history(store).zone_stats
    return {zone for (zone, _, _), stats in zone_stats.items() if stats.refusal in WAITS_S}
