"""The schema checker itself is strict."""

from typing import Any

import pytest

from tests.conformance.schema import Document, document

TPU = document(
    {
        "version": "v2",
        "schemas": {
            "Node": {
                "type": "object",
                "properties": {
                    "id": {"type": "string", "format": "int64"},
                    "state": {"type": "string", "enum": ["READY"]},
                    "createTime": {"type": "string", "format": "google-datetime"},
                    "tags": {"type": "array", "items": {"type": "string"}},
                    "labels": {"type": "object", "additionalProperties": {"type": "string"}},
                    "port": {"type": "integer", "format": "int32"},
                },
            },
            "Operation": {
                "type": "object",
                "properties": {
                    "response": {"type": "object", "additionalProperties": {"type": "any"}}
                },
            },
        },
        "resources": {
            "nodes": {
                "methods": {
                    "get": {"id": "node", "response": {"$ref": "Node"}},
                    "create": {"id": "create", "response": {"$ref": "Operation"}},
                }
            }
        },
    }
)
TYPE = "type.googleapis.com/google.cloud.tpu.v2.Node"


@pytest.mark.parametrize("tpu", [TPU], ids=["tpu"])
@pytest.mark.parametrize(
    "answer",
    [
        {},
        {"id": "9007199254740993", "state": "READY", "port": 8470},
        {"createTime": "2026-11-20T10:46:01.123456789Z", "tags": ["a"], "labels": {"b": "c"}},
    ],
    ids=str,
)
def test_valid_answers(tpu: Document, answer: Any) -> None:
    assert tpu.faults("node", answer) == []
    assert tpu.faults("create", {"response": {"@type": TYPE, **answer}}) == []


@pytest.mark.parametrize("tpu", [TPU], ids=["tpu"])
@pytest.mark.parametrize(
    "answer",
    [
        {"colour": "red"},
        {"id": 7},
        {"id": "seven"},
        {"state": "HAPPY"},
        {"createTime": "2026-11-20T10:46:01Z"},
        {"tags": []},
        {"tags": None},
        {"tags": [7]},
        {"labels": {"b": 7}},
        {"port": "8470"},
        {"port": True},
    ],
    ids=str,
)
def test_invalid_answers(tpu: Document, answer: Any) -> None:
    assert len(tpu.faults("node", answer)) == 1
    assert len(tpu.faults("create", {"response": {"@type": TYPE, **answer}})) == 1
    other = TYPE.replace("v2", "v2alpha1")
    assert tpu.faults("create", {"response": {"@type": other}})
