"""JSON Schemas of values and types: the parts of which json_schemas is made."""

import inspect
import re
import types
from collections.abc import Iterable, Mapping
from dataclasses import fields, is_dataclass
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints

from tpuherd import results
from tpuherd.accounting.goodput import MEANINGS, PARTS, STARTUP
from tpuherd.history.event_kinds import EVENT_KINDS

Schema = Mapping[str, Any]

TEXT: Schema = {"type": "string"}
COUNT: Schema = {"type": "integer", "minimum": 0}
NUMBER: Schema = {"type": "number"}
FLAG: Schema = {"type": "boolean"}
TEXTS: Schema = {"type": "array", "items": TEXT}
PLAIN: Mapping[Any, Schema] = {str: TEXT, int: COUNT, float: NUMBER, bool: FLAG, Any: {}}
#: The keys of these fields.
KEYS: Mapping[str, Iterable[str]] = {
    "seconds": MEANINGS,
    "money": MEANINGS,
    "parts": PARTS,
    "startup": STARTUP,
}


def or_null(schema: Schema) -> Schema:
    """Allow null, which means unknown."""
    return {"anyOf": [schema, {"type": "null"}]}


def list_of(schema: Schema) -> Schema:
    return {"type": "array", "items": schema}


def map_of(names: Iterable[str] | None, schema: Schema) -> Schema:
    if names is None:
        return {"type": "object", "additionalProperties": schema}
    listed = {str(name): schema for name in names}
    return {"type": "object", "properties": listed, "additionalProperties": False}


def object_of(fields: Mapping[str, tuple[Schema, str]]) -> Schema:
    return {
        "type": "object",
        "properties": {
            name: {**schema, "description": meaning} for name, (schema, meaning) in fields.items()
        },
        "required": list(fields),
        "additionalProperties": False,
    }


def schema_of(kind: Any, name: str = "") -> Schema:
    """The schema of a type that results use; `name` is that of its field."""
    inner = get_args(kind)
    origin = get_origin(kind)
    if kind is results.Event:
        return EVENT
    if is_dataclass(kind):
        return object_of(fields_of(kind))
    if origin is Literal:
        return {"enum": list(inner)}
    if origin in (Union, types.UnionType):
        return or_null(schema_of(inner[0], name))
    if origin is tuple:
        return list_of(schema_of(inner[0]))
    if origin is Mapping and inner[1] is Any:
        return {"type": "object"}
    if origin is Mapping:
        return map_of(KEYS.get(name), schema_of(inner[1]))
    return {"type": "integer"} if name == "exit" else PLAIN[kind]


def fields_of(kind: Any) -> Mapping[str, tuple[Schema, str]]:
    """The fields of a dataclass with their schemas and the comments beside or above them."""
    meanings: dict[str, str] = {}
    for base in reversed(kind.__mro__[:-1]):
        for above, name, beside in COMMENTS.findall(inspect.getsource(base)):
            meanings[name] = " ".join([*re.findall(r"#: (.*)", above), *filter(None, [beside])])
    hints = get_type_hints(kind)
    names = [one.name for one in fields(kind)]
    return {name: (schema_of(hints[name], name), meanings[name]) for name in names}


#: A field of a class: the comment lines above it, its name, and the comment beside it.
COMMENTS = re.compile(r"((?:^    #: .*\n)*)^    (\w+): [^#\n]*(?:  #: (.*))?$", re.M)

EVENT: Schema = {
    "type": "object",
    "properties": {
        "seq": {**COUNT, "description": "its number in the log; numbers only rise"},
        "at": {**NUMBER, "description": "seconds since 1970"},
        "kind": {"enum": sorted(EVENT_KINDS), "description": "what happened"},
        "job": {**TEXT, "description": "its job; empty: none"},
        "slot": {**TEXT, "description": "its slot; empty: none"},
        "why": {**TEXT, "description": "the reason, if there is one"},
    },
    "required": ["seq", "at", "kind", "job", "slot"],
    "additionalProperties": True,
}
SERIES: Schema = object_of({
    "job": (TEXT, ""),
    "slot": (TEXT, "gpt-0"),
    "host": (TEXT, "of a host's or chip's value: gpt-0-g1-7kq/w3; else empty"),
    "chip": (or_null(COUNT), "its number on the host; null: it is a host's or the slot's"),
    "name": (TEXT, "loss, step_rate, cpu, hbm_used and others"),
    "points": (
        list_of(list_of(or_null(NUMBER))),
        "time in seconds since 1970, lowest, mean and highest value; null: not a number",
    ),
})  # fmt: skip
