"""The two policy tables: what to do with a bid in each role, and with a gang in each state."""

from collections.abc import Mapping
from enum import StrEnum

from tpuherd.model.slots_and_plan import Goal


class GangState(StrEnum):
    """How far a slot's gang is."""

    NOWHERE = "nowhere"  #: no bid is granted
    BOOTING = "booting"  #: granted, but not all hosts are reached yet
    BARE = "bare"  #: all hosts are reached, but not prepared for this code
    PREPARED = "prepared"  #: prepared, but nothing is launched
    RUNNING = "running"
    DOOMED = "doomed"  #: running on a node that is lost or has a preemption notice
    STALLED = "stalled"
    STOPPING = "stopping"
    SUCCEEDED = "succeeded"  #: the latest attempt here has this verdict
    FAILED = "failed"
    INTERRUPTED = "interrupted"  #: stopped, ended by the node, or for an unknown reason
    SILENT = "silent"  #: hosts that were reached shut down, or no longer respond: wait
    UNKNOWN = "unknown"  #: hands off


class BidPhase(StrEnum):
    """How far a bid is, by what is observed now."""

    CALLING = "calling"  #: between our call and its answer
    HIDDEN = "hidden"  #: its zone did not answer, or the survey is too old
    UNSEEN = "unseen"  #: requested, but the cloud does not list it
    QUEUED = "queued"
    GRANTED = "granted"  #: its nodes are being created
    READY = "ready"
    UNHEALTHY = "unhealthy"  #: under repair or maintenance, or unhealthy
    ENDING = "ending"  #: being suspended; it cannot be deleted now
    LOST = "lost"
    VANISHED = "vanished"  #: it was listed, and no longer is
    REFUSED = "refused"
    LEAVING = "leaving"  #: being deleted
    UNKNOWN = "unknown"  #: a state that herd does not know


class Role(StrEnum):
    """What a bid is to its slot."""

    INCUMBENT = "incumbent"  #: it fills the slot, or is about to
    CANDIDATE = "candidate"  #: requested; no node is READY yet
    SURPLUS = "surplus"  #: another node is there or comes first, or none is needed
    OUTDATED = "outdated"  #: healthy, but the job asks for another type or node now
    UNHEALTHY = "unhealthy"  #: unhealthy, silent, unreachable or faulty for too long
    DEAD = "dead"  #: refused, lost or about to be lost
    UNWANTED = "unwanted"  #: the slot is stopped, done or has given up
    WITHDRAWN = "withdrawn"  #: its withdrawal is recorded
    ORPHAN = "orphan"  #: has a name of ours, but is not in the history


class BidAction(StrEnum):
    ASK = "ask"  #: send the request again, under the same name
    WAIT = "wait"  #: expect a change
    WITHDRAW = "withdraw"
    LEAVE = "leave"


class GangAction(StrEnum):
    PREPARE = "prepare"
    LAUNCH = "launch"
    WAIT = "wait"
    STOP = "stop"
    COLLECT = "collect"
    LEAVE = "leave"


_COLUMNS = tuple(BidPhase)
_BID_ACTIONS = {
    "a": BidAction.ASK, "w": BidAction.WAIT, "x": BidAction.WITHDRAW, ".": BidAction.LEAVE,
}  # fmt: skip
_ACTIONS = {
    "prepare": GangAction.PREPARE, "launch": GangAction.LAUNCH, "wait": GangAction.WAIT,
    "stop": GangAction.STOP,
    "collect": GangAction.COLLECT, "leave": GangAction.LEAVE,
}  # fmt: skip


def _bid_row(letters: str) -> Mapping[BidPhase, BidAction]:
    return dict(zip(_COLUMNS, map(_BID_ACTIONS.__getitem__, letters.split()), strict=True))


def _gang_row(run: str, idle: str, gone: str) -> Mapping[Goal, GangAction]:
    return {Goal.RUN: _ACTIONS[run], Goal.IDLE: _ACTIONS[idle], Goal.GONE: _ACTIONS[gone]}


#: Rows: the bid's role. Columns: its phase. a ask, w wait, x withdraw, . leave. A bid on which an
#: attempt is not over is withdrawn only when it is.
BIDS: Mapping[Role, Mapping[BidPhase, BidAction]] = {
    #                         calling                 ready               vanished
    #                         |   hidden              |   unhealthy       |   refused
    #                         |   |   unseen          |   |   ending      |   |   leaving
    #                         |   |   |   queued      |   |   |   lost    |   |   |   unknown
    #                         |   |   |   |   granted |   |   |   |       |   |   |   |
    Role.INCUMBENT: _bid_row(".   .   a   w   w       .   w   w   x       x   x   w   ."),
    Role.CANDIDATE: _bid_row(".   .   a   w   w       w   w   w   x       x   x   w   ."),
    Role.SURPLUS:   _bid_row(".   .   x   x   x       x   x   w   x       x   x   w   ."),
    Role.OUTDATED:  _bid_row(".   .   x   x   x       .   .   w   x       x   x   w   ."),
    Role.UNHEALTHY: _bid_row(".   .   x   x   w       .   .   w   x       x   x   w   ."),
    Role.DEAD:      _bid_row(".   .   x   x   x       x   x   w   x       x   x   w   ."),
    Role.UNWANTED:  _bid_row(".   .   x   x   x       x   x   w   x       x   x   w   x"),
    Role.WITHDRAWN: _bid_row(".   .   w   x   x       x   x   w   x       w   x   w   x"),
    Role.ORPHAN:    _bid_row(".   .   .   .   .       .   .   .   .       .   .   .   ."),
}  # fmt: skip

#: Rows: the gang's state. Columns: the slot's goal.
GANG: Mapping[GangState, Mapping[Goal, GangAction]] = {
    #                                RUN        IDLE       GONE
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
