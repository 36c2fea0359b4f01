"""What may happen to the agent, and what it may do: the words that `step` takes and gives."""

from typing import Any, Mapping, NamedTuple, Optional, Tuple, Union

from tpuherd_host.agent.frames import Frame
from tpuherd_host.agent.state_machine.state import Ending, Task

# ---- happenings ----------------------------------------------------------------------------------


class ConnectionOpened(NamedTuple):
    """Somebody came."""

    connection: int


class FrameReceived(NamedTuple):
    """A whole frame came."""

    connection: int
    frame: Frame


class ConnectionClosed(NamedTuple):
    """Somebody left, or spoke nonsense."""

    connection: int


class BytesFlushed(NamedTuple):
    """So much of what was to be sent has left."""

    connection: int
    many: int


class ProcessStarted(NamedTuple):
    """A process of a piece of work is there."""

    work: str
    pid: int
    ticks: int


class SpawnFailed(NamedTuple):
    """It could not be: `exit` is what a shell would say, 126 or 127."""

    work: str
    exit: int
    sentence: str


class ProcessEnded(NamedTuple):
    """The leader of a piece of work has ended; all None: nobody saw how."""

    work: str
    ending: Ending
    at: float


class LogGrew(NamedTuple):
    """Its log reaches from `first` to `length` now."""

    work: str
    first: int
    length: int
    lost_bytes: int = 0


class OutputsClosed(NamedTuple):
    """All its outputs are closed."""

    work: str


class InputConsumed(NamedTuple):
    """Its standard input has taken so much; 0: it takes no more."""

    work: str
    many: int


class ProcessesCounted(NamedTuple):
    """So many of its processes are left."""

    work: str
    left: int


class ChipUsersFound(NamedTuple):
    """Who has the chips."""

    work: str
    holders: Tuple[Mapping[str, Any], ...]


class AptHolderFound(NamedTuple):
    """Who has apt's locks; empty: nobody."""

    work: str
    holder: str


class LogTailRead(NamedTuple):
    """Its last lines."""

    work: str
    lines: Tuple[str, ...]


class StepReported(NamedTuple):
    """A training program said how far it is."""

    content: Mapping[str, Any]


class HostNotice(NamedTuple):
    """The metadata server says something new."""

    key: str
    value: str


class ThreadSent(NamedTuple):
    """A threaded verb sends bytes."""

    connection: int
    call: int
    port: int
    piece: bytes
    last: bool = False


class ThreadRead(NamedTuple):
    """A threaded verb has read so much."""

    connection: int
    call: int
    many: int


class ThreadAnswered(NamedTuple):
    """A threaded verb is through; with `error`, badly."""

    connection: int
    call: int
    content: Mapping[str, Any]
    error: str = ""


class ThreadEvent(NamedTuple):
    """A threaded verb has something to say to all."""

    content: Mapping[str, Any]


class TasksCleaned(NamedTuple):
    """A user has the processes of these ended."""

    works: Tuple[str, ...]
    why: str


class TimerFired(NamedTuple):
    """It is time to look at what is due."""


# ---- deeds ---------------------------------------------------------------------------------------


class SendFrame(NamedTuple):
    """A frame."""

    connection: int
    frame: bytes


class SendLog(NamedTuple):
    """A piece of a log, as DATA."""

    connection: int
    call: int
    port: int
    work: str
    offset: int
    many: int


class CloseConnection(NamedTuple):
    """Close the connection when what was said has left."""

    connection: int


class SpawnProcess(NamedTuple):
    """Begin the current stage."""

    work: Task


class FeedInput(NamedTuple):
    """Bytes for its standard input; None: no more."""

    work: str
    piece: Optional[bytes]


class SendSignal(NamedTuple):
    """To its leader, or to all of it; no deed when it is gone."""

    work: Task
    number: int
    whole: bool


class SweepProcesses(NamedTuple):
    """A signal (0: none) to all of it that is left, and count: Swept."""

    work: Task
    number: int


class ResizeTerminal(NamedTuple):
    """Its terminal."""

    work: str
    rows: int
    columns: int


class FindChipUsers(NamedTuple):
    """Who has them: Seen."""

    work: str


class FindAptHolder(NamedTuple):
    """Who has its locks: AptSeen."""

    work: str


class CheckAdopted(NamedTuple):
    """An adopted one: does it still run, and how did it end?"""

    work: Task


class AppendNote(NamedTuple):
    """A line of the agent's own in its log."""

    work: Task
    port: int
    sentence: str


class PauseOutput(NamedTuple):
    """Read its output no more, or again."""

    work: str
    on: bool


class ReadLogTail(NamedTuple):
    """Read its last lines: Tailed."""

    work: str


class SaveTask(NamedTuple):
    """Write down how it stands; `hard`: onto the disk before anything else is done."""

    work: Task
    hard: bool


class ForgetTask(NamedTuple):
    """Remove all of it."""

    work: Task


class SaveEpochs(NamedTuple):
    """Write down the epochs."""

    epochs: Mapping[str, int]


class SaveStamp(NamedTuple):
    """A step went well."""

    stamp: str
    name: str


class StartThread(NamedTuple):
    """Begin a threaded verb."""

    connection: int
    call: int
    verb: str
    content: Mapping[str, Any]


class PassThreadData(NamedTuple):
    """Bytes for a threaded verb; None: no more on that port."""

    connection: int
    call: int
    port: int
    piece: Optional[bytes]


class GrantThreadCredit(NamedTuple):
    """A threaded verb may send so much more."""

    connection: int
    call: int
    many: int


class DropThread(NamedTuple):
    """Nobody waits for a threaded verb any more."""

    connection: int
    call: int


Event = Union[
    ConnectionOpened, FrameReceived, ConnectionClosed, BytesFlushed, ProcessStarted,
    SpawnFailed, ProcessEnded, LogGrew, OutputsClosed, InputConsumed, ProcessesCounted,
    ChipUsersFound, AptHolderFound, LogTailRead, StepReported, HostNotice, ThreadSent,
    ThreadRead, ThreadAnswered, ThreadEvent, TasksCleaned, TimerFired,
]  # fmt: skip
Effect = Union[
    SendFrame, SendLog, CloseConnection, SpawnProcess, FeedInput, SendSignal, SweepProcesses,
    ResizeTerminal, FindChipUsers, FindAptHolder, CheckAdopted, AppendNote, PauseOutput,
    ReadLogTail, SaveTask, ForgetTask, SaveEpochs, SaveStamp, StartThread, PassThreadData,
    GrantThreadCredit, DropThread,
]  # fmt: skip
