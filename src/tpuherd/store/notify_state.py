"""Keeps what still has to be told, and what was, across engines: a file beside the store."""

from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from tpuherd.files import atomic_write
from tpuherd.lazy_modules import import_lazily
from tpuherd.notify.notes import NotifyMemory
from tpuherd.notify.outbox import Outbox

if TYPE_CHECKING:
    import msgspec
else:
    msgspec = import_lazily("msgspec")

NAME = "notify.json"


@dataclass(slots=True)
class NotifyState:
    """The events before `cursor` are in the memory, and their notes in the outboxes."""

    cursor: int = 0  #: the number of the last event that was read
    memory: NotifyMemory = field(default_factory=NotifyMemory)
    boxes: dict[str, Outbox] = field(default_factory=dict)  #: by the key of their receiver


def load_notify_state(folder: Path) -> NotifyState | None:
    """Return the saved state; None if there is none that can be read."""
    try:
        return msgspec.json.decode((folder / NAME).read_bytes(), type=NotifyState)
    except (OSError, msgspec.DecodeError):
        return None


def save_notify_state(folder: Path, state: NotifyState) -> None:
    """Write it to disk; raises OSError."""
    atomic_write(folder / NAME, msgspec.json.encode(state), durable=True)
