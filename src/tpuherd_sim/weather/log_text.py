"""A line of the world's log as a sentence."""

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any

from tpuherd_sim.model.world_parts import Note

Facts = Mapping[str, Any]


def sentence(note: Note) -> str:
    """What happened, in words; a name that nobody put into words is shown with its facts."""
    told = TOLD.get(note.name)
    try:
        said = told(note.facts) if callable(told) else told.format_map(note.facts) if told else ""
    except (KeyError, ValueError, TypeError):
        said = ""
    return said + lasting(note.facts) if said else plain(note)


def plain(note: Note) -> str:
    """The name and the facts as they are."""
    return " ".join([note.name, *(f"{name}={value}" for name, value in note.facts.items())])


def lasting(facts: Facts) -> str:
    """The end of a sentence about what will be over by itself."""
    return f", for {stretch(facts['for'])}" if "for" in facts else ""


def stretch(seconds: float) -> str:
    """A stretch of time as one says it: 30 s, 10 min, 2 h, 1.5 d."""
    for unit, length in (("d", 86400.0), ("h", 3600.0), ("min", 60.0)):
        if seconds >= length:
            return f"{seconds / length:.3g} {unit}"
    return f"{seconds:.3g} s"


def preempted(facts: Facts) -> str:
    """With how much notice, and of which kind."""
    if not facts["notice_s"]:
        return f"preempted {facts['target']} (no notice)"
    silent = [word for word, field in (("flag", "flag"), ("ACPI", "acpi")) if not facts[field]]
    without = f", without {' and '.join(silent)}" if silent else ""
    return f"preempted {facts['target']} ({stretch(facts['notice_s'])} notice{without})"


def maintained(facts: Facts) -> str:
    """When, how long, and whether the addresses change."""
    change = ", new external addresses" if facts["change_ip"] else ""
    return (
        f"announced maintenance of {facts['target']} "
        f"(in {stretch(facts['notice_s'])}, {stretch(facts['duration_s'])}{change})"
    )


def skewed(facts: Facts) -> str:
    """Which way the clock is wrong."""
    ahead = facts["seconds"]
    if not ahead:
        return f"set the clock of {facts['target']} right"
    side = "ahead" if ahead > 0 else "behind"
    return f"shifted the clock of {facts['target']} {stretch(abs(ahead))} {side}"


def ruled(facts: Facts) -> str:
    """A rule with what it was told."""
    aside = ("rule", "kind", "for", "times", "share")
    said = " ".join(f"{name}={facts[name]}" for name in facts if name not in aside)
    share = f", {facts['share']:.3g} of them" if facts.get("share", 1.0) < 1.0 else ""
    times = f", {facts['times']} times" if "times" in facts else ""
    return f"rule {facts['rule']} is in force" + (f": {said}" if said else "") + share + times


def struck(facts: Facts) -> str:
    """What a rule struck."""
    whom = " ".join(f"{name}={facts[name]}" for name in facts if name not in ("rule", "kind"))
    return f"rule {facts['rule']} struck" + (f": {whom}" if whom else "")


def limited(facts: Facts) -> str:
    """A pool's new size."""
    machines = "" if facts["type"] == "*" else f" of {facts['type']}"
    return f"capacity{machines} in {facts['zone']} is {facts['nodes']} (was {facts['before']})"


def dry(facts: Facts) -> str:
    """A pool that is empty."""
    machines = "" if facts["type"] == "*" else f" of {facts['type']}"
    return f"drought{machines} in {facts['zone']} (there was {facts['before']})"


def born(facts: Facts) -> str:
    """A node that somebody asked for."""
    return f"{facts['node']} is asked for ({'spot ' if facts['spot'] else ''}{facts['type']})"


def warned(facts: Facts) -> str:
    """How long a node has still to live."""
    return f"{facts['node']} has {stretch(facts['notice_s'])} left"


def ready(facts: Facts) -> str:
    """A node that serves; its health where there is something to say about it."""
    ill = "" if facts["health"] == "HEALTHY" else f", but {facts['health']}"
    return f"{facts['node']} is READY{ill}"


TOLD: Mapping[str, str | Callable[[Facts], str]] = MappingProxyType(
    {
        "weather.preempt": preempted,
        "weather.maintain": maintained,
        "weather.reboot": "rebooted {target}",
        "weather.crash": "cut the power of {target}",
        "weather.hang": "froze {target}",
        "weather.unhang": "let {target} go on",
        "weather.network": "network of {target} is {state}",
        "weather.unreachable": "{target} does not answer from outside",
        "weather.reachable": "{target} answers from outside",
        "weather.fill-disk": "filled the disk of {target}",
        "weather.free-disk": "freed the disk of {target}",
        "weather.skew": skewed,
        "weather.unhealthy": "{target} reports {health}",
        "weather.healthy": "{target} reports HEALTHY",
        "weather.drought": dry,
        "weather.capacity": limited,
        "weather.quota": "quota {quota} in {zone} is {limit}",
        "weather.clear": "rule {rule} is over",
        "weather.rule": ruled,
        "weather.struck": struck,
        "weather.missed": "{kind} hit nobody: {why}",
        "weather.scenario": "a scenario of {steps} steps begins",
        "weather.dropped": "dropped {steps} steps that were to come",
        "node.created": born,
        "node.refused": "{node} is refused: {why}",
        "node.retried": "{node} is tried again: {why}",
        "node.ready": ready,
        "node.deleted": "{node} is being deleted",
        "node.gone": "{node} is gone",
        "node.preempted": "{node} is PREEMPTED",
        "node.terminated": "{node} is TERMINATED",
        "node.stopped": "{node} is STOPPED",
        "node.repairing": "{node} is REPAIRING",
        "node.warned": warned,
        "maintenance.announced": "{node} will be maintained",
        "maintenance.begun": "maintenance of {node} begins",
        "maintenance.over": "maintenance of {node} is over",
        "maintenance.simulated": "{node}/w{worker} is told of maintenance (simulated)",
        "host.up": "{node}/w{worker} is up (boot {boot})",
        "host.lost": "{node}/w{worker} has no power",
        "host.rebooted": "{node}/w{worker} reboots",
        "host.off": "{node}/w{worker} is off",
        "host.failed": "{node}/w{worker} did not come up: {why}",
        "request.created": "queued resource {request} is asked for ({tier})",
        "request.provisioning": "queued resource {request} is PROVISIONING",
        "request.active": "queued resource {request} is ACTIVE",
        "request.suspending": "queued resource {request} is SUSPENDING (by {initiator})",
        "request.suspended": "queued resource {request} is SUSPENDED (by {initiator})",
        "request.failed": "queued resource {request} is FAILED: {why}",
        "request.deleted": "queued resource {request} is being deleted (it was {state})",
        "request.gone": "queued resource {request} is gone",
        "request.reset": "queued resource {request} gets its nodes anew",
        "project.metadata": "the project's metadata changed",
    }
)
