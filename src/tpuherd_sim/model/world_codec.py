"""Converts a world to JSON and back, by the types of its fields."""

import dataclasses
import hashlib
import json
import types
from collections.abc import Callable, Mapping
from functools import cache
from typing import Any, Union, get_args, get_origin, get_type_hints

from tpuherd_sim.model.compute_state import Services
from tpuherd_sim.model.http_types import Json
from tpuherd_sim.model.weather_rules import Weather
from tpuherd_sim.model.world import World

#: Names in annotations that their modules do not import.
NAMES = {"Services": Services, "Weather": Weather}
PLAIN = (str, int, float, bool, type(None), Any)


def dump_world(world: World) -> Json:
    """Return everything of a world that can't be derived."""
    written: Json = encode_value(world)
    return written


def load_world(content: Json) -> World:
    world: World = value_reader(World)(content)
    world.places = {node.uid: key for key, node in world.nodes.items()}
    return world


def world_digest(world: World) -> str:
    """Return a short text that is equal for equal worlds."""
    text = json.dumps(dump_world(world), sort_keys=True, separators=(",", ":"))
    return hashlib.blake2b(text.encode(), digest_size=16).hexdigest()


def encode_value(value: Any) -> Any:
    """Return a value as JSON."""
    kind = type(value)
    if kind in (str, int, float, bool, type(None)):
        return value
    if dataclasses.is_dataclass(kind):
        return {name: encode_value(getattr(value, name)) for name in written_fields(kind)}
    if isinstance(value, Mapping):
        return {str(key): encode_value(one) for key, one in value.items()}
    if isinstance(value, frozenset | set):
        return sorted(encode_value(one) for one in value)
    return [encode_value(one) for one in value]


@cache
def written_fields(kind: type) -> tuple[str, ...]:
    return tuple(one.name for one in dataclasses.fields(kind) if not one.metadata.get("derived"))


@cache
def value_reader(hint: Any) -> Callable[[Any], Any]:
    """Return a function that reads a value of that type."""
    if hint in PLAIN:
        return read_float if hint is float else read_unchanged
    if dataclasses.is_dataclass(hint):
        return dataclass_reader(hint)
    origin, inner = get_origin(hint), get_args(hint)
    if origin in (Union, types.UnionType):
        return optional_reader(value_reader(next(one for one in inner if one is not type(None))))
    if origin is tuple and len(inner) == 2 and inner[1] is ...:
        return sequence_reader(tuple, value_reader(inner[0]))
    if origin is tuple:
        return tuple_reader(tuple(value_reader(one) for one in inner))
    if origin in (list, set, frozenset):
        return sequence_reader(origin, value_reader(inner[0]))
    return mapping_reader(
        inner[0] if inner else str, value_reader(inner[1]) if inner else read_unchanged
    )


def read_unchanged(value: Any) -> Any:
    return value


def read_float(value: Any) -> float:
    """Read a float, which may have been written without a decimal point."""
    return float(value)


def dataclass_reader(kind: Any) -> Callable[[Any], Any]:
    """Return a reader of a dataclass; it resolves fields late, because classes may refer to each
    other.
    """

    @cache
    def readers() -> dict[str, Callable[[Any], Any]]:
        hints = get_type_hints(kind, localns=NAMES)
        return {name: value_reader(hints[name]) for name in written_fields(kind)}

    def read(content: Any) -> Any:
        return kind(
            **{name: one(content[name]) for name, one in readers().items() if name in content}
        )

    return read


def optional_reader(inner: Callable[[Any], Any]) -> Callable[[Any], Any]:
    return lambda value: None if value is None else inner(value)


def sequence_reader(
    kind: Callable[[Any], Any], inner: Callable[[Any], Any]
) -> Callable[[Any], Any]:
    return lambda value: kind(inner(one) for one in value)


def tuple_reader(inner: tuple[Callable[[Any], Any], ...]) -> Callable[[Any], Any]:
    """Return a reader of a fixed-length tuple."""
    return lambda value: tuple(read(one) for read, one in zip(inner, value, strict=True))


def mapping_reader(key: Any, inner: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """Return a reader of a mapping, whose keys are strings in JSON."""
    name: Callable[[str], Any] = int if key is int else str
    return lambda value: {name(one): inner(content) for one, content in value.items()}
