"""What a transcript keeps: the API's words. What it hides: everything that people chose."""

import json
from typing import Any

import pytest

from tpuherd.transcripts.api_schemas import find_method_shape, method_table
from tpuherd.transcripts.placeholders import Placeholders, parse_time
from tpuherd.transcripts.scrub_exchange import SentRequest, scrub_exchange
from tpuherd.transcripts.scrub_hosts import scrub_host
from tpuherd.transcripts.scrub_messages import message_shape

START = 1_800_000_000.0
HIDE = Placeholders(key=b"0123456789abcdef", start=START)
ZONE = "v2/projects/p/locations/us-central2-b"


def scrub(reply: Any, path: str = f"{ZONE}/nodes/n", status: int = 200, **sent: Any) -> Any:
    asked = {"method": "GET", "path": path, "query": {}, "body": None, **sent}
    return scrub_exchange(SentRequest(**asked), status, reply, HIDE)


def test_the_same_value_has_the_same_placeholder_in_one_transcript_only() -> None:
    assert HIDE.hide_value("node", "gpt") == HIDE.hide_value("node", "gpt")
    assert HIDE.hide_value("node", "gpt") != HIDE.hide_value("node", "gpu")
    other = Placeholders(key=b"another key", start=START)
    assert HIDE.hide_value("node", "gpt") != other.hide_value("node", "gpt")


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        ("2027-01-15T08:00:00.123456789Z", "<time:0.123:9Z>"),
        ("2027-01-15T08:00:10Z", "<time:10.000:0Z>"),
        ("2027-01-15T09:00:00.5+01:00", "<time:0.500:1offset>"),
        ("2027-01-15T00:00:00-08:00", "<time:0.000:0offset>"),
        ("", ""),
    ],
)
def test_times_are_relative_and_keep_their_form(value: str, shown: str) -> None:
    assert HIDE.hide_text(value) == shown


@pytest.mark.parametrize(
    "value", ["2027-13-01T00:00:00Z", "2027-01-01T00:99:00Z", "0001-01-01T00:00:00Z", "tomorrow"]
)
def test_what_is_not_a_time_is_not_read_as_one(value: str) -> None:
    assert parse_time(value) is None


@pytest.mark.parametrize(
    ("value", "kind"),
    [("10.0.0.1", "address"), ("fe80::1", "address"), ("123456", "digits"),
     ("ada@lab.org", "email"), ("whatever", "text")],
)  # fmt: skip
def test_a_hidden_value_says_what_form_it_had(value: str, kind: str) -> None:
    assert HIDE.hide_text(value).startswith(f"<{kind}:")


def test_enums_types_zones_and_times_of_a_node_stay() -> None:
    node = {
        "name": "projects/p/locations/us-central2-b/nodes/n",
        "state": "READY",
        "health": "A_NEW_HEALTH",
        "acceleratorType": "v5litepod-16",
        "runtimeVersion": "v2-alpha-tpuv5-lite",
        "schedulingConfig": {"spot": True},
        "networkEndpoints": [{"port": 8470, "ipAddress": "10.0.0.1"}],
    }
    shown = scrub(node)["reply"]
    assert shown["name"].startswith("projects/<project:")
    assert "/locations/us-central2-b/nodes/<node:" in shown["name"]
    assert {**shown, "name": "", "networkEndpoints": []} == {
        **node, "name": "", "networkEndpoints": [],
    }  # fmt: skip
    assert shown["networkEndpoints"][0]["port"] == 8470
    assert shown["networkEndpoints"][0]["ipAddress"].startswith("<address:")


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("state", "ready for me"),  # not of an enum's form
        ("acceleratorType", "canary-8"),
        ("runtimeVersion", "tpu-vm-canary"),
        ("cidrBlock", "10.9.8.0/24"),
        ("description", "canary text"),
        ("healthDescription", "the canary sings"),
        ("queuedResource", "canary"),
    ],
)
def test_a_field_keeps_only_what_it_may_have(field: str, value: str) -> None:
    text = json.dumps(scrub({field: value})["reply"][field])
    assert not any(word in text for word in ("canary", "10.9.8.0", "for me"))


def test_an_unknown_field_keeps_its_name_and_its_types_only() -> None:
    said = {"shinyThing": {"canary": ["canary", 7, 0.5, True, None]}}
    shown = scrub(said)["reply"]["shinyThing"]
    ((key, items),) = shown.items()
    assert key.startswith("<key:")
    assert items[0].startswith("<text:")
    assert items[1:] == ["<int>", "<float>", True, None]


def test_an_unknown_field_of_a_request_keeps_nothing() -> None:
    line = scrub(
        {}, method="POST", path=f"{ZONE}/nodes", body={"canary": 1, "acceleratorType": "x"}
    )
    assert "canary" not in json.dumps(line)
    assert line["body"]["acceleratorType"].startswith("<text:")


def test_a_method_that_is_not_known_shows_its_types_only() -> None:
    path = "v9/canary/thing:shake"
    line = scrub({"canary": {"canary": 1}}, path=path, query={"canary": "canary"})
    assert "canary" not in json.dumps(line)


def test_queries_keep_sizes_and_masks() -> None:
    line = scrub(
        {},
        path=f"{ZONE}/nodes",
        query={"pageSize": 500, "pageToken": "abc", "updateMask": "metadata,canary.labels"},
    )
    assert line["query"]["pageSize"] == "500"
    assert line["query"]["pageToken"].startswith("<token:")
    assert line["query"]["updateMask"].startswith("metadata,<key:")
    assert line["query"]["updateMask"].endswith(".labels")


@pytest.mark.parametrize(
    ("message", "shape"),
    [
        (
            'There is no more capacity in the zone "europe-west4-a"; you can try in another zone'
            " where Cloud TPU Nodes are offered (see https://x.y/z) [EID: 0xba39]",
            'There is no more capacity in the zone "europe-west4-a"; you can try in another zone'
            " where Cloud TPU Nodes are offered (see <url>) [EID: <id>]",
        ),
        ("Resource 'projects/me/nodes/x' was not found", "Resource '<name>' was not found"),
        ("Limit: 8 in zone us-central1-a.", "Limit: <number> in zone us-central1-a."),
        ("It can't be; ada's node isn't there", "It can't be; <word> node <word> there"),
        ("denied for ada@lab.org, on gpt-0!", "denied for <word>, on <word>!"),
        ("'a b' \"c d", "'<name>' \"<word> <word>"),
    ],
)
def test_of_messages_only_known_words_stay(message: str, shape: str) -> None:
    assert message_shape(message) == shape


def test_a_long_message_is_cut() -> None:
    assert message_shape("zone " * 500).endswith("zone <more>")


def test_errors_keep_their_codes_reasons_and_limits() -> None:
    error = {
        "code": 429,
        "status": "RESOURCE_EXHAUSTED",
        "message": "Quota limit 'TPUV6EPerProjectPerZoneForTPUAPI' has been exceeded by canary.",
        "details": [
            {
                "@type": "type.googleapis.com/google.rpc.ErrorInfo",
                "reason": "RATE_LIMIT_EXCEEDED",
                "domain": "googleapis.com",
                "metadata": {
                    "consumer": "projects/123456789012",
                    "quota_limit": "TPUV6EPerProjectPerZoneForTPUAPI",
                    "quota_location": "us-east5-b",
                    "canary": "canary",
                },
            },
            {"@type": "canary/canary.Canary", "canary": "canary"},
        ],
    }
    shown = scrub({"error": error}, status=429)["reply"]["error"]
    assert "canary" not in json.dumps(shown)
    info = shown["details"][0]
    assert (info["reason"], info["domain"]) == ("RATE_LIMIT_EXCEEDED", "googleapis.com")
    assert info["metadata"]["quota_limit"] == "TPUV6EPerProjectPerZoneForTPUAPI"
    assert info["metadata"]["quota_location"] == "us-east5-b"
    assert "123456789012" not in json.dumps(shown)


@pytest.mark.parametrize(
    ("names", "order"),
    [(["a", "b", "c"], "zone and name"), (["c", "b", "a"], "zone and name, descending"),
     (["b", "a", "c"], "none")],
)  # fmt: skip
def test_the_order_of_a_list_is_noted(names: list[str], order: str) -> None:
    nodes = [{"name": f"projects/p/locations/us-east1-d/nodes/{one}"} for one in names]
    assert scrub({"nodes": nodes}, path=f"{ZONE}/nodes")["order"] == {"nodes": order}


METHODS = [
    (http, pattern.pattern, shape)
    for version in ("v2", "v2alpha1", "")
    for http, pattern, shape in method_table(version)
]
CANARIES = (
    "canary", "canary-8", "canary bird", "canary@lab.org", "projects/canary/nodes/canary",
    "user:canary@lab.org", "https://canary.org/canary", "\"canary\" and 'canary'", "canary/canary",
)  # fmt: skip


def fill(schemas: Any, shape: Any, text: str, depth: int = 0) -> Any:
    """A value with this text wherever a string may be."""
    if "$ref" in shape:
        inner = schemas.get(shape["$ref"], {}).get("properties", {})
        known = {name: fill(schemas, one, text, depth + 1) for name, one in inner.items()}
        return known if depth < 8 else {}
    match shape.get("type"):
        case "array":
            return [fill(schemas, shape["items"], text, depth + 1)]
        case "boolean":
            return True
        case "integer":
            return 7
        case "object" | "any":
            return {text: text, "@type": text, text + "2": {text: [text]}}
    return text


@pytest.mark.parametrize("text", CANARIES)
def test_no_field_of_any_method_lets_a_canary_out(text: str) -> None:
    assert len(METHODS) > 60
    for http, pattern, shape in METHODS:
        path = pattern.replace("[^/:]+", "canary").replace("\\", "")
        assert find_method_shape(http, path) is not None
        sent = fill(shape.schemas, {"$ref": shape.request}, text) if shape.request else None
        query = {"project": text, "pageToken": text, "nodeId": text, text: text}
        for status in (200, 403):
            named = shape.response if status == 200 else "ErrorReply"
            reply = fill(shape.schemas, {"$ref": named}, text)
            line = scrub(reply, path, status, method=http, body=sent, query=query)
            assert "canary" not in json.dumps(line), (http, path, line)


def test_a_list_of_many_equal_things_is_cut_and_one_of_resources_is_not() -> None:
    many = [{"port": 8470, "ipAddress": f"10.0.0.{one}"} for one in range(100)]
    name = "projects/p/locations/us-east1-d/nodes/n"
    nodes = [{"name": f"{name}{one}", "networkEndpoints": many} for one in range(100)]
    shown = scrub({"nodes": nodes}, path=f"{ZONE}/nodes")["reply"]["nodes"]
    assert len(shown) == 100
    assert len(shown[0]["networkEndpoints"]) == 16


def test_hostile_replies_are_bounded() -> None:
    deep: Any = "canary"
    for _ in range(200):
        deep = {"response": deep}
    assert "canary" not in json.dumps(scrub(deep, path=f"{ZONE}/operations/o"))
    assert scrub([1, 2])["status"] == 200  # not an object: no reply is kept


def test_of_a_host_names_of_google_stay() -> None:
    line = scrub_host(
        {
            "type": "v4-8",
            "runtime": "tpu-ubuntu2204-base",
            "metadata": [
                ["instance", "attributes", "tpu-env"],
                ["instance", "attributes", "canary-key"],
                ["instance", "serviceAccounts", "canary@x.iam", "email"],
                ["instance", "networkInterfaces", "0", "ip"],
                ["Canary!"],
            ],
            "tpu_env": ["ACCELERATOR_TYPE", "canary"],
            "devices": ["accel0", "vfio/0", "canary"],
            "pci": ["0x005e"],
            "metrics": ["tpu.runtime.hbm.memory.total.bytes", "Canary"],
            "endpoints": "name:digits:address",
            "python": "3.10.12",
            "kernel": "6.8.0-1015-gcp",
            "os": "canary 1",
            "canary": "canary",
        },
        HIDE,
    )
    assert "anary" not in json.dumps(line)
    assert "instance/attributes/tpu-env" in line["metadata"]
    assert "instance/networkInterfaces/0/ip" in line["metadata"]
    assert "ACCELERATOR_TYPE" in line["tpu_env"]
    assert {"accel0", "vfio/0"} <= set(line["devices"])
    assert (line["python"], line["kernel"], line["os"]) == ("3.10.12", "6.8.0-1015-gcp", "<text>")
