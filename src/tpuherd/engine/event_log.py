"""The event log and the history folded from it; events are written before they count."""

from collections.abc import Sequence
from itertools import islice
from math import inf

from tpuherd.cache_codec import decode_cache, encode_cache
from tpuherd.engine.dependencies import LogFunction
from tpuherd.history.apply_event import apply_events
from tpuherd.history.event_kinds import FREQUENT_KINDS
from tpuherd.model.slot_history import History
from tpuherd.model.slots_and_plan import HistoryEvent
from tpuherd.ports import Store
from tpuherd.store.set_aside import SET_ASIDE

KEEP_S = 30 * 86_400.0  #: how long a removed job keeps its frequent events
DAY_S = 86_400.0
BATCH = 1_000  #: events that are applied at once
PACK_S = 7 * 86_400.0  #: older events are packed
UNPACKED = 20_000  #: older than so many newer ones, too: about 8 MB
PACKS = 10  #: at most so many thousand at a time, each in some hundredths of a second
PRUNED = 2_000  #: events at a time: a tenth of a second
RECOVERED, DONE = "store.recovered", "slot.done"
INCOMPLETE = "waiting until all zones have answered, because the store was damaged"
BEGINNINGS = (
    "job.submitted",
    "bid.requested",
    "bid.adopted",
)  #: a store without these events is blank


class EventLog:
    """The log and the history folded from it."""

    def __init__(self, store: Store, epoch: int, note: LogFunction) -> None:
        self.history = History()
        self.pending: list[HistoryEvent] = []  #: not written yet
        self._store = store
        self._epoch = epoch
        self._note = note
        self._seq: int | None = None
        self._pruned_at = -inf
        self._has_done_slot = False  #: since the last backup, which would run it again

    @property
    def last_read(self) -> int:
        """The number of the last event that was read."""
        return self._seq or 0

    def write(self, events: Sequence[HistoryEvent]) -> None:
        """Write events with the pending ones, then apply them to the history."""
        batch = [*self.pending, *events]
        if batch:
            self._store.append_events(batch, epoch=self._epoch)
            self.pending = []
            self.read()

    def write_plan(self, events: Sequence[HistoryEvent]) -> bool:
        """Write the events of a plan, unless a user has changed a job since the last read: then
        the plan is out of date, and False is returned.
        """
        if not events:
            return True
        batch = [*self.pending, *events]
        done = self._store.append_events(batch, epoch=self._epoch, unchanged_since=self.last_read)
        if done:
            self.pending = []
            self.read()
        return done > 0

    def read(self) -> None:
        """Apply the events that this engine or commands wrote since the last read."""
        first = self._seq is None
        if self._seq is None:
            self._seq = self._load_history()
        new = iter(self._store.read_events(after=self._seq))
        while batch := list(islice(new, BATCH)):
            self.history = apply_events(self.history, (event for _, event in batch))
            self._seq = batch[-1][0]
            self._has_done_slot |= any(event.kind == DONE for _, event in batch)
            for seq, event in () if first else batch:
                ids = {"seq": seq, "job": event.job, "slot": event.slot}
                self._note(event.kind, {**event.facts, **ids})

    def _load_history(self) -> int:
        """Load the history that an earlier engine saved; return the number of its last event."""
        seq, content = self._store.load_history() or (0, b"")
        found = decode_cache(History, content)
        if found is None:
            return 0
        self.history = found
        return seq

    def save(self, now: float) -> frozenset[str]:
        """Save the history, so that the next start is quick, and pack old events.

        Back up the store if a slot is done, and once a day; then prune the log, too, and return
        the jobs that were removed so long ago that only their names matter.
        """
        if self._seq is not None:
            self._store.save_history(self._seq, encode_cache(self.history))
        for _ in range(PACKS):
            if not self._store.pack_events(before=now - PACK_S, keep=UNPACKED):
                break
        is_due = now >= self._pruned_at + DAY_S
        if is_due or self._has_done_slot:
            self._store.back_up()
            self._has_done_slot = False
        if not is_due:
            return frozenset()
        gone = self._store.prune_events(FREQUENT_KINDS, before=now - KEEP_S, most=PRUNED)
        self._pruned_at = now if gone < PRUNED else -inf
        dropped = self.dropped_jobs()
        stored_jobs = self._store.stored_jobs()
        return frozenset(
            job for job, at in dropped.items() if at < now - KEEP_S and job not in stored_jobs
        )

    def dropped_jobs(self) -> dict[str, float]:
        """When each job was last removed."""
        return {one.job: one.at for _, one in self._store.read_events(kinds=("job.removed",))}

    def is_incomplete(self) -> bool:
        """Whether the cloud may show what the store does not know: it was lost, or damaged."""
        return self.unrecovered_loss() is not None or self.is_blank()

    def unrecovered_loss(self) -> HistoryEvent | None:
        """The event of setting a damaged store aside, until the cloud's bids were added."""
        for _, event in self._store.read_events(kinds=(SET_ASIDE, RECOVERED), limit=1, newest=True):
            return event if event.kind == SET_ASIDE else None
        return None

    def is_blank(self) -> bool:
        """Whether the store has no job and no bid, because it is new or was lost."""
        nothing = not any(self._store.read_events(kinds=BEGINNINGS, limit=1))
        return nothing and not self._store.stored_jobs()
