"""The books that the accounts are read from, kept between commands: the log is long.

The file is a copy that may be thrown away: what does not fit the store or this version is.
"""

import pickle
from pathlib import Path

from tpuherd import __version__
from tpuherd.core.ledger import Ledger, post
from tpuherd.ports import Store

NAME = "books"
KEEP = 2000  #: so many events must have been read anew for it to be worth writing


def ledger(store: Store, folder: Path | None = None) -> Ledger:
    """All books as of now, read from the last event that the copy has."""
    kept = (read(folder, store) if folder is not None else None) or Ledger()
    before = kept.seq
    go_on(kept, store)
    if folder is not None and kept.seq - before >= KEEP:
        write(folder, kept, first_of(store))
    return kept


def go_on(kept: Ledger, store: Store) -> bool:
    """Read what was written since; whether there was anything."""
    before = kept.seq
    for seq, event in store.events(after=before):
        post(kept, event)
        kept.seq = seq
    return kept.seq != before


def first_of(store: Store) -> tuple[object, ...]:
    """What tells one store from another: its first event, and who wrote the copy."""
    for _, event in store.events(limit=1):
        return (__version__, event.at, event.kind, event.job, event.slot)
    return (__version__,)


def read(folder: Path, store: Store) -> Ledger | None:
    """The copy, if it is one of this store."""
    try:
        mark, kept = pickle.loads((folder / NAME).read_bytes())
    except Exception:  # noqa: BLE001 - whatever it is, it is no copy of ours
        return None
    ahead = isinstance(kept, Ledger) and any(store.events(after=kept.seq - 1, limit=1))
    return kept if ahead and mark == first_of(store) else None


def write(folder: Path, kept: Ledger, mark: tuple[object, ...]) -> None:
    """Replace it; where that can't be done the log is read again."""
    draft = folder / f"{NAME}.new"
    try:
        draft.touch(mode=0o600)
        draft.write_bytes(pickle.dumps((mark, kept)))
        draft.replace(folder / NAME)
    except OSError:
        draft.unlink(missing_ok=True)
