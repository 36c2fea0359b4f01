"""tools/record.py: what of a request and its answer gets into a recording."""

import json
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from tools.record import Asked, Scrubber

START = 1_700_000_000.0  # 2023-11-14T22:13:20Z
PLACE = "projects/canary-lab/locations/us-central2-b"


def recorded(asked: str, body: Any = None, reply: Any = None, status: int = 200) -> dict[str, Any]:
    """The line of one exchange, as its reader sees it."""
    method, _, target = asked.partition(" ")
    sent = Asked(
        host="tpu.googleapis.com", method=method, target=target,
        headers={"authorization": "Bearer canary"}, body=json.dumps(body).encode() if body else b"",
    )  # fmt: skip
    scrubber = Scrubber(key=b"k" * 16, start=START)
    line: dict[str, Any] = scrubber.scrub_exchange(sent, status, json.dumps(reply or {}).encode())
    assert "canary" not in json.dumps(line)
    return line


def test_what_the_schema_lists_stays_and_all_else_is_a_hash() -> None:
    node = {
        "name": f"{PLACE}/nodes/canary-0",
        "acceleratorType": "v4-8",
        "runtimeVersion": "tpu-ubuntu2204-base",
        "state": "READY",
        "createTime": "2023-11-14T22:14:20.5Z",
        "description": "canary",
        "labels": {"canary": "READY", "state": "READY"},
        "metadata": {"ssh-keys": "canary:ssh-ed25519 AAAA", "canary": "1"},
        "networkEndpoints": [{"ipAddress": "10.0.0.2", "port": 8470}],
        "multisliceNode": False,
        "canary ": "no name of a field",
        "tomorrowsField": {"canary": 17},
    }
    line = recorded(f"POST /v2/{PLACE}/nodes?nodeId=canary-0&canary=1", node, {**node, "id": "9"})
    assert line["method"] == "POST"
    assert line["status"] == 200
    assert line["path"].startswith("/v2/projects/<")
    assert line["path"].endswith("/locations/us-central2-b/nodes")
    assert line["query"][0][0] == "nodeId"
    reply = line["reply"]
    assert (reply["acceleratorType"], reply["state"]) == ("v4-8", "READY")
    assert reply["runtimeVersion"] == "tpu-ubuntu2204-base"
    assert reply["createTime"] == "<+60.500 s>"
    assert reply["networkEndpoints"][0]["port"] == 8470
    assert reply["multisliceNode"] is False
    assert "READY" not in json.dumps([reply["labels"], reply["metadata"]])
    assert not {"ssh-keys", "state"} & {*reply["labels"], *reply["metadata"]}
    assert "17" not in [*reply["tomorrowsField"].values()]
    assert "tomorrowsField" not in line["body"]
    assert reply["name"].rpartition("/")[2] == line["query"][0][1]  # one value, one hash


def test_of_errors_known_words_and_codes_stay() -> None:
    error = {
        "code": 404,
        "status": "NOT_FOUND",
        "message": f"Resource '{PLACE}/nodes/canary' was not found",
        "details": [{"@type": "type.googleapis.com/google.rpc.ErrorInfo", "reason": "NO_NODE",
                     "metadata": {"canary": "canary"}}],
    }  # fmt: skip
    line = recorded(f"GET /v2/{PLACE}/nodes/canary", None, {"error": error}, 404)
    shown = line["reply"]["error"]
    assert (shown["code"], shown["status"]) == (404, "NOT_FOUND")
    assert shown["message"].startswith("Resource '<")
    assert shown["message"].endswith(">' was not found")
    assert shown["details"][0]["reason"] == "NO_NODE"


def test_masks_verbs_and_operations_keep_the_words_of_the_api() -> None:
    done = {
        "metadata": {"@type": "type.googleapis.com/google.cloud.tpu.v2.OperationMetadata",
                     "verb": "create", "target": f"{PLACE}/nodes/canary"},
        "done": True,
    }  # fmt: skip
    line = recorded(f"PATCH /v2/{PLACE}/nodes/canary?updateMask=metadata,labels.canary", None, done)
    assert line["query"][0][1].startswith("metadata,labels.<")
    assert line["reply"]["metadata"]["verb"] == "create"
    assert line["reply"]["done"] is True
    line = recorded(f"POST /v2/{PLACE}/nodes/canary:stop")
    assert line["path"].endswith(">:stop")


def test_two_recordings_have_no_hash_in_common() -> None:
    first, second = (Scrubber(start=START).hide("canary") for _ in range(2))
    assert first != second


@given(
    st.recursive(
        st.text() | st.integers() | st.floats() | st.booleans() | st.none(),
        lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    ),
    st.booleans(),
)
def test_any_json_can_be_recorded(value: Any, reply: bool) -> None:
    shown = Scrubber(start=START).scrub_json(value, "name", reply=reply)
    assert isinstance(json.dumps(shown), str)
