"""google-cloud-tpu over REST (v2). Its v2alpha1 uses gRPC only, which a world does not serve."""

from typing import Any

import pytest

from tests.conformance.world import World, borrow, until

HERE = "projects/demo/locations/us-central2-b"

pytestmark = pytest.mark.filterwarnings("ignore")  # the client's own, not ours


@pytest.fixture(scope="module")
def v2() -> Any:
    borrow("light")
    return pytest.importorskip("google.cloud.tpu_v2")


@pytest.fixture
def node(v2: Any) -> Any:
    return v2.Node(accelerator_type="v4-16", runtime_version="tpu-ubuntu2204-base")


def test_a_node_from_create_to_delete(tpu: Any, v2: Any, node: Any) -> None:
    node.labels = {"team": "x"}
    node.metadata = {"startup-script": "echo hi"}
    node.scheduling_config = v2.SchedulingConfig(spot=True)
    node.network_config = v2.NetworkConfig(network="default", enable_external_ips=True)
    operation = tpu.create_node(parent=HERE, node_id="n1", node=node)
    assert operation.metadata.target == f"{HERE}/nodes/n1"
    assert operation.metadata.verb == "create"
    made = operation.result(timeout=60)
    assert (made.name, made.state) == (f"{HERE}/nodes/n1", v2.Node.State.READY)
    assert made.health == v2.Node.Health.HEALTHY
    assert made.api_version == v2.Node.ApiVersion.V2
    assert (made.accelerator_type, made.accelerator_config.topology) == ("v4-16", "2x2x2")
    assert dict(made.labels) == {"team": "x"}
    assert len(made.network_endpoints) == 2
    assert all(end.ip_address and end.access_config.external_ip for end in made.network_endpoints)
    assert made.create_time.year > 2000
    assert tpu.get_node(name=made.name) == made
    assert [listed.name for listed in tpu.list_nodes(parent=HERE)] == [made.name]
    ended = tpu.delete_node(name=made.name)
    assert ended.result(timeout=60) is not None
    assert list(tpu.list_nodes(parent=HERE)) == []


def test_an_accelerator_config_and_numeric_enums(tpu: Any, v2: Any) -> None:
    kind = v2.AcceleratorConfig.Type.V5LITE_POD
    node = v2.Node(
        accelerator_config=v2.AcceleratorConfig(type_=kind, topology="4x4"),
        runtime_version="v2-alpha-tpuv5-lite",
        data_disks=[
            v2.AttachedDisk(
                source_disk="projects/demo/zones/us-central1-a/disks/d1",
                mode=v2.AttachedDisk.DiskMode.READ_ONLY,
            )
        ],
    )
    where = "projects/demo/locations/us-central1-a"
    made = tpu.create_node(parent=where, node_id="n1", node=node).result(timeout=60)
    assert made.accelerator_type == "v5litepod-16"
    assert made.accelerator_config.type_ == kind
    assert made.data_disks[0].mode == v2.AttachedDisk.DiskMode.READ_ONLY
    assert len(made.network_endpoints) == 4


def test_the_pager_covers_all_pages_and_zones(tpu: Any, node: Any) -> None:
    waiting = [tpu.create_node(parent=HERE, node_id=f"n{number}", node=node) for number in range(5)]
    for operation in waiting:
        operation.result(timeout=60)
    pager = tpu.list_nodes(request={"parent": "projects/demo/locations/-", "page_size": 2})
    pages = [[node.name.split("/")[-1] for node in page.nodes] for page in pager.pages]
    assert [len(page) for page in pages] == [2, 2, 1]
    assert sorted(name for page in pages for name in page) == ["n0", "n1", "n2", "n3", "n4"]


def test_patch_stop_and_start(tpu: Any, v2: Any, node: Any) -> None:
    node.accelerator_type = "v4-8"
    name = tpu.create_node(parent=HERE, node_id="n1", node=node).result(timeout=60).name
    patch = v2.Node(name=name, labels={"a": "b"}, description="mine")
    mask = {"paths": ["labels", "description", "network_config.enable_external_ips"]}
    patched = tpu.update_node(node=patch, update_mask=mask).result(timeout=60)
    assert (dict(patched.labels), patched.description) == ({"a": "b"}, "mine")
    assert tpu.stop_node(request={"name": name}).result(timeout=60).state == v2.Node.State.STOPPED
    assert tpu.start_node(request={"name": name}).result(timeout=60).state == v2.Node.State.READY


def test_a_queued_resource_from_create_to_delete(tpu: Any, v2: Any, node: Any) -> None:
    slots = [v2.QueuedResource.Tpu.NodeSpec(parent=HERE, node_id="q1n", node=node)]
    body = v2.QueuedResource(
        tpu=v2.QueuedResource.Tpu(node_spec=slots),
        spot=v2.QueuedResource.Spot(),
        queueing_policy={"valid_until_duration": {"seconds": 3600}},
    )
    asked = tpu.create_queued_resource(
        request={"parent": HERE, "queued_resource_id": "q1", "queued_resource": body}
    )
    made = asked.result(timeout=60)
    assert made.name == f"{HERE}/queuedResources/q1"
    active = v2.QueuedResourceState.State.ACTIVE

    def served() -> bool:
        return bool(tpu.get_queued_resource(name=made.name).state.state == active)

    until(served, "the request to be active", seconds=30)
    node = tpu.get_node(name=f"{HERE}/nodes/q1n")
    assert (node.queued_resource, node.scheduling_config.spot) == (made.name, True)
    assert [one.name for one in tpu.list_queued_resources(parent=HERE)] == [made.name]
    ended = tpu.delete_queued_resource(request={"name": made.name, "force": True})
    ended.result(timeout=60)
    assert list(tpu.list_queued_resources(parent=HERE)) == []
    assert list(tpu.list_nodes(parent=HERE)) == []


def test_many_slices_in_one_request(tpu: Any, v2: Any, node: Any) -> None:
    slices = v2.QueuedResource.Tpu.NodeSpec.MultisliceParams(node_count=2, node_id_prefix="ms")
    spec = v2.QueuedResource.Tpu.NodeSpec(parent=HERE, multislice_params=slices, node=node)
    body = v2.QueuedResource(tpu=v2.QueuedResource.Tpu(node_spec=[spec]))
    asked = tpu.create_queued_resource(
        request={"parent": HERE, "queued_resource_id": "q1", "queued_resource": body}
    )
    made = asked.result(timeout=60)
    read = tpu.get_queued_resource(name=made.name)
    assert [slot.node_id for slot in read.tpu.node_spec] == ["ms-0", "ms-1"]

    def both() -> Any:
        nodes = list(tpu.list_nodes(parent=HERE))
        return nodes if len(nodes) == 2 else None

    assert all(one.multislice_node for one in until(both, "two nodes", seconds=30))


def test_types_and_runtimes_of_a_zone(tpu: Any) -> None:
    types = {one.type_ for one in tpu.list_accelerator_types(parent=HERE)}
    assert {"v4-8", "v4-16", "v4-32"} <= types
    one = tpu.get_accelerator_type(name=f"{HERE}/acceleratorTypes/v4-16")
    assert one.accelerator_configs[0].topology == "2x2x2"
    versions = {one.version for one in tpu.list_runtime_versions(parent=HERE)}
    assert "tpu-ubuntu2204-base" in versions
    version = tpu.get_runtime_version(name=f"{HERE}/runtimeVersions/tpu-ubuntu2204-base")
    assert version.version == "tpu-ubuntu2204-base"
    identity = tpu.generate_service_identity(request={"parent": HERE}).identity
    assert identity.email.endswith("@cloud-tpu.iam.gserviceaccount.com")
    places = tpu.list_locations(request={"name": "projects/demo"}).locations
    assert "us-central2-b" in {place.location_id for place in places}
    assert tpu.get_location(request={"name": HERE}).location_id == "us-central2-b"


def test_operations_can_be_listed_read_and_deleted(tpu: Any, node: Any) -> None:
    operation = tpu.create_node(parent=HERE, node_id="n1", node=node)
    operation.result(timeout=60)
    name = operation.operation.name
    assert tpu.get_operation(request={"name": name}).done
    listed = tpu.list_operations(request={"name": HERE}).operations
    assert name in {one.name for one in listed}
    tpu.delete_operation(request={"name": name})
    listed = tpu.list_operations(request={"name": HERE}).operations
    assert name not in {one.name for one in listed}


def test_guest_attributes_have_one_entry_per_worker(tpu: Any, node: Any) -> None:
    name = tpu.create_node(parent=HERE, node_id="n1", node=node).result(timeout=60).name
    every = tpu.get_guest_attributes(request={"name": name, "worker_ids": [""]})
    assert len(every.guest_attributes) == 2
    one = tpu.get_guest_attributes(request={"name": name, "worker_ids": ["1"]})
    assert len(one.guest_attributes) == 1


def test_no_capacity_ends_the_operation_with_code_8(
    world: World, tpu: Any, errors: Any, node: Any
) -> None:
    world.herd("weather", "capacity", "us-central2-b", "*", "0")
    try:
        with pytest.raises(errors.ResourceExhausted) as caught:
            tpu.create_node(parent=HERE, node_id="n1", node=node).result(timeout=60)
    finally:
        world.herd("weather", "capacity", "us-central2-b", "*", "unlimited")
    assert 'There is no more capacity in the zone "us-central2-b"' in caught.value.message
    assert list(tpu.list_nodes(parent=HERE)) == []


def test_the_alpha_of_this_library_is_grpc_only() -> None:
    borrow("light")
    alpha = pytest.importorskip("google.cloud.tpu_v2alpha1")
    with pytest.raises(KeyError):
        alpha.TpuClient.get_transport_class("rest")
