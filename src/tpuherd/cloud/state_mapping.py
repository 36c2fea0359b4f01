"""The cloud's own words for states and errors, as words of the judgement: tables."""

import re
from collections.abc import Mapping

from tpuherd.cloud.error_replies import Error
from tpuherd.model.observed import NodeWord, RequestWord
from tpuherd.model.slots_and_plan import Refusal

REQUESTS: Mapping[str, RequestWord] = {
    "CREATING": RequestWord.QUEUED,
    "ACCEPTED": RequestWord.QUEUED,
    "WAITING_FOR_RESOURCES": RequestWord.QUEUED,
    "PROVISIONING": RequestWord.GRANTED,
    "ACTIVE": RequestWord.ACTIVE,
    "SUSPENDING": RequestWord.ENDING,
    "SUSPENDED": RequestWord.LOST,
    "FAILED": RequestWord.REFUSED,
    "DELETING": RequestWord.LEAVING,
}

NODES: Mapping[str, NodeWord] = {
    "CREATING": NodeWord.MAKING,
    "STARTING": NodeWord.MAKING,
    "RESTARTING": NodeWord.MAKING,
    "REIMAGING": NodeWord.MAKING,
    "READY": NodeWord.READY,
    "REPAIRING": NodeWord.SICK,
    "PREEMPTED": NodeWord.LOST,
    "TERMINATED": NodeWord.LOST,
    "STOPPED": NodeWord.LOST,
    "STOPPING": NodeWord.LOST,
    "SUSPENDED": NodeWord.LOST,
    "HIDING": NodeWord.LOST,
    "HIDDEN": NodeWord.LOST,
    "DELETING": NodeWord.LEAVING,
}
WELL = frozenset({"", "HEALTHY", "HEALTH_UNSPECIFIED"})

#: The first rule that fits: codes, what the sentence says, and what it comes to.
RULES: tuple[tuple[frozenset[int], str, Refusal], ...] = (
    (frozenset({8}), r"per minute|rate limit|too many requests", Refusal.RATE),
    (frozenset({5, 8, 9}), r"reserv", Refusal.RESERVATION),
    (frozenset({8}), r"quota", Refusal.QUOTA),
    (frozenset({8}), r"", Refusal.STOCKOUT),
    (frozenset({3, 9}), r"while in state", Refusal.BROKEN),  # preempted while it was being made
    (frozenset({6}), r"", Refusal.TAKEN),
    (frozenset({7}), r"", Refusal.PERMISSION),
    (frozenset({3, 5, 11}), r"", Refusal.CONFIGURATION),
)


def node_word(state: str, health: str) -> NodeWord:
    """How a node is; a state that nobody has met is UNKNOWN."""
    word = NODES.get(state, NodeWord.UNKNOWN)
    return NodeWord.SICK if word is NodeWord.READY and health not in WELL else word


def request_word(state: str) -> RequestWord:
    """How far a queued resource is."""
    return REQUESTS.get(state, RequestWord.UNKNOWN)


def refusal(error: Error, tier: str) -> Refusal:
    """Why the cloud said no. Spot capacity is at times refused as a missing reservation."""
    for codes, pattern, word in RULES:
        if error.code in codes and re.search(pattern, error.sentence, re.IGNORECASE):
            if word is Refusal.RESERVATION and tier != "reserved":
                return Refusal.STOCKOUT
            return word
    return Refusal.BROKEN
