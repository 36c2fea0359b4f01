"""Splits a reply into messages, each with its name in the API and the state that it shows."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any

from tpuherd.catalogue import discovery
from tpuherd_sim.tpu.timestamps import parse_time

Json = dict[str, Any]
VERSIONS = ("v2", "v2alpha1")
DEPTH_MAX = 20
#: Strings that stand for another type in transcripts.
STANDINS = {"<int>": "number", "<float>": "number"}


@dataclass(frozen=True, kw_only=True, slots=True)
class SeenMessage:
    """One JSON object of a reply."""

    kind: str  #: Node, QueuedResource, …; a path where no document names it
    state: str  #: the state that it shows, or ""
    fields: Json
    shapes: Mapping[str, Any]  #: the documented fields; empty without a document


@cache
def schema_fields(version: str, schema: str) -> Mapping[str, Any]:
    """Return the documented fields of a message."""
    if version not in VERSIONS:
        return {}
    found = discovery(version)["schemas"].get(schema, {})
    fields: Mapping[str, Any] = found.get("properties", {})
    return fields


@cache
def response_schemas(version: str) -> Mapping[str, str]:
    """Return the schema of each method's reply, by names such as nodes.get."""
    found: dict[str, str] = {}
    waiting = [discovery(version)["resources"]] if version in VERSIONS else []
    while waiting:
        for resource in waiting.pop().values():
            waiting.append(resource.get("resources", {}))
            for one in resource.get("methods", {}).values():
                name = ".".join(one["id"].split(".")[-2:])
                found[name] = one.get("response", {}).get("$ref", "")
    return found


def split_reply(version: str, method: str, status: int, reply: Json) -> Iterator[SeenMessage]:
    """Yield every message of a reply to a method such as nodes.list."""
    if status >= 400:
        service = "Cloud TPU" if version in VERSIONS else version
        yield from split_message(version, f"error reply of {service}", reply, 0)
    else:
        schema = response_schemas(version).get(method) or f"{version} {method}"
        yield from split_message(version, schema, reply, 0)


def split_message(version: str, kind: str, value: Json, depth: int) -> Iterator[SeenMessage]:
    """Yield a message and those inside it; maps of the user's are not messages."""
    named = value.get("@type")
    if isinstance(named, str):
        kind = named.rpartition(".")[2]
    shapes = schema_fields(version, kind)
    yield SeenMessage(kind=kind, state=shown_state(value), fields=value, shapes=shapes)
    if depth > DEPTH_MAX:
        return
    for name, one in value.items():
        shape = shapes.get(name, {})
        if is_map(shape) or name.startswith("<"):
            continue
        inner = shape.get("$ref") or shape.get("items", {}).get("$ref") or f"{kind}.{name}"
        for item in one if isinstance(one, list) else [one]:
            if isinstance(item, dict):
                yield from split_message(version, inner, item, depth + 1)


def is_map(shape: Mapping[str, Any]) -> bool:
    """Whether the keys are the user's."""
    inner = shape.get("additionalProperties")
    return inner is not None and inner.get("type") != "any"


def shown_state(value: Json) -> str:
    """Return the state in a message: of a node, a queued resource or an operation."""
    state = value.get("state")
    if isinstance(state, dict):
        state = state.get("state")
    if isinstance(state, str) and not state.startswith("<"):
        return state
    if isinstance(value.get("done"), bool):
        return "done" if value["done"] else "running"
    return ""


def type_name(value: object) -> str:
    """Return the JSON type, in a transcript or in the model's own replies."""
    if isinstance(value, str):
        return STANDINS.get(value, "string")
    if isinstance(value, bool):
        return "boolean"
    if isinstance(value, int | float):
        return "number"
    if isinstance(value, list):
        return "list"
    return "null" if value is None else "object"


def is_time(value: str) -> bool:
    return value.startswith("<time:") or parse_time(value) is not None


def is_digits(value: str) -> bool:
    return value.startswith("<digits:") or value.lstrip("-").isdecimal()
