"""What the agent knows, as values: connections, their calls, and its tasks."""

import re
from typing import Any, Dict, FrozenSet, Mapping, NamedTuple, Optional, Tuple

from tpuherd_host.agent.frames import WINDOW

COMMAND, ATTEMPT, SETUP = "command", "attempt", "setup"

#: The phases of a task, in order. Those in LIVE have processes or will have.
WAITING = "waiting"  #: for a stage's delay
STARTING = "starting"
RUNNING = "running"
SWEEPING = "sweeping"  #: the leader has ended, the other processes are being stopped
FREEING = "freeing"  #: until the chips are free
CLOSING = "closing"  #: for the last output
ENDED = "ended"
LOST = "lost"  #: its end was not seen: a reboot, or the agent was killed too
LIVE = frozenset({WAITING, STARTING, RUNNING, SWEEPING, FREEING, CLOSING})
#: Codes of why a task ended.
CLEANED = "cleaned"  #: a user's `clean` has ended it
UNBORN = "unborn"  #: the host could not begin it: the disk is full, and the like
OUTSIDE = "outside"  #: a signal that herd did not send has ended its command

COMMAND_LOG_BYTES = 256 << 20
ATTEMPT_LOG_BYTES = 1 << 30
KEEP_S = 86400.0
ATTEMPT_KEEP_S = 14 * 86400.0
ENVIRONMENT_KEY = re.compile(r"[0-9a-f]{16}")
CURRENT = "current"  #: the environment that the host used last


class Stage(NamedTuple):
    """One program to execute: a command has one, an attempt its setup steps and its command."""

    argv: Tuple[str, ...]
    name: str = ""
    env: Mapping[str, str] = {}
    directory: Optional[str] = None
    stamp: str = ""  #: skipped if this host has the stamp; stamped on success
    delay_s: float = 0.0
    preload: bool = True  #: keep the host's LD_PRELOAD
    environment: str = ""  #: the key of the Python environment to use, or `current`
    code: str = ""  #: of a command: the folder of its job's code below the home; "": no job's


class Ending(NamedTuple):
    exit: Optional[int] = None
    signal: Optional[int] = None
    rusage: Mapping[str, float] = {}


class Task(NamedTuple):
    """A command, an attempt or a setup, from the request until it is forgotten."""

    id: str
    kind: str
    stages: Tuple[Stage, ...]
    asked: float
    phase: str = WAITING
    stage: int = 0
    owner: str = ""
    who: str = ""
    slot: str = ""
    number: int = 0
    title: str = ""  #: for lists
    stdin: bool = False
    terminal: Optional[Mapping[str, Any]] = None  #: rows, columns, term
    keep_s: float = KEEP_S
    log_bytes: int = COMMAND_LOG_BYTES
    hold_s: float = 0.0  #: how long its files may delay the host's end, while a controller is there
    grace_s: float = 10.0
    notice_grace_s: float = 25.0
    boot: str = ""
    pid: int = 0
    ticks: int = 0  #: start of the process by the kernel, unlike a later one with its id
    started: Optional[float] = None
    ended: Optional[float] = None
    ending: Ending = Ending()
    why: str = ""  #: a sentence: why it was stopped, or did not start
    code: str = ""  #: the same for programs, where they decide by it: CLEANED, UNBORN or OUTSIDE
    first: int = 0  #: the log's first offset; older records are dropped
    length: int = 0
    logged: Optional[float] = None  #: when its log grew last
    lost_bytes: int = 0  #: output lost to a full disk
    drained: bool = False  #: all outputs are closed
    paused: bool = False  #: output is not read because a reader is far behind
    due: Optional[float] = None  #: when to handle it next
    kill_at: Optional[float] = None  #: set while it is being stopped
    termed: bool = False
    stopped: bool = False  #: by request, before it ended by itself
    early: Tuple[Tuple[int, bool], ...] = ()  #: signals that arrived before its start was known
    free_by: float = 0.0
    free: Optional[bool] = None
    holders: Tuple[Mapping[str, Any], ...] = ()
    lease_s: Optional[float] = None
    lease_until: Optional[float] = None
    deadman: bool = False
    report: Optional[Mapping[str, Any]] = None  #: the latest step that it reported
    reported_at: float = 0.0
    tail: Tuple[str, ...] = ()  #: its last lines
    feeder: Optional[Tuple[int, int]] = None  #: the connection and call that feed its input
    unseen: bool = False  #: it is not known how it ended
    adopted: bool = False  #: started by an earlier agent: its end is read from a file
    signed: str = ""  #: hash of the request, so that it can be repeated

    @property
    def is_live(self) -> bool:
        """Whether processes of the task may still run."""
        return self.phase in LIVE

    @property
    def has_leader(self) -> bool:
        """Whether the leading process runs."""
        return self.phase in (STARTING, RUNNING)


class Call(NamedTuple):
    """A call that is not answered yet."""

    id: int
    verb: str
    work: str = ""  #: the task that it follows or waits for
    follows: bool = False
    offset: int = 0
    credit: int = WINDOW  #: bytes that we may send
    given: int = WINDOW  #: bytes that it may send
    holds: bool = False  #: the task's output waits for this reader
    poured: bool = False  #: part of the log was sent
    moved_at: float = 0.0  #: when it last gave credit
    threaded: bool = False


class Connection(NamedTuple):
    """A controller."""

    id: int
    greeted: bool = False
    who: str = ""
    owner: str = ""
    epoch: int = 0
    unsent: int = 0
    missed: int = 0  #: events that it was too slow for
    calls: Mapping[int, Call] = {}


class AgentState(NamedTuple):
    hello: Mapping[str, Any] = {}
    boot: str = ""
    connections: Mapping[int, Connection] = {}
    works: Mapping[str, Task] = {}
    epochs: Mapping[str, int] = {}
    stamps: FrozenSet[str] = frozenset()
    notices: Mapping[str, str] = {}
    beat_at: float = 0.0
    sampled_at: float = 0.0
    seen_at: float = 0.0  #: the latest event
    pauses: Tuple[Tuple[float, float], ...] = ()  #: when it stood still: the end, and how long

    @property
    def has_engine(self) -> bool:
        return any(one.greeted and one.epoch for one in self.connections.values())


def task_json(work: Task) -> Dict[str, Any]:
    """Return the task as replies and events show it."""
    fields: Dict[str, Any] = {
        "id": work.id,
        "kind": work.kind,
        "phase": work.phase,
        "title": work.title,
        "who": work.who,
        "owner": work.owner,
        "pid": work.pid or None,
        "asked": work.asked,
        "started": work.started,
        "ended": work.ended,
        "exit": work.ending.exit,
        "signal": work.ending.signal,
        "rusage": dict(work.ending.rusage),
        "why": work.why,
        "code": work.code,
        "first": work.first,
        "length": work.length,
        "logged": work.logged,
        "lost_bytes": work.lost_bytes,
        "terminal": work.terminal is not None,
        "stdin": work.stdin,
    }
    if work.kind != COMMAND:
        current = work.stages[work.stage] if work.stage < len(work.stages) else None
        fields.update(
            slot=work.slot,
            number=work.number,
            stage=work.stage,
            stages=len(work.stages),
            stage_name=current.name if current else "",
            lease_until=work.lease_until,
            deadman=work.deadman,
            stopped=work.stopped,
            report=work.report,
            tail=list(work.tail),
            free=work.free,
            holders=[dict(holder) for holder in work.holders],
        )
    return fields
