"""Loads what the store remembers of slots, starting at the engine's last snapshot."""

from tpuherd.history import history_codec
from tpuherd.history.apply_event import apply_event
from tpuherd.history.apply_zone_events import WAITS_S
from tpuherd.model.slot_history import History, SlotHistory
from tpuherd.model.stored_job import StoredJob
from tpuherd.store.database import Database


def load_history(store: Database) -> History:
    seq, document = store.load_history() or (0, None)
    trails = history_codec.decode_history(document) if document is not None else None
    if trails is None:
        seq, trails = 0, History()
    for _, event in store.read_events(after=seq):
        trails = apply_event(trails, event)
    return trails


def slot_histories(store: Database, wish: StoredJob) -> list[SlotHistory]:
    trails = load_history(store)
    return [trails.slots.get(slot, SlotHistory()) for slot in wish.slot_names]


def has_finished(store: Database, wish: StoredJob) -> bool:
    """Whether all slots are done or have given up."""
    return all(
        trail.done_at is not None or trail.gave_up_at is not None
        for trail in slot_histories(store, wish)
    )


def refused_zones(store: Database) -> set[str]:
    """Return the zones whose last refusal was for quota, a role, an API or a reservation."""
    seasons = load_history(store).zone_stats
    return {zone for (zone, _, _), season in seasons.items() if season.refusal in WAITS_S}
