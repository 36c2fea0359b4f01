"""Requests that must be refused: which exceptions clients raise, with which text."""

from collections.abc import Callable
from typing import Any

import pytest

from tests.conformance.world import World, until

ZONE = "projects/demo/locations/us-central2-b"
NODE = {"accelerator_type": "v4-8", "runtime_version": "tpu-ubuntu2204-base"}

pytestmark = pytest.mark.filterwarnings("ignore")  # the client's own, not ours


def create(name: str = "n1", parent: str = ZONE, **fields: Any) -> Callable[[Any], Any]:
    """A create of a node like NODE but for these fields."""
    node = {key: value for key, value in (NODE | fields).items() if value is not None}
    return lambda tpu: tpu.create_node(request={"parent": parent, "node_id": name, "node": node})


def queue(**fields: Any) -> Callable[[Any], Any]:
    """A queued resource of one slot."""
    slot = fields.pop("slot", {"parent": ZONE, "node_id": "q1n", "node": NODE})
    body = {"tpu": {"node_spec": [slot]}} | fields
    return lambda tpu: tpu.create_queued_resource(
        request={"parent": ZONE, "queued_resource_id": "q1", "queued_resource": body}
    )


def node(verb: str, name: str = "nobody", **more: Any) -> Callable[[Any], Any]:
    """Something done to a node that is there only if the test made it."""
    return lambda tpu: getattr(tpu, verb)(request={"name": f"{ZONE}/nodes/{name}"} | more)


def patch(*paths: str) -> Callable[[Any], Any]:
    """A patch of these paths of the node n1."""
    body = {"name": f"{ZONE}/nodes/n1", "description": "x"}
    return lambda tpu: tpu.update_node(
        request={"node": body, "update_mask": {"paths": list(paths)}}
    )


MARS = "projects/demo/locations/mars-a"
HOLLYWOOD = "projects/demo/locations/us-west2-a"
TWO_SLOTS = {"parent": ZONE, "multislice_params": {"node_count": 1}, "node": NODE}
ELSEWHERE = {"parent": "projects/demo/locations/us-central1-a", "node_id": "x", "node": NODE}

REFUSED: dict[str, tuple[Callable[[Any], Any], str, str]] = {
    "unknown type": (
        create(accelerator_type="v9-8"),
        "BadRequest",
        'type, "v9-8", could not be found in the zonal accelerator configurations',
    ),
    "type of another zone": (
        create(accelerator_type="v6e-8"),
        "BadRequest",
        "the accelerator v6e-8 was not found in zone us-central2-b [EID: 0x",
    ),
    "unknown zone": (create(parent=MARS), "Forbidden", "(or it may not exist)"),
    "zone without TPUs": (create(parent=HOLLYWOOD), "BadRequest", 'zone "us-west2-a" is not'),
    "no runtime version": (create(runtime_version=None), "BadRequest", "untime"),
    "unknown runtime version": (create(runtime_version="dos-6"), "BadRequest", "dos-6"),
    "bad node id": (create("No_Capitals!"), "BadRequest", "No_Capitals!"),
    "bad label": (create(labels={"A": "b"}), "BadRequest", "abel"),
    "long description": (create(description="x" * 513), "BadRequest", "512"),
    "two tiers": (
        create(scheduling_config={"spot": True, "reserved": True}),
        "BadRequest",
        "",
    ),
    "two ways of network": (
        create(network_config={"network": "a"}, network_configs=[{"network": "b"}]),
        "BadRequest",
        "etwork",
    ),
    "no such node": (node("get_node"), "NotFound", f"{ZONE}/nodes/nobody"),
    "delete of no node": (node("delete_node"), "NotFound", f"{ZONE}/nodes/nobody"),
    "stop of no node": (node("stop_node"), "NotFound", f"{ZONE}/nodes/nobody"),
    "no such operation": (
        lambda tpu: tpu.get_operation(request={"name": f"{ZONE}/operations/none"}),
        "NotFound",
        "operations/none",
    ),
    "no such request": (
        lambda tpu: tpu.get_queued_resource(name=f"{ZONE}/queuedResources/none"),
        "NotFound",
        f"{ZONE}/queuedResources/none",
    ),
    "no such accelerator type": (
        lambda tpu: tpu.get_accelerator_type(name=f"{ZONE}/acceleratorTypes/v9-8"),
        "NotFound",
        "v9-8",
    ),
    "one slice of many": (queue(slot=TWO_SLOTS), "BadRequest", "ount"),
    "two zones": (queue(slot=ELSEWHERE), "BadRequest", "us-central1-a"),
    "bad type in a request": (
        queue(slot={"parent": ZONE, "node_id": "x", "node": NODE | {"accelerator_type": "v9-8"}}),
        "BadRequest",
        "v9-8",
    ),
    "nothing asked for": (queue(tpu={}), "BadRequest", ""),
}


@pytest.mark.parametrize("what", REFUSED)
def test_invalid_requests_are_refused(tpu: Any, errors: Any, what: str) -> None:
    act, name, text = REFUSED[what]
    with pytest.raises(errors.GoogleAPICallError) as caught:
        act(tpu)
    assert type(caught.value).__name__ == name, caught.value
    assert text in caught.value.message
    assert caught.value.grpc_status_code is None or caught.value.code in range(400, 500)
    assert list(tpu.list_nodes(parent="projects/demo/locations/-")) == []


REFUSED_OF_A_NODE: dict[str, tuple[str, Callable[[Any], Any], str, str]] = {
    "the same name again": ("v4-8", create(), "Conflict", "already exists"),
    "stop of a pod": ("v4-16", node("stop_node", "n1"), "BadRequest", ""),
    "patch without a mask": ("v4-8", patch(), "BadRequest", ""),
    "patch of what is fixed": ("v4-8", patch("accelerator_type"), "BadRequest", "accelerator"),
    "patch of no field": ("v4-8", patch("colour"), "BadRequest", "colour"),
    "start of what runs": ("v4-8", node("start_node", "n1"), "BadRequest", "READY"),
    "a worker that isn't there": (
        "v4-8",
        node("get_guest_attributes", "n1", worker_ids=["7"]),
        "BadRequest",
        "7",
    ),
}


@pytest.mark.parametrize("what", REFUSED_OF_A_NODE)
def test_invalid_node_calls_are_refused(world: World, tpu: Any, errors: Any, what: str) -> None:
    kind, act, name, text = REFUSED_OF_A_NODE[what]
    world.node("us-central2-b", "n1", acceleratorType=kind)
    with pytest.raises(errors.GoogleAPICallError) as caught:
        act(tpu)
    assert type(caught.value).__name__ == name, caught.value
    assert text in caught.value.message


def test_an_active_request_is_deleted_only_with_force(world: World, tpu: Any, errors: Any) -> None:
    queue()(tpu).result(timeout=60)
    request = f"{ZONE}/queuedResources/q1"
    active = lambda: tpu.get_queued_resource(name=request).state.state.name == "ACTIVE"  # noqa: E731
    until(active, "the request to be active", seconds=30)
    with pytest.raises(errors.BadRequest) as caught:
        tpu.delete_queued_resource(name=request)
    assert caught.value.code == 400
    with pytest.raises(errors.Conflict, match="already exists"):
        queue()(tpu)


@pytest.mark.parametrize(
    ("code", "status", "name"),
    [
        (403, "PERMISSION_DENIED", "Forbidden"),
        (409, "ABORTED", "Conflict"),
        (429, "RESOURCE_EXHAUSTED", "TooManyRequests"),
        (500, "INTERNAL", "InternalServerError"),
        (503, "UNAVAILABLE", "ServiceUnavailable"),
    ],
)
def test_a_burst_of_errors(
    world: World, tpu: Any, errors: Any, code: int, status: str, name: str
) -> None:
    world.herd("weather", "http-error", str(code), f"status={status}", "message=so it is")
    try:
        with pytest.raises(errors.GoogleAPICallError) as caught:
            tpu.list_nodes(parent=ZONE)
    finally:
        world.herd("weather", "clear", "all")
    assert (type(caught.value).__name__, caught.value.message[-8:]) == (name, "so it is")


def test_over_quota_is_429_with_details(world: World, tpu: Any, errors: Any) -> None:
    quota = ("weather", "quota", "us-central2-b", "TPUV4sPodPerProjectPerZoneForTPUAPI")
    world.herd(*quota, "0")
    try:
        with pytest.raises(errors.TooManyRequests) as caught:
            create()(tpu)
    finally:
        world.herd(*quota, "100000")
    assert "Quota" in caught.value.message
    assert caught.value.reason == "RATE_LIMIT_EXCEEDED"
    assert caught.value.details


def test_the_other_client_library_shows_text_and_details(build: Any) -> None:
    error = pytest.importorskip("googleapiclient.errors").HttpError
    nodes = build("v2").projects().locations().nodes()
    with pytest.raises(error) as caught:
        nodes.get(name=f"{ZONE}/nodes/nobody").execute()
    assert (caught.value.resp.status, caught.value.status_code) == (404, 404)
    assert str(caught.value).startswith("<HttpError 404 when requesting http")
    assert "was not found" in caught.value.reason
