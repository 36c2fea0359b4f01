"""The output of `herd sim`: the welcome text, the status, the weather and the log."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import click

from tpuherd.cli.formats import clock_text
from tpuherd.views.phase_signs import NO_SIGN, WARNING, WORKING, WRONG, PhaseSign
from tpuherd.views.text_width import paint_text
from tpuherd_sim.state_dir import WorldInfo

Json = Mapping[str, Any]
NAMES_MAX = 10
LOG_INDENT = 14  #: of what does not fit behind the time and the sign
LOG_SIGNS: Mapping[str, PhaseSign] = {
    **dict.fromkeys(("node.ready", "host.up", "request.active"), WORKING),
    **dict.fromkeys(("node.preempted", "node.terminated", "node.repairing"), WRONG),
    **dict.fromkeys(("node.refused", "request.failed", "request.suspended"), WRONG),
    **dict.fromkeys(("host.lost", "host.rebooted", "host.failed"), WRONG),
    **dict.fromkeys(("node.warned", "maintenance.announced", "maintenance.begun"), WARNING),
    **dict.fromkeys(("weather.clear", "weather.dropped", "weather.reachable"), NO_SIGN),
    **dict.fromkeys(("weather.healthy", "weather.unhang", "weather.free-disk"), NO_SIGN),
}
MODES = {
    "none": "none: nodes become READY, but have no hosts",
    "processes": "plain processes: no root, network or /proc of their own",
    "namespaces-user": "isolated by namespaces, without root",
    "namespaces-root": "isolated by namespaces, as root",
}


def format_rows(pairs: Sequence[tuple[str, str]]) -> str:
    """Return a line for each pair."""
    width = max(len(word) for word, _ in pairs)
    return "\n".join(
        f"  {click.style(word.ljust(width), dim=True)}  {text}" for word, text in pairs
    )


def address_rows(facts: WorldInfo, folder: Path) -> list[tuple[str, str]]:
    found = [
        ("API", f"{facts.url}  (project {facts.project})"),
        ("SSH", f"127.{facts.network}.*, port {facts.ssh_port}"),
        ("hosts", MODES.get(facts.hosts, facts.hosts)),
    ]
    found += [("missing", sentence) for sentence in facts.missing]
    return [*found, ("state", str(folder))]


def welcome_text(facts: WorldInfo, folder: Path, *, full: bool) -> str:
    """Return the text for a world that has just started."""
    if not full:
        return f"ready: {facts.url} ssh {facts.ssh_port} state {folder}"
    head = click.style("Your simulated Cloud TPU is running", bold=True)
    use = [
        ("herd", f"export HERD_WORLD={folder}"),
        ("gcloud, ssh, …", f'eval "$(herd sim env --state-dir {folder})"'),
        ("disturb it", f"herd sim weather --state-dir {folder}"),
        ("end it", f"herd sim stop --state-dir {folder}"),
    ]
    return "\n".join([head, "", format_rows(address_rows(facts, folder)), "", format_rows(use), ""])


def world_text(facts: WorldInfo, numbers: Json, folder: Path) -> str:
    age = numbers["now"] - facts.started
    time = f"{format_age(age)}, pid {facts.pid}, time scale {numbers['time_scale']:g}"
    weather = f"{numbers['rules']} active rules, {numbers['planned']} planned steps"
    there = [
        ("running", time),
        *address_rows(facts, folder),
        ("nodes", states_text(numbers["nodes"])),
        ("queued", states_text(numbers["queued_resources"])),
        ("hosts on", str(numbers["hosts_on"])),
        ("weather", weather),
    ]
    return format_rows(there)


def states_text(states: Mapping[str, int]) -> str:
    """3 READY, 1 CREATING."""
    return ", ".join(f"{number} {state}" for state, number in states.items()) or "none"


def format_age(seconds: float) -> str:
    """Return 12 s, 5 min, 3 h or 2 d."""
    for unit, length in (("d", 86400.0), ("h", 3600.0), ("min", 60.0)):
        if seconds >= length:
            return f"{seconds / length:.3g} {unit}"
    return f"{max(seconds, 0):.0f} s"


def log_line(at: float, name: str, sentence: str, *, signs: bool) -> str:
    """Return a line of the log, with a sign of what it means if `signs`."""
    sign = log_sign(name)
    mark = paint_text(sign.sign, sign.tint, colour=True) + " " if signs else ""
    return f"{click.style(clock_text(at), dim=True)}  {mark}{sentence}"


def log_sign(name: str) -> PhaseSign:
    """Return what an entry means: the weather struck, something failed, something works."""
    if name in LOG_SIGNS:
        return LOG_SIGNS[name]
    return WARNING if name.startswith("weather.") else NO_SIGN


def first_names(names: Sequence[str]) -> str:
    more = f" and {len(names) - NAMES_MAX} more" if len(names) > NAMES_MAX else ""
    return ", ".join(names[:NAMES_MAX]) + more


def weather_text(found: Json) -> str:
    parts = []
    force = [(rule["id"], rule_text(rule)) for rule in found["rules"]]
    force += [(f"capacity {pool}", f"{many} nodes") for pool, many in found["capacity"].items()]
    if force:
        parts += [click.style("Active", bold=True), format_rows(force), ""]
    if found["planned"]:
        when = clock_text(found["next"])
        parts += [f"{found['planned']} planned steps, the next at {when}", ""]
    for family, title in (("stroke", "One-time events"), ("rule", "Rules that stay active")):
        kinds = [
            (kind["example"], kind["meaning"]) for kind in found["can"] if kind["family"] == family
        ]
        parts += [click.style(title, bold=True), format_rows(kinds), ""]
    return "\n".join([*parts, "Put one of these after `herd sim weather`; `clear` ends all."])


def rule_text(rule: Json) -> str:
    said = {**rule["params"], **rule["match"]}
    words = [f"{name}={value}" for name, value in said.items()]
    if rule["share"] < 1:
        words.append(f"share={rule['share']:g}")
    if rule["left"] is not None:
        words.append(f"({rule['left']} more)")
    if rule["until"] is not None:
        words.append(f"until {clock_text(rule['until'])}")
    return " ".join(words) or "everywhere"


def hits_text(kind: str, answer: Json) -> str:
    hits = [hit.get("target") or hit.get("rule") or hit.get("zone", "") for hit in answer["done"]]
    dropped = answer.get("dropped")
    tail = f"; {dropped} steps dropped" if dropped else ""
    return f"{kind}: {first_names(hits) or 'nothing was active'}{tail}"
