"""Parse what agents and scripts send, once: typed and bounded, or refused with a sentence. Pure.

Agents run where users' commands run, and a script may send its agent anything. So all data from a
host passes through here before it is used: numbers are finite, words are known, names have valid
letters, and texts are limited.
"""

from collections.abc import Iterator, Mapping
from typing import Annotated, Any, Literal, TypeVar

import msgspec
from msgspec import Meta, Struct, convert

from tpuherd_host.agent.state_machine.rpc_attempts import DEADLY, WORDS_MAX
from tpuherd_host.agent.state_machine.state import (
    CLOSING,
    ENDED,
    FREEING,
    LOST,
    RUNNING,
    STARTING,
    SWEEPING,
    WAITING,
)

Json = Mapping[str, Any]
Message = TypeVar("Message")

ABSENT = "absent"  #: the answer to a halt of an unknown attempt
PHASES = (WAITING, STARTING, RUNNING, SWEEPING, FREEING, CLOSING, ENDED, LOST, ABSENT)
NOTICES = frozenset(DEADLY)
TEXT_MAX = 4096  #: an agent's sentence or line; its own limit is 500
NAME_MAX = 200
ATTEMPTS_MAX = 1000  #: reported by one host
CHIPS_MAX = 64  #: of one host

Name = Annotated[str, Meta(pattern=r"\A[A-Za-z0-9][A-Za-z0-9._-]{0,99}\Z")]
Text = Annotated[str, Meta(max_length=TEXT_MAX)]
Short = Annotated[str, Meta(max_length=NAME_MAX)]
Digest = Annotated[str, Meta(pattern=r"\A[0-9a-f]{64}\Z")]  #: the id of a snapshot
Time = Annotated[float, Meta(ge=0, le=1e11)]  #: seconds since 1970; the bounds exclude NaN, too
Duration = Annotated[float, Meta(ge=0, le=1e9)]
Count = Annotated[int, Meta(ge=0, le=1 << 53)]
Percent = Annotated[float, Meta(ge=0, le=100)]
Rate = Annotated[float, Meta(ge=0, le=1e15)]  #: bytes per second
Few = Annotated[int, Meta(ge=0, le=1 << 16)]


class InvalidMessage(Exception):
    """A host's message that is invalid."""


class AttemptStatus(Struct, frozen=True, kw_only=True):
    """An agent's status of an attempt or setup."""

    id: Name
    kind: Literal["command", "attempt", "setup"] = "attempt"
    phase: str = RUNNING
    slot: Short = ""
    number: Count = 0
    stage: Few = 0
    stages: Few = 1
    stage_name: Text = ""
    asked: Time | None = None
    started: Time | None = None
    ended: Time | None = None
    exit: Annotated[int, Meta(ge=-256, le=256)] | None = None
    signal: Annotated[int, Meta(ge=0, le=256)] | None = None
    stopped: bool = False
    deadman: bool = False
    why: Text | None = ""
    code: Short = ""
    tail: Annotated[tuple[Text, ...], Meta(max_length=100)] = ()
    length: Count = 0
    logged: Time | None = None
    report: dict[str, Any] | None = None


class StepReport(Struct, frozen=True, kw_only=True):
    """A script's report of its progress."""

    step: int | None = None
    total: int | None = None  #: steps of the whole run
    saved: int | None = None
    resumed: int | None = None
    restore_s: float | None = None
    step_s: float | None = None
    time: float | None = None
    complete: bool = False
    profiler_port: int | None = None  #: of JAX's profiler server in the script
    startup: dict[str, float] = {}  #: seconds of its parts
    marks: dict[str, int] = {}  #: steps of checkpoints that are kept
    saving: dict[str, float] = {}  #: what its checkpoints cost
    metrics: dict[str, float] = {}
    refused: tuple[str, ...] = ()  #: names of invalid fields


class MetadataNotice(Struct, frozen=True, kw_only=True):
    """A notice from the host's metadata server."""

    what: str
    value: Short


class Pause(Struct, frozen=True, kw_only=True):
    """A time in which the whole agent stood still, as on a frozen host."""

    ago_s: Duration  #: since its end
    s: Duration


Pauses = Annotated[tuple[Pause, ...], Meta(max_length=64)]


class AttemptsReply(Struct, frozen=True, kw_only=True):
    """The answer to `attempts`: everything that the agent knows."""

    attempts: list[Any] = []
    notices: dict[str, Any] = {}
    unused_s: Duration | None = None  #: since the last command of a user
    pauses: Pauses = ()


class AgentEvent(Struct, frozen=True, kw_only=True):
    """The common part of an agent's events."""

    event: Short
    attempt: Name | None = None
    attempts: list[Any] = []
    report: dict[str, Any] | None = None
    used: bool = False
    pauses: Pauses = ()


class AttemptHeartbeat(Struct, frozen=True, kw_only=True):
    """One attempt of a heartbeat."""

    id: Name
    report: dict[str, Any] | None = None


class SampleMessage(Struct, frozen=True, kw_only=True):
    """What a host and its chips do: pairs are used and total, free and total, in and out."""

    cpu: Percent | None = None
    ram: tuple[Count, Count] | None = None
    disk: tuple[Count, Count] | None = None
    net: tuple[Rate, Rate] | None = None
    chips: Annotated[
        tuple[tuple[Count | None, Count | None, Percent | None], ...], Meta(max_length=CHIPS_MAX)
    ] = ()
    why: Short = ""


class PingReply(Struct, frozen=True, kw_only=True):
    """The answer to `ping`."""

    time: Time = 0.0


class ProcessStack(Struct, frozen=True, kw_only=True):
    """The stack of one process."""

    pid: Count | None = None
    command: Text = ""
    text: str = ""


class StacksReply(Struct, frozen=True, kw_only=True):
    """The answer to `stacks`."""

    processes: list[ProcessStack] = []


class FreedChips(Struct, frozen=True, kw_only=True):
    """The answer to `chips.free`."""

    ended: list[Text] = []  #: what tasks that are over had left there
    held: Text = ""  #: who else uses the chips


class KeptFiles(Struct, frozen=True, kw_only=True):
    """The answer to `trial.keep`."""

    refused: Text = ""  #: why there is no copy of what the setup made


class MovedFiles(Struct, frozen=True, kw_only=True):
    """The answer to `trial.begin`: what an earlier trial left in the working folder."""

    moved: Count = 0  #: files and folders
    trial: Short = ""  #: the run id of the trial that made them
    folder: Text = ""  #: where they are now


def parse_message(kind: type[Message], content: object) -> Message:
    """Parse a message of this kind, or raise InvalidMessage."""
    try:
        return convert(content, kind)
    except msgspec.ValidationError as error:
        raise InvalidMessage(f"{_message_title(kind)}: {error}") from None


def parse_attempt(content: object) -> AttemptStatus:
    """Parse the status of an attempt, setup or command with a known phase."""
    found = parse_message(AttemptStatus, content)
    if found.phase not in PHASES:
        raise InvalidMessage(
            f"{_message_title(AttemptStatus)}: unknown phase {found.phase[:NAME_MAX]!r}"
        )
    return found


def parse_notices(content: Mapping[str, Any]) -> Iterator[MetadataNotice]:
    """Parse the notices; raise InvalidMessage at the first unknown one."""
    for what, value in content.items():
        yield parse_notice({"what": what, "value": value})


def parse_notice(content: Json) -> MetadataNotice:
    """One of them."""
    found = parse_message(
        MetadataNotice, {"what": content.get("what"), "value": content.get("value")}
    )
    if found.what not in NOTICES:
        raise InvalidMessage(
            f"{_message_title(MetadataNotice)}: unknown notice {found.what[:NAME_MAX]!r}"
        )
    return found


def parse_report(content: Json | None) -> StepReport:
    """A script's report: what of it makes sense, and the names of the fields that don't.

    A number that is none of our fields is a metric. Those alone may be NaN or infinite: a loss that
    has become so is what a sweep ends a trial for.
    """
    found: dict[str, Any] = {}
    metrics: dict[str, float] = {}
    refused: list[str] = []
    for name, value in (content or {}).items():
        if name in FIELDS:
            if value is None:
                continue
            try:
                found[name] = convert(value, FIELDS[name])
            except msgspec.ValidationError:
                refused.append(name)
        elif isinstance(value, int | float) and not isinstance(value, bool):
            try:
                if len(name) > NAME_MAX or len(metrics) >= WORDS_MAX:
                    raise OverflowError
                metrics[name] = float(value)
            except OverflowError:
                refused.append(name[:NAME_MAX])
    startup = {name: found.pop(name) for name in STARTUP if name in found}
    marks = {name: found.pop(name) for name in MARKS if name in found}
    saving = {name: float(found.pop(name)) for name in SAVING if name in found}
    refused += found.pop("refused", ())
    return StepReport(
        **found,
        startup=startup,
        marks=marks,
        saving=saving,
        metrics=metrics,
        refused=tuple(refused),
    )


#: The parts of a script's startup, besides `restore_s`.
STARTUP = ("python_s", "import_s", "meet_s", "compile_s", "first_step_s")
#: Checkpoints that stay: the best, and the newest milestone.
MARKS = ("best_step", "milestone")
#: Of the checkpoints that this attempt wrote: how many, how long the training stood still for all,
#: how long it takes until one is durable, and how large the last one is.
SAVING = ("saves", "save_blocked_s", "save_took_s", "save_bytes")
#: The fields of a report that have a fixed meaning.
FIELDS: Mapping[str, Any] = {
    "step": Count,
    "total": Count,
    "saved": Count,
    **dict.fromkeys(MARKS, Count),
    "resumed": Count,
    "restore_s": Duration,
    "step_s": Duration,
    **dict.fromkeys(STARTUP, Duration),
    "saves": Count,
    "save_blocked_s": Duration,
    "save_took_s": Duration,
    "save_bytes": Count,
    "time": Time,
    "complete": bool,
    "profiler_port": Annotated[int, Meta(ge=1, le=65535)],
    "refused": Annotated[tuple[Short, ...], Meta(max_length=64)],  #: by the agent already
}
TITLES: Mapping[object, str] = {
    AttemptStatus: "an attempt",
    MetadataNotice: "a notice",
    AttemptsReply: "its list of attempts",
    AgentEvent: "an event",
    AttemptHeartbeat: "a heartbeat",
    SampleMessage: "a sample",
    PingReply: "the answer to ping",
    StacksReply: "the answer to stacks",
}


def _message_title(kind: type[Any]) -> str:
    return TITLES.get(kind, kind.__name__)


__all__ = [
    "AgentEvent",
    "AttemptHeartbeat",
    "AttemptStatus",
    "AttemptsReply",
    "InvalidMessage",
    "MetadataNotice",
    "PingReply",
    "SampleMessage",
    "StacksReply",
    "StepReport",
    "parse_attempt",
    "parse_message",
    "parse_notice",
    "parse_notices",
    "parse_report",
]
