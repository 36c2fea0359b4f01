"""What is agreed on a shipment, what is said of it while it is under way, and what became of it."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from tpuherd.sync.delta import LoadPieces, LoadRows


@dataclass(frozen=True, kw_only=True, slots=True)
class Progress:
    """How far it is."""

    stage: str  #: ask, send, fill, switch
    sent: int = 0  #: bytes over the user's uplink
    ready: int = 0
    hosts: int = 0


ProgressCallback = Callable[[Progress], None]


@dataclass(frozen=True, kw_only=True, slots=True)
class ShipOptions:
    """How it is to be done."""

    relay: bool = True  #: hosts pass it on; else each gets it over its own SSH link
    force: bool = False  #: mix it with what stands at the destination
    partial: bool = False  #: switch those that are filled though others are not
    tops: tuple[str, ...] | None = None  #: a copy's topmost names; None: a snapshot


TERMS = ShipOptions()


@dataclass(frozen=True, kw_only=True, slots=True)
class Payload:
    """What is shipped, and where its contents are."""

    id: str
    rows: Sequence[bytes]
    pieces: LoadPieces
    rows_of: LoadRows = lambda id: None
    kept: Callable[[bytes], bool] = lambda id: False  #: whether a content is here, also an old one


@dataclass(frozen=True, kw_only=True, slots=True)
class Shipment:
    """What became of it."""

    id: str
    dest: str
    got: tuple[str, ...]  #: hosts that switched to it, or had it already
    unchanged: tuple[str, ...]  #: of these, those that had it already
    failed: Mapping[str, str]  #: hosts that have not got it, and why; laggards too
    unsure: tuple[str, ...]  #: of these, those that may have switched all the same
    slow: Mapping[str, str]  #: who got it another way than planned, and which
    kept: Mapping[str, tuple[str, ...]]  #: what hosts made that is in the way, and stays beside
    bytes_up: int
    seconds: float
    skipped: tuple[str, ...] = ()  #: what is neither file, folder nor symlink, and stays here
