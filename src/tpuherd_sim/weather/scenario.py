"""A scenario file: weather with its times, read so that every mistake has its line and field."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import yaml

from tpuherd_sim.model.http_types import Json
from tpuherd_sim.weather import arguments, traces
from tpuherd_sim.weather.arguments import Unfit, nearest
from tpuherd_sim.weather.kinds import KINDS, RULE, Argument, Kind, needed, seconds
from tpuherd_sim.weather.storm import storm
from tpuherd_sim.weather.traces import Trace


class ScenarioError(ValueError):
    """A scenario file that says something that can't be understood."""

    def __init__(self, line: int, field: str, sentence: str) -> None:
        super().__init__(f"line {line}: {sentence}")
        self.line = line
        self.field = field
        self.sentence = sentence


@dataclass(frozen=True, kw_only=True, slots=True)
class Storm:
    """Weather by chance."""

    zones: tuple[str, ...]
    hours: float
    strength: float
    nodes: int


@dataclass(frozen=True, kw_only=True, slots=True)
class Scenario:
    """What a scenario file says, checked."""

    seed: int = 0
    steps: tuple[
        Json, ...
    ] = ()  #: as POST /sim/v1/scenario takes them; capacity and rules come first
    traces: tuple[Trace, ...] = ()
    storm: Storm | None = None


Read = Callable[[str], str]  #: a file's text by its path; OSError where it can't be read


@dataclass(frozen=True, kw_only=True, slots=True)
class Field:
    """What stands in the file beside a name."""

    line: int  #: the name's
    node: yaml.Node


def part(name: str, *own: Argument) -> Kind:
    """A part of the file, read as if it were a kind of weather: one reader serves all."""
    return Kind(name=name, family="", meaning="", example="", own=own)


TRACE = part(
    "a trace",
    needed("file", "text", "the path of its JSON file"),
    needed("zone", "zones", "the zone whose capacity it is"),
    Argument(name="type", type="types", meaning="the accelerator type", default="*"),
    seconds("start", "when it begins", 0.0),
    seconds("offset", "how much of its beginning is left out", 0.0),
)
STORM = part(
    "storm",
    Argument(name="zones", type="zone-list", meaning="where", default="*"),
    Argument(name="hours", type="factor", meaning="how long", default=24.0),
    Argument(name="strength", type="factor", meaning="how much more often than usual", default=1.0),
    Argument(name="nodes", type="number", meaning="how many nodes a zone has at most", default=16),
)
TIMES = part(
    "a step",
    seconds("at", "when"),
    seconds("every", "again and again"),
    seconds("until", "no later"),
)
SEED = Argument(name="seed", type="count", meaning="of the jitter and the storm")
PARTS = ("seed", "capacity", "traces", "weather", "steps", "storm")
EMPTY = f"the scenario is empty: give it one of {', '.join(PARTS[1:-1])} or {PARTS[-1]}"


def parse(text: str, *, read: Read) -> Scenario:
    """A scenario from the text of its file; `read` gives the text of a trace's file."""
    root = composed(text)
    if root is None:
        raise ScenarioError(1, "", EMPTY)
    found = fields(root, "a scenario")
    for name, field in found.items():
        if name not in PARTS:
            raise ScenarioError(
                field.line, name, f"{name!r} is not a part of a scenario{nearest(name, PARTS)}"
            )
    calm: list[Json] = []
    if "capacity" in found:
        calm += pools(found["capacity"].node)
    if "weather" in found:
        calm += [rule(node) for node in items(found["weather"].node, "weather")]
    steps = [step(node) for node in items(found["steps"].node, "steps")] if "steps" in found else []
    measured = items(found["traces"].node, "traces") if "traces" in found else []
    seed = value(part("a scenario", SEED), found["seed"], SEED) if "seed" in found else 0
    if not calm and not steps and not measured and "storm" not in found:
        raise ScenarioError(line_of(root), "", EMPTY)
    return Scenario(
        seed=seed,
        steps=(*calm, *steps),
        traces=tuple(trace(node, read) for node in measured),
        storm=stormy(found["storm"].node) if "storm" in found else None,
    )


def steps(scenario: Scenario) -> list[Json]:
    """All that will happen, in order, for POST /sim/v1/scenario."""
    every = list(scenario.steps)
    for one in scenario.traces:
        every += traces.steps(one, scenario.seed)
    if scenario.storm is not None:
        wild = scenario.storm
        every += storm(scenario.seed, wild.zones, wild.hours, wild.strength, nodes=wild.nodes)
    return sorted(every, key=lambda one: float(one["at_s"]))


def pools(node: yaml.Node) -> Iterator[Json]:
    """The capacity at the beginning."""
    row = KINDS["capacity"]
    for zone, field in fields(node, "capacity").items():
        types = {"*": field}
        if isinstance(field.node, yaml.MappingNode):
            types = fields(field.node, f"capacity of {zone}")
        for type_, many in types.items():
            said = {"zone": zone, "type": type_, "nodes": scalar(many.node, zone)}
            yield {"at_s": 0.0, "do": row.name, **filled(row, said, {}, many.line)}


def rule(node: yaml.Node) -> Json:
    """A rule that is in force from the beginning."""
    found = fields(node, "a rule")
    row = kind(found, node)
    if row.family != RULE:
        raise ScenarioError(
            found["do"].line, "do", f"{row.name!r} happens once: put it under steps, with its time"
        )
    said = {name: scalar(found[name].node, name) for name in found if name != "do"}
    return {"at_s": 0.0, "do": row.name, **filled(row, said, found, line_of(node))}


def step(node: yaml.Node) -> Json:
    """One step."""
    found = fields(node, "a step")
    row = kind(found, node)
    said = {name: scalar(found[name].node, name) for name in found if name != "do"}
    known = [*TIMES.arguments, *row.arguments]
    for name in said:
        if name not in known:
            sentence = f"{name!r} is not an argument of {row.name}{nearest(name, known)}"
            raise ScenarioError(found[name].line, name, sentence)
    times = {name: said.pop(name) for name in TIMES.arguments if name in said}
    times = filled(TIMES, times, found, line_of(node))
    if not times.keys() & {"at", "every"}:
        raise ScenarioError(line_of(node), "at", "a step needs 'at', or 'every'")
    if "until" in times and "every" not in times:
        raise ScenarioError(found["until"].line, "until", "'until' goes with 'every' only")
    if times.get("every", 1.0) < 1.0:
        raise ScenarioError(found["every"].line, "every", "'every' must be 1 s at least")
    again = {f"{name}_s": times[name] for name in ("every", "until") if name in times}
    at = times.get("at", times.get("every"))
    return {"at_s": at, "do": row.name, **again, **filled(row, said, found, line_of(node))}


def trace(node: yaml.Node, read: Read) -> Trace:
    """One trace with its file."""
    found = fields(node, "a trace")
    said = {name: scalar(found[name].node, name) for name in found}
    given = filled(TRACE, said, found, line_of(node))
    path, line = given["file"], found["file"].line
    try:
        gap_s, levels = traces.parse(read(path))
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


def stormy(node: yaml.Node) -> Storm:
    """Weather by chance."""
    found = fields(node, "storm")
    said: dict[str, Any] = {
        name: [scalar(one, name) for one in field.node.value]
        if isinstance(field.node, yaml.SequenceNode)
        else scalar(field.node, name)
        for name, field in found.items()
    }
    return Storm(**filled(STORM, {"zones": "*", **said}, found, line_of(node)))


def kind(found: dict[str, Field], node: yaml.Node) -> Kind:
    """What a step or a rule does."""
    if "do" not in found:
        raise ScenarioError(line_of(node), "do", "'do' is missing: which kind of weather?")
    try:
        return arguments.kind(scalar(found["do"].node, "do"))
    except Unfit as unfit:
        raise ScenarioError(found["do"].line, "do", unfit.sentence) from unfit


def filled(row: Kind, said: Json, found: dict[str, Field], line: int) -> Json:
    """Arguments, typed and complete; a mistake is at the line of its field where it has one."""
    try:
        return arguments.fill(row, said)
    except Unfit as unfit:
        at = found[unfit.field].line if unfit.field in found else line
        raise ScenarioError(at, unfit.field, unfit.sentence) from unfit


def value(row: Kind, field: Field, argument: Argument) -> Any:
    """One value, typed."""
    said = {argument.name: scalar(field.node, argument.name)}
    return filled(row, said, {argument.name: field}, field.line)[argument.name]


def composed(text: str) -> yaml.Node | None:
    """The file's nodes with their places."""
    try:
        root: yaml.Node | None = yaml.compose(text, Loader=yaml.SafeLoader)
    except yaml.MarkedYAMLError as error:
        scanning = isinstance(error, yaml.scanner.ScannerError)  # it notices the end, too late
        mark = (error.context_mark if scanning else None) or error.problem_mark
        line = mark.line + 1 if mark else 1
        raise ScenarioError(line, "", f"this is not YAML: {error.problem}") from error
    except yaml.reader.ReaderError as error:
        line = text.count("\n", 0, error.position) + 1
        raise ScenarioError(line, "", f"this is not YAML: {error.reason}") from error
    except RecursionError as error:
        raise ScenarioError(1, "", "this is not a scenario: it is nested too deep") from error
    return root


def fields(node: yaml.Node, what: str) -> dict[str, Field]:
    """A map by its names, in order."""
    if not isinstance(node, yaml.MappingNode):
        raise ScenarioError(line_of(node), what, f"{what} must be a map of names to values")
    found: dict[str, Field] = {}
    for key, inner in node.value:
        name = str(scalar(key, what))
        if name in found:
            raise ScenarioError(line_of(key), name, f"{name!r} is said twice in {what}")
        found[name] = Field(line=line_of(key), node=inner)
    return found


def items(node: yaml.Node, field: str) -> list[yaml.Node]:
    """A list; nothing at all is an empty one."""
    if isinstance(node, yaml.ScalarNode) and node.tag == "tag:yaml.org,2002:null":
        return []
    if not isinstance(node, yaml.SequenceNode):
        raise ScenarioError(line_of(node), field, f"{field!r} must be a list: lines with a dash")
    return list(node.value)


def scalar(node: yaml.Node, field: str) -> Any:
    """A plain value."""
    if not isinstance(node, yaml.ScalarNode):
        raise ScenarioError(line_of(node), field, f"{field!r} must be a plain value")
    try:
        return yaml.constructor.SafeConstructor().construct_object(node)
    except (yaml.MarkedYAMLError, ValueError) as error:
        raise ScenarioError(line_of(node), field, f"{field!r} has no readable value") from error


def line_of(node: yaml.Node) -> int:
    """Where it begins, counted from 1."""
    return int(node.start_mark.line) + 1
