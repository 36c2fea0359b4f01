"""The books that the accounts are read from, kept between commands: the log is long.

The file is a copy that may be thrown away: what does not fit the store or this version is.
"""

import pickle
from contextlib import suppress
from dataclasses import fields

from tpuherd._version import __version__
from tpuherd.accounting.accounts import JobTimes, Ledger, post_event
from tpuherd.accounting.goodput import AttemptAccount, StateSpan
from tpuherd.accounting.slot_account import AccountBuilder
from tpuherd.model.slot_history import AttemptRecord, BidRecord, SlotHistory
from tpuherd.model.slots_and_plan import Offer
from tpuherd.store.database import Database

NAME = "books"
KEEP = 2000  #: so many events must have been read anew for it to be worth writing
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
    """All books as of now, read from the last event that the copy has."""
    kept = read_cached_ledger(store) or Ledger()
    before = kept.seq
    read_new_events(kept, store)
    if kept.seq - before >= keep:
        write_cached_ledger(store, kept)
    return kept


def read_new_events(kept: Ledger, store: Database) -> bool:
    """Read what was written since; whether there was anything."""
    before = kept.seq
    for seq, event in store.read_events(after=before):
        post_event(kept, event)
        kept.seq = seq
    return kept.seq != before


def ledger_fingerprint(store: Database) -> tuple[object, ...]:
    """What tells the copy of one store, by one version, from others: its first event, our nouns."""
    shape = tuple(tuple(one.name for one in fields(noun)) for noun in NOUNS)
    for _, event in store.read_events(limit=1):
        return (__version__, shape, event.at, event.kind, event.job, event.slot)
    return (__version__, shape)


def read_cached_ledger(store: Database) -> Ledger | None:
    """The copy, if it is one of this store."""
    try:
        whose, kept = pickle.loads((store.folder / NAME).read_bytes())
    except Exception:  # noqa: BLE001 - whatever it is, it is no copy of ours
        return None
    if not isinstance(kept, Ledger) or whose != ledger_fingerprint(store):
        return None
    return kept if any(store.read_events(after=kept.seq - 1, limit=1)) else None


def write_cached_ledger(store: Database, kept: Ledger) -> None:
    """Replace it; where that can't be done the log is read again."""
    draft = store.folder / f"{NAME}.new"
    with suppress(OSError):
        draft.touch(mode=0o600)
        draft.write_bytes(pickle.dumps((ledger_fingerprint(store), kept)))
        draft.replace(store.folder / NAME)
