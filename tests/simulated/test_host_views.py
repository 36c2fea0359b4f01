"""A host of the model: its view, its metadata, and its reports."""

import json

from tests.simulated.in_process_world import START, Asker
from tpuherd_sim.handle import handle_request, new_world
from tpuherd_sim.model.http_types import Request
from tpuherd_sim.model.world_parts import Settings
from tpuherd_sim.tpu.host_metadata import metadata_tree
from tpuherd_sim.tpu.host_reports import host_view, host_views, login_keys

PLACE = "/v2/projects/demo/locations/us-central2-b"
POD = {
    "acceleratorType": "v4-16",
    "runtimeVersion": "tpu-ubuntu2204-base",
    "schedulingConfig": {"spot": True},
    "networkConfig": {"enableExternalIps": True},
    "metadata": {"startup-script": "echo up", "ssh-keys": "ann:ssh-ed25519 AAAA ann"},
}
LONG_S = 900.0


def pod(**settings: object) -> Asker:
    """A world with a pod of two hosts that has had its time."""
    world = new_world(Settings(seed=3, created=START, **settings))  # type: ignore[arg-type]
    asker = Asker(world=world)
    asker.post(f"{PLACE}/nodes?nodeId=pod", POD)
    asker.wait(LONG_S)
    return asker


def environment(asker: Asker, key: str) -> dict[str, str]:
    """The attribute tpu-env, taken apart."""
    attributes = metadata_tree(asker.world, key, asker.now)["instance"]["attributes"]
    lines = (line.partition(": ") for line in attributes["tpu-env"].splitlines())
    return {name: value.strip("'") for name, _, value in lines}


def test_every_worker_is_a_host_that_knows_its_peers() -> None:
    asker = pod()
    hosts = list(host_views(asker.world).values())
    assert [host.worker for host in hosts] == [0, 1]
    assert all(host.on and host.boot == 1 and host.chips == 4 for host in hosts)
    assert {host.device for host in hosts} == {"accel"}
    assert len({host.internal_ip for host in hosts} | {host.external_ip for host in hosts}) == 4
    assert hosts[0].peers == tuple((host.name, host.internal_ip) for host in hosts)
    assert all(host_view(asker.world, host.key) == host for host in hosts)
    assert hosts[0].startup_script == "echo up"


def test_metadata_has_what_the_libraries_ask_for() -> None:
    asker = pod()
    first, second = host_views(asker.world).values()
    tree = metadata_tree(asker.world, second.key, asker.now)
    attributes = tree["instance"]["attributes"]
    assert attributes["agent-worker-number"] == "1"
    assert attributes["accelerator-type"] == "v4-16"
    assert attributes["instance-id"] == "pod"
    addresses = [one.split(":")[2] for one in attributes["worker-network-endpoints"].split(",")]
    assert addresses == [first.internal_ip, second.internal_ip]
    found = environment(asker, second.key)
    assert (found["WORKER_ID"], found["TOPOLOGY"]) == ("1", "2x2x2")
    assert (found["CHIPS_PER_HOST_BOUNDS"], found["HOST_BOUNDS"]) == ("2,2,1", "1,1,2")
    assert found["TPU_RUNTIME_METRICS_PORTS"] == "8431,8432,8433,8434"
    assert "MEGASCALE_NUM_SLICES" not in found
    assert tree["instance"]["preempted"] == "FALSE"
    assert tree["project"]["project-id"] == "demo"


def test_a_notice_is_visible_before_the_power_goes() -> None:
    asker = pod()
    key = next(iter(host_views(asker.world)))
    asker.post("/sim/v1/weather/preempt", {"target": "pod"})
    assert metadata_tree(asker.world, key, asker.now)["instance"]["preempted"] == "TRUE"
    pressed = host_view(asker.world, key)
    assert pressed is not None and pressed.on and pressed.soft_off == 1
    asker.wait(29.0)
    assert host_view(asker.world, key) is not None
    asker.wait(2.0)
    assert host_view(asker.world, key) is None
    assert asker.get(f"{PLACE}/nodes/pod")["state"] == "PREEMPTED"


def test_keys_come_from_the_project_and_the_node() -> None:
    asker = pod()
    key = next(iter(host_views(asker.world)))
    project = asker.get("/compute/v1/projects/demo")["commonInstanceMetadata"]
    items = [{"key": "ssh-keys", "value": "bob:ssh-rsa BBBB bob\nann:ssh-rsa CCCC ann"}]
    body = {"fingerprint": project["fingerprint"], "items": items}
    asker.post("/compute/v1/projects/demo/setCommonInstanceMetadata", body)
    assert login_keys(asker.world, key) == {
        "bob": ("ssh-rsa BBBB bob",),
        "ann": ("ssh-rsa CCCC ann", "ssh-ed25519 AAAA ann"),
    }
    alone = {**POD["metadata"], "block-project-ssh-keys": "TRUE"}  # type: ignore[dict-item]
    asker.ask("PATCH", f"{PLACE}/nodes/pod?updateMask=metadata", {"metadata": alone})
    asker.wait(60.0)
    assert login_keys(asker.world, key) == {"ann": ("ssh-ed25519 AAAA ann",)}


def test_slices_of_one_run_know_each_other() -> None:
    asker = Asker()
    node = {"acceleratorType": "v4-16", "runtimeVersion": "tpu-ubuntu2204-base"}
    spec = {
        "parent": "projects/demo/locations/us-central2-b",
        "multisliceParams": {"nodeCount": 2, "nodeIdPrefix": "ms"},
        "node": node,
    }
    body = {"tpu": {"nodeSpec": [spec]}, "spot": {}}
    asker.post(f"{PLACE}/queuedResources?queuedResourceId=qr", body)
    asker.wait(LONG_S)
    hosts = sorted(host_views(asker.world).values(), key=lambda one: (one.node, one.worker))
    assert [(host.node, host.worker) for host in hosts] == [
        ("ms-0", 0),
        ("ms-0", 1),
        ("ms-1", 0),
        ("ms-1", 1),
    ]
    assert len({host.segment for host in hosts}) == 1
    assert all(len(host.peers) == 4 for host in hosts)
    found = environment(asker, hosts[3].key)
    assert found["MEGASCALE_COORDINATOR_ADDRESS"] == hosts[0].internal_ip
    assert (found["MEGASCALE_NUM_SLICES"], found["MEGASCALE_SLICE_ID"]) == ("2", "1")


def test_a_node_with_real_hosts_waits_for_them() -> None:
    asker = pod(real_hosts=True)
    assert asker.get(f"{PLACE}/nodes/pod")["state"] == "CREATING"
    first, second = host_views(asker.world)
    asker.post(f"/sim/v1/hosts/{first}:report", {"event": "up", "boot": 1})
    assert asker.get(f"{PLACE}/nodes/pod")["state"] == "CREATING"
    asker.post(f"/sim/v1/hosts/{second}:report", {"event": "up", "boot": 1})
    assert asker.get(f"{PLACE}/nodes/pod")["state"] == "READY"


def test_a_reboot_from_inside_is_seen_and_late_news_is_ignored() -> None:
    asker = pod()
    key = next(iter(host_views(asker.world)))
    asker.post(f"/sim/v1/hosts/{key}:report", {"event": "rebooted", "boot": 1})
    rebooted = host_view(asker.world, key)
    assert rebooted is not None and rebooted.boot == 2
    asker.post(f"/sim/v1/hosts/{key}:report", {"event": "rebooted", "boot": 1})
    assert host_view(asker.world, key) == rebooted


def test_invalid_reports_are_refused() -> None:
    asker = pod()
    key = next(iter(host_views(asker.world)))
    for body in ({}, {"event": "up"}, {"event": "sings", "boot": 1}, {"event": "up", "boot": "1"}):
        assert asker.ask("POST", f"/sim/v1/hosts/{key}:report", body).status == 400
    for nobody in ("1-0", "x", "-", f"{key}0", "9" * 30 + "-0"):
        path = f"/sim/v1/hosts/{nobody}:report"
        assert asker.ask("POST", path, {"event": "up", "boot": 1}).status == 404


def test_the_api_shows_guest_attributes_written_by_a_host() -> None:
    asker = pod()
    key = list(host_views(asker.world))[1]
    path = f"/sim/v1/hosts/{key}/guest-attributes/hostkeys/ssh-ed25519"
    request = Request(method="PUT", path=path, body=json.dumps({"value": "AAAAhost"}).encode())
    assert handle_request(asker.world, request, asker.now).status == 200
    said = asker.post(f"{PLACE}/nodes/pod:getGuestAttributes", {"workerIds": ["1"]})
    items = said["guestAttributes"][0]["queryValue"]["items"]
    assert items == [{"namespace": "hostkeys", "key": "ssh-ed25519", "value": "AAAAhost"}]
    tree = metadata_tree(asker.world, key, asker.now)
    assert tree["instance"]["guest-attributes"] == {"hostkeys": {"ssh-ed25519": "AAAAhost"}}
