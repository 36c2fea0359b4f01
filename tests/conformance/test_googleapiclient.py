"""google-api-python-client: all methods of three API versions, checked against their schemas."""

import json
from collections.abc import Callable
from typing import Any

import pytest

from tests.conformance.schema import Document, document
from tests.conformance.world import World, until

ZONE = "projects/demo/locations/us-central2-b"
NODE = {"acceleratorType": "v4-8", "runtimeVersion": "tpu-ubuntu2204-base"}

pytestmark = pytest.mark.filterwarnings("ignore")  # the client's own, not ours


class Service:
    """A service of one version; an answer that does not fit its schema fails the test."""

    def __init__(self, build: Any, version: str) -> None:
        cache = pytest.importorskip("googleapiclient.discovery_cache")
        self.documents: Document = document(json.loads(cache.get_static_doc("tpu", version)))
        self.version = version
        self.seen: set[str] = set()
        self.places = build(version, static_discovery=True).projects().locations()

    def __call__(self, request: Any) -> Any:
        answer = request.execute()
        self.seen.add(request.methodId)
        assert self.documents.faults(request.methodId, answer) == []
        return answer

    def wait(self, operation: Any) -> Any:
        """The end of an operation, read again and again as programs do."""

        def done() -> Any:
            found = self(self.places.operations().get(name=operation["name"]))
            return found if found["done"] else None

        return until(done, operation["name"], seconds=60)


@pytest.fixture(scope="module")
def service(build: Any) -> Callable[[str], Service]:
    made: dict[str, Service] = {}

    def service(version: str) -> Service:
        if version not in made:
            made[version] = Service(build, version)
        return made[version]

    return service


@pytest.mark.parametrize("version", ["v2", "v2alpha1"])
def test_nodes(service: Callable[[str], Service], version: str) -> None:
    say = service(version)
    nodes = say.places.nodes()
    body = NODE | {"labels": {"a": "b"}, "networkConfig": {"enableExternalIps": True}}
    asked = say(nodes.create(parent=ZONE, nodeId="n1", body=body))
    assert asked["done"] is False
    made = say.wait(asked)["response"]
    name = f"{ZONE}/nodes/n1"
    assert made["@type"] == f"type.googleapis.com/google.cloud.tpu.{version}.Node"
    assert (made["name"], made["state"], made["labels"]) == (name, "READY", {"a": "b"})
    assert made["networkConfig"]["network"].split("/")[-1] == "default"
    assert say(nodes.get(name=name))["id"] == made["id"]
    for fields in ("*", "nodes/name," + "a" * 2048):  # the long one is sent as a POST
        listed = say(nodes.list(parent=ZONE, fields=fields))["nodes"]
        assert [one["name"] for one in listed] == [name]
    patch = nodes.patch(name=name, updateMask="labels", body={"labels": {"c": "d"}})
    assert say.wait(say(patch))["response"]["labels"] == {"c": "d"}
    say(nodes.getGuestAttributes(name=name, body={}))
    assert say.wait(say(nodes.stop(name=name, body={})))["response"]["state"] == "STOPPED"
    assert say.wait(say(nodes.start(name=name)))["response"]["state"] == "READY"
    if version == "v2alpha1":
        say(nodes.simulateMaintenanceEvent(name=name, body={"workerIds": ["0"]}))
    gone = say.wait(say(nodes.delete(name=name)))
    assert gone["response"] == {"@type": "type.googleapis.com/google.protobuf.Empty"}
    assert say(nodes.list(parent=ZONE)) == {}


@pytest.mark.parametrize("version", ["v2", "v2alpha1"])
def test_queued_resources(service: Callable[[str], Service], version: str) -> None:
    say = service(version)
    queue = say.places.queuedResources()
    params = "multisliceParams" if version == "v2" else "multiNodeParams"
    spec = {"parent": ZONE, "node": NODE, params: {"nodeCount": 2, "nodeIdPrefix": "ms"}}
    body = {"tpu": {"nodeSpec": [spec]}, "spot": {}}
    told = {"parent": ZONE, "queuedResourceId": "q1", "requestId": version, "body": body}
    asked, again = say(queue.create(**told)), say(queue.create(**told))
    assert again["name"] == asked["name"]
    say.wait(asked)
    name = f"{ZONE}/queuedResources/q1"

    def state(wanted: str) -> Any:
        found = say(queue.get(name=name))
        return found if found["state"]["state"] == wanted else None

    active = until(lambda: state("ACTIVE"), "ACTIVE", seconds=60)
    assert [slot["nodeId"] for slot in active["tpu"]["nodeSpec"]] == ["ms-0", "ms-1"]
    nodes = say(say.places.nodes().list(parent=ZONE))["nodes"]
    assert all(node["multisliceNode"] and node["queuedResource"] == name for node in nodes)
    assert [one["name"] for one in say(queue.list(parent=ZONE))["queuedResources"]] == [name]
    if version == "v2alpha1":
        say(queue.getMaintenanceInfo(name=name))
    say.wait(say(queue.reset(name=name, body={})))
    until(lambda: state("ACTIVE"), "ACTIVE again", seconds=60)
    say.wait(say(queue.delete(name=name, force=True)))
    assert say(queue.list(parent=ZONE)) == {}


def test_announced_maintenance_can_start_early(
    world: World, service: Callable[[str], Service]
) -> None:
    """Only the alpha can begin it; both show it."""
    say, alpha = service("v2"), service("v2alpha1")
    place = "projects/demo/locations/us-central1-b"
    node = {"acceleratorType": "v6e-16", "runtimeVersion": "v2-alpha-tpuv6e"}
    body = {"tpu": {"nodeSpec": [{"parent": place, "nodeId": "q1n", "node": node}]}}
    queue = alpha.places.queuedResources()
    alpha.wait(alpha(queue.create(parent=place, queuedResourceId="q1", body=body)))
    world.node("us-central1-b", "n1", **node)
    world.settled("us-central1-b", "q1n")
    world.herd("weather", "maintain", "*", "notice_s=1h", "duration_s=1s")
    nodes = [f"{place}/nodes/n1", f"{place}/nodes/q1n"]
    for name in nodes:
        told = say(say.places.nodes().get(name=name))["upcomingMaintenance"]
        assert told["maintenanceStatus"] == "PENDING"
    request = f"{place}/queuedResources/q1"
    (info,) = alpha(queue.getMaintenanceInfo(name=request))["nodeUpcomingMaintenances"]
    assert info["nodeName"].endswith("q1n")
    alpha.wait(alpha(alpha.places.nodes().performMaintenance(name=nodes[0], body={})))
    both = {"nodeNames": [nodes[1]]}
    alpha.wait(alpha(queue.performMaintenanceQueuedResource(name=request, body=both)))

    def over() -> bool:
        shown = [say(say.places.nodes().get(name=name)) for name in nodes]
        return not any("upcomingMaintenance" in node for node in shown)

    until(over, "the maintenance to be over", seconds=30)


@pytest.mark.parametrize("version", ["v2", "v2alpha1"])
def test_types_and_runtimes_of_a_zone(service: Callable[[str], Service], version: str) -> None:
    say = service(version)
    types = say.places.acceleratorTypes()
    assert "v4-8" in {one["type"] for one in say(types.list(parent=ZONE))["acceleratorTypes"]}
    assert say(types.get(name=f"{ZONE}/acceleratorTypes/v4-8"))["type"] == "v4-8"
    runtimes = say.places.runtimeVersions()
    assert say(runtimes.list(parent=ZONE))["runtimeVersions"]
    say(runtimes.get(name=f"{ZONE}/runtimeVersions/tpu-ubuntu2204-base"))
    say(say.places.generateServiceIdentity(parent=ZONE, body={}))
    places = say(say.places.list(name="projects/demo"))["locations"]
    assert "us-central2-b" in {place["locationId"] for place in places}
    assert say(say.places.get(name=ZONE))["locationId"] == "us-central2-b"
    if version == "v2alpha1":
        assert say(say.places.reservations().list(parent=ZONE)) == {}


@pytest.mark.parametrize("version", ["v1", "v2", "v2alpha1"])
def test_operations(service: Callable[[str], Service], version: str) -> None:
    say, maker = service(version), service("v2")
    made = maker.wait(maker(maker.places.nodes().create(parent=ZONE, nodeId="n1", body=NODE)))
    operations = say.places.operations()
    listed = say(operations.list(name=ZONE))["operations"]
    assert made["name"] in {one["name"] for one in listed}
    assert say(operations.get(name=made["name"]))["done"] is True
    assert say(operations.cancel(name=made["name"])) == {}
    assert say(operations.delete(name=made["name"])) == {}


def test_v1_lists_nodes_for_old_tools(service: Callable[[str], Service]) -> None:
    say, maker = service("v1"), service("v2")
    maker.wait(maker(maker.places.nodes().create(parent=ZONE, nodeId="n1", body=NODE)))
    (node,) = say(say.places.nodes().list(parent=ZONE))["nodes"]
    assert (node["acceleratorType"], node["state"]) == ("v4-8", "READY")
    assert say(say.places.nodes().get(name=node["name"])) == node
    assert say(say.places.acceleratorTypes().list(parent=ZONE))["acceleratorTypes"]
    assert say(say.places.list(name="projects/demo"))["locations"]


def test_pages_are_followed_with_list_next(service: Callable[[str], Service]) -> None:
    say = service("v2")
    nodes = say.places.nodes()
    for number in range(3):
        say(nodes.create(parent=ZONE, nodeId=f"n{number}", body=NODE))
    found: list[str] = []
    request = nodes.list(parent="projects/demo/locations/-", pageSize=2)
    while request is not None:
        answer = say(request)
        found += [node["name"].split("/")[-1] for node in answer["nodes"]]
        request = nodes.list_next(request, answer)
    assert sorted(found) == ["n0", "n1", "n2"]


def test_the_discovery_document_is_fetched_like_tools_do(
    world: World, build: Any, service: Callable[[str], Service]
) -> None:
    """SkyPilot asks without a version and gets v2; tpunicorn names one."""
    for version, query in {"v2": "", "v2alpha1": "?version={apiVersion}"}.items():
        url = f"{world.url}/$discovery/rest{query}"
        more = {"static_discovery": False, "cache_discovery": False, "discoveryServiceUrl": url}
        api = build(version, **more)
        nodes = api.projects().locations().nodes().list(parent=ZONE)
        assert nodes.uri.startswith(f"{world.url}/{version}/")
        assert nodes.execute() == {}
        served, real = document(api._rootDesc), service(version).documents
        assert set(served.methods) == set(real.methods)
        assert set(served.schemas) == set(real.schemas)


def test_every_method_was_called(service: Callable[[str], Service]) -> None:
    """Runs last in this file, and counts only when all of it ran."""
    for version in ("v2", "v2alpha1"):
        say = service(version)
        if len(say.seen) < 10:
            pytest.skip("only a part of this file ran")
        assert set(say.documents.methods) - say.seen == set()
