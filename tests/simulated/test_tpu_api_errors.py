"""Every refusal with Google's text, and nothing half done after one."""

import re
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from tests.simulated.tpu_user import ALPHA, ONE_HOST, PARENT, PLACE, POD, SPOT, User
from tpuherd_sim.model.records import Reservation
from tpuherd_sim.model.world_codec import world_digest
from tpuherd_sim.tpu.faults import preempt_node
from tpuherd_sim.tpu.quota_and_stock import CREATE_RATE, IN_USE_ADDRESSES, REQUESTS
from tpuherd_sim.tpu.set_capacity import add_reservation, set_capacity, set_quota

NODES = f"{PLACE}/nodes"
QUEUE = f"{PLACE}/queuedResources?queuedResourceId=q"
LITE = {"acceleratorType": "v5litepod-8", "runtimeVersion": "v2-alpha-tpuv5-lite"}
V6E = {"acceleratorType": "v6e-8", "runtimeVersion": "v2-alpha-tpuv6e", **SPOT}
RESOURCE_INFO = "type.googleapis.com/google.rpc.ResourceInfo"
EID = r" \[EID: 0x[0-9a-f]{1,16}\]"


@pytest.fixture
def user() -> User:
    return User()


def spec(**node: Any) -> dict[str, Any]:
    """The slot of a queued resource."""
    return {"parent": PARENT, "nodeId": "qn", "node": {**ONE_HOST, **node}}


def queue(**more: Any) -> dict[str, Any]:
    """The body of a queued resource."""
    return {"tpu": {"nodeSpec": [spec()]}, **more}


def many(**params: Any) -> dict[str, Any]:
    """The body of a multislice request."""
    slot = {"parent": PARENT, "node": ONE_HOST, "multisliceParams": params}
    return {"tpu": {"nodeSpec": [slot]}}


#: Method, path, body, HTTP status, status, and a pattern that the message matches.
Case = tuple[str, str, Any, int, str, str]
INVALID = "INVALID_ARGUMENT"
MISSING_NETWORK = f".*The resource 'projects/demo/global/networks/nonet' was not found{EID}"
LABELS = "resource labels are invalid:"
UNKNOWN = 'Invalid JSON payload received. Unknown name "{}"'
ODD: dict[str, Case] = {
    "type not in the zone": (
        "POST", "/v2/projects/demo/locations/us-central1-b/nodes?nodeId=x", LITE, 400, INVALID,
        re.escape(
            "Cloud TPU received a bad request. The requested accelerator configuration for "
            'accelerator type, "v5litepod-8", could not be found in the zonal accelerator '
            'configurations for "us-central1-b".; the accelerator v5litepod-8 was not found in '
            "zone us-central1-b"
        ) + EID,
    ),
    "TPU Node": (
        "POST", "/v1/projects/demo/locations/us-central2-b/nodes?nodeId=x",
        {"acceleratorType": "v4-8", "tensorflowVersion": "2.12.0"}, 400, "FAILED_PRECONDITION",
        "Your request to provision TPU Node has been denied. .* TPU VM Architecture or contact .*",
    ),
    "zone without TPUs": (
        "GET", "/v2/projects/demo/locations/asia-northeast1-a/nodes", None, 400, INVALID,
        "Cloud TPU received a bad request. The requested zone "
        f'"asia-northeast1-a" is not supported.{EID}',
    ),
    "zone that is none": (
        "GET", "/v2/projects/demo/locations/mars-north1-a/nodes", None, 403, "PERMISSION_DENIED",
        r"Permission denied on 'locations/mars-north1-a' \(or it may not exist\).",
    ),
    "another project": (
        "GET", "/v2/projects/other/locations/us-central2-b/nodes", None, 403, "PERMISSION_DENIED",
        "Permission 'tpu.nodes.list' denied on resource .*projects/other.*",
    ),
    "no id": ("POST", NODES, ONE_HOST, 400, INVALID, "node_id must be set."),
    "bad id": ("POST", f"{NODES}?nodeId=a/b", ONE_HOST, 400, INVALID, "Invalid node .*"),
    "upper-case id": ("POST", f"{NODES}?nodeId=N", ONE_HOST, 400, INVALID, ".*begin.*"),
    "long id": ("POST", f"{NODES}?nodeId={'n' * 64}", ONE_HOST, 400, INVALID, "Invalid node id .*"),
}  # fmt: skip
#: What is not there: method, path, body, and the pattern.
MISSING: dict[str, tuple[str, str, Any, str]] = {
    "not found": ("GET", f"{NODES}/none", None, f"Resource '{PARENT}/nodes/none' was not found"),
    "queued resource not found": (
        "DELETE", f"{PLACE}/queuedResources/none?force=true", None,
        f"Resource '{PARENT}/queuedResources/none' was not found",
    ),
}  # fmt: skip
QUERIES = {
    "unknown query": (
        "pagesize=3", f"{UNKNOWN.format('pagesize')}: Cannot bind query parameter.*",
    ),
    "bad page size": ("pageSize=many", r"Invalid value at 'page_size' \(TYPE_INT32\), \"many\""),
    "negative page size": ("pageSize=-1", ".*"),
    "bad page token": ("pageToken=!", ".*token.*"),
}  # fmt: skip
NODE_BODIES: dict[str, tuple[Any, str]] = {
    "no runtime": ({"acceleratorType": "v4-8"}, "runtime_version must be set."),
    "no type": (
        {"runtimeVersion": "tpu-vm-base"}, "accelerator_type or accelerator_config must be set.",
    ),
    "no object": ([], ".*Root element.*"),
}  # fmt: skip
#: Added to the good body of a node.
FIELDS: dict[str, tuple[dict[str, Any], str]] = {
    "unknown runtime": (
        {"runtimeVersion": "windows"},
        f'.*The runtime version "windows" could not be found.*{EID}',
    ),
    "type and config differ": (
        {"acceleratorConfig": {"type": "V4", "topology": "2x2x2"}},
        ".*do not name the same accelerator.",
    ),
    "both kinds of network": (
        {"networkConfig": {}, "networkConfigs": [{}]}, ".*mutually exclusive.*",
    ),
    "spot and reserved": (
        {"schedulingConfig": {"spot": True, "reserved": True}}, ".*mutually exclusive.*",
    ),
    "bad key of a label": (
        {"labels": {"Big": "x"}}, f"{LABELS} key \"Big\" contains invalid character 'B' at index 0",
    ),
    "bad value of a label": (
        {"labels": {"é": "ü", "a": "pt-r1.9"}},
        f"{LABELS} value \"pt-r1.9\" contains invalid character '.' at index 5 for key \"a\"",
    ),
    "label that begins with a digit": (
        {"labels": {"1a": ""}}, f'{LABELS} key "1a" must start with a letter',
    ),
    "long label": ({"labels": {"a": "x" * 64}}, f"{LABELS} value .* is longer than 63 .*"),
    "many labels": ({"labels": {f"k{n}": "" for n in range(65)}}, f"{LABELS} .* more than 64"),
    "long description": (
        {"description": "x" * 513}, "description must have at most 512 characters.",
    ),
    "unknown field": (
        {"acceleratortype": "v4-8"},
        f"{UNKNOWN.format('acceleratortype')} at 'node': Cannot find field.",
    ),
    "unknown field inside": (
        {"schedulingConfig": {"spott": True}},
        f"{UNKNOWN.format('spott')} at 'node.scheduling_config'.*",
    ),
    "alpha field in v2": (
        {"autocheckpointEnabled": True}, f"{UNKNOWN.format('autocheckpointEnabled')} .*",
    ),
    "wrong type": (
        {"description": 5}, r"Invalid value at 'node.description' \(TYPE_STRING\), 5",
    ),
    "unknown enum": (
        {"acceleratorConfig": {"type": "V99", "topology": "1x1"}},
        r"Invalid value at 'node.accelerator_config.type' \(type.googleapis.com/"
        r'google.cloud.tpu.v2.AcceleratorConfig.Type\), "V99"',
    ),
    "no such network": ({"networkConfig": {"network": "nonet"}}, MISSING_NETWORK),
    "no such second network": ({"networkConfigs": [{}, {"network": "nonet"}]}, MISSING_NETWORK),
    "no name of a network": ({"networkConfig": {"network": "projects/demo/x"}}, ".*/x' was not .*"),
    "no such subnetwork": (
        {"networkConfig": {"subnetwork": "nosub"}},
        f".*'projects/demo/regions/us-central2/subnetworks/nosub' was not found{EID}",
    ),
    "subnetwork of another region": (
        {"networkConfig": {"subnetwork": "regions/us-east1/subnetworks/default"}},
        f".*'projects/demo/regions/us-east1/subnetworks/default' was not found{EID}",
    ),
    "no such account": (
        {"serviceAccount": {"email": "gone@demo.iam.gserviceaccount.com"}},
        f'.*Service account "gone@demo.iam.gserviceaccount.com" does not exist.{EID}',
    ),
    "disk of another zone": (
        {"dataDisks": [{"sourceDisk": "projects/demo/zones/us-east1-c/disks/d"}]},
        'data_disks: source_disk "projects/demo/zones/us-east1-c/disks/d" is no disk of zone .*',
    ),
    "list for one": (
        {"networkConfig": [{}]}, ".*Proto field is not repeating, cannot start list.",
    ),
}  # fmt: skip
QUEUE_BODIES: dict[str, tuple[Any, str]] = {
    "multislice of one": (many(nodeCount=1), "node_count must be greater than 1.*"),
    "two tiers": (queue(spot={}, guaranteed={}), ".*oneof field 'tier' is already set.*"),
    "two kinds of time": (
        queue(queueingPolicy={"validUntilDuration": "60s", "validAfterDuration": "6s"}),
        ".*oneof.*",
    ),
    "time in the past": (
        queue(queueingPolicy={"validUntilTime": "2020-01-01T00:00:00Z"}),
        ".*must be in the future.",
    ),
    "no duration": (
        queue(queueingPolicy={"validUntilDuration": "an hour"}), ".*google.protobuf.Duration.*",
    ),
    "other parent": (
        {"tpu": {"nodeSpec": [{**spec(), "parent": "projects/demo/locations/us-east1-d"}]}},
        ".*must be the parent of the queued resource.*",
    ),
    "node without a name": (
        {"tpu": {"nodeSpec": [{"parent": PARENT, "node": ONE_HOST}]}},
        ".*either node_id or multislice_params must be set.",
    ),
    "no node": ({}, "tpu.node_spec must be set."),
    "no such network there": (
        {"tpu": {"nodeSpec": [spec(networkConfig={"network": "nonet"})]}}, MISSING_NETWORK,
    ),
}  # fmt: skip


def bad_cases() -> Iterator[tuple[str, Case]]:
    yield from ODD.items()
    for case, (method, path, body, text) in MISSING.items():
        yield case, (method, path, body, 404, "NOT_FOUND", text)
    for case, (query, text) in QUERIES.items():
        yield case, ("GET", f"{NODES}?{query}", None, 400, INVALID, text)
    bodies = {case: ({**ONE_HOST, **more}, text) for case, (more, text) in FIELDS.items()}
    for case, (body, text) in (NODE_BODIES | bodies).items():
        yield case, ("POST", f"{NODES}?nodeId=x", body, 400, INVALID, text)
    for case, (body, text) in QUEUE_BODIES.items():
        yield case, ("POST", QUEUE, body, 400, INVALID, text)


BAD = dict(bad_cases())


@pytest.mark.parametrize("case", BAD)
def test_a_bad_request_is_refused_and_changes_nothing(user: User, case: str) -> None:
    method, path, body, http, status, pattern = BAD[case]
    before = world_digest(user.world)
    answer = user.ask(method, path, body)
    assert answer.status == http, answer
    error = answer.said["error"]
    assert (error["code"], error["status"]) == (http, status)
    assert re.fullmatch(pattern, error["message"]), error["message"]
    assert world_digest(user.world) == before


@pytest.mark.parametrize(
    "raw", [b"{", b"nothing", b'{"a":NaN}', b"\xff", b"[" * 9000, b'{"description":"\\ud800"}']
)
def test_invalid_json_is_refused(user: User, raw: bytes) -> None:
    answer = user.ask("POST", f"{NODES}?nodeId=x", raw=raw)
    assert answer.status == 400 and answer.said["error"]["status"] == "INVALID_ARGUMENT"


def test_details_name_the_location_and_the_field(user: User) -> None:
    denied = user.ask("GET", "/v2/projects/demo/locations/mars-north1-a/nodes")
    (info,) = denied.said["error"]["details"]
    assert (info["reason"], info["domain"]) == ("LOCATION_POLICY_VIOLATED", "googleapis.com")
    assert info["metadata"]["location"] == "mars-north1-a"
    refused = user.ask("POST", f"{NODES}?nodeId=x", {"labels": 5})
    (details,) = refused.said["error"]["details"]
    assert details["@type"] == "type.googleapis.com/google.rpc.BadRequest"
    assert details["fieldViolations"][0]["field"] == "node.labels"


def test_an_existing_resource_is_not_created_again(user: User) -> None:
    user.create()
    refused = user.ask("POST", f"{NODES}?nodeId=n", ONE_HOST)
    assert (refused.status, refused.message) == (
        409,
        f"Resource '{PARENT}/nodes/n' already exists",
    )
    (info,) = refused.said["error"]["details"]
    assert info == {"@type": RESOURCE_INFO, "resourceName": f"{PARENT}/nodes/n"}
    for name in (f"{PARENT}/nodes/none", f"{PARENT}/queuedResources/none"):
        (info,) = user.ask("GET", f"/v2/{name}").said["error"]["details"]
        assert info == {"@type": RESOURCE_INFO, "resourceName": name}
    user.queue()
    refused = user.ask("POST", QUEUE, queue())
    assert refused.status == 409 and refused.said["error"]["status"] == "ALREADY_EXISTS"
    other = f"{PLACE}/queuedResources?queuedResourceId=other"
    taken = {"tpu": {"nodeSpec": [{**spec(), "nodeId": "n"}]}}
    assert user.ask("POST", other, taken).message == f"Resource '{PARENT}/nodes/n' already exists"


def ended(user: User, operation: str) -> Any:
    """How an operation ended."""
    user.wait(3600)
    said = user.get(operation)
    assert said["done"] is True and "response" not in said
    return said["error"]


def test_no_capacity(user: User) -> None:
    set_capacity(user.world, "us-central2-b", "*", 0, user.now)
    error = ended(user, user.create())
    assert error["code"] == 8
    text = (
        'There is no more capacity in the zone "us-central2-b"; you can try in another zone where '
        "Cloud TPU Nodes are offered (see https://cloud.google.com/tpu/docs/regions)"
    )
    assert re.fullmatch(re.escape(text) + EID, error["message"])


def test_a_full_reservation(user: User) -> None:
    start, end = user.now, user.now + 86400
    reservation = Reservation(
        zone="us-central2-b", id="r", type="v4-8", size=4, start=start, end=end
    )
    add_reservation(user.world, reservation)
    reserved = {"schedulingConfig": {"reserved": True}}
    user.ready("first", **reserved)
    error = ended(user, user.create("second", **reserved))
    text = "Insufficient reserved capacity. Contact customer support to increase your reservation."
    assert error["code"] == 8 and re.fullmatch(re.escape(text) + EID, error["message"])
    (shown,) = user.get(f"{ALPHA}/reservations")["reservations"]
    assert shown["state"] == "ACTIVE" and shown["standard"]["usage"] == {"total": "4"}


@pytest.mark.parametrize(
    ("code", "text"),
    [(5, "Reservation not found"), (13, "an internal error has occurred")],
)
def test_errors_injected_by_the_weather(user: User, code: int, text: str) -> None:
    user.weather("operation-error", code=code, method="nodes.create", times=1)
    assert ended(user, user.create()) == {"code": code, "message": text}


def test_a_request_that_fails_late(user: User) -> None:
    user.weather("operation-error", code=13, method="queuedResources.create", times=1)
    assert user.get(user.queue())["done"] is False
    user.until("PROVISIONING")
    user.until("SUSPENDING")
    assert user.queued()["state"]["stateInitiator"] == "SERVICE"
    user.until("FAILED")
    error = user.queued()["state"]["failedData"]["error"]
    assert error == {"code": 13, "message": "an internal error has occurred"}


def test_a_regional_device_quota(user: User) -> None:
    set_quota(user.world, "us-east5-a", "TPUV6EPreemptiblePerProjectPerRegionForTPUAPI", 8, 0.0)
    place = "/v2/projects/demo/locations/us-east5-a/nodes"
    user.post(f"{place}?nodeId=one", V6E)
    refused = user.ask("POST", f"{place}?nodeId=two", V6E)
    assert (refused.status, refused.message) == (
        429,
        "Quota limit 'TPUV6EPreemptiblePerProjectPerRegionForTPUAPI' has been exceeded. "
        "Limit: 8 in region us-east5.",
    )
    info, failure = refused.said["error"]["details"]
    assert (info["reason"], info["metadata"]["quota_location"]) == (
        "RATE_LIMIT_EXCEEDED",
        "us-east5",
    )
    assert failure["violations"][0]["subject"] == "project:123456789012"


def test_a_zonal_device_quota_counts_preempted_nodes_until_they_are_deleted(user: User) -> None:
    set_quota(user.world, "us-central2-b", "v4", 16, user.now)
    user.ready("n", POD, **SPOT)
    key = "us-central2-b/n"
    preempt_node(user.world, key, user.now, notice_s=0.0)
    assert user.node()["state"] == "PREEMPTED"
    refused = user.ask("POST", f"{NODES}?nodeId=m", {**ONE_HOST, **SPOT})
    quota = "TPUV4sPreemptiblePodPerProjectPerZoneForTPUAPI"
    assert refused.message == f"Quota '{quota}' exhausted. Limit 16 in zone us-central2-b"
    assert user.ask("POST", f"{NODES}?nodeId=m", ONE_HOST).status == 200  # another quota
    user.delete()
    user.wait(3600)
    assert user.ask("POST", f"{NODES}?nodeId=s", {**ONE_HOST, **SPOT}).status == 200


def test_failed_requests_use_quota(user: User) -> None:
    set_quota(user.world, "us-central2-b", "v4", 8, user.now)
    user.queue("q", queueingPolicy={"validUntilDuration": "1s"}, spot={})
    user.until("FAILED")
    assert user.ask("POST", f"{NODES}?nodeId=m", {**ONE_HOST, **SPOT}).status == 429
    user.ask("DELETE", f"{PLACE}/queuedResources/q")
    user.wait(60)
    assert user.ask("POST", f"{NODES}?nodeId=m", {**ONE_HOST, **SPOT}).status == 200


def test_too_many_creates_in_a_minute(user: User) -> None:
    def create(name: str) -> int:
        return user.ask("POST", f"{NODES}?nodeId={name}", ONE_HOST).status

    assert {create(f"n{number}") for number in range(91)} == {200}
    refused = user.ask("POST", f"{NODES}?nodeId=more", ONE_HOST)
    assert refused.status == 429
    assert "'Maximum number of CreateNode requests per minute'" in refused.message
    info = refused.said["error"]["details"][0]["metadata"]
    assert info["quota_limit"] == CREATE_RATE
    user.wait(1)
    assert (create("more"), create("evenmore")) == (200, 429)
    user.wait(60)
    assert create("evenmore") == 200


def test_too_many_requests_in_a_zone(user: User) -> None:
    set_quota(user.world, "us-central2-b", REQUESTS, 1, user.now)
    user.queue("one")
    refused = user.ask("POST", QUEUE, queue())
    assert refused.status == 429 and REQUESTS in refused.message


def test_too_many_external_addresses(user: User) -> None:
    set_quota(user.world, "us-central2-b", IN_USE_ADDRESSES, 2, user.now)
    user.ready("n", POD)
    error = ended(user, user.create("m"))
    assert error["code"] == 8 and "IN_USE_ADDRESSES" in error["message"]
    user.ready("inside", networkConfig={"network": "default"})


def test_a_preempted_node_cannot_be_changed(user: User) -> None:
    user.ready(**SPOT)
    changed = user.ask("PATCH", f"{NODES}/n?updateMask=labels", {"labels": {"a": "b"}}).said
    preempt_node(user.world, "us-central2-b/n", user.now, notice_s=0.0)
    text = "Cloud TPU received a bad request. update is not supported while in state PREEMPTED"
    refused = user.ask("PATCH", f"{NODES}/n?updateMask=labels", {"labels": {}})
    assert refused.status == 400 and re.fullmatch(re.escape(text) + EID, refused.message)
    error = ended(user, f"/v2/{changed['name']}")
    assert error["code"] == 3 and re.fullmatch(re.escape(text) + EID, error["message"])


def test_a_node_preempted_during_creation(user: User) -> None:
    operation = user.create(**SPOT)
    user.wait(40)
    preempt_node(user.world, "us-central2-b/n", user.now, notice_s=0.0)
    error = ended(user, operation)
    assert error["code"] == 3 and "while in state PREEMPTED" in error["message"]


PAUSES: dict[str, tuple[str, Callable[[User], object]]] = {
    "a pod": ("not supported for TPU pods", lambda user: user.ready("n", POD)),
    "a spot node": ("not supported for preemptible or spot", lambda user: user.ready(**SPOT)),
    "a node that is being created": ("while in state CREATING", lambda user: user.create()),
}


@pytest.mark.parametrize("case", PAUSES)
def test_nodes_that_cannot_be_stopped(user: User, case: str) -> None:
    text, make = PAUSES[case]
    make(user)
    refused = user.ask("POST", f"{NODES}/n:stop", {})
    assert refused.status == 400 and text in refused.message


def test_a_preempted_node_cannot_be_started(user: User) -> None:
    user.ready(**SPOT)
    preempt_node(user.world, "us-central2-b/n", user.now, notice_s=0.0)
    refused = user.ask("POST", f"{NODES}/n:start", {})
    assert refused.status == 400 and "no longer exists" in refused.message


@pytest.mark.parametrize("mask", ["", "state", "acceleratorType", "no_such_field", "labels,x"])
def test_fields_that_cannot_be_patched(user: User, mask: str) -> None:
    user.ready()
    refused = user.ask("PATCH", f"{NODES}/n?updateMask={mask}", {"labels": {"a": "b"}})
    assert refused.status == 400 and "update_mask" in refused.message
    user.wait(60)
    assert "labels" not in user.node()


def test_another_node_took_the_name_first(user: User) -> None:
    user.queue(queueingPolicy={"validAfterDuration": "600s"}, spot={})
    user.ready("q-n")
    user.until("FAILED")
    assert user.queued()["state"]["failedData"]["error"]["code"] == 6


def test_flex_start_of_an_old_generation(user: User) -> None:
    body = queue(provisioningModel="FLEX_START", runDuration={"maxRunDuration": "600s"})
    said = user.post(f"{ALPHA}/queuedResources?queuedResourceId=q", body)
    error = ended(user, f"/v2/{said['name']}")
    assert error == {
        "code": 3,
        "message": 'FLEX_START provisioning model is not supported for accelerator type "v4-8" '
        'in location "us-central2-b"',
    }


def test_an_expired_request(user: User) -> None:
    set_capacity(user.world, "us-central2-b", "*", 0, user.now)
    user.queue(queueingPolicy={"validUntilDuration": "600s"}, spot={})
    user.wait(599)
    assert user.queued()["state"] == {"state": "WAITING_FOR_RESOURCES"}
    user.wait(1)
    state = user.queued()["state"]
    assert state["state"] == "FAILED" and "valid-until" in state["failedData"]["error"]["message"]


def test_a_running_operation_cannot_be_deleted(user: User) -> None:
    operation = user.create()
    assert user.ask("DELETE", operation).said["error"]["status"] == "FAILED_PRECONDITION"
    user.wait(3600)
    assert user.ask("DELETE", operation).status == 200
    assert user.ask("GET", operation).status == 404
