"""Turns one request with its reply into a line of a transcript, without names or free text.

It walks both along their schemas. Only what a schema knows stays; in a reply, an unknown field
keeps its name, because the API's authors chose it, but nothing of its value.
"""

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tpuherd.transcripts.api_schemas import (
    COMMON,
    ApiMethodShape,
    field_names,
    find_method_shape,
    query_names,
)
from tpuherd.transcripts.placeholders import Placeholders
from tpuherd.transcripts.scrub_messages import message_shape
from tpuherd.transcripts.scrub_strings import (
    DURATION,
    ENUM,
    WORDS,
    is_clear,
    scrub_path,
    scrub_string,
)

Json = dict[str, Any]
DEPTH_MAX = 30
ITEMS_MAX = 16
FIELD = re.compile(r"[a-z][A-Za-z0-9]{1,39}")
#: Numbers that are codes, sizes of pages or known ports.
CLEAR_NUMBERS = frozenset(
    {"code", "port", "nodeCount", "httpErrorStatusCode", "progress", "version"}
)
COUNTED = frozenset({"pageSize", "optionsRequestedPolicyVersion", "maxResults"})
ANY: Mapping[str, Any] = {"type": "any"}


@dataclass(frozen=True, kw_only=True, slots=True)
class SentRequest:
    """A request as the client made it."""

    method: str
    path: str  #: without a slash at its start
    query: Mapping[str, Any]
    body: Json | None


@dataclass(frozen=True, kw_only=True, slots=True)
class MessageScrubber:
    """Scrubs one body."""

    schemas: Mapping[str, Any]
    hide: Placeholders
    reply: bool  #: whether unknown field names may stay

    def scrub_value(self, shape: Mapping[str, Any], field: str, value: Any, depth: int = 0) -> Any:
        if value is None or isinstance(value, bool):
            return value
        if depth > DEPTH_MAX:
            return "<deep>"
        if isinstance(value, str):
            return self.scrub_word(shape, field, value)
        if isinstance(value, int):
            return value if field in CLEAR_NUMBERS and abs(value) < 1 << 31 else "<int>"
        if isinstance(value, float):
            return "<float>"
        if isinstance(value, list):
            inner = shape.get("items", shape if "$ref" in shape else ANY)
            return [self.scrub_value(inner, field, one, depth + 1) for one in shorten_list(value)]
        return self.scrub_object(shape, value, depth)

    def scrub_object(self, shape: Mapping[str, Any], value: Json, depth: int) -> Json:
        """Scrub a message by its schema, or a map, of which no key is ours to show."""
        named = shape.get("$ref") or str(value.get("@type", "")).rpartition(".")[2]
        schema = self.schemas.get(named)
        if schema is None:
            return {
                self.map_key(key): self.scrub_blind(one, depth + 1) for key, one in value.items()
            }
        known = schema.get("properties", {})
        shown: Json = {}
        for key, one in value.items():
            if key in known:
                shown[key] = self.scrub_value(known[key], key, one, depth + 1)
            elif key == "@type":
                shown[key] = scrub_string(key, str(one), self.hide)
            elif self.reply and FIELD.fullmatch(key) and not schema.get("closed"):
                shown[key] = self.scrub_blind(one, depth + 1)
            else:
                shown[self.hide.hide_value("key", key)] = self.scrub_blind(one, depth + 1)
        return shown

    def map_key(self, key: str) -> str:
        return key if key in WORDS["key"] or key == "@type" else self.hide.hide_value("key", key)

    def scrub_blind(self, value: Any, depth: int) -> Any:
        """Return only the types of a value that no schema describes."""
        if value is None or isinstance(value, bool):
            return value
        if depth > DEPTH_MAX:
            return "<deep>"
        if isinstance(value, str):
            return self.hide.hide_text(value)
        if isinstance(value, int):
            return "<int>"
        if isinstance(value, float):
            return "<float>"
        if isinstance(value, list):
            return [self.scrub_blind(one, depth + 1) for one in shorten_list(value)]
        return {
            self.hide.hide_value("key", key): self.scrub_blind(one, depth + 1)
            for key, one in value.items()
        }

    def scrub_word(self, shape: Mapping[str, Any], field: str, value: str) -> str:
        if "enum" in shape:
            listed = value in shape["enum"] or (self.reply and ENUM.fullmatch(value))
            return value if listed else self.hide.hide_text(value)
        if shape.get("format") == "google-duration" and DURATION.fullmatch(value):
            return value
        if self.reply and field == "description" and shape.get("type") == "string":
            return self.scrub_description(value)
        if field == "permissions":
            field = "permission"
        return scrub_string(field, value, self.hide)

    def scrub_description(self, value: str) -> str:
        """Google's own in errors; a node's is the user's."""
        if self.schemas is COMMON:
            return message_shape(value)
        return self.hide.hide_text(value)


def shorten_list(items: list[Any]) -> list[Any]:
    """Return the first of many equal things, such as a pod's addresses; of resources, all."""
    if all(isinstance(one, dict) and "name" in one for one in items):
        return items
    return items[:ITEMS_MAX]


def scrub_exchange(
    sent: SentRequest, status: int | None, reply: object, hide: Placeholders
) -> Json:
    """Return the line without its times; `reply` is the decoded JSON, or None if it was not."""
    method = find_method_shape(sent.method, sent.path)
    line: Json = {
        "method": sent.method,
        "path": scrub_path(sent.path, hide),
        "query": scrub_query(sent.query, hide),
    }
    if sent.body is not None:
        line["body"] = scrub_body(method, sent.body, hide)
    line["status"] = status
    if isinstance(reply, dict):
        line["reply"] = scrub_reply(method, status or 0, reply, hide)
        order = {name: found for name, one in reply.items() if (found := list_order(one))}
        if order:
            line["order"] = {name: one for name, one in order.items() if name in line["reply"]}
    return line


def scrub_body(method: ApiMethodShape | None, body: Json, hide: Placeholders) -> Any:
    named = method.request if method else None
    scrub = MessageScrubber(schemas=method.schemas if method else {}, hide=hide, reply=False)
    return scrub.scrub_object({"$ref": named or ""}, body, 0)


def scrub_reply(
    method: ApiMethodShape | None, status: int, reply: Json, hide: Placeholders
) -> Json:
    if status >= 400:
        scrub = MessageScrubber(schemas=COMMON, hide=hide, reply=True)
        return scrub.scrub_object({"$ref": "ErrorReply"}, reply, 0)
    named = method.response if method else None
    scrub = MessageScrubber(schemas=method.schemas if method else {}, hide=hide, reply=True)
    return scrub.scrub_object({"$ref": named or ""}, reply, 0)


def scrub_query(query: Mapping[str, Any], hide: Placeholders) -> Json:
    shown: Json = {}
    for name, value in query.items():
        key = name if name in query_names() else hide.hide_value("key", name)
        many = value if isinstance(value, list) else [value]
        words = [scrub_parameter(name, str(one), hide) for one in many]
        shown[key] = words if isinstance(value, list) else words[0]
    return shown


def scrub_parameter(name: str, value: str, hide: Placeholders) -> str:
    """Return what may stay of one parameter's value."""
    if name in COUNTED and value.isdecimal() and len(value) < 6:
        return value
    if name == "updateMask":
        return ",".join(
            ".".join(part if is_field(part) else hide.hide_value("key", part) for part in parts)
            for parts in (one.split(".") for one in value.split(","))
        )
    if name == "permissions" and is_clear("permission", value):
        return value
    return scrub_string(name, value, hide)


def is_field(part: str) -> bool:
    """Whether it is a field's name, in either style."""
    first, *rest = part.split("_")
    return first + "".join(one.capitalize() for one in rest) in field_names()


def list_order(items: object) -> str:
    """Return by what a list of resources is sorted, which placeholders can't tell any more."""
    if not isinstance(items, list) or len(items) < 2:
        return ""
    if not all(isinstance(one, dict) and isinstance(one.get("name"), str) for one in items):
        return ""
    names = [place_and_name(one["name"]) for one in items]
    made = [str(one.get("createTime", "")) for one in items]
    orders: Sequence[tuple[str, Sequence[Any]]] = (
        ("zone and name", [f"{zone}/{name}" for zone, name in names]),
        ("name", [name for _, name in names]),
        ("createTime", made),
    )
    for title, keys in orders:
        if len(set(keys)) == len(keys) and list(keys) == sorted(keys):
            return title
        if len(set(keys)) == len(keys) and list(keys) == sorted(keys, reverse=True):
            return f"{title}, descending"
    return "none"


def place_and_name(name: str) -> tuple[str, str]:
    """Return the zone and the last part of a resource's name."""
    parts = name.split("/")
    zone = parts[parts.index("locations") + 1] if "locations" in parts[:-1] else ""
    return zone, parts[-1]


def line_digest(line: Json) -> str:
    """Return what two equal lines have in common."""
    return json.dumps(line, sort_keys=True, separators=(",", ":"))
