"""What may happen to the agent, and what it may do: the words that `step` takes and gives."""

from tpuherd_host.agent.frames import Frame
from tpuherd_host.agent.state import Ending, Work
from tpuherd_host.agent.thin import Any, Mapping, NamedTuple, Optional, Tuple, Union

# ---- happenings ----------------------------------------------------------------------------------


class Opened(NamedTuple):
    """Somebody came."""

    connection: int


class Arrived(NamedTuple):
    """A whole frame came."""

    connection: int
    frame: Frame


class Closed(NamedTuple):
    """Somebody left, or spoke nonsense."""

    connection: int


class Flushed(NamedTuple):
    """So much of what was to be sent has left."""

    connection: int
    many: int


class Began(NamedTuple):
    """A process of a piece of work is there."""

    work: str
    pid: int
    ticks: int


class Unborn(NamedTuple):
    """It could not be: `exit` is what a shell would say, 126 or 127."""

    work: str
    exit: int
    sentence: str


class Ended(NamedTuple):
    """The leader of a piece of work has ended; all None: nobody saw how."""

    work: str
    ending: Ending
    at: float


class Grew(NamedTuple):
    """Its log reaches from `first` to `length` now."""

    work: str
    first: int
    length: int
    lost_bytes: int = 0


class Drained(NamedTuple):
    """All its outputs are closed."""

    work: str


class Took(NamedTuple):
    """Its standard input has taken so much; 0: it takes no more."""

    work: str
    many: int


class Swept(NamedTuple):
    """So many of its processes are left."""

    work: str
    left: int


class Seen(NamedTuple):
    """Who has the chips."""

    work: str
    holders: Tuple[Mapping[str, Any], ...]


class AptSeen(NamedTuple):
    """Who has apt's locks; empty: nobody."""

    work: str
    holder: str


class Tailed(NamedTuple):
    """Its last lines."""

    work: str
    lines: Tuple[str, ...]


class Reported(NamedTuple):
    """A training program said how far it is."""

    content: Mapping[str, Any]


class News(NamedTuple):
    """The metadata server says something new."""

    key: str
    value: str


class Spoke(NamedTuple):
    """A threaded verb sends bytes."""

    connection: int
    call: int
    port: int
    piece: bytes
    last: bool = False


class Consumed(NamedTuple):
    """A threaded verb has read so much."""

    connection: int
    call: int
    many: int


class Answered(NamedTuple):
    """A threaded verb is through; with `error`, badly."""

    connection: int
    call: int
    content: Mapping[str, Any]
    error: str = ""


class Told(NamedTuple):
    """A threaded verb has something to say to all."""

    content: Mapping[str, Any]


class Cleaned(NamedTuple):
    """A user has the processes of these ended."""

    works: Tuple[str, ...]
    why: str


class Woke(NamedTuple):
    """It is time to look at what is due."""


# ---- deeds ---------------------------------------------------------------------------------------


class Send(NamedTuple):
    """A frame."""

    connection: int
    frame: bytes


class Pour(NamedTuple):
    """A piece of a log, as DATA."""

    connection: int
    call: int
    port: int
    work: str
    offset: int
    many: int


class Hang(NamedTuple):
    """Close the connection when what was said has left."""

    connection: int


class Spawn(NamedTuple):
    """Begin the current stage."""

    work: Work


class Feed(NamedTuple):
    """Bytes for its standard input; None: no more."""

    work: str
    piece: Optional[bytes]


class Signal(NamedTuple):
    """To its leader, or to all of it; no deed when it is gone."""

    work: Work
    number: int
    whole: bool


class Sweep(NamedTuple):
    """A signal (0: none) to all of it that is left, and count: Swept."""

    work: Work
    number: int


class Resize(NamedTuple):
    """Its terminal."""

    work: str
    rows: int
    columns: int


class LookAtChips(NamedTuple):
    """Who has them: Seen."""

    work: str


class LookAtApt(NamedTuple):
    """Who has its locks: AptSeen."""

    work: str


class LookForEnd(NamedTuple):
    """An adopted one: does it still run, and how did it end?"""

    work: Work


class Note(NamedTuple):
    """A line of the agent's own in its log."""

    work: Work
    port: int
    sentence: str


class Pause(NamedTuple):
    """Read its output no more, or again."""

    work: str
    on: bool


class Tail(NamedTuple):
    """Read its last lines: Tailed."""

    work: str


class Save(NamedTuple):
    """Write down how it stands; `hard`: onto the disk before anything else is done."""

    work: Work
    hard: bool


class Forget(NamedTuple):
    """Remove all of it."""

    work: Work


class Keep(NamedTuple):
    """Write down the epochs."""

    epochs: Mapping[str, int]


class Stamp(NamedTuple):
    """A step went well."""

    stamp: str
    name: str


class Thread(NamedTuple):
    """Begin a threaded verb."""

    connection: int
    call: int
    verb: str
    content: Mapping[str, Any]


class Hand(NamedTuple):
    """Bytes for a threaded verb; None: no more on that port."""

    connection: int
    call: int
    port: int
    piece: Optional[bytes]


class Grant(NamedTuple):
    """A threaded verb may send so much more."""

    connection: int
    call: int
    many: int


class Drop(NamedTuple):
    """Nobody waits for a threaded verb any more."""

    connection: int
    call: int


Happening = Union[
    Opened, Arrived, Closed, Flushed, Began, Unborn, Ended, Grew, Drained, Took, Swept, Seen,
    AptSeen, Tailed, Reported, News, Spoke, Consumed, Answered, Told,
    Cleaned, Woke,
]  # fmt: skip
Deed = Union[
    Send, Pour, Hang, Spawn, Feed, Signal, Sweep, Resize, LookAtChips, LookAtApt, LookForEnd, Note,
    Pause, Tail, Save, Forget, Keep, Stamp, Thread, Hand, Grant, Drop,
]  # fmt: skip
