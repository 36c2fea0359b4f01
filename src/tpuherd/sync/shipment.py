"""The options, progress and result of a shipment."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from tpuherd.sync.delta import LoadPieces, LoadRows


@dataclass(frozen=True, kw_only=True, slots=True)
class Progress:
    """How far a shipment is."""

    stage: str  #: ask, send, fill, switch
    sent: int = 0  #: bytes over the user's uplink
    ready: int = 0
    hosts: int = 0


ProgressCallback = Callable[[Progress], None]


@dataclass(frozen=True, kw_only=True, slots=True)
class ShipOptions:
    """How to ship."""

    relay: bool = True  #: hosts pass it on to each other; else each gets it over its own SSH link
    force: bool = False  #: also if the destination is a folder that herd did not create
    partial: bool = False  #: switch hosts that received it even if others failed
    unchanged_relay: bool = False  #: hosts that had it already pass it on, too: it is large
    in_code: bool = False  #: relative destinations begin in the code of the host's job
    tops: tuple[str, ...] | None = None  #: the top-level names of a copy; None for a snapshot


DEFAULT_OPTIONS = ShipOptions()


@dataclass(frozen=True, kw_only=True, slots=True)
class Payload:
    """What is shipped, and how to read its contents."""

    id: str
    rows: Sequence[bytes]
    pieces: LoadPieces
    rows_of: LoadRows = lambda id: None


@dataclass(frozen=True, kw_only=True, slots=True)
class Shipment:
    """The result of a shipment."""

    id: str
    dest: str
    got: tuple[str, ...]  #: hosts that switched to it, or had it already
    unchanged: tuple[str, ...]  #: of these, those that had it already
    failed: Mapping[str, str]  #: hosts without it, with the reason
    unsure: tuple[str, ...]  #: of these, hosts that may have switched anyway
    slow: Mapping[str, str]  #: hosts that got it in another way than planned, with a description
    #: By host: files that were in the way and were kept beside it.
    kept: Mapping[str, tuple[str, ...]]
    bytes_up: int
    seconds: float
    only_home: tuple[str, ...] = ()  #: hosts that have the destination in the home only
    skipped: tuple[str, ...] = ()  #: what is neither file, folder nor symlink and was not shipped
