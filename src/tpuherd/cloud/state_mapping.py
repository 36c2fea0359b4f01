"""Maps the cloud's states and errors to those of the planner: tables."""

import re
from collections.abc import Mapping

from tpuherd.cloud.error_reasons import TOO_FAST
from tpuherd.cloud.error_replies import CloudError
from tpuherd.model.observed import NodeState, RequestState
from tpuherd.model.slots_and_plan import Refusal

REQUESTS: Mapping[str, RequestState] = {
    "CREATING": RequestState.QUEUED,
    "ACCEPTED": RequestState.QUEUED,
    "WAITING_FOR_RESOURCES": RequestState.QUEUED,
    "PROVISIONING": RequestState.GRANTED,
    "ACTIVE": RequestState.ACTIVE,
    "SUSPENDING": RequestState.ENDING,
    "SUSPENDED": RequestState.LOST,
    "FAILED": RequestState.REFUSED,
    "DELETING": RequestState.LEAVING,
}

NODES: Mapping[str, NodeState] = {
    "CREATING": NodeState.MAKING,
    "STARTING": NodeState.MAKING,
    "RESTARTING": NodeState.MAKING,
    "REIMAGING": NodeState.MAKING,
    "READY": NodeState.READY,
    "REPAIRING": NodeState.UNHEALTHY,
    "PREEMPTED": NodeState.LOST,
    "TERMINATED": NodeState.LOST,
    "STOPPED": NodeState.LOST,
    "STOPPING": NodeState.STOPPING,
    "SUSPENDED": NodeState.LOST,
    "HIDING": NodeState.LOST,
    "HIDDEN": NodeState.LOST,
    "DELETING": NodeState.LEAVING,
}
WELL = frozenset({"", "HEALTHY", "HEALTH_UNSPECIFIED"})

#: Codes, a pattern in the message, and the resulting refusal; the first match wins.
RULES: tuple[tuple[frozenset[int], str, Refusal], ...] = (
    (frozenset({8}), TOO_FAST.pattern, Refusal.RATE),
    (frozenset({5, 8, 9}), r"reserv", Refusal.RESERVATION),
    (frozenset({8}), r"quota", Refusal.QUOTA),
    (frozenset({8}), r"", Refusal.STOCKOUT),
    (frozenset({3, 9}), r"while in state", Refusal.BROKEN),  # preempted while it was being created
    (frozenset({6}), r"", Refusal.TAKEN),
    (frozenset({7}), r"", Refusal.PERMISSION),
    (frozenset({3, 5, 11}), r"", Refusal.CONFIGURATION),
)


def node_state(state: str, health: str) -> NodeState:
    """The planner's state of a node; UNKNOWN for a state that is not in the table."""
    word = NODES.get(state, NodeState.UNKNOWN)
    return NodeState.UNHEALTHY if word is NodeState.READY and health not in WELL else word


def request_state(state: str) -> RequestState:
    """The planner's state of a queued resource; UNKNOWN if it is not in the table."""
    return REQUESTS.get(state, RequestState.UNKNOWN)


def classify_refusal(error: CloudError, tier: str) -> Refusal:
    """Why the cloud refused. It sometimes refuses spot capacity as a missing reservation."""
    for codes, pattern, word in RULES:
        if error.code in codes and re.search(pattern, error.sentence, re.IGNORECASE):
            if word is Refusal.RESERVATION and tier != "reserved":
                return Refusal.STOCKOUT
            return word
    return Refusal.BROKEN
