"""What is done with a bid in each role, and with a gang in each shape: the two tables."""

from collections.abc import Mapping
from enum import StrEnum

from tpuherd.model.slots_and_plan import Goal


class Shape(StrEnum):
    """The gang of a slot, as a phase."""

    NOWHERE = "nowhere"  #: no bid is granted
    BOOTING = "booting"  #: granted, hosts not all reached yet
    BARE = "bare"  #: all hosts there, not prepared for this code
    PREPARED = "prepared"  #: and nothing launched on it
    RUNNING = "running"
    DOOMED = "doomed"  #: running, and a deadly notice came, or the cloud took it
    STALLED = "stalled"
    STOPPING = "stopping"
    SUCCEEDED = "succeeded"  #: the latest attempt here, by its verdict
    FAILED = "failed"
    INTERRUPTED = "interrupted"  #: ended by us, by the node or by nobody knows what
    SILENT = "silent"  #: hosts that were there are not heard of: wait, then see
    UNKNOWN = "unknown"  #: hands off


class Stage(StrEnum):
    """How far a bid is, by what is seen of it now."""

    CALLING = "calling"  #: between our call and its answer
    HIDDEN = "hidden"  #: nothing newer is known: its zone is silent, or the survey too old
    UNSEEN = "unseen"  #: asked for, and the cloud does not know it
    QUEUED = "queued"
    GRANTED = "granted"  #: its nodes are being made
    READY = "ready"
    SICK = "sick"  #: repaired, maintained or unhealthy
    ENDING = "ending"  #: being suspended: it can't be deleted now
    LOST = "lost"
    VANISHED = "vanished"  #: it was there, and is shown no more
    REFUSED = "refused"
    LEAVING = "leaving"  #: being deleted
    UNKNOWN = "unknown"  #: a state that we have no word for


class Role(StrEnum):
    """What a bid is to its slot."""

    INCUMBENT = "incumbent"  #: the one that fills the slot, or is about to
    CANDIDATE = "candidate"  #: asked for and not granted yet
    LOSER = "loser"  #: another was granted, or nothing more is sought
    OUTDATED = "outdated"  #: healthy, but another type or node is wished now
    WORN = "worn"  #: sick, silent, unreachable or faulty for too long
    HUSK = "husk"  #: refused, lost, or about to be: nothing comes of it any more
    UNWANTED = "unwanted"  #: the slot is gone, done or has given up
    WITHDRAWN = "withdrawn"  #: its withdrawal is recorded
    STRAY = "stray"  #: bears our name, and nobody knows it


class Move(StrEnum):
    """What is done with a bid."""

    ASK = "ask"  #: once more, under the same name
    WAIT = "wait"  #: something is expected of it
    WITHDRAW = "withdraw"
    LEAVE = "leave"


class Deed(StrEnum):
    """What is done with a gang."""

    PREPARE = "prepare"
    LAUNCH = "launch"
    WAIT = "wait"
    STOP = "stop"
    COLLECT = "collect"
    LEAVE = "leave"


_COLUMNS = tuple(Stage)
_MOVES = {"a": Move.ASK, "w": Move.WAIT, "x": Move.WITHDRAW, ".": Move.LEAVE}
_DEEDS = {
    "prepare": Deed.PREPARE, "launch": Deed.LAUNCH, "wait": Deed.WAIT, "stop": Deed.STOP,
    "collect": Deed.COLLECT, "leave": Deed.LEAVE,
}  # fmt: skip


def _row(letters: str) -> Mapping[Stage, Move]:
    return dict(zip(_COLUMNS, map(_MOVES.__getitem__, letters.split()), strict=True))


def _gang(run: str, idle: str, gone: str) -> Mapping[Goal, Deed]:
    return {Goal.RUN: _DEEDS[run], Goal.IDLE: _DEEDS[idle], Goal.GONE: _DEEDS[gone]}


#: Rows: the bid's role. Columns: its stage. a ask, w wait, x withdraw, . leave. A bid on which an
#: attempt is not over is withdrawn only when it is.
BIDS: Mapping[Role, Mapping[Stage, Move]] = {
    #                    calling            ready             vanished
    #                    |   hidden         |   sick          |   refused
    #                    |   |   unseen     |   |   ending    |   |   leaving
    #                    |   |   |   queued |   |   |   lost  |   |   |   unknown
    #                    |   |   |   |   granted|   |   |     |   |   |   |
    Role.INCUMBENT: _row(".   .   a   w   w   .   w   w   x   x   x   w   ."),
    Role.CANDIDATE: _row(".   .   a   w   w   w   w   w   x   x   x   w   ."),
    Role.LOSER:     _row(".   .   x   x   x   x   x   w   x   x   x   w   ."),
    Role.OUTDATED:  _row(".   .   x   x   x   .   .   w   x   x   x   w   ."),
    Role.WORN:      _row(".   .   x   x   w   .   .   w   x   x   x   w   ."),
    Role.HUSK:      _row(".   .   x   x   x   x   x   w   x   x   x   w   ."),
    Role.UNWANTED:  _row(".   .   x   x   x   x   x   w   x   x   x   w   x"),
    Role.WITHDRAWN: _row(".   .   w   x   x   x   x   w   x   w   x   w   x"),
    Role.STRAY:     _row(".   .   .   .   .   .   .   .   .   .   .   .   ."),
}  # fmt: skip

#: Rows: the gang's shape. Columns: what is wished of the slot.
GANG: Mapping[Shape, Mapping[Goal, Deed]] = {
    #                         RUN        IDLE       GONE
    Shape.NOWHERE:     _gang("wait",    "wait",    "leave"),
    Shape.BOOTING:     _gang("wait",    "wait",    "leave"),
    Shape.BARE:        _gang("prepare", "prepare", "leave"),
    Shape.PREPARED:    _gang("launch",  "wait",    "leave"),
    Shape.RUNNING:     _gang("wait",    "stop",    "stop"),
    Shape.DOOMED:      _gang("stop",    "stop",    "stop"),
    Shape.STALLED:     _gang("stop",    "stop",    "stop"),
    Shape.STOPPING:    _gang("wait",    "wait",    "wait"),
    Shape.SUCCEEDED:   _gang("collect", "wait",    "collect"),
    Shape.FAILED:      _gang("launch",  "wait",    "collect"),
    Shape.INTERRUPTED: _gang("launch",  "wait",    "collect"),
    Shape.SILENT:      _gang("wait",    "wait",    "leave"),
    Shape.UNKNOWN:     _gang("leave",   "leave",   "leave"),
}  # fmt: skip
