"""Everything the weather can do, as one table: validation, help and docs are read off it."""

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

RULE = "rule"  #: stays in force and strikes whoever it fits
STROKE = "stroke"  #: happens once


@dataclass(frozen=True, kw_only=True, slots=True)
class Argument:
    """One thing that can be said about a kind of weather."""

    name: str
    type: str  #: a name out of `arguments.TYPES`
    meaning: str
    default: Any = None  #: None = left out
    needed: bool = False
    unit: str = ""
    choices: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True, slots=True)
class Kind:
    """One thing the weather can do."""

    name: str
    family: str  #: RULE or STROKE
    meaning: str
    example: str  #: what follows `herd sim weather`
    own: tuple[Argument, ...]  #: in the order in which bare words fill them
    match: tuple[str, ...] = ()  #: to which facts a rule can be narrowed
    undo: str = ""  #: the stroke that ends this one when its `for` is over

    @property
    def arguments(self) -> Mapping[str, Argument]:
        """Every argument by its name: its own, what narrows it, what ends it."""
        narrowing = tuple(MATCHES[name] for name in self.match)
        ending = LIMITS if self.family == RULE else (LASTING,) if self.undo else ()
        return {argument.name: argument for argument in (*self.own, *narrowing, *ending)}


def rule(name: str, meaning: str, example: str, match: tuple[str, ...], *own: Argument) -> Kind:
    """A row of the first half of the table."""
    return Kind(name=name, family=RULE, meaning=meaning, example=example, own=own, match=match)


def stroke(name: str, meaning: str, example: str, *own: Argument, undo: str = "") -> Kind:
    """A row of the second half of the table."""
    return Kind(name=name, family=STROKE, meaning=meaning, example=example, own=own, undo=undo)


def seconds(name: str, meaning: str, default: float | None = None) -> Argument:
    """A stretch of time."""
    return Argument(name=name, type="duration", unit="s", meaning=meaning, default=default)


def text(name: str, meaning: str) -> Argument:
    """Words that may be left out."""
    return Argument(name=name, type="text", meaning=meaning)


def pattern(name: str, meaning: str, default: str | None = None) -> Argument:
    """A shell pattern that may be left out."""
    return Argument(name=name, type="pattern", meaning=meaning, default=default)


def needed(name: str, form: str, meaning: str, *choices: str) -> Argument:
    """What can't be left out."""
    return Argument(name=name, type=form, meaning=meaning, needed=True, choices=choices)


def flag(name: str, meaning: str) -> Argument:
    """What is done unless one says no."""
    return Argument(name=name, type="flag", meaning=meaning, default=True)


def factor(default: float) -> Argument:
    """How many times longer something takes."""
    return Argument(name="factor", type="factor", meaning="how many times longer", default=default)


MATCHES: Mapping[str, Argument] = MappingProxyType(
    {
        "zone": Argument(
            name="zone", type="places", meaning="only in zones that fit; - = calls for all zones"
        ),
        "type": Argument(name="type", type="types", meaning="only accelerator types that fit"),
        "node": pattern("node", "only nodes whose name fits"),
        "request": pattern("request", "only queued resources whose name fits"),
        "method": pattern("method", "only methods that fit, such as nodes.create"),
    }
)
LIMITS = (
    seconds("for", "ends after so long, by the world's clock"),
    Argument(name="times", type="number", meaning="ends after so many strikes"),
    Argument(name="share", type="share", meaning="the chance of each strike", default=1.0),
)
LASTING = seconds("for", "undone after so long, by the world's clock")
NODES = needed("target", "target", "nodes: NAME or ZONE/NAME; patterns allowed")
HOSTS = needed(
    "target", "target", "hosts: NAME, ZONE/NAME, NAME/wN or ZONE/NAME/wN; patterns allowed"
)
PICK = Argument(
    name="pick", type="number", meaning="only so many of those that fit, by the world's dice"
)
WORKER = Argument(name="worker", type="count", meaning="which worker of the node", default=0)
ZONE = needed("zone", "zones", "zones that fit")
POOL = Argument(
    name="type",
    type="types",
    meaning="an accelerator type or a pattern; * = all of the zone together",
    default="*",
)

CALLED = ("zone", "node", "request", "method")
OPERATED = ("zone", "type", "node", "request", "method")
CREATED = ("zone", "type", "node", "request")
QUEUED = ("zone", "type", "request")

RULES = (
    rule(
        "http-error",
        "the API answers with an error and does nothing",
        "http-error 429 method=nodes.create for=2m share=0.5",
        CALLED,
        Argument(name="http", type="http", meaning="the HTTP status", default=503),
        text("status", "such as UNAVAILABLE; by default what goes with the HTTP status"),
        text("message", "the sentence; by default what goes with the HTTP status"),
    ),
    rule(
        "lost-response",
        "the API does what was asked, then cuts the connection without an answer",
        "lost-response method=*.create times=1",
        CALLED,
    ),
    rule(
        "delay",
        "the API holds its answers back",
        "delay 5 zone=us-central2-b for=1m",
        CALLED,
        seconds("seconds", "for how long, by the wall", 10.0),
    ),
    rule(
        "stale-list",
        "lists show what was true a while ago",
        "stale-list 60 method=nodes.list for=10m",
        ("zone", "method"),
        seconds("age_s", "how long ago", 30.0),
    ),
    rule(
        "unreachable-zone",
        "wildcard lists leave the zone out and name it as unreachable",
        "unreachable-zone zone=us-central2-b for=5m",
        ("zone", "method"),
    ),
    rule(
        "conflict",
        "a create takes effect, but is answered by 409 (already exists)",
        "conflict method=queuedResources.create times=1",
        CALLED,
    ),
    rule(
        "operation-error",
        "a long-running operation ends with an error",
        "operation-error 13 method=nodes.create times=1",
        OPERATED,
        Argument(name="code", type="code", meaning="a google.rpc code", default=8),
        text("message", "the sentence; by default what goes with the code"),
    ),
    rule(
        "slow-operation",
        "a long-running operation is done only long after what it stands for",
        "slow-operation 10 zone=us-*",
        OPERATED,
        factor(10.0),
    ),
    rule(
        "endless-operation",
        "a long-running operation is never done, although the resource serves",
        "endless-operation method=nodes.create times=1",
        OPERATED,
    ),
    rule(
        "born-unhealthy",
        "a node is UNHEALTHY_MAINTENANCE from its first READY moment",
        "born-unhealthy type=v4-* times=1",
        CREATED,
    ),
    rule(
        "no-external-ip",
        "one worker of a new node has no external address",
        "no-external-ip 1 times=1",
        CREATED,
        WORKER,
    ),
    rule(
        "unreachable-worker",
        "one worker of a new node does not answer on its external address",
        "unreachable-worker 0 node=gpt-*",
        CREATED,
        WORKER,
    ),
    rule(
        "stuck-suspending",
        "a queued resource whose nodes are gone stays in SUSPENDING",
        "stuck-suspending times=1",
        QUEUED,
    ),
    rule(
        "late-fill",
        "a queued resource whose time is over is filled all the same",
        "late-fill 10m times=1",
        QUEUED,
        seconds("after_s", "how late, by the wall", 60.0),
    ),
    rule(
        "recycle-ip",
        "a new node gets the addresses that were released last",
        "recycle-ip times=1",
        CREATED,
    ),
    rule(
        "slow-keys",
        "guest attributes, and so the SSH host keys, appear late",
        "slow-keys 2m node=gpt-0",
        CREATED,
        seconds("seconds", "how late, by the wall", 60.0),
    ),
    rule(
        "slow-provisioning",
        "nodes take longer to become READY",
        "slow-provisioning 4 zone=europe-* for=1h",
        CREATED,
        factor(4.0),
    ),
)

STROKES = (
    stroke(
        "preempt",
        "takes nodes back as a cloud does with spot capacity",
        "preempt gpt-1 notice_s=0",
        NODES,
        seconds("notice_s", "from the warning to the power-off, by the wall", 30.0),
        flag("flag", "metadata instance/preempted turns TRUE at the warning"),
        flag("acpi", "the power button is pressed: shutdown script, then SIGTERM to all"),
        PICK,
    ),
    stroke(
        "maintain",
        "announces maintenance, then reboots every host of the node",
        "maintain us-central2-b/gpt-0 notice_s=5m",
        NODES,
        seconds("notice_s", "from the announcement to its begin", 60.0),
        seconds("duration_s", "how long it takes", 120.0),
        flag("change_ip", "the external addresses are new ones afterwards"),
        PICK,
    ),
    stroke("reboot", "reboots hosts, with the same disk", "reboot gpt-0/w1", HOSTS, PICK),
    stroke(
        "crash",
        "cuts the power of hosts; the node is repaired later",
        "crash gpt-*/w0 pick=1",
        HOSTS,
        PICK,
    ),
    stroke(
        "hang",
        "freezes hosts: nothing in them runs, nothing answers",
        "hang gpt-0/w3 for=10m",
        HOSTS,
        PICK,
        undo="unhang",
    ),
    stroke("unhang", "lets frozen hosts go on", "unhang gpt-0/w3", HOSTS, PICK),
    stroke(
        "network",
        "takes away, slows down or gives back the network of hosts",
        "network gpt-0/w2 down for=90s",
        HOSTS,
        needed("state", "choice", "what it is from now on", "down", "slow", "up"),
        PICK,
        undo="network",
    ),
    stroke(
        "unreachable",
        "hosts stop answering on their external address",
        "unreachable gpt-0/w0 for=5m",
        HOSTS,
        PICK,
        undo="reachable",
    ),
    stroke("reachable", "hosts answer again", "reachable gpt-0/w0", HOSTS, PICK),
    stroke(
        "fill-disk",
        "fills the disk of hosts",
        "fill-disk gpt-0/w0",
        HOSTS,
        PICK,
        undo="free-disk",
    ),
    stroke("free-disk", "frees the disk of hosts", "free-disk gpt-0/w0", HOSTS, PICK),
    stroke(
        "skew",
        "shifts the clock that metadata and agent show (a kernel's clock can't be shifted)",
        "skew gpt-0/w0 300",
        HOSTS,
        Argument(
            name="seconds",
            type="signed",
            meaning="how far ahead; negative = behind, 0 = right",
            needed=True,
            unit="s",
        ),
        PICK,
        undo="skew",
    ),
    stroke(
        "unhealthy",
        "nodes report that they are not healthy",
        "unhealthy gpt-0 for=10m",
        NODES,
        Argument(
            name="health",
            type="choice",
            meaning="what they report",
            default="UNHEALTHY_MAINTENANCE",
            choices=("UNHEALTHY_MAINTENANCE", "UNHEALTHY_TENSORFLOW", "TIMEOUT"),
        ),
        PICK,
        undo="healthy",
    ),
    stroke("healthy", "nodes report that they are healthy", "healthy gpt-0", NODES, PICK),
    stroke(
        "drought",
        "there is no capacity left, and what spot nodes hold is taken back",
        "drought us-central2-b for=2h",
        ZONE,
        POOL,
        undo="capacity",
    ),
    stroke(
        "capacity",
        "how many nodes there can be; what is too much is preempted",
        "capacity us-central2-b v4-8 4",
        ZONE,
        POOL,
        needed("nodes", "nodes", "a number, or unlimited"),
    ),
    stroke(
        "quota",
        "how much the project may have",
        "quota us-central2-b *V4* 32",
        ZONE,
        needed("quota", "quota", "a quota id, a pattern of them, or a family such as v4"),
        needed("limit", "count", "the new limit"),
    ),
    stroke("clear", "ends rules", "clear all", needed("rule", "pattern", "its name, or all")),
)

KINDS: Mapping[str, Kind] = MappingProxyType({kind.name: kind for kind in (*RULES, *STROKES)})
