"""Describes a line of the world's log in a sentence."""

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any

from tpuherd_sim.model.world_parts import LogEntry

EventFacts = Mapping[str, Any]


def log_sentence(note: LogEntry) -> str:
    """Return the sentence; a name without one is shown with its facts."""
    template = SENTENCES.get(note.name)
    try:
        sentence = (
            template(note.facts)
            if callable(template)
            else template.format_map(note.facts)
            if template
            else ""
        )
    except (KeyError, ValueError, TypeError):
        sentence = ""
    return sentence + duration_suffix(note.facts) if sentence else plain_sentence(note)


def plain_sentence(note: LogEntry) -> str:
    """Return the name and the facts."""
    return " ".join([note.name, *(f"{name}={value}" for name, value in note.facts.items())])


def duration_suffix(facts: EventFacts) -> str:
    """Return the end of the sentence of a temporary event."""
    return f", for {format_duration(facts['for'])}" if "for" in facts else ""


def format_duration(seconds: float) -> str:
    """Return text such as 30 s, 10 min, 2 h, 1.5 d."""
    for unit, length in (("d", 86400.0), ("h", 3600.0), ("min", 60.0)):
        if seconds >= length:
            return f"{seconds / length:.3g} {unit}"
    return f"{seconds:.3g} s"


def preempt_text(facts: EventFacts) -> str:
    if not facts["notice_s"]:
        return f"preempted {facts['target']} (no notice)"
    silent = [word for word, field in (("flag", "flag"), ("ACPI", "acpi")) if not facts[field]]
    without = f", without {' and '.join(silent)}" if silent else ""
    return f"preempted {facts['target']} ({format_duration(facts['notice_s'])} notice{without})"


def maintain_text(facts: EventFacts) -> str:
    change = ", new external addresses" if facts["change_ip"] else ""
    return (
        f"announced maintenance of {facts['target']} "
        f"(in {format_duration(facts['notice_s'])}, {format_duration(facts['duration_s'])}{change})"
    )


def skew_text(facts: EventFacts) -> str:
    ahead = facts["seconds"]
    if not ahead:
        return f"corrected the clock of {facts['target']}"
    side = "ahead" if ahead > 0 else "behind"
    return f"shifted the clock of {facts['target']} {format_duration(abs(ahead))} {side}"


def rule_text(facts: EventFacts) -> str:
    aside = ("rule", "kind", "for", "times", "share")
    sentence = " ".join(f"{name}={facts[name]}" for name in facts if name not in aside)
    share = f", {facts['share']:.3g} of them" if facts.get("share", 1.0) < 1.0 else ""
    times = f", {facts['times']} times" if "times" in facts else ""
    return f"rule {facts['rule']} started" + (f": {sentence}" if sentence else "") + share + times


def strike_text(facts: EventFacts) -> str:
    whom = " ".join(f"{name}={facts[name]}" for name in facts if name not in ("rule", "kind"))
    return f"rule {facts['rule']} applied" + (f": {whom}" if whom else "")


def capacity_text(facts: EventFacts) -> str:
    machines = "" if facts["type"] == "*" else f" of {facts['type']}"
    return f"capacity{machines} in {facts['zone']} is {facts['nodes']} (was {facts['before']})"


def drought_text(facts: EventFacts) -> str:
    machines = "" if facts["type"] == "*" else f" of {facts['type']}"
    return f"drought{machines} in {facts['zone']} (capacity was {facts['before']})"


def node_created_text(facts: EventFacts) -> str:
    return f"{facts['node']} requested ({'spot ' if facts['spot'] else ''}{facts['type']})"


def node_warned_text(facts: EventFacts) -> str:
    return f"{facts['node']} has {format_duration(facts['notice_s'])} left"


def node_ready_text(facts: EventFacts) -> str:
    ill = "" if facts["health"] == "HEALTHY" else f", but {facts['health']}"
    return f"{facts['node']} is READY{ill}"


SENTENCES: Mapping[str, str | Callable[[EventFacts], str]] = MappingProxyType(
    {
        "weather.preempt": preempt_text,
        "weather.maintain": maintain_text,
        "weather.reboot": "rebooted {target}",
        "weather.crash": "cut the power of {target}",
        "weather.hang": "froze {target}",
        "weather.unhang": "resumed {target}",
        "weather.network": "network of {target} is {state}",
        "weather.unreachable": "{target} does not respond on its external address",
        "weather.reachable": "{target} responds on its external address",
        "weather.fill-disk": "filled the disk of {target}",
        "weather.free-disk": "freed the disk of {target}",
        "weather.skew": skew_text,
        "weather.unhealthy": "{target} reports {health}",
        "weather.healthy": "{target} reports HEALTHY",
        "weather.drought": drought_text,
        "weather.capacity": capacity_text,
        "weather.quota": "quota {quota} in {zone} is {limit}",
        "weather.clear": "rule {rule} ended",
        "weather.rule": rule_text,
        "weather.struck": strike_text,
        "weather.missed": "{kind} had no effect: {why}",
        "weather.scenario": "started a scenario of {steps} steps",
        "weather.dropped": "cancelled {steps} remaining steps",
        "node.created": node_created_text,
        "node.refused": "{node} was refused: {why}",
        "node.retried": "retrying {node}: {why}",
        "node.ready": node_ready_text,
        "node.deleted": "{node} is being deleted",
        "node.gone": "{node} is gone",
        "node.preempted": "{node} is PREEMPTED",
        "node.terminated": "{node} is TERMINATED",
        "node.stopped": "{node} is STOPPED",
        "node.repairing": "{node} is REPAIRING",
        "node.warned": node_warned_text,
        "maintenance.announced": "maintenance of {node} announced",
        "maintenance.begun": "maintenance of {node} started",
        "maintenance.over": "maintenance of {node} ended",
        "maintenance.simulated": "{node}/w{worker} received a maintenance notice (simulated)",
        "host.up": "{node}/w{worker} is up (boot {boot})",
        "host.lost": "{node}/w{worker} lost power",
        "host.rebooted": "{node}/w{worker} reboots",
        "host.off": "{node}/w{worker} is off",
        "host.failed": "{node}/w{worker} did not start: {why}",
        "request.created": "queued resource {request} requested ({tier})",
        "request.provisioning": "queued resource {request} is PROVISIONING",
        "request.active": "queued resource {request} is ACTIVE",
        "request.suspending": "queued resource {request} is SUSPENDING (by {initiator})",
        "request.suspended": "queued resource {request} is SUSPENDED (by {initiator})",
        "request.failed": "queued resource {request} is FAILED: {why}",
        "request.deleted": "queued resource {request} is being deleted (it was {state})",
        "request.gone": "queued resource {request} is gone",
        "request.reset": "queued resource {request} gets new nodes",
        "project.metadata": "the project's metadata changed",
    }
)
