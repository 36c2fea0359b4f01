"""The kinds of values in a job file: how each is read, written back and described to editors."""

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from math import inf, isfinite
from typing import Any

from tpuherd.near_names import near_names

UNITS = {"s": 1.0, "m": 60.0, "min": 60.0, "h": 3600.0, "d": 86_400.0, "w": 604_800.0}
DURATION = re.compile(r"([0-9]+(?:\.[0-9]+)?) ?(s|m|min|h|d|w)")
MONEY = re.compile(r"(?:\$ ?|USD ?)?([0-9]+(?:\.[0-9]+)?)(?: ?(?:\$|USD|dollars?))?", re.I)
DURATION_MAX_S = 10 * 366 * 86_400.0
MANY = 1000  #: entries in a list

ReportMistake = Callable[
    [str, tuple[str | int, ...]], None
]  #: report a mistake: the sentence and the path
Json = Mapping[str, Any]


@dataclass(frozen=True, kw_only=True, slots=True)
class ValueType:
    """A kind of value. `read` returns None if it reported a mistake."""

    read: Callable[[Any, ReportMistake], Any]
    schema: Json
    write: Callable[[Any], Any] = lambda value: value


def show_value(value: Any) -> str:
    """Return a value for use in a sentence, shortened to 60 characters."""
    if isinstance(value, bool):
        return "true" if value else "false"
    text = repr(value) if isinstance(value, str) else str(value)
    return text if len(text) <= 60 else f"{text[:57]}…"


def suggest_name(word: str, words: Sequence[str]) -> str:
    """Return `did you mean …?` with the nearest word, or the list of words."""
    plain = {re.sub(r"[^a-z0-9]", "", each.lower()): each for each in words}
    near = near_names(re.sub(r"[^a-z0-9]", "", word.lower()), plain, most=1)
    if near:
        return f"did you mean {plain[near[0]]}?"
    return f"use one of {', '.join(words)}"


def text_type(pattern: str = r"(?s).*\S.*", words: str = "a text") -> ValueType:
    """Text that matches the pattern; numbers that match it are accepted as text."""
    whole = re.compile(pattern)

    def read(value: Any, wrong: ReportMistake) -> str | None:
        if isinstance(value, bool) or not isinstance(value, str | int | float):
            wrong(f"should be {words}, not {show_value(value)}{quote_hint(value)}", ())
        elif "\0" in str(value) or not whole.fullmatch(str(value)):
            wrong(f"{show_value(value)} is not {words}", ())
        else:
            return str(value)
        return None

    schema: Json = {"type": "string"} if "(?s)" in pattern else {
        "type": "string", "pattern": f"^{pattern}$",
    }  # fmt: skip
    return ValueType(read=read, schema=schema)


def quote_hint(value: Any) -> str:
    """Return a hint for words such as `no` that YAML reads as booleans."""
    return " (put it in quotes if you mean the word)" if isinstance(value, bool) else ""


def choice_type(*words: str) -> ValueType:

    def read(value: Any, wrong: ReportMistake) -> str | None:
        if value in words:
            return str(value)
        wrong(f"{show_value(value)} is not allowed: {suggest_name(str(value), words)}", ())
        return None

    return ValueType(read=read, schema={"enum": list(words)})


def read_flag(value: Any, wrong: ReportMistake) -> bool | None:
    if not isinstance(value, bool):
        wrong(f"should be true or false, not {show_value(value)}", ())
        return None
    return value


FLAG = ValueType(read=read_flag, schema={"type": "boolean"})


def integer_type(least: int, most: int, *, endless: str = "") -> ValueType:
    """A whole number, or the word `endless` for no limit, which is read as Unlimited."""

    def read(value: Any, wrong: ReportMistake) -> Any:
        if endless and value == endless:
            return Unlimited
        if isinstance(value, bool) or not isinstance(value, int):
            also = f" or {endless}" if endless else ""
            wrong(f"should be a whole number{also}, not {show_value(value)}", ())
        elif not least <= value <= most:
            wrong(f"{value} is out of range: use {least} to {most}", ())
        else:
            return value
        return None

    number = {"type": "integer", "minimum": least, "maximum": most}
    schema = {"anyOf": [number, {"const": endless}]} if endless else number
    return ValueType(
        read=read, schema=schema, write=lambda value: endless if value is None else value
    )


class Unlimited:
    """What `unlimited` is read as, since None stands for a mistake."""


def parse_duration(value: Any) -> float | None:
    """Return the seconds of 90m, 2h, 3d or a number, or None if it is not a duration."""
    if isinstance(value, bool):
        return None
    if isinstance(value, int | float):
        return float(value) if isfinite(value) and value >= 0 else None
    match = DURATION.fullmatch(value.strip()) if isinstance(value, str) else None
    return float(match[1]) * UNITS[match[2]] if match else None


def format_duration(duration_s: float) -> str:
    """5400 → 90m, which parse_duration reads as the same number."""
    for unit in ("d", "h", "m"):
        if duration_s and duration_s % UNITS[unit] == 0:
            return f"{duration_s / UNITS[unit]:.0f}{unit}"
    return f"{duration_s:.3f}".rstrip("0").rstrip(".") + "s"


def duration_type(least_s: float = 0.0, **words: float) -> ValueType:
    """A duration, or one of these words with its duration."""

    def read(value: Any, wrong: ReportMistake) -> float | None:
        if isinstance(value, str) and value in words:
            return words[value]
        found = parse_duration(value)
        if found is None:
            also = "".join(f", or {word}" for word in words)
            wrong(f"{show_value(value)} is not a duration: write 30s, 90m, 2h or 3d{also}", ())
        elif not least_s <= found <= DURATION_MAX_S:
            end = f"at least {format_duration(least_s)}" if found < least_s else "at most ten years"
            wrong(f"{show_value(value)} is out of range: {end}", ())
            return None
        return found

    def write(value: float) -> str:
        return next((word for word, it in words.items() if it == value), "") or format_duration(
            value
        )

    either: list[Json] = [
        {"type": "string", "pattern": f"^{DURATION.pattern}$"},
        {"type": "number", "minimum": least_s},
    ]
    if words:
        either.append({"enum": list(words)})
    return ValueType(read=read, schema={"anyOf": either}, write=write)


def read_money(value: Any, wrong: ReportMistake) -> float | None:
    match = MONEY.fullmatch(value.strip()) if isinstance(value, str) else None
    number = float(match[1]) if match else value
    if isinstance(number, bool) or not isinstance(number, int | float) or not isfinite(number):
        wrong(f"{show_value(value)} is not an amount: write 12.50, in dollars", ())
    elif number <= 0:
        wrong(f"{show_value(value)} is out of range: it must be more than 0", ())
    else:
        return float(number)
    return None


MONEY_SCHEMA = {"anyOf": [
    {"type": "number", "exclusiveMinimum": 0}, {"type": "string", "pattern": f"^{MONEY.pattern}$"},
]}  # fmt: skip
AMOUNT = ValueType(
    read=read_money, schema=MONEY_SCHEMA, write=lambda value: None if value == inf else value
)


def list_type(
    item: ValueType, *, empty: str = "", repeats: bool = False, none: bool = False
) -> ValueType:
    """One item, or a list of them; `empty` is a word for none, `none` allows an empty list."""

    def read(value: Any, wrong: ReportMistake) -> tuple[Any, ...] | None:
        if empty and value in (empty, [empty]):
            return ()
        if not isinstance(value, list | tuple):
            found = item.read(value, wrong)
            return None if found is None else (found,)
        if not value and none:
            return ()
        if not value or len(value) > MANY:
            wrong(f"should be one to {MANY} values, not {len(value)}", ())
            return None
        several = [
            item.read(one, lambda sentence, below, at=at: wrong(sentence, (at, *below)))  # type: ignore[misc]
            for at, one in enumerate(value)
        ]
        found_all = tuple(one for one in several if one is not None)
        if not repeats and len(set(map(str, found_all))) < len(found_all):
            twice = next(one for at, one in enumerate(found_all) if one in found_all[:at])
            wrong(f"{show_value(twice)} is listed twice", ())
        return found_all

    def write(value: Sequence[Any]) -> Any:
        written = [item.write(one) for one in value]
        return (empty or []) if not written else written[0] if len(written) == 1 else written

    several: Json = {"type": "array", "items": item.schema, **({} if none else {"minItems": 1})}
    return ValueType(read=read, schema={"anyOf": [dict(item.schema), several]}, write=write)


def mapping_type(name: str, words: str, item: ValueType) -> ValueType:
    """A mapping from names that match the pattern to values of one type."""
    fits = re.compile(name)

    def read(value: Any, wrong: ReportMistake) -> dict[str, Any] | None:
        if not isinstance(value, Mapping):
            wrong(f"should map names to values, not {show_value(value)}", ())
            return None
        found = {}
        for key, below in value.items():
            if not isinstance(key, str) or not fits.fullmatch(key):
                wrong(f"{show_value(key)} is not {words}", (str(key),))
            else:
                found[key] = item.read(below, lambda said, at, k=key: wrong(said, (k, *at)))  # type: ignore[misc]
        return {key: one for key, one in found.items() if one is not None}

    schema = {
        "type": "object", "additionalProperties": item.schema,
        "propertyNames": {"pattern": f"^{name}$"},
    }  # fmt: skip
    return ValueType(read=read, schema=schema, write=lambda value: dict(value))


def read_plain(value: Any, wrong: ReportMistake) -> str | None:
    """Accept text or a number, as it was written."""
    if value is None:
        wrong('has no value: write "" for an empty value', ())
    elif isinstance(value, bool) or not isinstance(value, str | int | float) or "\0" in str(value):
        wrong(f"should be text, not {show_value(value)}{quote_hint(value)}", ())
    else:
        return str(value)
    return None


PLAIN = ValueType(read=read_plain, schema={"type": ["string", "number", "boolean"]})


def read_command(value: Any, wrong: ReportMistake) -> str | tuple[str, ...] | None:
    """Accept text for a shell, or a list of arguments that needs no shell."""
    if isinstance(value, list | tuple):
        if not value or not all(isinstance(word, str | int | float) for word in value):
            wrong("a list should be a program and its arguments", ())
            return None
        return tuple(map(str, value))
    return SHELL.read(value, wrong)  # type: ignore[no-any-return]


SHELL = text_type(words="a command")
COMMAND = ValueType(
    read=read_command,
    schema={"anyOf": [SHELL.schema, {"type": "array", "items": {"type": "string"}, "minItems": 1}]},
    write=lambda value: value if isinstance(value, str) else list(value),
)


def record_type(build: Callable[..., Any], plain: str = "", /, **kinds: ValueType) -> ValueType:
    """An object with these optional fields, or the value of its field `plain` alone."""

    def read(value: Any, wrong: ReportMistake) -> Any:
        if plain and not isinstance(value, Mapping | list):
            only = kinds[plain].read(value, wrong)
            return None if only is None else build(**{plain: only})
        if not isinstance(value, Mapping):
            wrong(f"should contain {' and '.join(kinds)}, not {show_value(value)}", ())
            return None
        found = {}
        for key, below in value.items():
            if key not in kinds:
                wrong(f"unknown field: {suggest_name(str(key), list(kinds))}", (str(key),))
                continue
            found[key] = kinds[key].read(below, lambda said, at, k=key: wrong(said, (k, *at)))  # type: ignore[misc]
        return build(**{
            key: None if one is Unlimited else one for key, one in found.items() if one is not None
        })  # fmt: skip

    def write(value: Any) -> Any:
        usual = build()
        written = {
            key: kind.write(getattr(value, key))
            for key, kind in kinds.items()
            if getattr(value, key) != getattr(usual, key)
        }
        return written[plain] if plain and written.keys() == {plain} else written

    schema: Json = {
        "type": "object", "additionalProperties": False,
        "properties": {key: kind.schema for key, kind in kinds.items()},
    }  # fmt: skip
    if plain:
        schema = {"anyOf": [kinds[plain].schema, schema]}
    return ValueType(read=read, schema=schema, write=write)
