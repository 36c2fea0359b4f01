"""What a setup wants of a project, what it finds there, and what it has changed, as values."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import Any

from tpuherd.settings.host_routes import Route

Facts = Mapping[str, Any]  #: can be written as JSON


class GoalKind(Enum):
    SERVICE = "service"  #: an API is enabled
    IDENTITY = "identity"  #: an API has its own account in the project
    ROLE = "role"  #: an account has a role
    FIREWALL = "firewall"  #: traffic reaches the hosts of a network
    KEY = "key"  #: our SSH key is in the project's metadata
    OS_LOGIN = "os-login"  #: our SSH key is in a user's OS Login profile
    WAY = "way"  #: a context says how to reach hosts


class GoalState(Enum):
    THERE = "there"  #: nothing to do
    MISSING = "missing"  #: to be made
    LATER = "later"  #: can be looked up when its API is enabled
    BLOCKED = "blocked"  #: it can't be made, for the reason in `note`
    MADE = "made"
    FAILED = "failed"  #: with the error in `note`


@dataclass(frozen=True, kw_only=True, slots=True)
class SetupRequest:
    """What the user asked for, checked."""

    way: Route
    context: str  #: where to store the way; empty: nowhere
    sources: tuple[str, ...]  #: address ranges that may log in; empty: unknown, or the network's
    mosh: bool
    network: str
    apis: tuple[str, ...]  #: besides those that are always needed
    keys: str  #: project, os-login, or node: nothing to do now
    member: str  #: the account that will use herd; empty: the caller
    node_account: str  #: the account of nodes; empty: not looked at


@dataclass(frozen=True, kw_only=True, slots=True)
class SetupGoal:
    """One thing that should be true of the project."""

    kind: GoalKind
    name: str  #: unique within its kind
    fact: str  #: what should be true
    action: str  #: what is done if it is not
    api: str = ""  #: must be enabled before it can be looked up
    facts: Facts = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True, slots=True)
class GoalFinding:
    """What a look at a goal showed, or how making it ended."""

    goal: SetupGoal
    state: GoalState
    note: str = ""  #: what is there, or why not
    facts: Facts = field(default_factory=dict)  #: what is needed to make and undo it

    def as_json(self) -> dict[str, Any]:
        return {
            "kind": self.goal.kind.value,
            "name": self.goal.name,
            "state": self.state.value,
            "fact": self.goal.fact,
            "action": self.goal.action,
            "note": self.note,
        }


@dataclass(frozen=True, kw_only=True, slots=True)
class RecordedChange:
    """A change in the journal."""

    kind: GoalKind
    name: str
    settled: bool  #: False: the call was made, or about to be, and its end is unknown
    at: float
    facts: Facts


@dataclass(frozen=True, kw_only=True, slots=True)
class UndoResult:
    """How undoing one change ended, or would end."""

    change: RecordedChange
    sentence: str
    undone: bool  #: False: it was left as it is
    kept: bool = False  #: it stays in the journal: undoing it may succeed later
    failed: bool = False

    def as_json(self) -> dict[str, Any]:
        return {
            "kind": self.change.kind.value,
            "name": self.change.name,
            "sentence": self.sentence,
            "undone": self.undone,
            "kept": self.kept,
            "failed": self.failed,
        }
