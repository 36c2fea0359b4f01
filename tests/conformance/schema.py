"""Checks whether an answer fits the schema of a discovery document, unknown fields included."""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

PATTERNS = {
    "google-datetime": re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d{6}|\.\d{9})Z"),
    "google-duration": re.compile(r"-?\d+(\.\d{1,9})?s"),
    "date-time": re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?(Z|[+-]\d\d:\d\d)"),
    "int64": re.compile(r"-?\d{1,19}"),
    "uint64": re.compile(r"\d{1,20}"),
}
PLAIN = {"string": str, "boolean": bool, "object": dict, "array": list}
TYPED = re.compile(
    r"type\.googleapis\.com/google\.(?:(?:cloud\.tpu|api\.serviceusage)\.(\w+)|protobuf)\.(\w+)"
)


@dataclass(frozen=True, kw_only=True, slots=True)
class Document:
    """A discovery document, with its methods by their full name."""

    version: str
    schemas: Mapping[str, Any]
    methods: Mapping[str, Any]

    def faults(self, method: str, answer: Any) -> list[str]:
        """What is wrong with the answer of a method; nothing when all is well."""
        name = self.methods[method]["response"]["$ref"]
        return list(self._named(name, answer, name))

    def _named(self, name: str, value: Any, where: str) -> Iterator[str]:
        yield from self._value(self.schemas[name], value, where)

    def _value(self, schema: Mapping[str, Any], value: Any, where: str) -> Iterator[str]:
        if value is None or value == []:
            yield f"{where}: sent as {value}, must be left out"
        elif "$ref" in schema:
            yield from self._named(schema["$ref"], value, where)
        elif schema["type"] == "integer":
            if type(value) is not int:
                yield f"{where}: {value!r} is not an integer"
        elif schema["type"] in PLAIN:
            if not isinstance(value, PLAIN[schema["type"]]):
                yield f"{where}: {value!r} is not of type {schema['type']}"
            else:
                yield from self._inside(schema, value, where)

    def _inside(self, schema: Mapping[str, Any], value: Any, where: str) -> Iterator[str]:
        if isinstance(value, str):
            pattern = PATTERNS.get(schema.get("format", ""))
            if pattern and not pattern.fullmatch(value):
                yield f"{where}: {value!r} is not a {schema['format']}"
            if "enum" in schema and value not in schema["enum"]:
                yield f"{where}: {value!r} is not one of {schema['enum']}"
        elif isinstance(value, list):
            for number, item in enumerate(value):
                yield from self._value(schema["items"], item, f"{where}[{number}]")
        elif isinstance(value, dict):
            yield from self._fields(schema, value, where)

    def _fields(
        self, schema: Mapping[str, Any], value: Mapping[str, Any], where: str
    ) -> Iterator[str]:
        if "@type" in value:
            yield from self._typed(value, where)
            return
        known = schema.get("properties", {})
        for field, item in value.items():
            if field in known:
                yield from self._value(known[field], item, f"{where}.{field}")
            elif "additionalProperties" in schema:
                yield from self._value(schema["additionalProperties"], item, f"{where}.{field}")
            else:
                yield f"{where}.{field}: no such field in {self.version}"

    def _typed(self, value: Mapping[str, Any], where: str) -> Iterator[str]:
        """A value that names its own type, as the metadata and response of an operation do."""
        found = TYPED.fullmatch(value["@type"])
        rest = {field: item for field, item in value.items() if field != "@type"}
        if not found or found[2] not in self.schemas:
            yield f"{where}: unknown type {value['@type']}"
        elif found[1] not in (None, self.version):
            yield f"{where}: {value['@type']} in an answer of {self.version}"
        else:
            yield from self._named(found[2], rest, where)


def document(source: Mapping[str, Any]) -> Document:
    """Take a discovery document apart."""
    methods: dict[str, Any] = {}

    def collect(resource: Mapping[str, Any]) -> None:
        for method in resource.get("methods", {}).values():
            methods[method["id"]] = method
        for inner in resource.get("resources", {}).values():
            collect(inner)

    collect(source)
    return Document(version=source["version"], schemas=source["schemas"], methods=methods)
