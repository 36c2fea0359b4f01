"""The schema of each request and reply: Google's discovery documents, and a few of our own."""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any

from tpuherd.catalogue import discovery
from tpuherd.transcripts.other_apis import METHODS, SCHEMAS

TPU_VERSIONS = ("v2", "v2alpha1")
#: What every API answers with, beside its own messages.
COMMON: Mapping[str, Any] = {
    "ErrorReply": {"properties": {"error": {"$ref": "ErrorBody"}}},
    "ErrorBody": {
        "properties": {
            "code": {"type": "integer"},
            "message": {"type": "string"},
            "status": {"type": "string", "enum": []},
            "details": {"type": "array", "items": {"type": "any"}},
            "errors": {"type": "array", "items": {"$ref": "ErrorItem"}},
        }
    },
    "ErrorItem": {
        "properties": {
            name: {"type": "string"}
            for name in ("message", "domain", "reason", "location", "locationType", "debugInfo")
        }
    },
    "ErrorInfo": {
        "properties": {
            "reason": {"type": "string"},
            "domain": {"type": "string"},
            "metadata": {"$ref": "ErrorMetadata"},
        }
    },
    "ErrorMetadata": {
        "closed": True,  # a map: another key may be anything
        "properties": {
            name: {"type": "string"}
            for name in (
                "service", "consumer", "permission", "resource", "location", "quota_limit",
                "quota_limit_value", "quota_metric", "quota_location", "quota_unit",
                "containerInfo", "serviceTitle", "activationUrl",
            )
        }
    },
    "QuotaFailure": {
        "properties": {"violations": {"type": "array", "items": {"$ref": "QuotaViolation"}}}
    },
    "QuotaViolation": {
        "properties": {"subject": {"type": "string"}, "description": {"type": "string"}}
    },
    "BadRequest": {
        "properties": {"fieldViolations": {"type": "array", "items": {"$ref": "FieldViolation"}}}
    },
    "FieldViolation": {
        "properties": {"field": {"type": "string"}, "description": {"type": "string"}}
    },
    "Help": {"properties": {"links": {"type": "array", "items": {"$ref": "HelpLink"}}}},
    "HelpLink": {"properties": {"description": {"type": "string"}, "url": {"type": "string"}}},
    "LocalizedMessage": {
        "properties": {"locale": {"type": "string"}, "message": {"type": "string"}}
    },
    "Empty": {"properties": {}},
}  # fmt: skip


@dataclass(frozen=True, kw_only=True, slots=True)
class ApiMethodShape:
    """The schemas of one method of an API."""

    schemas: Mapping[str, Any]
    request: str | None
    response: str | None


@cache
def all_schemas(version: str) -> Mapping[str, Any]:
    """Return the schemas of a version of Cloud TPU with the common ones; "" is all other APIs."""
    own = discovery(version)["schemas"] if version else SCHEMAS
    return {**COMMON, **own}


@cache
def method_table(version: str) -> tuple[tuple[str, re.Pattern[str], ApiMethodShape], ...]:
    """Return (HTTP method, pattern of the path, schemas) of each method."""
    schemas = all_schemas(version)
    if not version:
        return tuple(
            (http, path_pattern(path), ApiMethodShape(schemas=schemas, request=sent, response=got))
            for http, path, sent, got in METHODS
        )
    found = []
    waiting = [discovery(version)["resources"]]
    while waiting:
        for resource in waiting.pop().values():
            waiting.append(resource.get("resources", {}))
            for one in resource.get("methods", {}).values():
                shape = ApiMethodShape(
                    schemas=schemas,
                    request=one.get("request", {}).get("$ref"),
                    response=one.get("response", {}).get("$ref"),
                )
                found.append((one["httpMethod"], path_pattern(one["flatPath"]), shape))
    return tuple(found)


def path_pattern(template: str) -> re.Pattern[str]:
    """v2/projects/{projectsId}/locations matches v2/projects/demo/locations."""
    parts = re.split(r"\{[^}]*\}", template)
    return re.compile("[^/:]+".join(map(re.escape, parts)))


def find_method_shape(http: str, path: str) -> ApiMethodShape | None:
    """Return the schemas of a request; None if we do not know the method."""
    first = path.partition("/")[0]
    version = first if first in TPU_VERSIONS else ""
    for method, pattern, shape in method_table(version):
        if method == http and pattern.fullmatch(path):
            return shape
    return None


@cache
def query_names() -> frozenset[str]:
    """Return the names of query parameters that our APIs have."""
    found = {
        "alt", "force", "optionsRequestedPolicyVersion", "pageSize", "pageToken", "permissions",
        "prettyPrint", "project", "projection", "updateMask", "view", "maxResults", "filter",
    }  # fmt: skip
    for version in TPU_VERSIONS:
        waiting = [discovery(version)["resources"]]
        while waiting:
            for resource in waiting.pop().values():
                waiting.append(resource.get("resources", {}))
                for one in resource.get("methods", {}).values():
                    found.update(one["parameters"])
    return frozenset(found)


@cache
def field_names() -> frozenset[str]:
    """Return the name of every field in Cloud TPU's documents, as update masks name them."""
    return frozenset(
        name
        for version in TPU_VERSIONS
        for schema in discovery(version)["schemas"].values()
        for name in schema.get("properties", {})
    )
