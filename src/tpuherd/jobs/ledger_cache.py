"""Keeps the ledger that accounts are read from between commands, because the event log is long.

The cache file may be deleted; if it does not match the store or this version, it is ignored.
"""

import pickle
from contextlib import suppress
from dataclasses import fields

from tpuherd._version import __version__
from tpuherd.accounting.accounts import JobTimes, Ledger, post_event
from tpuherd.accounting.goodput import AttemptAccount, StateSpan
from tpuherd.accounting.slot_account import AccountBuilder
from tpuherd.files import atomic_write
from tpuherd.model.slot_history import AttemptRecord, BidRecord, SlotHistory
from tpuherd.model.slots_and_plan import Offer
from tpuherd.store.database import Database

NAME = "books"
KEEP = 2000  #: new events that make a rewrite worthwhile
NOUNS = (
    Ledger,
    JobTimes,
    AccountBuilder,
    AttemptAccount,
    StateSpan,
    SlotHistory,
    BidRecord,
    AttemptRecord,
    Offer,
)


def load_ledger(store: Database, keep: int = KEEP) -> Ledger:
    """Return the current ledger, read from the last event in the cache."""
    kept = read_cached_ledger(store) or Ledger()
    before = kept.seq
    read_new_events(kept, store)
    if kept.seq - before >= keep:
        write_cached_ledger(store, kept)
    return kept


def read_new_events(kept: Ledger, store: Database) -> bool:
    """Read the events since then; return whether there were any."""
    before = kept.seq
    for seq, event in store.read_events(after=before):
        post_event(kept, event)
        kept.seq = seq
    return kept.seq != before


def ledger_fingerprint(store: Database) -> tuple[object, ...]:
    """Identify the store and our version, by its first event and our data types."""
    shape = tuple(tuple(one.name for one in fields(noun)) for noun in NOUNS)
    for _, event in store.read_events(limit=1):
        return (__version__, shape, event.at, event.kind, event.job, event.slot)
    return (__version__, shape)


def read_cached_ledger(store: Database) -> Ledger | None:
    try:
        whose, kept = pickle.loads((store.folder / NAME).read_bytes())
    except Exception:  # noqa: BLE001 - any unreadable cache is ignored
        return None
    if not isinstance(kept, Ledger) or whose != ledger_fingerprint(store):
        return None
    return kept if any(store.read_events(after=kept.seq - 1, limit=1)) else None


def write_cached_ledger(store: Database, kept: Ledger) -> None:
    """Replace the cache; if that fails, the log is read again next time."""
    with suppress(OSError):
        atomic_write(store.folder / NAME, pickle.dumps((ledger_fingerprint(store), kept)))
