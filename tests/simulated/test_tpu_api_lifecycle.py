"""How nodes and queued resources change over time, in the order in which users see it."""

from typing import Any

import pytest

from tests.simulated.tpu_user import ALPHA, ONE_HOST, PARENT, PLACE, POD, SPOT, User, fresh
from tpuherd_sim.tpu import faults
from tpuherd_sim.tpu.host_metadata import metadata_tree
from tpuherd_sim.tpu.host_reports import host_view, host_views
from tpuherd_sim.tpu.set_capacity import set_capacity

KEY = "us-central2-b/n"


@pytest.fixture
def user() -> User:
    return User()


def seen(user: User, name: str = "q", *, for_s: float = 1200.0) -> list[str]:
    """The states of a queued resource in their order, as somebody sees them who looks often."""
    states: list[str] = []
    for _ in range(int(for_s * 2)):
        request = user.world.requests.get(f"us-central2-b/{name}")
        state = request.state if request else "gone"
        if not states or states[-1] != state:
            states.append(state)
        user.wait(0.5)
    return states


def report(user: User, worker: int, event: str, name: str = "n", **more: Any) -> None:
    """A running host reports."""
    node = user.record(name)
    body = {"event": event, "boot": node.workers[worker].boot, **more}
    path = f"/sim/v1/hosts/{node.uid}-{worker}:report"
    assert user.ask("POST", path, body).status == 200


def test_a_request_goes_through_its_states(user: User) -> None:
    user.queue()
    assert seen(user) == [
        "CREATING",
        "ACCEPTED",
        "WAITING_FOR_RESOURCES",
        "PROVISIONING",
        "ACTIVE",
    ]
    user.ask("DELETE", f"{PLACE}/queuedResources/q?force=true")
    assert seen(user) == ["DELETING", "gone"]


def test_a_guaranteed_request_waits_as_accepted(user: User) -> None:
    user.queue(guaranteed={}, reservationName=f"{PARENT}/reservations/-")
    assert seen(user) == ["CREATING", "ACCEPTED", "PROVISIONING", "ACTIVE"]
    assert user.node("q-n")["schedulingConfig"] == {"reserved": True}


def test_nodes_are_listed_while_provisioning_and_all_are_needed(user: User) -> None:
    user.queue(nodes=3)
    user.until("PROVISIONING")
    nodes = user.get(f"{PLACE}/nodes")["nodes"]
    assert [node["state"] for node in nodes] == ["CREATING"] * 3
    assert {node["queuedResource"] for node in nodes} == {f"{PARENT}/queuedResources/q"}
    user.until("ACTIVE")
    assert {node.state for node in user.world.nodes.values()} == {"READY"}


@pytest.mark.parametrize("initiator", ["USER", "SERVICE"])
def test_one_lost_node_ends_the_whole_request(user: User, initiator: str) -> None:
    user.active(nodes=2)
    if initiator == "USER":
        user.delete("q-n-1")
    else:
        faults.preempt_node(user.world, "us-central2-b/q-n-1", user.now, notice_s=0.0)
    assert user.request().state == "ACTIVE"  # it has not noticed yet
    assert seen(user) == ["ACTIVE", "SUSPENDING", "SUSPENDED"]
    assert user.queued()["state"]["stateInitiator"] == initiator
    assert not user.world.nodes
    user.wait(86400)
    assert user.request().state == "SUSPENDED"


def test_the_longest_waiting_request_is_served_first(user: User) -> None:
    set_capacity(user.world, "us-central2-b", "v4-*", 0, user.now)
    for name in ("first", "second", "third"):
        user.queue(name)
        user.wait(10)
    user.wait(600)
    set_capacity(user.world, "us-central2-b", "v4-*", 2, user.now)
    user.wait(600)
    states = {name: user.request(name).state for name in ("first", "second", "third")}
    assert states == {"first": "ACTIVE", "second": "ACTIVE", "third": "WAITING_FOR_RESOURCES"}
    user.ask("DELETE", f"{PLACE}/queuedResources/first?force=true")
    user.wait(900)
    assert user.request("third").state == "ACTIVE"


def test_less_capacity_preempts_the_youngest_spot_nodes(user: User) -> None:
    user.ready("demand")
    for name in ("old", "young"):
        user.ready(name, **SPOT)
    set_capacity(user.world, "us-central2-b", "*", 2, user.now)
    user.wait(30)
    assert user.record("young").state == "PREEMPTED" and user.record("old").state == "READY"
    set_capacity(user.world, "us-central2-b", "*", 0, user.now)
    user.wait(30)
    assert user.record("old").state == "PREEMPTED" and user.record("demand").state == "READY"


def test_validity_times(user: User) -> None:
    user.queue(queueingPolicy={"validAfterDuration": "1000s"}, spot={})
    user.wait(999)
    assert user.request().state == "ACCEPTED"
    user.wait(600)
    assert user.request().state == "ACTIVE"
    interval = {"startTime": "2027-01-15T09:00:00Z", "endTime": "2027-01-15T09:00:20Z"}
    user.queue("short", queueingPolicy={"validInterval": interval}, spot={})
    user.wait(3600)
    assert user.request("short").state == "FAILED"


def test_waiting_limits_ignore_the_time_scale() -> None:
    user = User(world=fresh(time_scale=1000.0))
    set_capacity(user.world, "us-central2-b", "*", 0, user.now)
    user.queue(queueingPolicy={"validUntilDuration": "100s"}, spot={})
    user.wait(99)
    assert user.request().state == "WAITING_FOR_RESOURCES"
    user.wait(1)
    assert user.request().state == "FAILED"
    set_capacity(user.world, "us-central2-b", "*", None, user.now)
    user.create(**SPOT)
    user.wait(1)
    assert user.record().state == "READY"  # minutes in a second
    faults.preempt_node(user.world, KEY, user.now)
    user.wait(29)
    assert user.record().state == "READY"
    user.wait(1)
    assert user.record().state == "PREEMPTED"


def test_the_same_request_id_is_the_same_request(user: User) -> None:
    spec = {"tpu": {"nodeSpec": [{"parent": PARENT, "nodeId": "x", "node": ONE_HOST}]}}
    path = f"{PLACE}/queuedResources?queuedResourceId=q&requestId=5f3c"
    first = user.post(path, spec)
    user.wait(60)
    again = user.post(path, spec)
    assert again["name"] == first["name"] and again["done"] is True
    path = f"{ALPHA}/nodes?nodeId=n&requestId=5f3c"
    assert user.post(path, ONE_HOST)["name"] == user.post(path, ONE_HOST)["name"]


def test_a_flex_start_request_ends(user: User) -> None:
    node = {"acceleratorType": "v6e-8", "runtimeVersion": "v2-alpha-tpuv6e"}
    place = "projects/demo/locations/europe-west4-a"
    slot = {"parent": place, "nodeId": "x", "node": node}
    run = {"maxRunDuration": "7200s"}
    body = {"tpu": {"nodeSpec": [slot]}, "provisioningModel": "FLEX_START", "runDuration": run}
    user.post(f"/v2alpha1/{place}/queuedResources?queuedResourceId=q", body)
    user.wait(1200)
    said = user.get(f"/v2alpha1/{place}/queuedResources/q")
    assert said["state"]["state"] == "ACTIVE" and "terminationTime" in said["runDuration"]
    user.wait(7200)
    said = user.get(f"/v2/{place}/queuedResources/q")
    assert said["state"]["stateInitiator"] == "SERVICE" and "runDuration" not in said


def test_nodes_of_a_request_are_tried_for_a_while(user: User) -> None:
    user.weather("operation-error", code=13, method="nodes.create", times=3)
    user.queue()
    user.until("ACTIVE")
    user.weather("operation-error", code=13, method="nodes.create")
    user.queue("never")
    user.until("PROVISIONING", "never")
    user.wait(2600)
    assert user.request("never").state == "PROVISIONING"
    user.wait(600)
    assert user.request("never").state == "FAILED"


def test_stop_and_start_keep_the_node_and_change_its_external_address(user: User) -> None:
    before = user.ready()["networkEndpoints"][0]
    set_capacity(user.world, "us-central2-b", "*", 1, user.now)
    stop = user.verb("stop")
    assert user.node()["state"] == "STOPPING"
    user.wait(3600)
    assert user.get(stop)["response"]["state"] == "STOPPED"
    assert "accessConfig" not in user.node()["networkEndpoints"][0]
    user.ready("other")  # it took the TPU
    start = user.verb("start")
    user.wait(3600)
    assert user.get(start)["error"]["code"] == 8 and user.node()["state"] == "STOPPED"
    user.delete("other")
    user.wait(3600)
    start = user.verb("start")
    user.wait(3600)
    after = user.get(start)["response"]["networkEndpoints"][0]
    assert after["ipAddress"] == before["ipAddress"]
    assert after["accessConfig"] != before["accessConfig"]
    assert user.record().workers[0].boot == 2


def test_a_deleted_node_can_be_recreated_with_other_addresses(user: User) -> None:
    first = user.ready()
    user.delete()
    assert user.node()["state"] == "DELETING"
    user.wait(3600)
    second = user.ready()
    assert second["id"] != first["id"]
    assert second["networkEndpoints"] != first["networkEndpoints"]


def test_a_node_deleted_during_creation_is_not_made(user: User) -> None:
    operation = user.create()
    user.wait(40)
    assert user.ask("POST", f"{operation}:cancel").status == 200
    said = user.get(operation)
    assert said["metadata"]["cancelRequested"] is True and said["error"]["code"] == 1
    user.wait(3600)
    assert user.ask("GET", f"{PLACE}/nodes/n").status == 404
    operation = user.create("m")
    user.delete("m")
    assert user.get(operation)["error"]["code"] == 10


def test_patches_take_effect_in_their_order(user: User) -> None:
    user.ready()
    for number in range(5):
        labels = {"number": str(number)}
        answer = user.ask("PATCH", f"{PLACE}/nodes/n?updateMask=labels", {"labels": labels})
        assert answer.status == 200
        user.wait(0.1)
    assert "labels" not in user.node()
    user.wait(4)
    assert user.node()["labels"] == {"number": "4"}
    user.ask("PATCH", f"{PLACE}/nodes/n?updateMask=labels", {})
    user.wait(4)
    assert "labels" not in user.node()


def test_a_preemptible_node_lives_for_a_day(user: User) -> None:
    user.ready(schedulingConfig={"preemptible": True})
    user.wait(86400 - 3600)
    assert user.record().state == "READY"
    user.wait(3600)
    assert user.record().state == "TERMINATED"


def test_a_preempted_node_gets_a_notice_first(user: User) -> None:
    user.ready("n", POD, **SPOT)
    keys = list(host_views(user.world))
    faults.preempt_node(user.world, KEY, user.now)
    for key in keys:
        host = host_view(user.world, key)
        assert host is not None and host.on and host.soft_off == 1
        assert metadata_tree(user.world, key, user.now)["instance"]["preempted"] == "TRUE"
    user.wait(30)
    assert all(not (host := host_view(user.world, key)) or not host.on for key in keys)


def test_a_lost_host_is_repaired(user: User) -> None:
    user.ready("n", POD)
    faults.lose_host(user.world, KEY, 1, user.now)
    assert user.node()["state"] == "READY"
    user.wait(60)
    node = user.node()
    assert (node["state"], node["health"]) == ("REPAIRING", "TIMEOUT")
    user.wait(600)
    assert (user.node()["state"], user.node()["health"]) == ("READY", "HEALTHY")
    assert [worker.boot for worker in user.record().workers] == [1, 2]


def test_maintenance_is_announced_starts_and_ends(user: User) -> None:
    before = user.ready()
    user.weather("maintain", target="n", notice_s=120, duration_s=300)
    said = user.node()["upcomingMaintenance"]
    assert (said["type"], said["maintenanceStatus"]) == ("UNSCHEDULED", "PENDING")
    assert user.record().maintenance_event == "NONE"
    user.wait(60)
    assert user.record().maintenance_event == "TERMINATE_ON_HOST_MAINTENANCE"
    user.wait(30)
    assert user.record().workers[0].soft_off == 1
    user.wait(30)
    node = user.node()
    assert (node["state"], node["health"]) == ("RESTARTING", "UNHEALTHY_MAINTENANCE")
    assert node["upcomingMaintenance"]["maintenanceStatus"] == "ONGOING"
    user.wait(300)
    node = user.node()
    assert (node["state"], node["health"]) == ("READY", "HEALTHY")
    assert node["healthDescription"].startswith("The TPU had a maintenance event at 20")
    assert "upcomingMaintenance" not in node
    assert (
        node["networkEndpoints"][0]["accessConfig"] != before["networkEndpoints"][0]["accessConfig"]
    )


def test_scheduled_maintenance_can_start_early(user: User) -> None:
    user.active()
    assert user.ask("POST", f"{ALPHA}/nodes/q-n:performMaintenance").status == 400
    user.weather("maintain", target="q-n", notice_s=7 * 86400, duration_s=300)
    place = f"{ALPHA}/queuedResources/q"
    (found,) = user.get(f"{place}:getMaintenanceInfo")["nodeUpcomingMaintenances"]
    assert found["nodeName"] == f"{PARENT}/nodes/q-n"
    assert found["upcomingMaintenance"]["canReschedule"] is True
    body = {"nodeNames": [f"{PARENT}/nodes/q-n"]}
    operation = user.post(f"{place}:performMaintenanceQueuedResource", body)["name"]
    assert user.record("q-n").state == "RESTARTING"
    user.wait(600)
    assert user.get(f"/v2alpha1/{operation}")["done"] is True
    assert user.record("q-n").state == "READY"
    user.wait(8 * 86400)
    assert user.record("q-n").workers[0].boot == 2  # once, and not again when it was planned


def test_simulated_maintenance_restarts_the_first_worker_named(user: User) -> None:
    user.ready("n", POD)
    operation = user.verb("simulateMaintenanceEvent", body={"workerIds": ["1", "0"]})
    events = [worker.maintenance_event for worker in user.record().workers]
    assert events == ["NONE", "TERMINATE_ON_HOST_MAINTENANCE"]
    assert user.get(operation)["done"] is False
    user.wait(60)
    assert user.get(operation)["done"] is True
    assert [worker.boot for worker in user.record().workers] == [1, 2]
    assert {worker.maintenance_event for worker in user.record().workers} == {"NONE"}


def test_lists_come_in_pages(user: User) -> None:
    for number in range(5):
        user.create(f"n{number}")
    names: list[str] = []
    token = ""
    for size in (2, 2, 1):
        page = user.get(f"{PLACE}/nodes?pageSize=2&pageToken={token}")
        assert len(page["nodes"]) == size
        names += [node["name"].rpartition("/")[2] for node in page["nodes"]]
        token = page.get("nextPageToken", "")
    assert names == [f"n{number}" for number in range(5)] and token == ""


def test_types_and_runtimes_of_a_zone(user: User) -> None:
    types = user.get(f"{PLACE}/acceleratorTypes?pageSize=500")["acceleratorTypes"]
    found = {one["type"]: one for one in types}["v4-16"]
    assert found["name"] == f"{PARENT}/acceleratorTypes/v4-16"
    assert found["acceleratorConfigs"] == [{"type": "V4", "topology": "2x2x2"}]
    assert user.get(f"{PLACE}/acceleratorTypes/v4-16") == found
    versions = user.get(f"{PLACE}/runtimeVersions")["runtimeVersions"]
    assert "tpu-ubuntu2204-base" in {one["version"] for one in versions}
    old = user.get(f"/v1/{PARENT}/acceleratorTypes/v4-8")
    assert old == {"name": f"{PARENT}/acceleratorTypes/v4-8", "type": "v4-8"}
    assert user.get(f"/v1/{PARENT}/tensorflowVersions")["tensorflowVersions"]
    places = user.get("/v2/projects/demo/locations")["locations"]
    here = next(one for one in places if one["locationId"] == "us-central2-b")
    assert here["labels"] == {"cloud.googleapis.com/region": "us-central2"}
    assert user.get(PLACE) == here
    identity = user.post(f"{PLACE}:generateServiceIdentity")["identity"]
    assert identity["email"] == "service-123456789012@cloud-tpu.iam.gserviceaccount.com"


def test_old_tools_see_nodes_through_v1(user: User) -> None:
    user.ready(schedulingConfig={"preemptible": True})
    (node,) = user.get(f"/v1/{PARENT}/nodes")["nodes"]
    assert node["tensorflowVersion"] == "tpu-ubuntu2204-base"
    assert node["schedulingConfig"] == {"preemptible": True}
    assert node["ipAddress"] == node["networkEndpoints"][0]["ipAddress"]
    assert node["network"].endswith("/default") and "networkConfig" not in node


def test_the_project_may_be_named_by_its_number(user: User) -> None:
    user.ready()
    number = PLACE.replace("/demo/", "/123456789012/")
    assert user.get(f"{number}/nodes/n") == user.node()


# -- running hosts --------------------------------------------------------------------------------


@pytest.fixture
def real() -> User:
    return User(world=fresh(real_hosts=True))


def test_a_node_with_running_hosts_is_ready_when_all_are_up(real: User) -> None:
    operation = real.create("n", POD)
    real.wait(3600)
    assert real.node()["state"] == "CREATING"
    report(real, 0, "up")
    report(real, 0, "up")
    assert real.node()["state"] == "CREATING"
    report(real, 1, "up")
    assert real.node()["state"] == "READY" and real.get(operation)["done"] is True


def test_early_hosts_wait_for_the_simulated_time(real: User) -> None:
    real.create()
    real.wait(30)
    report(real, 0, "up")
    assert real.node()["state"] == "CREATING"
    real.wait(300)
    assert real.node()["state"] == "READY"


def test_a_host_that_does_not_boot_fails_its_node(real: User) -> None:
    operation = real.create()
    real.wait(30)
    report(real, 0, "failed", why="no room")
    error = real.get(operation)["error"]
    assert error["code"] == 13 and "no room" in error["message"]
    assert not real.world.nodes


def test_a_host_that_reboots_or_powers_off(real: User) -> None:
    real.create()
    real.wait(3600)
    report(real, 0, "up")
    report(real, 0, "rebooted")
    assert real.record().workers[0].boot == 2 and real.node()["state"] == "READY"
    report(real, 0, "up")
    report(real, 0, "off")
    real.wait(600)
    assert real.node()["state"] == "REPAIRING" and real.record().workers[0].boot == 3
    report(real, 0, "up")
    assert real.node()["state"] == "READY"


def test_late_news_of_an_earlier_boot_is_ignored(real: User) -> None:
    real.create()
    real.wait(3600)
    report(real, 0, "up")
    faults.reboot_host(real.world, KEY, 0, real.now)
    path = f"/sim/v1/hosts/{real.record().uid}-0:report"
    real.ask("POST", path, {"event": "off", "boot": 1})
    assert real.record().workers[0].on
