"""The history as JSON and back, so that an engine need not read the whole log at its start."""

from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from enum import Enum
from functools import cache
from types import UnionType
from typing import Any, get_args, get_origin, get_type_hints

from tpuherd.model.slot_history import History

VERSION = 1  #: of the format; another version is ignored, and the whole log is folded again


def encode_history(history: History) -> Any:
    return {"v": VERSION, "shape": type_fingerprint(History), "history": to_plain(history)}


def decode_history(document: Any) -> History | None:
    """Read a history from JSON; None if another version wrote it."""
    if not isinstance(document, Mapping) or document.get("shape") != type_fingerprint(History):
        return None
    found = from_plain(History, document["history"])
    assert isinstance(found, History)
    return found


def to_plain(value: Any) -> Any:
    """Encode a value as JSON; mappings become pairs, since their keys need not be strings."""
    if is_dataclass(value):
        return [to_plain(getattr(value, field.name)) for field in fields(value)]
    if isinstance(value, Mapping):
        return [[to_plain(key), to_plain(one)] for key, one in value.items()]
    if isinstance(value, list | tuple):
        return [to_plain(one) for one in value]
    return value.value if isinstance(value, Enum) else value


def from_plain(kind: Any, value: Any) -> Any:
    """Decode a value by the types of its fields."""
    origin = get_origin(kind)
    if origin is UnionType:
        inner = [one for one in get_args(kind) if one is not type(None)]
        return None if value is None else from_plain(inner[0], value)
    if isinstance(kind, type) and is_dataclass(kind):
        types = field_types(kind)
        names = [field.name for field in fields(kind)]
        return kind(
            **{name: from_plain(types[name], one) for name, one in zip(names, value, strict=True)}
        )
    if origin is tuple:
        types_of = get_args(kind)
        if len(types_of) == 2 and types_of[1] is Ellipsis:
            return tuple(from_plain(types_of[0], one) for one in value)
        return tuple(from_plain(one, item) for one, item in zip(types_of, value, strict=True))
    if origin is not None and issubclass(origin, Mapping):
        key, item = get_args(kind)
        return {from_plain(key, one): from_plain(item, other) for one, other in value}
    return kind(value) if isinstance(kind, type) and issubclass(kind, Enum) else value


@cache
def field_types(kind: Any) -> Mapping[str, Any]:
    return get_type_hints(kind)


@cache
def type_fingerprint(kind: Any) -> str:
    """All dataclasses in it with their fields; any change makes it another version."""
    seen: dict[str, str] = {}

    def look(one: Any) -> None:
        if is_dataclass(one) and isinstance(one, type) and one.__name__ not in seen:
            seen[one.__name__] = ",".join(field.name for field in fields(one))
            for inner in field_types(one).values():
                look(inner)
        for inner in get_args(one):
            look(inner)

    look(kind)
    return ";".join(f"{name}:{inside}" for name, inside in sorted(seen.items()))
