"""Reads `sweep:` of a job file: parameters, search method and pruning."""

import re
from collections.abc import Mapping
from dataclasses import fields
from math import exp, isfinite, log
from typing import Any

from tpuherd.jobfile.value_types import (
    FLAG,
    ReportMistake,
    ValueType,
    choice_type,
    duration_type,
    integer_type,
    mapping_type,
    record_type,
    show_value,
    suggest_name,
    text_type,
)
from tpuherd.model.search import (
    GRID_MAX,
    Parameter,
    Prune,
    Search,
    count_grid_values,
    count_trials,
    grid_size,
    parameter_variable,
)

METHODS = ("grid", "random", "bayes")
ITEMS = "items"  #: the method of a map: `herd map` writes it
GOALS = ("minimize", "maximize")
RULES = ("none", "median", "halving", "hyperband")
NAME = r"[A-Za-z_][A-Za-z0-9_.-]*"
NUMBER = re.compile(r"[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?")
TRIALS_MAX = 100_000
SHAPE = "write a list of values or {min: 1e-5, max: 1e-2, log: true}"


def parse_number(value: Any) -> float | int | None:
    """Return a number, also from text: YAML reads 1e-3 as text."""
    if isinstance(value, str) and NUMBER.fullmatch(value):
        return float(value)
    if isinstance(value, bool) or not isinstance(value, int | float) or not isfinite(value):
        return None
    return value


def read_number(value: Any, wrong: ReportMistake) -> float | None:
    """Read a bound of a range."""
    found = parse_number(value)
    if found is None:
        wrong(f"should be a number, not {show_value(value)}", ())
    return found


def read_values(value: Any, wrong: ReportMistake) -> tuple[Any, ...] | None:
    if not isinstance(value, list | tuple) or not value:
        wrong(f"should be a list of values, not {show_value(value)}", ())
        return None
    for place, one in enumerate(value):
        if not isinstance(one, bool | int | float | str):
            wrong(f"should be a number, text, true or false, not {show_value(one)}", (place,))
            return None
    texts = [one if isinstance(one, bool) else parse_number(one) for one in value]
    return tuple(one if text is None else text for text, one in zip(texts, value, strict=True))


SCALARS = {"type": ["number", "string", "boolean"]}
VALUES = ValueType(
    read=read_values, write=list, schema={"type": "array", "items": SCALARS, "minItems": 1}
)
REAL = ValueType(read=read_number, schema={"type": "number"})
RANGE = record_type(Parameter, values=VALUES, min=REAL, max=REAL, step=REAL, log=FLAG, int=FLAG)
STEPS = integer_type(2, GRID_MAX)
RANGE_SCHEMA = {**RANGE.schema, "properties": {**RANGE.schema["properties"], "steps": STEPS.schema}}


def read_parameter(value: Any, wrong: ReportMistake) -> Parameter | None:
    """Read a list, a range, or a single fixed value."""
    if isinstance(value, list | tuple):
        value = {"values": value}
    elif isinstance(value, bool | int | float | str):
        value = {"values": [value]}
    if not isinstance(value, Mapping):
        wrong(f"is not a parameter: {SHAPE}", ())
        return None
    mistakes: list[str] = []

    def note(sentence: str, at: tuple[str | int, ...]) -> None:
        mistakes.append(sentence)
        wrong(sentence, at)

    steps = STEPS.read(value["steps"], lambda said, at: note(said, ("steps", *at))) if (
        "steps" in value
    ) else None  # fmt: skip
    found: Parameter = RANGE.read({key: one for key, one in value.items() if key != "steps"}, note)
    if mistakes:
        return None
    sentence = parameter_problem(found, value.keys())
    if sentence:
        wrong(sentence, ())
        return None
    return found if steps is None else Parameter(values=spread_values(found, steps))


def spread_values(one: Parameter, steps: int) -> tuple[float | int, ...]:
    """This many values of a range with its ends, as far apart from each other, or each as many
    times the one before (`log`). Whole numbers may be fewer: each is there once."""
    low, high = (log(one.min), log(one.max)) if one.log else (one.min, one.max)
    places = [low + at * (high - low) / (steps - 1) for at in range(steps)]
    values = [float(f"{exp(place) if one.log else place:.12g}") for place in places]
    return tuple(dict.fromkeys(map(round, values) if one.int else values))


def parameter_problem(one: Parameter, said: Any) -> str:
    """Return what is wrong with the fields of a parameter taken together, or ""."""
    if "values" in said:
        return "has values and a range: give one of them" if len(said) > 1 else ""
    if "min" not in said or "max" not in said:
        return SHAPE
    if one.min >= one.max:
        return f"min {one.min:g} is not below max {one.max:g}"
    if one.log and (one.min <= 0 or one.step is not None):
        return "a log scale needs a min above 0 and no step"
    if one.step is not None and "steps" in said:
        return "has step and steps: give the distance of two values, or their number"
    if one.step is not None and one.step <= 0:
        return "step must be more than 0"
    if one.int and any(edge != int(edge) for edge in (one.min, one.max, one.step or 1)):
        return "with int: true, min, max and step must be whole numbers"
    return ""


def write_parameter(one: Parameter) -> Any:
    """Return the document form, which read_parameter reads back as the same parameter."""
    if one.values:
        return list(one.values)
    return {"min": one.min, "max": one.max, **RANGE.write(one)}


PARAMETER = ValueType(
    read=read_parameter, write=write_parameter,
    schema={"anyOf": [SCALARS, VALUES.schema, RANGE_SCHEMA]},
)  # fmt: skip
COUNT = integer_type(0, 1_000_000_000)
PRUNING = record_type(Prune, rule=choice_type(*RULES), warm_up=COUNT, after=integer_type(1, 10_000))


def read_prune(value: Any, wrong: ReportMistake) -> Prune | None:
    """Read the name of a rule, or a rule with its fields."""
    found: Prune | None = PRUNING.read({"rule": value} if isinstance(value, str) else value, wrong)
    return found


KINDS: Mapping[str, ValueType] = {
    "method": choice_type(*METHODS, ITEMS),
    "parameters": mapping_type(NAME, "a parameter's name", PARAMETER),
    "metric": ValueType(
        read=lambda value, wrong: value if isinstance(value, str) and value else
        wrong(f"should be a metric name such as loss, not {show_value(value)}", ()),
        schema={"type": "string"},
    ),
    "goal": choice_type(*GOALS),
    "trials": integer_type(1, TRIALS_MAX),
    "seed": COUNT,
    "prune": ValueType(
        read=read_prune, write=PRUNING.write,
        schema={"anyOf": [{"enum": list(RULES)}, PRUNING.schema]},
    ),
    "items": text_type(r"[0-9a-f]{64}", "the digest that `herd map` writes"),
    "timeout": duration_type(1.0),
    "keep": FLAG,
}  # fmt: skip


def read_search(value: Any, wrong: ReportMistake) -> Search | None:
    """Check each field, then the fields together."""
    if not isinstance(value, Mapping):
        wrong(f"should contain method and parameters, not {show_value(value)}", ())
        return None
    found: dict[str, Any] = {}
    for key, below in value.items():
        if key not in KINDS:
            wrong(f"unknown field: {suggest_name(str(key), list(KINDS))}", (str(key),))
            continue
        found[key] = KINDS[key].read(below, lambda said, at, k=key: wrong(said, (k, *at)))  # type: ignore[misc]
    if "method" not in value:
        wrong("method is missing: use grid, random or bayes", ())
    if found.get("method") == ITEMS:
        return read_map(found, wrong)
    if value.get("parameters", {}) == {}:
        wrong(f"has no parameters: {SHAPE}", ("parameters",))
    if any(one is None for one in found.values()) or not {"method", "parameters"} <= found.keys():
        return None
    for name in sorted(found.keys() & {"items", "timeout", "keep"}):
        wrong("belongs to a map: use `herd map` (see docs/howto/map.md)", (name,))
    if len(found["parameters"]) < len(value["parameters"]):
        return None  # the mistake is already reported
    search = Search(**found)
    for at, sentence in search_problems(search):
        wrong(sentence, at)
    return search


def read_map(found: dict[str, Any], wrong: ReportMistake) -> Search | None:
    """Return the map that `herd map` has written into a job."""
    if any(one is None for one in found.values()):
        return None  # the mistake is already reported
    if not {"items", "trials"} <= found.keys():
        wrong("a map gets its items from `herd map JOB FILE` (see docs/howto/map.md)", ())
        return None
    return Search(**found)


def search_problems(search: Search) -> list[tuple[tuple[str, ...], str]]:
    """Return the path and sentence of each conflict between fields."""
    found: list[tuple[tuple[str, ...], str]] = []
    names: dict[str, str] = {}
    for name, one in search.parameters.items():
        first = names.setdefault(parameter_variable(name), name)
        if first != name:
            said = f"{first} and {name} both become {parameter_variable(name)}"
            found.append((("parameters", name), said))
        if search.method == "grid" and count_grid_values(one) is None:
            said = "a grid needs a finite range: give steps: 5, values, a step, or int: true"
            found.append((("parameters", name), said))
    if search.method != "grid" and search.trials is None:
        found.append((("trials",), f"is missing: set how many trials {search.method} should run"))
    if (
        search.method == "grid"
        and not found
        and grid_size(search) > GRID_MAX
        and count_trials(search) > GRID_MAX
    ):
        found.append((("parameters",), f"make {grid_size(search)} trials: limit them with trials"))
    if not search.metric and (search.method == "bayes" or search.prune.rule != "none"):
        what = "bayes" if search.method == "bayes" else f"prune: {search.prune.rule}"
        found.append((("metric",), f"is missing: {what} compares trials by it"))
    return found


def write_search(search: Search) -> dict[str, Any]:
    """Return the document form, which `read_search` reads back as the same search."""
    plain = {one.name: one.default for one in fields(Search)}
    plain |= {"prune": Prune(), "parameters": {}}
    return {
        name: {key: write_parameter(one) for key, one in value.items()}
        if name == "parameters"
        else KINDS[name].write(value)
        for name in KINDS
        if (value := getattr(search, name)) != plain[name]
    }


SEARCH = ValueType(
    read=read_search, write=lambda value: None if value is None else write_search(value),
    schema={
        "type": "object", "additionalProperties": False, "required": ["method"],
        "properties": {key: kind.schema for key, kind in KINDS.items()},
    },
)  # fmt: skip
