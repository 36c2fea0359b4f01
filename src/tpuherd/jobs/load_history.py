"""What the store remembers of slots: folded from where the engine was last."""

from tpuherd.history import history_codec
from tpuherd.history.apply_event import fold
from tpuherd.history.apply_zone_events import WAITS_S
from tpuherd.model.slot_history import Trail, Trails
from tpuherd.model.stored_job import Wish
from tpuherd.store.database import Database


def trails_of(store: Database) -> Trails:
    """All that is remembered."""
    seq, document = store.load_trails() or (0, None)
    trails = history_codec.trails(document) if document is not None else None
    if trails is None:
        seq, trails = 0, Trails()
    for _, event in store.events(after=seq):
        trails = fold(trails, event)
    return trails


def lived(store: Database, wish: Wish) -> list[Trail]:
    """What each slot of a wish has lived through."""
    trails = trails_of(store)
    return [trails.slots.get(slot, Trail()) for slot in wish.slots]


def over(store: Database, wish: Wish) -> bool:
    """Whether all slots are done, or have given up."""
    return all(
        trail.done_at is not None or trail.gave_up_at is not None for trail in lived(store, wish)
    )


def refused_zones(store: Database) -> set[str]:
    """Where quota, a role, an API or a reservation was lacking when it was asked last."""
    seasons = trails_of(store).seasons
    return {zone for (zone, _, _), season in seasons.items() if season.refusal in WAITS_S}
