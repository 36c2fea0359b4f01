"""Parses scenario files; every error names its line and field."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import yaml

from tpuherd_sim.model.http_types import Json
from tpuherd_sim.weather import arguments, traces
from tpuherd_sim.weather.arguments import InvalidWeather, unknown_name_hint
from tpuherd_sim.weather.kinds import (
    KINDS,
    RULE,
    Argument,
    WeatherKind,
    duration_argument,
    required_argument,
)
from tpuherd_sim.weather.storm import storm_steps
from tpuherd_sim.weather.traces import Trace


class ScenarioError(ValueError):
    """An error in a scenario file."""

    def __init__(self, line: int, field: str, sentence: str) -> None:
        super().__init__(f"line {line}: {sentence}")
        self.line = line
        self.field = field
        self.sentence = sentence


@dataclass(frozen=True, kw_only=True, slots=True)
class StormOptions:
    """Random weather."""

    zones: tuple[str, ...]
    hours: float
    strength: float
    nodes: int


@dataclass(frozen=True, kw_only=True, slots=True)
class Scenario:
    """A parsed scenario file."""

    seed: int = 0
    steps: tuple[Json, ...] = ()  #: for POST /sim/v1/scenario; capacity and rules come first
    traces: tuple[Trace, ...] = ()
    storm: StormOptions | None = None


FileReader = Callable[[str], str]  #: returns a file's text by its path; OSError if it can't be read


@dataclass(frozen=True, kw_only=True, slots=True)
class ScenarioField:
    """The value of a name in the file."""

    line: int  #: of the name
    node: yaml.Node


def file_part(name: str, *own: Argument) -> WeatherKind:
    """Return a part of the file as a kind of weather, so that one reader parses both."""
    return WeatherKind(name=name, family="", meaning="", example="", own=own)


TRACE = file_part(
    "a trace",
    required_argument("file", "text", "the path of the JSON file"),
    required_argument("zone", "zones", "the zone whose capacity it is"),
    Argument(name="type", type="types", meaning="the accelerator type", default="*"),
    duration_argument("start", "when the trace starts", 0.0),
    duration_argument("offset", "how much of the trace to skip", 0.0),
)
STORM = file_part(
    "storm",
    Argument(name="zones", type="zone-list", meaning="where", default="*"),
    Argument(name="hours", type="factor", meaning="how long", default=24.0),
    Argument(name="strength", type="factor", meaning="how much more often than usual", default=1.0),
    Argument(name="nodes", type="number", meaning="how many nodes a zone has at most", default=16),
)
TIMES = file_part(
    "a step",
    duration_argument("at", "when"),
    duration_argument("every", "again and again"),
    duration_argument("until", "no later"),
)
SEED = Argument(name="seed", type="count", meaning="of the jitter and the storm")
PARTS = ("seed", "capacity", "traces", "weather", "steps", "storm")
EMPTY = f"the scenario is empty: add one of {', '.join(PARTS[1:-1])} or {PARTS[-1]}"


def parse_scenario(text: str, *, read: FileReader) -> Scenario:
    """Return the scenario in a file's text; `read` returns the text of a trace's file."""
    root = compose_yaml(text)
    if root is None:
        raise ScenarioError(1, "", EMPTY)
    found = mapping_fields(root, "a scenario")
    for name, field in found.items():
        if name not in PARTS:
            raise ScenarioError(
                field.line,
                name,
                f"{name!r} is not a part of a scenario{unknown_name_hint(name, PARTS)}",
            )
    initial: list[Json] = []
    if "capacity" in found:
        initial += capacity_steps(found["capacity"].node)
    if "weather" in found:
        initial += [parse_rule(node) for node in sequence_items(found["weather"].node, "weather")]
    steps = (
        [parse_step(node) for node in sequence_items(found["steps"].node, "steps")]
        if "steps" in found
        else []
    )
    measured = sequence_items(found["traces"].node, "traces") if "traces" in found else []
    seed = read_value(file_part("a scenario", SEED), found["seed"], SEED) if "seed" in found else 0
    if not initial and not steps and not measured and "storm" not in found:
        raise ScenarioError(line_number(root), "", EMPTY)
    return Scenario(
        seed=seed,
        steps=(*initial, *steps),
        traces=tuple(parse_trace(node, read) for node in measured),
        storm=parse_storm(found["storm"].node) if "storm" in found else None,
    )


def scenario_steps(scenario: Scenario) -> list[Json]:
    """Return all steps in order, for POST /sim/v1/scenario."""
    every = list(scenario.steps)
    for one in scenario.traces:
        every += traces.trace_steps(one, scenario.seed)
    if scenario.storm is not None:
        options = scenario.storm
        every += storm_steps(
            scenario.seed, options.zones, options.hours, options.strength, nodes=options.nodes
        )
    return sorted(every, key=lambda one: float(one["at_s"]))


def capacity_steps(node: yaml.Node) -> Iterator[Json]:
    """Yield the initial capacity."""
    row = KINDS["capacity"]
    for zone, field in mapping_fields(node, "capacity").items():
        types = {"*": field}
        if isinstance(field.node, yaml.MappingNode):
            types = mapping_fields(field.node, f"capacity of {zone}")
        for type_, many in types.items():
            values = {"zone": zone, "type": type_, "nodes": scalar_value(many.node, zone)}
            yield {"at_s": 0.0, "do": row.name, **fill_arguments(row, values, {}, many.line)}


def parse_rule(node: yaml.Node) -> Json:
    """Return a rule that is in force from the start."""
    found = mapping_fields(node, "a rule")
    row = read_kind(found, node)
    if row.family != RULE:
        raise ScenarioError(
            found["do"].line, "do", f"{row.name!r} happens once: put it under 'steps' with a time"
        )
    values = {name: scalar_value(found[name].node, name) for name in found if name != "do"}
    return {"at_s": 0.0, "do": row.name, **fill_arguments(row, values, found, line_number(node))}


def parse_step(node: yaml.Node) -> Json:
    found = mapping_fields(node, "a step")
    row = read_kind(found, node)
    values = {name: scalar_value(found[name].node, name) for name in found if name != "do"}
    known = [*TIMES.arguments, *row.arguments]
    for name in values:
        if name not in known:
            sentence = f"{name!r} is not an argument of {row.name}{unknown_name_hint(name, known)}"
            raise ScenarioError(found[name].line, name, sentence)
    times = {name: values.pop(name) for name in TIMES.arguments if name in values}
    times = fill_arguments(TIMES, times, found, line_number(node))
    if not times.keys() & {"at", "every"}:
        raise ScenarioError(line_number(node), "at", "a step needs 'at' or 'every'")
    if "until" in times and "every" not in times:
        raise ScenarioError(found["until"].line, "until", "'until' works only with 'every'")
    if times.get("every", 1.0) < 1.0:
        raise ScenarioError(found["every"].line, "every", "'every' must be at least 1 s")
    again = {f"{name}_s": times[name] for name in ("every", "until") if name in times}
    at = times.get("at", times.get("every"))
    return {
        "at_s": at,
        "do": row.name,
        **again,
        **fill_arguments(row, values, found, line_number(node)),
    }


def parse_trace(node: yaml.Node, read: FileReader) -> Trace:
    """Return one trace with its file."""
    found = mapping_fields(node, "a trace")
    values = {name: scalar_value(found[name].node, name) for name in found}
    given = fill_arguments(TRACE, values, found, line_number(node))
    path, line = given["file"], found["file"].line
    try:
        gap_s, levels = traces.parse_trace(read(path))
    except (OSError, ValueError) as error:
        why = error.strerror if isinstance(error, OSError) else error
        raise ScenarioError(line, "file", f"the trace {path!r} can't be read: {why}") from error
    if given["offset"] >= gap_s * len(levels):
        raise ScenarioError(
            found["offset"].line, "offset", f"the trace {path!r} ends before its 'offset'"
        )
    return Trace(
        zone=given["zone"],
        type=given["type"],
        gap_s=gap_s,
        levels=levels,
        start_s=given["start"],
        offset_s=given["offset"],
    )


def parse_storm(node: yaml.Node) -> StormOptions:
    found = mapping_fields(node, "storm")
    values: dict[str, Any] = {
        name: [scalar_value(one, name) for one in field.node.value]
        if isinstance(field.node, yaml.SequenceNode)
        else scalar_value(field.node, name)
        for name, field in found.items()
    }
    return StormOptions(**fill_arguments(STORM, {"zones": "*", **values}, found, line_number(node)))


def read_kind(found: dict[str, ScenarioField], node: yaml.Node) -> WeatherKind:
    """Return the kind of a step or a rule."""
    if "do" not in found:
        raise ScenarioError(line_number(node), "do", "'do' is missing: which kind of weather?")
    try:
        return arguments.find_kind(scalar_value(found["do"].node, "do"))
    except InvalidWeather as invalid:
        raise ScenarioError(found["do"].line, "do", invalid.sentence) from invalid


def fill_arguments(
    row: WeatherKind, values: Json, found: dict[str, ScenarioField], line: int
) -> Json:
    """Return typed and complete arguments; errors name the line of their field if possible."""
    try:
        return arguments.fill_arguments(row, values)
    except InvalidWeather as invalid:
        at = found[invalid.field].line if invalid.field in found else line
        raise ScenarioError(at, invalid.field, invalid.sentence) from invalid


def read_value(row: WeatherKind, field: ScenarioField, argument: Argument) -> Any:
    values = {argument.name: scalar_value(field.node, argument.name)}
    return fill_arguments(row, values, {argument.name: field}, field.line)[argument.name]


def compose_yaml(text: str) -> yaml.Node | None:
    """Return the file's nodes with their positions."""
    try:
        root: yaml.Node | None = yaml.compose(text, Loader=yaml.SafeLoader)
    except yaml.MarkedYAMLError as error:
        scanning = isinstance(error, yaml.scanner.ScannerError)  # its own mark is too late
        mark = (error.context_mark if scanning else None) or error.problem_mark
        line = mark.line + 1 if mark else 1
        raise ScenarioError(line, "", f"this is not YAML: {error.problem}") from error
    except yaml.reader.ReaderError as error:
        line = text.count("\n", 0, error.position) + 1
        raise ScenarioError(line, "", f"this is not YAML: {error.reason}") from error
    except RecursionError as error:
        raise ScenarioError(1, "", "this is not a scenario: it is nested too deeply") from error
    return root


def mapping_fields(node: yaml.Node, what: str) -> dict[str, ScenarioField]:
    """Return a map by names, in order."""
    if not isinstance(node, yaml.MappingNode):
        raise ScenarioError(line_number(node), what, f"{what} must be a map of names to values")
    found: dict[str, ScenarioField] = {}
    for key, inner in node.value:
        name = str(scalar_value(key, what))
        if name in found:
            raise ScenarioError(line_number(key), name, f"{name!r} occurs twice in {what}")
        found[name] = ScenarioField(line=line_number(key), node=inner)
    return found


def sequence_items(node: yaml.Node, field: str) -> list[yaml.Node]:
    """Return a list; null counts as an empty one."""
    if isinstance(node, yaml.ScalarNode) and node.tag == "tag:yaml.org,2002:null":
        return []
    if not isinstance(node, yaml.SequenceNode):
        raise ScenarioError(
            line_number(node), field, f"{field!r} must be a list: lines that start with a dash"
        )
    return list(node.value)


def scalar_value(node: yaml.Node, field: str) -> Any:
    if not isinstance(node, yaml.ScalarNode):
        raise ScenarioError(line_number(node), field, f"{field!r} must be a plain value")
    try:
        return yaml.constructor.SafeConstructor().construct_object(node)
    except (yaml.MarkedYAMLError, ValueError) as error:
        raise ScenarioError(line_number(node), field, f"{field!r} has no readable value") from error


def line_number(node: yaml.Node) -> int:
    """Return the line where the node begins, counted from 1."""
    return int(node.start_mark.line) + 1
