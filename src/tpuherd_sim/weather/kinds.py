"""The table of all weather, from which validation, help and docs are derived."""

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

RULE = "rule"  #: stays in force and applies to everything it matches
ONE_OFF = "stroke"  #: happens once


@dataclass(frozen=True, kw_only=True, slots=True)
class Argument:
    """One argument of a kind of weather."""

    name: str
    type: str  #: a key of `arguments.TYPES`
    meaning: str
    default: Any = None  #: None = absent
    needed: bool = False
    unit: str = ""
    choices: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True, slots=True)
class WeatherKind:
    """One kind of weather."""

    name: str
    family: str  #: RULE or STROKE
    meaning: str
    example: str  #: what follows `herd sim weather`
    own: tuple[Argument, ...]  #: in the order in which bare words fill them
    match: tuple[str, ...] = ()  #: the facts that can narrow a rule
    undo: str = ""  #: the event that ends this one after its `for`

    @property
    def arguments(self) -> Mapping[str, Argument]:
        """Return every argument by name: its own, narrowing ones, limits."""
        narrowing = tuple(MATCHES[name] for name in self.match)
        ending = LIMITS if self.family == RULE else (LASTING,) if self.undo else ()
        return {argument.name: argument for argument in (*self.own, *narrowing, *ending)}


def rule_kind(
    name: str, meaning: str, example: str, match: tuple[str, ...], *own: Argument
) -> WeatherKind:
    return WeatherKind(
        name=name, family=RULE, meaning=meaning, example=example, own=own, match=match
    )


def one_off_kind(
    name: str, meaning: str, example: str, *own: Argument, undo: str = ""
) -> WeatherKind:
    return WeatherKind(
        name=name, family=ONE_OFF, meaning=meaning, example=example, own=own, undo=undo
    )


def duration_argument(name: str, meaning: str, default: float | None = None) -> Argument:
    return Argument(name=name, type="duration", unit="s", meaning=meaning, default=default)


def text_argument(name: str, meaning: str) -> Argument:
    return Argument(name=name, type="text", meaning=meaning)


def pattern_argument(name: str, meaning: str, default: str | None = None) -> Argument:
    return Argument(name=name, type="pattern", meaning=meaning, default=default)


def required_argument(name: str, form: str, meaning: str, *choices: str) -> Argument:
    return Argument(name=name, type=form, meaning=meaning, needed=True, choices=choices)


def flag_argument(name: str, meaning: str, *, default: bool = True) -> Argument:
    return Argument(name=name, type="flag", meaning=meaning, default=default)


def factor_argument(default: float) -> Argument:
    return Argument(name="factor", type="factor", meaning="how many times longer", default=default)


MATCHES: Mapping[str, Argument] = MappingProxyType({
    "zone": Argument(name="zone", type="places",
        meaning="only in matching zones; - matches calls for all zones"),
    "type": Argument(name="type", type="types", meaning="only matching accelerator types"),
    "node": pattern_argument("node", "only nodes with a matching name"),
    "request": pattern_argument("request", "only queued resources with a matching name"),
    "method": pattern_argument("method", "only matching methods, such as nodes.create"),
})  # fmt: skip
LIMITS = (
    duration_argument("for", "the rule ends after this long, by the world's clock"),
    Argument(name="times", type="number", meaning="the rule ends after it applied this many times"),
    Argument(name="share", type="share", default=1.0,
        meaning="the probability that the rule applies each time"),
)  # fmt: skip
LASTING = duration_argument("for", "undone after this long, by the world's clock")
NODES = required_argument("target", "target", "nodes: NAME or ZONE/NAME; patterns allowed")
HOSTS = required_argument(
    "target", "target", "hosts: NAME, ZONE/NAME, NAME/wN or ZONE/NAME/wN; patterns allowed"
)
PICK = Argument(
    name="pick", type="number", meaning="hit only this many of the matches, chosen at random"
)
WORKER = Argument(name="worker", type="count", meaning="which worker of the node", default=0)
ZONE = required_argument("zone", "zones", "a zone or a pattern of zones")
POOL = Argument(name="type", type="types", default="*",
    meaning="an accelerator type or a pattern; * means all types of the zone together",
)  # fmt: skip

CALLED = ("zone", "node", "request", "method")
OPERATED = ("zone", "type", "node", "request", "method")
CREATED = ("zone", "type", "node", "request")
QUEUED = ("zone", "type", "request")

RULES = (
    rule_kind("http-error", "the API answers with an error and does nothing",
        "http-error 429 method=nodes.create for=2m share=0.5", CALLED,
        Argument(name="http", type="http", meaning="the HTTP status", default=503),
        text_argument("status", "such as UNAVAILABLE; the default follows from the HTTP status"),
        text_argument("message", "the error message; the default follows from the HTTP status")),
    rule_kind("lost-response",
        "the API executes the request, then cuts the connection without a response",
        "lost-response method=*.create times=1", CALLED),
    rule_kind("delay", "the API delays its responses", "delay 5 zone=us-central2-b for=1m", CALLED,
        duration_argument("seconds", "for how long, in real time", 10.0)),
    rule_kind("stale-list", "lists return data from a while ago",
        "stale-list 60 method=nodes.list for=10m", ("zone", "method"),
        duration_argument("age_s", "age of the returned data", 30.0)),
    rule_kind("unreachable-zone", "wildcard lists leave the zone out and report it as unreachable",
        "unreachable-zone zone=us-central2-b for=5m", ("zone", "method")),
    rule_kind("conflict", "a create takes effect, but the response is 409 (already exists)",
        "conflict method=queuedResources.create times=1", CALLED),
    rule_kind("operation-error", "a long-running operation ends with an error",
        "operation-error 13 method=nodes.create times=1", OPERATED,
        Argument(name="code", type="code", meaning="a google.rpc code", default=8),
        text_argument("message", "the error message; the default follows from the code")),
    rule_kind("slow-operation", "a long-running operation finishes long after its effect",
        "slow-operation 10 zone=us-*", OPERATED, factor_argument(10.0)),
    rule_kind("endless-operation",
        "a long-running operation never finishes, although the resource works",
        "endless-operation method=nodes.create times=1", OPERATED),
    rule_kind("born-unhealthy", "a new node is UNHEALTHY_MAINTENANCE as soon as it is READY",
        "born-unhealthy type=v4-* times=1", CREATED),
    rule_kind("no-external-ip", "one worker of a new node has no external IP address",
        "no-external-ip 1 times=1", CREATED, WORKER),
    rule_kind("unreachable-worker",
        "one worker of a new node does not respond on its external IP address",
        "unreachable-worker 0 node=gpt-*", CREATED, WORKER),
    rule_kind("stuck-suspending", "a queued resource stays in SUSPENDING after its nodes are gone",
        "stuck-suspending times=1", QUEUED),
    rule_kind("late-fill", "a queued resource gets its nodes although its deadline has passed",
        "late-fill 10m times=1", QUEUED,
        duration_argument("after_s", "how late, in real time", 60.0)),
    rule_kind("recycle-ip", "a new node gets the most recently released IP addresses",
        "recycle-ip times=1", CREATED),
    rule_kind("slow-keys", "guest attributes, and therefore SSH host keys, appear late",
        "slow-keys 2m node=gpt-0", CREATED,
        duration_argument("seconds", "how late, in real time", 60.0)),
    rule_kind("slow-provisioning", "nodes take longer to become READY",
        "slow-provisioning 4 zone=europe-* for=1h", CREATED, factor_argument(4.0)),
)  # fmt: skip

ONE_OFFS = (
    one_off_kind("preempt", "preempts nodes, as a cloud does with spot capacity",
        "preempt gpt-1 notice_s=0", NODES,
        duration_argument("notice_s", "from the warning to the power-off, in real time", 30.0),
        flag_argument("flag", "set metadata instance/preempted to TRUE at the warning"),
        flag_argument(
            "acpi", "press the power button: run the shutdown script, then SIGTERM to all processes"
        ), PICK),
    one_off_kind("maintain", "announces maintenance, then reboots every host of the node",
        "maintain us-central2-b/gpt-0 notice_s=5m", NODES,
        duration_argument("notice_s", "from the announcement to the start", 60.0),
        duration_argument("duration_s", "duration of the maintenance", 120.0),
        flag_argument("change_ip", "give the hosts new external IP addresses afterwards"), PICK),
    one_off_kind("reboot", "reboots hosts; their disks stay the same", "reboot gpt-0/w1 soft_s=5s",
        HOSTS, PICK,
        duration_argument("soft_s", "from SIGTERM to all processes to the reboot, real time", 0.0),
        flag_argument("change_ip", "give the hosts new external IP addresses", default=False)),
    one_off_kind("crash", "cuts the power of hosts; the node is repaired later",
        "crash gpt-*/w0 pick=1", HOSTS, PICK),
    one_off_kind("hang", "freezes hosts: their processes stop and they do not respond",
        "hang gpt-0/w3 for=10m", HOSTS, PICK, undo="unhang"),
    one_off_kind("unhang", "resumes frozen hosts", "unhang gpt-0/w3", HOSTS, PICK),
    one_off_kind("network", "disconnects, slows down or restores the network of hosts",
        "network gpt-0/w2 down for=90s", HOSTS,
        required_argument("state", "choice", "the new state of the network", "down", "slow", "up"),
        PICK, undo="network"),
    one_off_kind("unreachable", "hosts stop responding on their external IP address",
        "unreachable gpt-0/w0 for=5m", HOSTS, PICK, undo="reachable"),
    one_off_kind("reachable", "hosts respond again", "reachable gpt-0/w0", HOSTS, PICK),
    one_off_kind("fill-disk", "fills the disk of hosts", "fill-disk gpt-0/w0", HOSTS, PICK,
        undo="free-disk"),
    one_off_kind("free-disk", "frees the disk of hosts", "free-disk gpt-0/w0", HOSTS, PICK),
    one_off_kind("skew",
        "shifts the clock that metadata and the agent report (the kernel's clock can't be shifted)",
        "skew gpt-0/w0 300", HOSTS,
        Argument(name="seconds", type="signed", needed=True, unit="s",
            meaning="how far ahead; negative means behind, 0 means correct"),
        PICK, undo="skew"),
    one_off_kind("unhealthy", "nodes report that they are unhealthy", "unhealthy gpt-0 for=10m",
        NODES,
        Argument(name="health", type="choice", meaning="the reported health",
            default="UNHEALTHY_MAINTENANCE",
            choices=("UNHEALTHY_MAINTENANCE", "UNHEALTHY_TENSORFLOW", "TIMEOUT")),
        PICK, undo="healthy"),
    one_off_kind("healthy", "nodes report that they are healthy", "healthy gpt-0", NODES, PICK),
    one_off_kind("drought", "removes all capacity and preempts the spot nodes",
        "drought us-central2-b for=2h", ZONE, POOL, undo="capacity"),
    one_off_kind("capacity", "sets how many nodes can exist; surplus spot nodes are preempted",
        "capacity us-central2-b v4-8 4", ZONE, POOL,
        required_argument("nodes", "nodes", "a number, or unlimited")),
    one_off_kind("quota", "sets a quota of the project", "quota us-central2-b *V4* 32", ZONE,
        required_argument(
            "quota", "quota", "a quota id, a pattern of quota ids, or a family such as v4"),
        required_argument("limit", "count", "the new limit")),
    one_off_kind("clear", "ends rules", "clear all",
        required_argument("rule", "pattern", "the name of the rule, a pattern, or all")),
)  # fmt: skip

KINDS: Mapping[str, WeatherKind] = MappingProxyType(
    {kind.name: kind for kind in (*RULES, *ONE_OFFS)}
)
