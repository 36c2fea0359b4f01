"""What is done with a bid in each role, and with a gang in each shape: the two tables."""

from collections.abc import Mapping
from enum import StrEnum

from tpuherd.model.slots_and_plan import Goal


class GangState(StrEnum):
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


class BidPhase(StrEnum):
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


class BidAction(StrEnum):
    """What is done with a bid."""

    ASK = "ask"  #: once more, under the same name
    WAIT = "wait"  #: something is expected of it
    WITHDRAW = "withdraw"
    LEAVE = "leave"


class GangAction(StrEnum):
    """What is done with a gang."""

    PREPARE = "prepare"
    LAUNCH = "launch"
    WAIT = "wait"
    STOP = "stop"
    COLLECT = "collect"
    LEAVE = "leave"


_COLUMNS = tuple(BidPhase)
_MOVES = {"a": BidAction.ASK, "w": BidAction.WAIT, "x": BidAction.WITHDRAW, ".": BidAction.LEAVE}
_DEEDS = {
    "prepare": GangAction.PREPARE, "launch": GangAction.LAUNCH, "wait": GangAction.WAIT,
    "stop": GangAction.STOP,
    "collect": GangAction.COLLECT, "leave": GangAction.LEAVE,
}  # fmt: skip


def _bid_row(letters: str) -> Mapping[BidPhase, BidAction]:
    return dict(zip(_COLUMNS, map(_MOVES.__getitem__, letters.split()), strict=True))


def _gang_row(run: str, idle: str, gone: str) -> Mapping[Goal, GangAction]:
    return {Goal.RUN: _DEEDS[run], Goal.IDLE: _DEEDS[idle], Goal.GONE: _DEEDS[gone]}


#: Rows: the bid's role. Columns: its stage. a ask, w wait, x withdraw, . leave. A bid on which an
#: attempt is not over is withdrawn only when it is.
BIDS: Mapping[Role, Mapping[BidPhase, BidAction]] = {
    #                    calling            ready             vanished
    #                    |   hidden         |   sick          |   refused
    #                    |   |   unseen     |   |   ending    |   |   leaving
    #                    |   |   |   queued |   |   |   lost  |   |   |   unknown
    #                    |   |   |   |   granted|   |   |     |   |   |   |
    Role.INCUMBENT: _bid_row(".   .   a   w   w   .   w   w   x   x   x   w   ."),
    Role.CANDIDATE: _bid_row(".   .   a   w   w   w   w   w   x   x   x   w   ."),
    Role.LOSER:     _bid_row(".   .   x   x   x   x   x   w   x   x   x   w   ."),
    Role.OUTDATED:  _bid_row(".   .   x   x   x   .   .   w   x   x   x   w   ."),
    Role.WORN:      _bid_row(".   .   x   x   w   .   .   w   x   x   x   w   ."),
    Role.HUSK:      _bid_row(".   .   x   x   x   x   x   w   x   x   x   w   ."),
    Role.UNWANTED:  _bid_row(".   .   x   x   x   x   x   w   x   x   x   w   x"),
    Role.WITHDRAWN: _bid_row(".   .   w   x   x   x   x   w   x   w   x   w   x"),
    Role.STRAY:     _bid_row(".   .   .   .   .   .   .   .   .   .   .   .   ."),
}  # fmt: skip

#: Rows: the gang's shape. Columns: what is wished of the slot.
GANG: Mapping[GangState, Mapping[Goal, GangAction]] = {
    #                         RUN        IDLE       GONE
    GangState.NOWHERE:     _gang_row("wait",    "wait",    "leave"),
    GangState.BOOTING:     _gang_row("wait",    "wait",    "leave"),
    GangState.BARE:        _gang_row("prepare", "prepare", "leave"),
    GangState.PREPARED:    _gang_row("launch",  "wait",    "leave"),
    GangState.RUNNING:     _gang_row("wait",    "stop",    "stop"),
    GangState.DOOMED:      _gang_row("stop",    "stop",    "stop"),
    GangState.STALLED:     _gang_row("stop",    "stop",    "stop"),
    GangState.STOPPING:    _gang_row("wait",    "wait",    "wait"),
    GangState.SUCCEEDED:   _gang_row("collect", "wait",    "collect"),
    GangState.FAILED:      _gang_row("launch",  "wait",    "collect"),
    GangState.INTERRUPTED: _gang_row("launch",  "wait",    "collect"),
    GangState.SILENT:      _gang_row("wait",    "wait",    "leave"),
    GangState.UNKNOWN:     _gang_row("leave",   "leave",   "leave"),
}  # fmt: skip
