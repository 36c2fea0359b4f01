"""Keeps the ledger that accounts are read from between commands, because the event log is long.

The cache file may be deleted; if it does not match the store or this version, it is ignored.
"""

from contextlib import suppress
from dataclasses import dataclass

from tpuherd._version import __version__
from tpuherd.accounting.accounts import Ledger, post_event
from tpuherd.cache_codec import decode_cache, encode_cache
from tpuherd.files import atomic_write
from tpuherd.model.slots_and_plan import HistoryEvent
from tpuherd.store.database import Database

NAME = "books"
KEEP = 2000  #: new events that make a rewrite worthwhile


@dataclass(frozen=True, kw_only=True, slots=True)
class LedgerFile:
    """The cache with what identifies its store and the version that wrote it."""

    version: str
    first: HistoryEvent | None
    ledger: Ledger


def load_ledger(store: Database, keep: int = KEEP) -> Ledger:
    """Return the current ledger, read from the last event in the cache."""
    kept = read_cached_ledger(store) or Ledger()
    before = kept.seq
    read_new_events(kept, store)
    # Malformed events are read again, so that later commands name them, too.
    if kept.seq - before >= keep and not store.malformed.found:
        write_cached_ledger(store, kept)
    return kept


def read_new_events(kept: Ledger, store: Database) -> bool:
    """Read the events since then; return whether there were any."""
    before = kept.seq
    for seq, event in store.read_events(after=before):
        post_event(kept, event)
        kept.seq = seq
    return kept.seq != before


def with_identity(store: Database, kept: Ledger) -> LedgerFile:
    first = next((event for _, event in store.read_events(limit=1)), None)
    return LedgerFile(version=__version__, first=first, ledger=kept)


def read_cached_ledger(store: Database) -> Ledger | None:
    try:
        found = decode_cache(LedgerFile, (store.folder / NAME).read_bytes())
    except OSError:
        return None
    if found is None or found != with_identity(store, found.ledger):
        return None
    return found.ledger if any(store.read_events(after=found.ledger.seq - 1, limit=1)) else None


def write_cached_ledger(store: Database, kept: Ledger) -> None:
    """Replace the cache; if that fails, the log is read again next time."""
    with suppress(OSError):
        atomic_write(store.folder / NAME, encode_cache(with_identity(store, kept)))
