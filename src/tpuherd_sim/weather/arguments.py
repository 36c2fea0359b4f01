"""Parses and validates the arguments of weather, from JSON, YAML or words."""

import math
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from difflib import get_close_matches
from fnmatch import fnmatchcase
from typing import Any

from tpuherd.catalogue import accelerators, zones
from tpuherd_sim.tpu.quota_and_stock import quota_ids
from tpuherd_sim.weather.kinds import KINDS, RULE, Argument, WeatherKind

UNITS = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}
LONGEST_S = 10 * 366 * 86400.0  #: longest accepted duration
STRETCH = re.compile(r"(\d+(?:\.\d+)?)(ms|[smhd])")
YES = {"true", "yes", "on", "1"}
NO = {"false", "no", "off", "0"}


class InvalidWeather(ValueError):
    """An invalid argument: the field and a sentence."""

    def __init__(self, field: str, sentence: str) -> None:
        super().__init__(sentence)
        self.field = field
        self.sentence = sentence


def find_kind(name: object) -> WeatherKind:
    """Return the kind, or raise InvalidWeather with the nearest name."""
    if isinstance(name, str) and name in KINDS:
        return KINDS[name]
    raise InvalidWeather("do", f"{name!r} is not a kind of weather{unknown_name_hint(name, KINDS)}")


def fill_arguments(row: WeatherKind, given: Mapping[str, Any]) -> dict[str, Any]:
    """Return the typed value of every argument; those without value and default are absent."""
    known = row.arguments
    for name in given:
        if name not in known:
            raise InvalidWeather(
                name, f"{name!r} is not an argument of {row.name}{unknown_name_hint(name, known)}"
            )
    filled = {}
    for name, argument in known.items():
        if name in given:
            filled[name] = read_argument(row, argument, given[name])
        elif argument.needed:
            raise InvalidWeather(name, f"{row.name} needs {name!r}: {argument.meaning}")
        elif argument.default is not None:
            filled[name] = argument.default
    return filled


def parse_words(row: WeatherKind, words: Sequence[str]) -> dict[str, str]:
    """Parse words of a command line: NAME=VALUE, and bare words for the first free arguments."""
    known = row.arguments
    named = dict(word.split("=", 1) for word in words if word.partition("=")[0] in known)
    bare = [word for word in words if word.partition("=")[0] not in known]
    free = [argument.name for argument in row.own if argument.name not in named]
    for word in bare:
        name = word.partition("=")[0]
        if "=" in word:
            raise InvalidWeather(
                name, f"{name!r} is not an argument of {row.name}{unknown_name_hint(name, known)}"
            )
        if not free:
            raise InvalidWeather(
                word, f"{word!r} is an extra argument for {row.name}; example: {row.example}"
            )
        named[free.pop(0)] = word
    return named


def read_argument(row: WeatherKind, argument: Argument, value: object) -> Any:
    expected, reader = TYPES[argument.type]
    if argument.type == "choice":
        expected = "one of " + ", ".join(argument.choices)
    typed = reader(value)
    known = argument.choices or NAMES.get(argument.type, tuple)()
    if typed is None or (argument.choices and typed not in argument.choices):
        raise InvalidWeather(
            argument.name,
            f"{argument.name!r} of {row.name} must be {expected}, not {value!r}"
            + (similar_name_hint(value, known) if isinstance(value, str) else ""),
        )
    return typed


def unknown_name_hint(name: object, known: Iterable[str]) -> str:
    """Return the end of an error about an unknown name: the nearest one, else all."""
    return similar_name_hint(name, known) or f"; choose from {', '.join(known)}"


def similar_name_hint(name: object, known: Iterable[str]) -> str:
    """Return the end of an error with the nearest name, or ""."""
    close = get_close_matches(str(name), list(known), 1, 0.65)
    return f"; did you mean {close[0]!r}?" if close else ""


def read_duration(value: object) -> float | None:
    """Return seconds from a number or a text such as 90s, 10m, 2h, 1d, 1h30m."""
    number = read_number(value)
    if number is not None:
        return number if 0 <= number <= LONGEST_S else None
    if not isinstance(value, str) or STRETCH.sub("", value.strip()) or not value.strip():
        return None
    total = sum(float(many) * UNITS[unit] for many, unit in STRETCH.findall(value))
    return total if total <= LONGEST_S else None


def read_number(value: object) -> float | None:
    """Return a finite number."""
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        return None
    try:
        number = float(value)
    except (ValueError, OverflowError):
        return None
    return number if math.isfinite(number) else None


def read_count(value: object) -> int | None:
    """Return a whole number of at least 0."""
    number = read_number(value)
    return int(number) if number is not None and number >= 0 and number == int(number) else None


def read_flag(value: object) -> bool | None:
    word = str(value).lower()
    return True if word in YES else False if word in NO else None


def read_text(value: object) -> str | None:
    """Return a nonempty text; numbers are accepted."""
    if isinstance(value, bool) or not isinstance(value, str | int | float):
        return None
    return str(value) or None


def number_reader(low: float, high: float) -> Callable[[object], float | None]:
    """Return a reader of numbers in a range."""

    def reader(value: object) -> float | None:
        number = read_number(value)
        return number if number is not None and low <= number <= high else None

    return reader


def integer_reader(low: int, high: int) -> Callable[[object], int | None]:
    """Return a reader of whole numbers in a range."""

    def reader(value: object) -> int | None:
        number = read_count(value)
        return number if number is not None and low <= number <= high else None

    return reader


def read_node_count(value: object) -> int | str | None:
    """Return a number of nodes, or `unlimited`."""
    return "unlimited" if value == "unlimited" else read_count(value)


def name_reader(names: Callable[[], Iterable[str]]) -> Callable[[object], str | None]:
    """Return a reader of catalogue names or matching patterns."""

    def reader(value: object) -> str | None:
        words = read_text(value)
        return words if words and any(fnmatchcase(name, words) for name in names()) else None

    return reader


def call_zones() -> Iterable[str]:
    """Return the possible targets of a call: a zone, or `-` for all of them."""
    return (*zones(), "-")


def read_quota(value: object) -> str | None:
    """Return the value if it names at least one quota."""
    words = read_text(value)
    return words if words and quota_ids(words) else None


def read_zone_list(value: object) -> tuple[str, ...] | None:
    """Return the zones of one or several patterns."""
    patterns = value if isinstance(value, list) else [value]
    found = {
        zone: None
        for words in patterns
        for zone in zones()
        if fnmatchcase(zone, read_text(words) or "")
    }
    fitting = all(name_reader(zones)(words) for words in patterns)
    return tuple(found) if found and fitting else None


#: For each type of argument: the expected form, and its reader, which returns None if invalid.
TYPES: Mapping[str, tuple[str, Callable[[object], Any]]] = {
    "duration": ("a duration such as 90s, 10m, 2h or 1d", read_duration),
    "signed": ("a number", read_number),
    "count": ("a whole number of at least 0", read_count),
    "number": ("a whole number of at least 1", integer_reader(1, 2**53)),
    "factor": ("a number from 0.01 to 1000000", number_reader(0.01, 1e6)),
    "share": ("a number from 0 to 1", number_reader(0.0, 1.0)),
    "http": ("an HTTP status from 400 to 599", integer_reader(400, 599)),
    "code": ("a google.rpc code from 1 to 16", integer_reader(1, 16)),
    "flag": ("true or false", read_flag),
    "nodes": ("a whole number of at least 0, or unlimited", read_node_count),
    "text": ("a text", read_text),
    "pattern": ("a name or a pattern", read_text),
    "zones": ("a zone of the catalogue or a pattern that matches one", name_reader(zones)),
    "places": (
        "a zone of the catalogue, a pattern that matches one, or -",
        name_reader(call_zones),
    ),
    "zone-list": ("zones of the catalogue or patterns that match some", read_zone_list),
    "quota": ("a quota id, a pattern of quota ids, or a family such as v4", read_quota),
    "types": ("an accelerator type or a pattern that matches one", name_reader(accelerators)),
    "target": ("a name or a pattern", read_text),
    "choice": ("", read_text),
}
#: Where to look for the nearest name of an invalid value.
NAMES: Mapping[str, Callable[[], Iterable[str]]] = {
    "zones": zones,
    "places": zones,
    "zone-list": zones,
    "types": accelerators,
}


def split_arguments(
    row: WeatherKind, filled: Mapping[str, Any]
) -> tuple[dict[str, str], dict[str, Any]]:
    """Split a rule's arguments into what it matches and what it does."""
    assert row.family == RULE
    own = {name: filled[name] for name in filled if name in {a.name for a in row.own}}
    return {name: filled[name] for name in row.match if name in filled}, own
