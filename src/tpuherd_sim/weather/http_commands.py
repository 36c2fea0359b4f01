"""The weather over HTTP: what there is, what can be done, doing it now or later, and the log."""

import heapq
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any

from tpuherd_sim.model.http_types import Call, Json, Refused
from tpuherd_sim.model.weather_rules import Rule
from tpuherd_sim.model.world import World, lines_from, note, plan, scaled, written
from tpuherd_sim.model.world_parts import Due
from tpuherd_sim.tpu.router import Route
from tpuherd_sim.weather import arguments
from tpuherd_sim.weather.apply_weather import UNDO, act
from tpuherd_sim.weather.arguments import Unfit
from tpuherd_sim.weather.log_text import sentence
from tpuherd_sim.weather.reference import rows

DO = "weather.do"  #: the agenda's verb for a step of a scenario
EVERY_S_MIN = 1.0
LOG_LINES = 1000  #: in one answer


def show(world: World, call: Call, now: float) -> Json:
    """What is in force, what is to come and what can be done."""
    steps = [due for due in world.agenda if due.verb == DO]
    return {
        "now": now,
        "rules": [in_force(rule) for rule in world.weather.rules.values()],
        "capacity": dict(sorted(world.weather.capacity.items())),
        "planned": len(steps),
        "next": min((due.at for due in steps), default=None),
        "can": rows(),
    }


def command(world: World, call: Call, now: float) -> Json:
    """Do one thing now."""
    try:
        row = arguments.kind(call.path["kind"])
        hits = act(world, row.name, arguments.fill(row, call.body), now)
    except Unfit as unfit:
        raise refusal(unfit) from unfit
    return {"done": hits}


def end(world: World, call: Call, now: float) -> Json:
    """A rule is over."""
    try:
        return {"done": act(world, "clear", {"rule": call.path["rule"]}, now)}
    except Unfit as unfit:
        raise Refused(404, "NOT_FOUND", unfit.sentence) from unfit


def scenario(world: World, call: Call, now: float) -> Json:
    """Put steps on the agenda, all or none; their times count from now, by the world's clock."""
    steps = call.body.get("steps")
    if not isinstance(steps, list) or not steps:
        raise refusal(Unfit("steps", "a scenario needs 'steps', a list with at least one step"))
    read = []
    for number, step in enumerate(steps, 1):
        try:
            read.append(taken(step))
        except Unfit as unfit:
            raise refusal(Unfit(unfit.field, f"step {number}: {unfit.sentence}")) from unfit
    for timing, name, given in read:
        times = {field: scaled(world, timing[field]) for field in timing}
        until = {"until": now + times["until_s"]} if "until_s" in times else {}
        every = {"every": times["every_s"]} if "every_s" in times else {}
        plan(world, now + times["at_s"], DO, name, given=given, **every, **until)
    note(world, now, "weather.scenario", steps=len(read))
    return {"planned": len(read)}


def taken(step: object) -> tuple[dict[str, float], str, dict[str, Any]]:
    """One step: its times, its kind, its arguments."""
    if not isinstance(step, dict):
        raise Unfit("steps", "a step is an object such as {'at_s': 60, 'do': 'preempt', …}")
    given = dict(step)
    row = arguments.kind(given.pop("do", None))
    timing = {"at_s": arguments.duration(given.pop("at_s", 0.0))}
    for field in ("every_s", "until_s"):
        if given.get(field) is not None:
            timing[field] = arguments.duration(given.pop(field))
    times = {}
    for field, value in timing.items():
        if value is None or (field == "every_s" and value < EVERY_S_MIN):
            raise Unfit(field, f"{field!r} must be a stretch of time, 'every_s' at least 1 s")
        times[field] = value
    return times, row.name, arguments.fill(row, given)


def drop(world: World, call: Call, now: float) -> Json:
    """Nothing more of the scenario takes place; what it began goes on to its end."""
    kept = [due for due in world.agenda if due.verb != DO]
    dropped = len(world.agenda) - len(kept)
    world.agenda[:] = kept
    heapq.heapify(world.agenda)
    note(world, now, "weather.dropped", steps=dropped)
    return {"dropped": dropped}


def log(world: World, call: Call, now: float) -> Json:
    """The lines of the log from the one with this number on, a thousand at most."""
    since = arguments.count(call.query.get("since", "0"))
    if since is None:
        raise refusal(Unfit("since", "'since' must be the number of a line, from 0 on"))
    first, rest = lines_from(world, since)
    lines = rest[:LOG_LINES]
    return {
        "lines": [
            {
                "number": number,
                "at": line.at,
                "name": line.name,
                "facts": dict(line.facts),
                "sentence": sentence(line),
            }
            for number, line in enumerate(lines, first)
        ],
        "next": min(first, written(world)) + len(lines),
        "more": len(lines) < len(rest),
    }


def do(world: World, due: Due) -> None:
    """A step's time has come."""
    given, every = due.args["given"], due.args.get("every")
    try:
        act(world, due.target, given, due.at)
    except Unfit as unfit:
        note(world, due.at, "weather.missed", kind=due.target, why=unfit.sentence)
    again = due.at + (every or 0.0)
    if every and again <= due.args.get("until", again):
        plan(world, again, DO, due.target, **due.args)


def undo(world: World, due: Due) -> None:
    """What was to last so long is over; where that is no more, there is nothing to undo."""
    try:
        act(world, due.target, due.args["given"], due.at)
    except Unfit:
        return


def in_force(rule: Rule) -> Json:
    """A rule as JSON."""
    return {
        "id": rule.id,
        "kind": rule.kind,
        "match": dict(rule.match),
        "params": dict(rule.params),
        "since": rule.since,
        "until": rule.until,
        "left": rule.left,
        "share": rule.share,
    }


def refusal(unfit: Unfit) -> Refused:
    """The API's way to say it, with the field for machines."""
    detail = {
        "@type": "type.googleapis.com/google.rpc.BadRequest",
        "fieldViolations": [{"field": unfit.field, "description": unfit.sentence}],
    }
    return Refused(400, "INVALID_ARGUMENT", unfit.sentence, details=(detail,))


ROUTES: tuple[Route, ...] = (
    Route(method="GET", template="/sim/v1/weather", answer=show),
    Route(method="POST", template="/sim/v1/weather/{kind}", answer=command),
    Route(method="DELETE", template="/sim/v1/weather/{rule}", answer=end),
    Route(method="POST", template="/sim/v1/scenario", answer=scenario),
    Route(method="DELETE", template="/sim/v1/scenario", answer=drop),
    Route(method="GET", template="/sim/v1/log", answer=log),
)
AGENDA: Mapping[str, Callable[[World, Due], None]] = MappingProxyType({DO: do, UNDO: undo})
