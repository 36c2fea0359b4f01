"""Parses requests by the API's own schemas: strict in names, as lenient in types as proto3."""

import json
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any

from tpuherd.catalogue import discovery
from tpuherd_sim.model.http_types import Json
from tpuherd_sim.tpu.errors import invalid_request_error
from tpuherd_sim.tpu.timestamps import format_timestamp, parse_duration, parse_time

#: The message that wraps a body which is not the whole request.
ROOTS = dict.fromkeys(("nodes.create", "nodes.patch"), "node") | {
    "queuedResources.create": "queued_resource"
}
#: Enums whose numbers are not the positions of their names in the document.
NUMBERS: Mapping[str, Mapping[int, str]] = {
    "AcceleratorConfig.type": {2: "V2", 4: "V3", 7: "V4", 9: "V5LITE_POD", 10: "V5P", 11: "V6E"},
    "Node.health": {1: "HEALTHY", 3: "TIMEOUT", 4: "UNHEALTHY_TENSORFLOW",
                    5: "UNHEALTHY_MAINTENANCE"},
    "Node.state": {
        **dict(enumerate("CREATING READY RESTARTING REIMAGING DELETING REPAIRING".split(), 1)),
        **dict(enumerate("STOPPED STOPPING STARTING PREEMPTED TERMINATED HIDING HIDDEN UNHIDING "
                         "UNKNOWN".split(), 8)),
    },
    "Reservation.state": dict(
        enumerate("APPROVED PROVISIONING ACTIVE DEPROVISIONING EXPIRED FAILED".split(), 3)
    ),
}  # fmt: skip
SCALARS = {"string": "TYPE_STRING", "boolean": "TYPE_BOOL", "integer": "TYPE_INT32"}
INT = re.compile(r"-?[0-9]{1,20}")
SHOWN_CHARS_MAX = 200


@dataclass(frozen=True, kw_only=True, slots=True)
class MethodSchema:
    """A method's parameters, from the discovery document."""

    query: Mapping[str, str]  #: type by name
    body: str | None  #: name of the schema


@dataclass(frozen=True, kw_only=True, slots=True)
class FieldLocation:
    """The position in a request."""

    version: str
    path: str  #: node.network_config.queue_count
    schema: str  #: the message's schema
    name: str  #: the field's name in JSON

    def invalid_value_error(self, kind: str, value: Any) -> Exception:
        shown = json.dumps(value)[:SHOWN_CHARS_MAX]
        text = f"Invalid value at '{self.path}' ({kind}), {shown}"
        return invalid_request_error(text, field=self.path)

    def message_type(self, name: str) -> str:
        """Return the full name of one of the API's own types."""
        return f"type.googleapis.com/google.cloud.tpu.{self.version}.{name}"


@cache
def method_schemas(version: str) -> Mapping[str, MethodSchema]:
    """Return every method of a version, by names such as nodes.create."""
    found: dict[str, MethodSchema] = {}

    def walk(resources: Json) -> None:
        for resource in resources.values():
            for one in resource.get("methods", {}).values():
                query = {
                    name: parameter["type"]
                    for name, parameter in one["parameters"].items()
                    if parameter["location"] == "query"
                }
                body = one.get("request", {}).get("$ref")
                found[".".join(one["id"].split(".")[-2:])] = MethodSchema(query=query, body=body)
            walk(resource.get("resources", {}))

    walk(discovery(version)["resources"])
    return found


@cache
def message_fields(version: str, schema: str) -> Mapping[str, tuple[str, Json]]:
    """Return the fields of a message by their JSON names and by their proto names."""
    found: dict[str, tuple[str, Json]] = {}
    for name, shape in discovery(version)["schemas"][schema].get("properties", {}).items():
        found[name] = found[snake_case(name)] = (name, shape)
    return found


@cache
def snake_case(name: str) -> str:
    """Return network_config for networkConfig."""
    return re.sub(r"[A-Z]", lambda found: "_" + found.group().lower(), name)


def read_query(version: str, method: str, query: Mapping[str, str]) -> dict[str, str]:
    """Parse the query parameters of a call; `page_size` also counts as `pageSize`."""
    known = method_schemas(version)[method].query
    read: dict[str, str] = {}
    for given, value in query.items():
        name = next((one for one in known if given in (one, snake_case(one))), None)
        if name is None:
            raise invalid_request_error(
                f'Invalid JSON payload received. Unknown name "{given}": Cannot bind query '
                f"parameter. Field '{given}' could not be found in request message."
            )
        kind = known[name]
        if kind == "integer" and not (INT.fullmatch(value) and abs(int(value)) < 2**31):
            field = snake_case(name)
            raise invalid_request_error(
                f"Invalid value at '{field}' (TYPE_INT32), \"{value}\"", field=field
            )
        if kind == "boolean" and value.lower() not in ("true", "false", "1", "0", ""):
            field = snake_case(name)
            raise invalid_request_error(
                f"Invalid value at '{field}' (TYPE_BOOL), \"{value}\"", field=field
            )
        read[name] = value
    return read


def read_body(version: str, method: str, body: bytes) -> Json:
    """Parse the body of a call with normalised names and enums, without defaults and output-only
    fields.
    """
    schema = method_schemas(version)[method].body
    content = parse_json_object(body)
    if schema is None:
        return {}
    return read_message(version, schema, content, ROOTS.get(method, ""))


def parse_json_object(body: bytes) -> Json:
    """Parse the body as an object; an empty body is an empty object."""
    if not body.strip():
        return {}
    try:
        content = json.loads(body.decode("utf-8"), parse_constant=refuse_constant)
        if b"\\u" in body:
            json.dumps(content, ensure_ascii=False).encode()  # half a surrogate pair is no text
    except (ValueError, RecursionError) as error:
        raise invalid_request_error(
            f"Invalid JSON payload received. {syntax_error_text(body, error)}"
        ) from error
    if not isinstance(content, dict):
        raise invalid_request_error(
            'Invalid JSON payload received. Unknown name "": Root element must be a message.'
        )
    return content


def refuse_constant(text: str) -> float:
    """Refuse NaN and Infinity, which JSON lacks."""
    raise ValueError(text)


def syntax_error_text(body: bytes, error: Exception) -> str:
    """Describe where a body stops being JSON."""
    if isinstance(error, json.JSONDecodeError):
        line = error.doc[error.pos : error.pos + 20].splitlines()
        return f"Unexpected token.\n{line[0] if line else ''}\n^"
    if isinstance(error, RecursionError):
        return "Message too deep. Max recursion depth reached for key"
    return "Unexpected token."


def read_message(version: str, schema: str, content: Any, path: str) -> Json:
    if not isinstance(content, dict):
        place = FieldLocation(version=version, path=path, schema=schema, name="")
        raise place.invalid_value_error(place.message_type(schema), content)
    known = message_fields(version, schema)
    read: Json = {}
    for given, value in content.items():
        if given not in known:
            at = f" at '{path}'" if path else ""
            text = f'Unknown name "{given}"{at}: Cannot find field.'
            raise invalid_request_error(
                f"Invalid JSON payload received. {text}", field=path, description=text
            )
        name, shape = known[given]
        inner = f"{path}.{snake_case(name)}" if path else snake_case(name)
        place = FieldLocation(version=version, path=inner, schema=schema, name=name)
        fine = None if value is None else read_field(place, shape, value)
        if fine is not None and not shape.get("readOnly"):
            read[name] = fine
    return read


def read_field(place: FieldLocation, shape: Json, value: Any) -> Any:
    """Return a field's value, or None if it is the default of its type."""
    if "$ref" in shape:
        if isinstance(value, list):
            where = place.path.rpartition(".")
            text = (
                f"Unknown name \"{where[2]}\" at '{where[0]}': Proto field is not repeating, "
                "cannot start list."
            )
            raise invalid_request_error(f"Invalid JSON payload received. {text}", field=place.path)
        return read_message(place.version, shape["$ref"], value, place.path)
    if shape["type"] == "array":
        return read_array(place, shape["items"], value) or None
    if shape["type"] == "object":
        return read_mapping(place, shape, value) or None
    return read_scalar(place, shape, value) or None


def read_array(place: FieldLocation, items: Json, value: Any) -> list[Any]:
    """Parse a repeated field. A single message counts as a list of one, which SkyPilot sends."""
    given = value if isinstance(value, list) else [value]
    if not isinstance(value, list) and "$ref" not in items:
        raise place.invalid_value_error(SCALARS.get(str(items["type"]), "Any"), value)
    read = []
    for number, one in enumerate(given):
        inner = FieldLocation(
            version=place.version,
            path=f"{place.path}[{number}]",
            schema=place.schema,
            name=place.name,
        )
        if "$ref" in items:
            read.append(read_message(place.version, items["$ref"], one, inner.path))
        elif items["type"] == "object":
            if not isinstance(one, dict):
                raise inner.invalid_value_error("type.googleapis.com/google.protobuf.Any", one)
            read.append(one)
        else:
            read.append(read_scalar(inner, items, one))
    return read


def read_mapping(place: FieldLocation, shape: Json, value: Any) -> Json:
    if not isinstance(value, dict):
        raise place.invalid_value_error("Map", value)
    inner = shape.get("additionalProperties", {})
    if inner.get("type") != "string":
        return value
    for number, (name, one) in enumerate(value.items()):
        for part, text in (("key", name), ("value", one)):
            read_string(
                FieldLocation(
                    version=place.version,
                    path=f"{place.path}[{number}].{part}",
                    schema=place.schema,
                    name=place.name,
                ),
                {},
                text,
            )
    return value


def read_scalar(place: FieldLocation, shape: Json, value: Any) -> Any:
    if "enum" in shape:
        return read_enum(place, shape, value)
    return READERS[shape["type"]](place, shape, value)


def read_enum(place: FieldLocation, shape: Json, value: Any) -> str:
    """Parse an enum by name or by number; "" for the unspecified one."""
    names: list[str] = shape["enum"]
    if isinstance(value, str) and INT.fullmatch(value):
        value = int(value)
    if isinstance(value, int) and not isinstance(value, bool):
        numbers = NUMBERS.get(f"{place.schema}.{place.name}") or dict(enumerate(names))
        value = names[0] if value == 0 else numbers.get(value, value)
    if not isinstance(value, str) or value not in names:
        kind = place.name[0].upper() + place.name[1:]
        raise place.invalid_value_error(place.message_type(f"{place.schema}.{kind}"), value)
    return "" if value == names[0] else value


def read_string(place: FieldLocation, shape: Json, value: Any) -> str:
    """Parse text, or whole numbers, times and durations, which JSON carries as text."""
    form = shape.get("format", "")
    if form in ("int64", "uint64") and isinstance(value, int) and not isinstance(value, bool):
        value = str(value)
    if not isinstance(value, str):
        raise place.invalid_value_error(FORMATS.get(form, "TYPE_STRING"), value)
    try:
        value.encode()
    except UnicodeEncodeError as error:
        raise place.invalid_value_error("TYPE_STRING", value) from error
    if form == "google-duration" and parse_duration(value) is None:
        raise place.invalid_value_error(FORMATS[form], value)
    if form == "google-datetime":
        at = parse_time(value)
        if at is None:
            raise place.invalid_value_error(FORMATS[form], value)
        return format_timestamp(at)
    if form in ("int64", "uint64") and not INT.fullmatch(value):
        raise place.invalid_value_error(FORMATS[form], value)
    return value


def read_boolean(place: FieldLocation, shape: Json, value: Any) -> bool:
    """Parse a boolean, also from text."""
    if value in ("true", "false"):
        return bool(value == "true")
    if not isinstance(value, bool):
        raise place.invalid_value_error("TYPE_BOOL", value)
    return value


def read_integer(place: FieldLocation, shape: Json, value: Any) -> int:
    """Parse a whole number, also from text or a float without a fraction."""
    if isinstance(value, str) and INT.fullmatch(value):
        value = int(value)
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    if isinstance(value, bool) or not isinstance(value, int) or abs(value) >= 2**31:
        raise place.invalid_value_error("TYPE_INT32", value)
    return value


FORMATS = {
    "google-duration": "type.googleapis.com/google.protobuf.Duration",
    "google-datetime": "type.googleapis.com/google.protobuf.Timestamp",
    "int64": "TYPE_INT64",
    "uint64": "TYPE_UINT64",
}
READERS: Mapping[str, Callable[[FieldLocation, Json, Any], Any]] = {
    "string": read_string,
    "boolean": read_boolean,
    "integer": read_integer,
}


def known_fields(version: str, schema: str, content: Json) -> Json:
    """Return the fields of a message that a version knows."""
    known = message_fields(version, schema)
    kept: Json = {}
    for name, value in content.items():
        if name not in known:
            continue
        shape = known[name][1]
        if "$ref" in shape:
            kept[name] = known_fields(version, shape["$ref"], value)
        elif shape["type"] == "array" and "$ref" in shape["items"]:
            kept[name] = [known_fields(version, shape["items"]["$ref"], one) for one in value]
        else:
            kept[name] = value
    return kept
