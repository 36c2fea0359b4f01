"""The events that the state machine takes and the effects that it returns."""

from typing import Any, Mapping, NamedTuple, Optional, Tuple, Union

from tpuherd_host.agent.frames import Frame
from tpuherd_host.agent.state_machine.state import Ending, Task

# ---- events --------------------------------------------------------------------------------------


class ConnectionOpened(NamedTuple):
    connection: int


class FrameReceived(NamedTuple):
    connection: int
    frame: Frame


class ConnectionClosed(NamedTuple):
    """The controller left or broke the protocol."""

    connection: int


class BytesFlushed(NamedTuple):
    """This many queued bytes were sent."""

    connection: int
    many: int


class ProcessStarted(NamedTuple):
    work: str
    pid: int
    ticks: int


class SpawnFailed(NamedTuple):
    """A process did not start; `exit` is the status that a shell would return, 126 or 127."""

    work: str
    exit: int
    sentence: str
    code: str = ""


class ProcessEnded(NamedTuple):
    """The leader of a task ended; all None if it is not known how."""

    work: str
    ending: Ending
    at: float


class LogGrew(NamedTuple):
    """The task's log now reaches from `first` to `length`."""

    work: str
    first: int
    length: int
    lost_bytes: int = 0


class OutputsClosed(NamedTuple):
    work: str


class InputConsumed(NamedTuple):
    """The task's standard input took this many bytes; 0 if it is closed."""

    work: str
    many: int


class ProcessesCounted(NamedTuple):
    """This many of the task's processes are left."""

    work: str
    left: int


class ChipUsersFound(NamedTuple):
    work: str
    holders: Tuple[Mapping[str, Any], ...]


class LogTailRead(NamedTuple):
    work: str
    lines: Tuple[str, ...]


class StepReported(NamedTuple):
    """A training program reported its progress."""

    content: Mapping[str, Any]


class HostNotice(NamedTuple):
    """The metadata server reported a change."""

    key: str
    value: str


class HostSampled(NamedTuple):
    """What the host and its chips do now."""

    content: Mapping[str, Any]


class ThreadSent(NamedTuple):
    """A threaded verb sends bytes."""

    connection: int
    call: int
    port: int
    piece: bytes
    last: bool = False


class ThreadRead(NamedTuple):
    """A threaded verb read this many bytes."""

    connection: int
    call: int
    many: int


class ThreadAnswered(NamedTuple):
    """A threaded verb finished; `error` says why it failed."""

    connection: int
    call: int
    content: Mapping[str, Any]
    error: str = ""


class ThreadEvent(NamedTuple):
    """A threaded verb sends an event to all connections."""

    content: Mapping[str, Any]


class TasksCleaned(NamedTuple):
    """A user has the processes of these tasks ended."""

    works: Tuple[str, ...]
    why: str


class TimerFired(NamedTuple):
    """The time for something due has come."""


# ---- effects -------------------------------------------------------------------------------------


class SendFrame(NamedTuple):
    connection: int
    frame: bytes


class SendLog(NamedTuple):
    """Send a piece of a log as DATA."""

    connection: int
    call: int
    port: int
    work: str
    offset: int
    many: int


class CloseConnection(NamedTuple):
    """Close the connection after all queued bytes are sent."""

    connection: int


class SpawnProcess(NamedTuple):
    """Start the task's current stage."""

    work: Task


class FeedInput(NamedTuple):
    """Bytes for the task's standard input; None closes it."""

    work: str
    piece: Optional[bytes]


class SendSignal(NamedTuple):
    """Signal the leader or all processes of a task; ignored if they are gone."""

    work: Task
    number: int
    whole: bool


class SweepProcesses(NamedTuple):
    """Signal (0: do not) all processes that are left, and count them: ProcessesCounted."""

    work: Task
    number: int


class ResizeTerminal(NamedTuple):
    work: str
    rows: int
    columns: int


class FindChipUsers(NamedTuple):
    """Answered by ChipUsersFound."""

    work: str


class CheckAdopted(NamedTuple):
    """Find out whether an adopted process still runs, and how it ended."""

    work: Task


class AppendNote(NamedTuple):
    """Write a line of the agent's own into the task's log."""

    work: Task
    port: int
    sentence: str


class PauseOutput(NamedTuple):
    """Stop or continue reading the task's output."""

    work: str
    on: bool


class ReadLogTail(NamedTuple):
    """Answered by LogTailRead."""

    work: str


class SaveTask(NamedTuple):
    """Write the task's record; `hard` waits until it is on the disk."""

    work: Task
    hard: bool


class ForgetTask(NamedTuple):
    """Delete the task's record and log."""

    work: Task


class SaveEpochs(NamedTuple):
    epochs: Mapping[str, int]


class SaveStamp(NamedTuple):
    """A setup step succeeded."""

    stamp: str
    name: str


class ReadSample(NamedTuple):
    """Answered by HostSampled."""


class StartThread(NamedTuple):
    connection: int
    call: int
    verb: str
    content: Mapping[str, Any]


class PassThreadData(NamedTuple):
    """Bytes for a threaded verb; None at a port's end."""

    connection: int
    call: int
    port: int
    piece: Optional[bytes]


class GrantThreadCredit(NamedTuple):
    """A threaded verb may send this many more bytes."""

    connection: int
    call: int
    many: int


class DropThread(NamedTuple):
    """The caller of a threaded verb is gone."""

    connection: int
    call: int


Event = Union[
    ConnectionOpened, FrameReceived, ConnectionClosed, BytesFlushed, ProcessStarted,
    SpawnFailed, ProcessEnded, LogGrew, OutputsClosed, InputConsumed, ProcessesCounted,
    ChipUsersFound, LogTailRead, StepReported, HostNotice, HostSampled,
    ThreadSent, ThreadRead, ThreadAnswered, ThreadEvent, TasksCleaned, TimerFired,
]  # fmt: skip
Effect = Union[
    SendFrame, SendLog, CloseConnection, SpawnProcess, FeedInput, SendSignal, SweepProcesses,
    ResizeTerminal, FindChipUsers, CheckAdopted, AppendNote, PauseOutput,
    ReadLogTail, SaveTask, ForgetTask, SaveEpochs, SaveStamp, ReadSample, StartThread,
    PassThreadData, GrantThreadCredit, DropThread,
]  # fmt: skip
