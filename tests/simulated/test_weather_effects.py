"""Every kind of weather, as a client or a host sees it."""

from collections.abc import Callable
from typing import Any

import pytest

from tests.simulated.in_process_world import Asker
from tpuherd_sim.model.host_view import HostView
from tpuherd_sim.tpu.host_metadata import metadata_tree
from tpuherd_sim.tpu.host_reports import host_view, host_views
from tpuherd_sim.weather.kinds import KINDS

ZONE = "us-central2-b"
PLACE = f"/v2/projects/demo/locations/{ZONE}"
EVERYWHERE = "/v2/projects/demo/locations/-"
SPEC = {
    "acceleratorType": "v4-16",
    "runtimeVersion": "tpu-ubuntu2204-base",
    "networkConfig": {"enableExternalIps": True},
    "schedulingConfig": {"spot": True},
}
LONG = 3600.0  #: after this time everything in the cloud's lifecycle is done
Effect = Callable[["Sky"], None]
EFFECTS: dict[str, Effect] = {}


class Sky(Asker):
    """A world with one zone that matters, and its weather."""

    def weather(self, kind: str, **said: Any) -> list[dict[str, Any]]:
        hits: list[dict[str, Any]] = self.post(f"/sim/v1/weather/{kind}", said)["done"]
        return hits

    def create(self, name: str = "pod", **other: Any) -> str:
        """Ask for a node; its operation's path."""
        operation = self.post(f"{PLACE}/nodes?nodeId={name}", {**SPEC, **other})
        return f"/v2/{operation['name']}"

    def born(self, name: str = "pod", **other: Any) -> dict[str, Any]:
        """A node that is READY."""
        self.create(name, **other)
        self.wait(LONG)
        node = self.node(name)
        assert node["state"] == "READY", node
        return node

    def node(self, name: str = "pod") -> dict[str, Any]:
        node: dict[str, Any] = self.get(f"{PLACE}/nodes/{name}")
        return node

    def queue(self, name: str = "qr", **policy: Any) -> None:
        """Ask for a node of that name by a queued resource."""
        slot = {
            "parent": f"projects/demo/locations/{ZONE}",
            "nodeId": name,
            "node": {name: SPEC[name] for name in SPEC if name != "schedulingConfig"},
        }
        body: dict[str, Any] = {"tpu": {"nodeSpec": [slot]}, "spot": {}}
        if policy:
            body["queueingPolicy"] = policy
        self.post(f"{PLACE}/queuedResources?queuedResourceId={name}", body)

    def queued(self, name: str = "qr") -> str:
        """The state of a queued resource."""
        return str(self.get(f"{PLACE}/queuedResources/{name}")["state"]["state"])

    def names(self, place: str = PLACE) -> list[str]:
        """The nodes that are listed."""
        listed = self.get(f"{place}/nodes").get("nodes", [])
        return [node["name"].rpartition("/")[2] for node in listed]

    def host(self, worker: int, name: str = "pod") -> HostView:
        """One host as it should be."""
        (found,) = (
            host
            for host in host_views(self.world).values()
            if (host.node, host.worker) == (name, worker)
        )
        return found

    def metadata(self, worker: int, name: str = "pod") -> dict[str, Any]:
        """A host's metadata under instance/."""
        tree = metadata_tree(self.world, self.host(worker, name).key, self.now)
        instance: dict[str, Any] = tree["instance"]
        return instance


def effect(kind: str) -> Callable[[Effect], Effect]:
    """Marks the proof of a kind."""

    def mark(proof: Effect) -> Effect:
        assert kind not in EFFECTS
        EFFECTS[kind] = proof
        return proof

    return mark


def test_every_kind_has_a_proof() -> None:
    assert set(EFFECTS) == set(KINDS)


@pytest.mark.parametrize("kind", KINDS)
def test_each_kind_has_its_documented_effect(kind: str) -> None:
    EFFECTS[kind](Sky())


# -- rules ----------------------------------------------------------------------------------------


@effect("http-error")
def http_error(sky: Sky) -> None:
    sky.weather("http-error", http=429, method="nodes.create", times=1)
    assert sky.ask("GET", f"{PLACE}/nodes").status == 200
    refused = sky.ask("POST", f"{PLACE}/nodes?nodeId=pod", SPEC)
    assert (refused.status, refused.said["error"]["status"]) == (429, "RESOURCE_EXHAUSTED")
    assert sky.names() == []
    assert sky.ask("POST", f"{PLACE}/nodes?nodeId=pod", SPEC).status == 200


@effect("lost-response")
def lost_response(sky: Sky) -> None:
    sky.weather("lost-response", method="*.create", times=1)
    assert sky.ask("POST", f"{PLACE}/nodes?nodeId=pod", SPEC).response.lost
    again = sky.ask("POST", f"{PLACE}/nodes?nodeId=pod", SPEC)
    assert again.status == 409 and not again.response.lost


@effect("delay")
def delay(sky: Sky) -> None:
    sky.weather("delay", seconds=5, zone=ZONE)
    assert sky.ask("GET", f"{PLACE}/nodes").response.delay_s == 5.0
    elsewhere = sky.ask("GET", "/v2/projects/demo/locations/us-east1-d/nodes")
    assert elsewhere.response.delay_s == 0.0


@effect("stale-list")
def stale_list(sky: Sky) -> None:
    sky.wait(100.0)
    sky.create()
    assert sky.names() == ["pod"]
    sky.wait(20.0)
    sky.weather("stale-list", age_s="60s", method="nodes.list")
    assert sky.names() == []
    assert sky.node()["state"] == "CREATING"
    sky.wait(60.0)
    assert sky.names() == ["pod"]


@effect("unreachable-zone")
def unreachable_zone(sky: Sky) -> None:
    sky.born()
    sky.weather("unreachable-zone", zone=ZONE)
    listed = sky.get(f"{EVERYWHERE}/nodes")
    assert listed.get("nodes", []) == []
    assert listed["unreachable"] == [f"projects/demo/locations/{ZONE}"]


@effect("conflict")
def conflict(sky: Sky) -> None:
    sky.weather("conflict", method="nodes.create", times=1)
    answer = sky.ask("POST", f"{PLACE}/nodes?nodeId=pod", SPEC)
    assert (answer.status, answer.said["error"]["status"]) == (409, "ALREADY_EXISTS")
    assert sky.names() == ["pod"]


@effect("operation-error")
def operation_error(sky: Sky) -> None:
    sky.weather("operation-error", code=13, message="out of luck", times=1)
    operation = sky.create()
    sky.wait(LONG)
    ended = sky.get(operation)
    assert ended["done"] and ended["error"]["code"] == 13
    assert ended["error"]["message"] == "out of luck"
    assert sky.names() == []


@effect("slow-operation")
def slow_operation(sky: Sky) -> None:
    sky.weather("slow-operation", factor=100)
    operation = sky.create()
    sky.wait(LONG)
    assert sky.node()["state"] == "READY"
    assert not sky.get(operation).get("done")
    sky.wait(300 * 100.0)
    assert sky.get(operation)["done"]


@effect("endless-operation")
def endless_operation(sky: Sky) -> None:
    sky.weather("endless-operation", times=1)
    operation = sky.create()
    sky.wait(10 * LONG)
    assert sky.node()["state"] == "READY"
    assert not sky.get(operation).get("done")


@effect("born-unhealthy")
def born_unhealthy(sky: Sky) -> None:
    sky.weather("born-unhealthy", type="v4-*", times=1)
    assert sky.born("ill")["health"] == "UNHEALTHY_MAINTENANCE"
    assert sky.born("well")["health"] == "HEALTHY"


@effect("no-external-ip")
def no_external_ip(sky: Sky) -> None:
    sky.weather("no-external-ip", worker=1, node="pod")
    first, second = sky.born()["networkEndpoints"]
    assert first["accessConfig"]["externalIp"]
    assert not second.get("accessConfig", {}).get("externalIp")


@effect("unreachable-worker")
def unreachable_worker(sky: Sky) -> None:
    sky.weather("unreachable-worker", worker=1)
    sky.born()
    assert [sky.host(worker).ssh for worker in (0, 1)] == [True, False]


@effect("stuck-suspending")
def stuck_suspending(sky: Sky) -> None:
    sky.weather("stuck-suspending", times=1)
    for name in ("stuck", "free"):
        sky.queue(name)
        sky.wait(LONG)
        assert sky.queued(name) == "ACTIVE"
        sky.weather("preempt", target=name, notice_s=0)
        sky.wait(LONG)
    assert (sky.queued("stuck"), sky.queued("free")) == ("SUSPENDING", "SUSPENDED")


@effect("late-fill")
def late_fill(sky: Sky) -> None:
    sky.weather("capacity", zone=ZONE, nodes=0)
    sky.weather("late-fill", after_s="10m", request="late")
    sky.queue("late", validUntilDuration="300s")
    sky.queue("never", validUntilDuration="300s")
    sky.wait(400.0)
    assert (sky.queued("late"), sky.queued("never")) == ("WAITING_FOR_RESOURCES", "FAILED")
    sky.wait(LONG)
    assert (sky.queued("late"), sky.queued("never")) == ("ACTIVE", "FAILED")


@effect("recycle-ip")
def recycle_ip(sky: Sky) -> None:
    old = external(sky.born("old"))
    assert sky.ask("DELETE", f"{PLACE}/nodes/old").status == 200
    sky.wait(LONG)
    sky.weather("recycle-ip", times=1)
    assert external(sky.born("heir")) == old
    assert not external(sky.born("other")) & old


def external(node: dict[str, Any]) -> set[str]:
    return {end["accessConfig"]["externalIp"] for end in node["networkEndpoints"]}


@effect("slow-keys")
def slow_keys(sky: Sky) -> None:
    sky.born()
    sky.weather("slow-keys", seconds="1h")
    key = sky.host(0).key
    path = f"/sim/v1/hosts/{key}/guest-attributes/hostkeys/ssh-ed25519"
    assert sky.ask("PUT", path, {"value": "AAAA"}).status == 200
    asked = f"{PLACE}/nodes/pod:getGuestAttributes"
    assert "AAAA" not in str(sky.post(asked, {"queryPath": "hostkeys/"}))
    sky.wait(3601.0)
    assert "AAAA" in str(sky.post(asked, {"queryPath": "hostkeys/"}))


@effect("slow-provisioning")
def slow_provisioning(sky: Sky) -> None:
    sky.weather("slow-provisioning", factor=100, node="slow")
    sky.create("slow")
    sky.born("quick")
    assert sky.node("slow")["state"] == "CREATING"
    sky.wait(100 * 300.0)
    assert sky.node("slow")["state"] == "READY"


# -- strokes on nodes -----------------------------------------------------------------------------


@effect("preempt")
def preempt(sky: Sky) -> None:
    sky.born()
    before = sky.host(1)
    assert sky.metadata(1)["preempted"] == "FALSE"
    assert sky.weather("preempt", target="pod")[0]["target"] == f"{ZONE}/pod"
    assert sky.metadata(1)["preempted"] == "TRUE"
    assert sky.host(1).soft_off == before.soft_off + 1 and sky.host(1).on
    sky.wait(29.0)
    assert sky.host(1).on
    sky.wait(LONG)
    assert sky.node()["state"] == "PREEMPTED"
    gone = host_view(sky.world, before.key)
    assert gone is None or not gone.on


@effect("maintain")
def maintain(sky: Sky) -> None:
    node = sky.born()
    boot = sky.host(0).boot
    sky.weather("maintain", target=f"{ZONE}/pod", notice_s="5m", duration_s="10m")
    assert sky.node()["upcomingMaintenance"]["maintenanceStatus"] == "PENDING"
    sky.wait(LONG)
    after = sky.node()
    assert after["state"] == "READY" and "upcomingMaintenance" not in after
    assert sky.host(0).boot == boot + 1
    assert not external(after) & external(node)


@effect("unhealthy")
def unhealthy(sky: Sky) -> None:
    sky.born()
    sky.weather("unhealthy", target="p*", health="UNHEALTHY_TENSORFLOW", **{"for": "10m"})
    assert sky.node()["health"] == "UNHEALTHY_TENSORFLOW"
    sky.wait(600.0)
    assert sky.node()["health"] == "HEALTHY"


@effect("healthy")
def healthy(sky: Sky) -> None:
    sky.born()
    sky.weather("unhealthy", target="pod")
    sky.weather("healthy", target="pod")
    assert sky.node()["health"] == "HEALTHY"


# -- strokes on hosts -----------------------------------------------------------------------------


@effect("reboot")
def reboot(sky: Sky) -> None:
    sky.born()
    before = [sky.host(worker).boot for worker in (0, 1)]
    sky.weather("reboot", target="pod/w1")
    assert [sky.host(worker).boot for worker in (0, 1)] == [before[0], before[1] + 1]
    address = sky.host(0).external_ip
    sky.weather("reboot", target="pod", soft_s="5s", change_ip="true")
    assert [sky.host(worker).restarting for worker in (0, 1)] == [True, True]
    assert [sky.host(worker).boot for worker in (0, 1)] == [before[0], before[1] + 1]
    sky.wait(5.0)
    assert [sky.host(worker).restarting for worker in (0, 1)] == [False, False]
    assert [sky.host(worker).boot for worker in (0, 1)] == [before[0] + 1, before[1] + 2]
    assert sky.host(0).external_ip not in (None, address)


@effect("crash")
def crash(sky: Sky) -> None:
    sky.born()
    sky.weather("crash", target="pod/w0")
    assert [sky.host(worker).on for worker in (0, 1)] == [False, True]
    sky.wait(60.0)
    assert sky.node()["state"] == "REPAIRING"
    sky.wait(LONG)
    assert sky.node()["state"] == "READY" and sky.host(0).on


@effect("hang")
def hang(sky: Sky) -> None:
    sky.born()
    sky.weather("hang", target=f"{ZONE}/pod/w1", **{"for": 60})
    assert [sky.host(worker).hung for worker in (0, 1)] == [False, True]
    sky.wait(60.0)
    assert not sky.host(1).hung


@effect("unhang")
def unhang(sky: Sky) -> None:
    sky.born()
    sky.weather("hang", target="pod")
    sky.weather("unhang", target="pod/w0")
    assert [sky.host(worker).hung for worker in (0, 1)] == [False, True]


@effect("network")
def network(sky: Sky) -> None:
    sky.born()
    sky.weather("network", target="pod/w0", state="down")
    sky.weather("network", target="pod/w1", state="slow", **{"for": "90s"})
    assert [sky.host(worker).network for worker in (0, 1)] == ["down", "slow"]
    sky.wait(90.0)
    assert [sky.host(worker).network for worker in (0, 1)] == ["down", "up"]
    sky.weather("network", target="pod/*", state="up")
    assert sky.host(0).network == "up"


@effect("unreachable")
def unreachable(sky: Sky) -> None:
    sky.born()
    sky.weather("unreachable", target="pod/w0", **{"for": "5m"})
    assert [sky.host(worker).ssh for worker in (0, 1)] == [False, True]
    sky.wait(300.0)
    assert sky.host(0).ssh


@effect("reachable")
def reachable(sky: Sky) -> None:
    sky.born()
    sky.weather("unreachable", target="pod")
    sky.weather("reachable", target="pod")
    assert sky.host(0).ssh and sky.host(1).ssh


@effect("fill-disk")
def fill_disk(sky: Sky) -> None:
    sky.born()
    sky.weather("fill-disk", target="*/w1", **{"for": "1h"})
    assert [sky.host(worker).disk_full for worker in (0, 1)] == [False, True]
    sky.wait(3600.0)
    assert not sky.host(1).disk_full


@effect("free-disk")
def free_disk(sky: Sky) -> None:
    sky.born()
    sky.weather("fill-disk", target="pod")
    sky.weather("free-disk", target="pod/w0")
    assert [sky.host(worker).disk_full for worker in (0, 1)] == [False, True]


@effect("skew")
def skew(sky: Sky) -> None:
    sky.born()
    sky.weather("skew", target="pod/w0", seconds=-300, **{"for": 60})
    assert [sky.host(worker).clock_skew_s for worker in (0, 1)] == [-300.0, 0.0]
    sky.wait(60.0)
    assert sky.host(0).clock_skew_s == 0.0


# -- strokes on zones -----------------------------------------------------------------------------


@effect("drought")
def drought(sky: Sky) -> None:
    sky.born("spot")
    sky.born("mine", schedulingConfig={})
    sky.queue()
    sky.weather("drought", zone="us-central2-*", **{"for": "2h"})
    sky.wait(LONG)
    assert (sky.node("spot")["state"], sky.node("mine")["state"]) == ("PREEMPTED", "READY")
    assert sky.queued() == "WAITING_FOR_RESOURCES"
    operation = sky.create("more")
    sky.wait(60.0)
    assert sky.get(operation)["error"]["code"] == 8
    sky.wait(2 * LONG)
    assert sky.queued() == "ACTIVE"


@effect("capacity")
def capacity(sky: Sky) -> None:
    sky.weather("capacity", zone=ZONE, type="v4-16", nodes=1)
    sky.queue("first")
    sky.wait(200.0)
    sky.queue("second")
    sky.wait(LONG)
    assert (sky.queued("first"), sky.queued("second")) == ("ACTIVE", "WAITING_FOR_RESOURCES")
    sky.weather("capacity", zone=ZONE, type="v4-16", nodes="unlimited")
    sky.wait(LONG)
    assert sky.queued("second") == "ACTIVE"
    assert sky.get("/sim/v1/weather")["capacity"] == {}


@effect("quota")
def quota(sky: Sky) -> None:
    sky.weather("quota", zone=ZONE, quota="v4", limit=16)
    assert sky.ask("POST", f"{PLACE}/nodes?nodeId=pod", SPEC).status == 200
    refused = sky.ask("POST", f"{PLACE}/nodes?nodeId=more", SPEC)
    assert refused.status == 429 and "Limit 16 in zone us-central2-b" in refused.message


@effect("clear")
def clear(sky: Sky) -> None:
    (first,) = sky.weather("http-error", method="nodes.list")
    (second,) = sky.weather("delay")
    assert sky.ask("GET", f"{PLACE}/nodes").status == 503
    sky.weather("clear", rule=first["rule"])
    answer = sky.ask("GET", f"{PLACE}/nodes")
    assert (answer.status, answer.response.delay_s) == (200, 10.0)
    sky.weather("clear", rule="all")
    assert sky.ask("GET", f"{PLACE}/nodes").response.delay_s == 0.0
    assert second["rule"] not in str(sky.get("/sim/v1/weather")["rules"])
