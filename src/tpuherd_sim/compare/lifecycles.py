"""Which changes of state the model makes, and how long its states and operations take."""

from collections import deque
from collections.abc import Mapping

from tpuherd_sim.tpu.durations import DURATIONS, UPDATE_S

MOVED = "READY PREEMPTED TERMINATED DELETING REPAIRING"
#: By kind and state: the states that may follow. A test checks it against histories of the model.
STEPS: Mapping[str, Mapping[str, str]] = {
    "Node": {
        "CREATING": MOVED,
        "READY": "STOPPING RESTARTING REPAIRING REIMAGING PREEMPTED TERMINATED DELETING",
        "STOPPING": "STOPPED PREEMPTED TERMINATED DELETING",
        "STOPPED": "STARTING TERMINATED DELETING",
        "STARTING": f"{MOVED} STOPPED",
        "RESTARTING": MOVED,
        "REPAIRING": MOVED,
        "REIMAGING": MOVED,
        "PREEMPTED": "DELETING",
        "TERMINATED": "DELETING",
        "DELETING": "",
    },
    "QueuedResource": {
        "CREATING": "ACCEPTED FAILED DELETING",
        "ACCEPTED": "WAITING_FOR_RESOURCES PROVISIONING FAILED DELETING",
        "WAITING_FOR_RESOURCES": "PROVISIONING FAILED DELETING",
        "PROVISIONING": "ACTIVE SUSPENDING FAILED DELETING",
        "ACTIVE": "SUSPENDING PROVISIONING DELETING",
        "SUSPENDING": "SUSPENDED FAILED DELETING",
        "SUSPENDED": "DELETING",
        "FAILED": "DELETING",
        "DELETING": "",
    },
}
Span = tuple[float, float]


def join_spans(*names: str) -> Span:
    """Return from the shortest to the longest of these durations."""
    found = [DURATIONS[name] for name in names]
    return min(low for low, _ in found), max(high for _, high in found)


#: How long a state lasts until the one that normally follows.
STATE_SPANS: Mapping[tuple[str, str, str], Span] = {
    ("Node", "CREATING", "READY"): join_spans("node.ready", "node.ready.pod", "request.ready"),
    ("Node", "STOPPING", "STOPPED"): join_spans("node.stop"),
    ("Node", "STARTING", "READY"): join_spans("node.start"),
    ("QueuedResource", "CREATING", "ACCEPTED"): join_spans("request.admit"),
    ("QueuedResource", "PROVISIONING", "ACTIVE"): join_spans("request.ready"),
    ("QueuedResource", "SUSPENDING", "SUSPENDED"): join_spans("request.suspend"),
}
#: How long a successful operation takes, by the collection of its target and its verb.
OPERATION_SPANS: Mapping[tuple[str, str], Span] = {
    ("nodes", "create"): join_spans("node.ready", "node.ready.pod"),
    ("nodes", "delete"): join_spans("node.delete"),
    ("nodes", "update"): (UPDATE_S, UPDATE_S),
    ("nodes", "stop"): join_spans("node.stop"),
    ("nodes", "start"): join_spans("node.start", "node.start.place"),
    ("queuedResources", "create"): join_spans("request.admit"),
    ("queuedResources", "delete"): join_spans("request.delete", "node.delete"),
}
#: The least time in a state that one can't miss by looking too late.
LEAST_S: Mapping[tuple[str, str], float] = {
    (kind, state): span[0] for (kind, state, _), span in STATE_SPANS.items() if state != "CREATING"
}


def least_time_between(kind: str, first: str, second: str) -> float | None:
    """Return the least time of the states between two, of which none was seen; None if the model
    never comes from the first to the second.
    """
    steps = STEPS[kind]
    best = {first: 0.0}
    waiting = deque([first])
    while waiting:
        state = waiting.popleft()
        spent = best[state] + (LEAST_S.get((kind, state), 0.0) if state != first else 0.0)
        for following in steps.get(state, "").split():
            if following not in best or spent < best[following]:
                best[following] = spent
                waiting.append(following)
    return best.get(second)
