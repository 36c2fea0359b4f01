"""The weather over HTTP: show, apply and schedule it, and read the log."""

import heapq
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any

from tpuherd_sim.model.http_types import ApiCall, ApiError, Json
from tpuherd_sim.model.weather_rules import Rule
from tpuherd_sim.model.world import (
    World,
    log_entries_from,
    log_event,
    log_length,
    scale_duration,
    schedule_event,
)
from tpuherd_sim.model.world_parts import AgendaItem
from tpuherd_sim.tpu.router import Route
from tpuherd_sim.weather import arguments
from tpuherd_sim.weather.apply_weather import UNDO, apply_weather
from tpuherd_sim.weather.arguments import InvalidWeather
from tpuherd_sim.weather.log_text import log_sentence
from tpuherd_sim.weather.reference import kind_rows

DO = "weather.do"  #: the agenda's verb for a step of a scenario
EVERY_S_MIN = 1.0
LOG_LINES = 1000  #: per response


def show_weather(world: World, call: ApiCall, now: float) -> Json:
    """Show the rules in force, the planned steps and the possible kinds."""
    steps = [due for due in world.agenda if due.verb == DO]
    return {
        "now": now,
        "rules": [rule_json(rule) for rule in world.weather.rules.values()],
        "capacity": dict(sorted(world.weather.capacity.items())),
        "planned": len(steps),
        "next": min((due.at for due in steps), default=None),
        "can": kind_rows(),
    }


def run_command(world: World, call: ApiCall, now: float) -> Json:
    """Apply one kind of weather now."""
    try:
        row = arguments.find_kind(call.path["kind"])
        hits = apply_weather(world, row.name, arguments.fill_arguments(row, call.body), now)
    except InvalidWeather as invalid:
        raise argument_error(invalid) from invalid
    return {"done": hits}


def end_rule(world: World, call: ApiCall, now: float) -> Json:
    """End a rule."""
    try:
        return {"done": apply_weather(world, "clear", {"rule": call.path["rule"]}, now)}
    except InvalidWeather as invalid:
        raise ApiError(404, "NOT_FOUND", invalid.sentence) from invalid


def schedule_scenario(world: World, call: ApiCall, now: float) -> Json:
    """Schedule all steps or none; their times count from now, by the world's clock."""
    steps = call.body.get("steps")
    if not isinstance(steps, list) or not steps:
        raise argument_error(
            InvalidWeather("steps", "a scenario needs 'steps', a list with at least one step")
        )
    read = []
    for number, step in enumerate(steps, 1):
        try:
            read.append(parse_step(step))
        except InvalidWeather as invalid:
            raise argument_error(
                InvalidWeather(invalid.field, f"step {number}: {invalid.sentence}")
            ) from invalid
    for timing, name, given in read:
        times = {field: scale_duration(world, timing[field]) for field in timing}
        until = {"until": now + times["until_s"]} if "until_s" in times else {}
        every = {"every": times["every_s"]} if "every_s" in times else {}
        schedule_event(world, now + times["at_s"], DO, name, given=given, **every, **until)
    log_event(world, now, "weather.scenario", steps=len(read))
    return {"planned": len(read)}


def parse_step(step: object) -> tuple[dict[str, float], str, dict[str, Any]]:
    """Return a step's times, kind and arguments."""
    if not isinstance(step, dict):
        raise InvalidWeather(
            "steps", "a step must be an object such as {'at_s': 60, 'do': 'preempt', …}"
        )
    given = dict(step)
    row = arguments.find_kind(given.pop("do", None))
    timing = {"at_s": arguments.read_duration(given.pop("at_s", 0.0))}
    for field in ("every_s", "until_s"):
        if given.get(field) is not None:
            timing[field] = arguments.read_duration(given.pop(field))
    times = {}
    for field, value in timing.items():
        if value is None or (field == "every_s" and value < EVERY_S_MIN):
            raise InvalidWeather(
                field, f"{field!r} must be a duration, and 'every_s' must be at least 1 s"
            )
        times[field] = value
    return times, row.name, arguments.fill_arguments(row, given)


def drop_scenario(world: World, call: ApiCall, now: float) -> Json:
    """Cancel the remaining steps; effects that already started run to their end."""
    kept = [due for due in world.agenda if due.verb != DO]
    dropped = len(world.agenda) - len(kept)
    world.agenda[:] = kept
    heapq.heapify(world.agenda)
    log_event(world, now, "weather.dropped", steps=dropped)
    return {"dropped": dropped}


def get_log(world: World, call: ApiCall, now: float) -> Json:
    """Get the lines of the log from `since` on, at most a thousand."""
    since = arguments.read_count(call.query.get("since", "0"))
    if since is None:
        raise argument_error(InvalidWeather("since", "'since' must be a line number of at least 0"))
    first, rest = log_entries_from(world, since)
    lines = rest[:LOG_LINES]
    return {
        "lines": [
            {
                "number": number,
                "at": line.at,
                "name": line.name,
                "facts": dict(line.facts),
                "sentence": log_sentence(line),
            }
            for number, line in enumerate(lines, first)
        ],
        "next": min(first, log_length(world)) + len(lines),
        "more": len(lines) < len(rest),
    }


def run_step(world: World, due: AgendaItem) -> None:
    """Run a scheduled step."""
    given, every = due.args["given"], due.args.get("every")
    try:
        apply_weather(world, due.target, given, due.at)
    except InvalidWeather as invalid:
        log_event(world, due.at, "weather.missed", kind=due.target, why=invalid.sentence)
    again = due.at + (every or 0.0)
    if every and again <= due.args.get("until", again):
        schedule_event(world, again, DO, due.target, **due.args)


def undo_step(world: World, due: AgendaItem) -> None:
    """Undo a temporary event; do nothing if its target no longer exists."""
    try:
        apply_weather(world, due.target, due.args["given"], due.at)
    except InvalidWeather:
        return


def rule_json(rule: Rule) -> Json:
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


def argument_error(invalid: InvalidWeather) -> ApiError:
    """Return the API's error with the invalid field."""
    detail = {
        "@type": "type.googleapis.com/google.rpc.BadRequest",
        "fieldViolations": [{"field": invalid.field, "description": invalid.sentence}],
    }
    return ApiError(400, "INVALID_ARGUMENT", invalid.sentence, details=(detail,))


ROUTES: tuple[Route, ...] = (
    Route(method="GET", template="/sim/v1/weather", answer=show_weather),
    Route(method="POST", template="/sim/v1/weather/{kind}", answer=run_command),
    Route(method="DELETE", template="/sim/v1/weather/{rule}", answer=end_rule),
    Route(method="POST", template="/sim/v1/scenario", answer=schedule_scenario),
    Route(method="DELETE", template="/sim/v1/scenario", answer=drop_scenario),
    Route(method="GET", template="/sim/v1/log", answer=get_log),
)
AGENDA: Mapping[str, Callable[[World, AgendaItem], None]] = MappingProxyType(
    {DO: run_step, UNDO: undo_step}
)
