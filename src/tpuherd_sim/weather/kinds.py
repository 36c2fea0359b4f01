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
class WeatherKind:
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


def rule_kind(
    name: str, meaning: str, example: str, match: tuple[str, ...], *own: Argument
) -> WeatherKind:
    """A row of the first half of the table."""
    return WeatherKind(
        name=name, family=RULE, meaning=meaning, example=example, own=own, match=match
    )


def one_off_kind(
    name: str, meaning: str, example: str, *own: Argument, undo: str = ""
) -> WeatherKind:
    """A row of the second half of the table."""
    return WeatherKind(
        name=name, family=STROKE, meaning=meaning, example=example, own=own, undo=undo
    )


def duration_argument(name: str, meaning: str, default: float | None = None) -> Argument:
    """A stretch of time."""
    return Argument(name=name, type="duration", unit="s", meaning=meaning, default=default)


def text_argument(name: str, meaning: str) -> Argument:
    """Words that may be left out."""
    return Argument(name=name, type="text", meaning=meaning)


def pattern_argument(name: str, meaning: str, default: str | None = None) -> Argument:
    """A shell pattern that may be left out."""
    return Argument(name=name, type="pattern", meaning=meaning, default=default)


def required_argument(name: str, form: str, meaning: str, *choices: str) -> Argument:
    """What can't be left out."""
    return Argument(name=name, type=form, meaning=meaning, needed=True, choices=choices)


def flag_argument(name: str, meaning: str) -> Argument:
    """What is done unless one says no."""
    return Argument(name=name, type="flag", meaning=meaning, default=True)


def factor_argument(default: float) -> Argument:
    """How many times longer something takes."""
    return Argument(name="factor", type="factor", meaning="how many times longer", default=default)


MATCHES: Mapping[str, Argument] = MappingProxyType(
    {
        "zone": Argument(
            name="zone", type="places", meaning="only in zones that fit; - = calls for all zones"
        ),
        "type": Argument(name="type", type="types", meaning="only accelerator types that fit"),
        "node": pattern_argument("node", "only nodes whose name fits"),
        "request": pattern_argument("request", "only queued resources whose name fits"),
        "method": pattern_argument("method", "only methods that fit, such as nodes.create"),
    }
)
LIMITS = (
    duration_argument("for", "ends after so long, by the world's clock"),
    Argument(name="times", type="number", meaning="ends after so many strikes"),
    Argument(name="share", type="share", meaning="the chance of each strike", default=1.0),
)
LASTING = duration_argument("for", "undone after so long, by the world's clock")
NODES = required_argument("target", "target", "nodes: NAME or ZONE/NAME; patterns allowed")
HOSTS = required_argument(
    "target", "target", "hosts: NAME, ZONE/NAME, NAME/wN or ZONE/NAME/wN; patterns allowed"
)
PICK = Argument(
    name="pick", type="number", meaning="only so many of those that fit, by the world's dice"
)
WORKER = Argument(name="worker", type="count", meaning="which worker of the node", default=0)
ZONE = required_argument("zone", "zones", "zones that fit")
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
    rule_kind(
        "http-error",
        "the API answers with an error and does nothing",
        "http-error 429 method=nodes.create for=2m share=0.5",
        CALLED,
        Argument(name="http", type="http", meaning="the HTTP status", default=503),
        text_argument("status", "such as UNAVAILABLE; by default what goes with the HTTP status"),
        text_argument("message", "the sentence; by default what goes with the HTTP status"),
    ),
    rule_kind(
        "lost-response",
        "the API does what was asked, then cuts the connection without an answer",
        "lost-response method=*.create times=1",
        CALLED,
    ),
    rule_kind(
        "delay",
        "the API holds its answers back",
        "delay 5 zone=us-central2-b for=1m",
        CALLED,
        duration_argument("seconds", "for how long, by the wall", 10.0),
    ),
    rule_kind(
        "stale-list",
        "lists show what was true a while ago",
        "stale-list 60 method=nodes.list for=10m",
        ("zone", "method"),
        duration_argument("age_s", "how long ago", 30.0),
    ),
    rule_kind(
        "unreachable-zone",
        "wildcard lists leave the zone out and name it as unreachable",
        "unreachable-zone zone=us-central2-b for=5m",
        ("zone", "method"),
    ),
    rule_kind(
        "conflict",
        "a create takes effect, but is answered by 409 (already exists)",
        "conflict method=queuedResources.create times=1",
        CALLED,
    ),
    rule_kind(
        "operation-error",
        "a long-running operation ends with an error",
        "operation-error 13 method=nodes.create times=1",
        OPERATED,
        Argument(name="code", type="code", meaning="a google.rpc code", default=8),
        text_argument("message", "the sentence; by default what goes with the code"),
    ),
    rule_kind(
        "slow-operation",
        "a long-running operation is done only long after what it stands for",
        "slow-operation 10 zone=us-*",
        OPERATED,
        factor_argument(10.0),
    ),
    rule_kind(
        "endless-operation",
        "a long-running operation is never done, although the resource serves",
        "endless-operation method=nodes.create times=1",
        OPERATED,
    ),
    rule_kind(
        "born-unhealthy",
        "a node is UNHEALTHY_MAINTENANCE from its first READY moment",
        "born-unhealthy type=v4-* times=1",
        CREATED,
    ),
    rule_kind(
        "no-external-ip",
        "one worker of a new node has no external address",
        "no-external-ip 1 times=1",
        CREATED,
        WORKER,
    ),
    rule_kind(
        "unreachable-worker",
        "one worker of a new node does not answer on its external address",
        "unreachable-worker 0 node=gpt-*",
        CREATED,
        WORKER,
    ),
    rule_kind(
        "stuck-suspending",
        "a queued resource whose nodes are gone stays in SUSPENDING",
        "stuck-suspending times=1",
        QUEUED,
    ),
    rule_kind(
        "late-fill",
        "a queued resource whose time is over is filled all the same",
        "late-fill 10m times=1",
        QUEUED,
        duration_argument("after_s", "how late, by the wall", 60.0),
    ),
    rule_kind(
        "recycle-ip",
        "a new node gets the addresses that were released last",
        "recycle-ip times=1",
        CREATED,
    ),
    rule_kind(
        "slow-keys",
        "guest attributes, and so the SSH host keys, appear late",
        "slow-keys 2m node=gpt-0",
        CREATED,
        duration_argument("seconds", "how late, by the wall", 60.0),
    ),
    rule_kind(
        "slow-provisioning",
        "nodes take longer to become READY",
        "slow-provisioning 4 zone=europe-* for=1h",
        CREATED,
        factor_argument(4.0),
    ),
)

STROKES = (
    one_off_kind(
        "preempt",
        "takes nodes back as a cloud does with spot capacity",
        "preempt gpt-1 notice_s=0",
        NODES,
        duration_argument("notice_s", "from the warning to the power-off, by the wall", 30.0),
        flag_argument("flag", "metadata instance/preempted turns TRUE at the warning"),
        flag_argument("acpi", "the power button is pressed: shutdown script, then SIGTERM to all"),
        PICK,
    ),
    one_off_kind(
        "maintain",
        "announces maintenance, then reboots every host of the node",
        "maintain us-central2-b/gpt-0 notice_s=5m",
        NODES,
        duration_argument("notice_s", "from the announcement to its begin", 60.0),
        duration_argument("duration_s", "how long it takes", 120.0),
        flag_argument("change_ip", "the external addresses are new ones afterwards"),
        PICK,
    ),
    one_off_kind("reboot", "reboots hosts, with the same disk", "reboot gpt-0/w1", HOSTS, PICK),
    one_off_kind(
        "crash",
        "cuts the power of hosts; the node is repaired later",
        "crash gpt-*/w0 pick=1",
        HOSTS,
        PICK,
    ),
    one_off_kind(
        "hang",
        "freezes hosts: nothing in them runs, nothing answers",
        "hang gpt-0/w3 for=10m",
        HOSTS,
        PICK,
        undo="unhang",
    ),
    one_off_kind("unhang", "lets frozen hosts go on", "unhang gpt-0/w3", HOSTS, PICK),
    one_off_kind(
        "network",
        "takes away, slows down or gives back the network of hosts",
        "network gpt-0/w2 down for=90s",
        HOSTS,
        required_argument("state", "choice", "what it is from now on", "down", "slow", "up"),
        PICK,
        undo="network",
    ),
    one_off_kind(
        "unreachable",
        "hosts stop answering on their external address",
        "unreachable gpt-0/w0 for=5m",
        HOSTS,
        PICK,
        undo="reachable",
    ),
    one_off_kind("reachable", "hosts answer again", "reachable gpt-0/w0", HOSTS, PICK),
    one_off_kind(
        "fill-disk",
        "fills the disk of hosts",
        "fill-disk gpt-0/w0",
        HOSTS,
        PICK,
        undo="free-disk",
    ),
    one_off_kind("free-disk", "frees the disk of hosts", "free-disk gpt-0/w0", HOSTS, PICK),
    one_off_kind(
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
    one_off_kind(
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
    one_off_kind("healthy", "nodes report that they are healthy", "healthy gpt-0", NODES, PICK),
    one_off_kind(
        "drought",
        "there is no capacity left, and what spot nodes hold is taken back",
        "drought us-central2-b for=2h",
        ZONE,
        POOL,
        undo="capacity",
    ),
    one_off_kind(
        "capacity",
        "how many nodes there can be; what is too much is preempted",
        "capacity us-central2-b v4-8 4",
        ZONE,
        POOL,
        required_argument("nodes", "nodes", "a number, or unlimited"),
    ),
    one_off_kind(
        "quota",
        "how much the project may have",
        "quota us-central2-b *V4* 32",
        ZONE,
        required_argument(
            "quota", "quota", "a quota id, a pattern of them, or a family such as v4"
        ),
        required_argument("limit", "count", "the new limit"),
    ),
    one_off_kind(
        "clear", "ends rules", "clear all", required_argument("rule", "pattern", "its name, or all")
    ),
)

KINDS: Mapping[str, WeatherKind] = MappingProxyType(
    {kind.name: kind for kind in (*RULES, *STROKES)}
)
