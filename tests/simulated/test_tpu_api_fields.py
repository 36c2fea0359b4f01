"""The ways in which clients may write a field, and how it is read back."""

from typing import Any

import pytest

from tests.simulated.tpu_user import ALPHA, ONE_HOST, PARENT, PLACE, POD, User

NETWORKS = "/compute/v1/projects/demo/global/networks"


@pytest.fixture
def user() -> User:
    return User()


def alpha(user: User, name: str = "n", **more: Any) -> Any:
    """A READY node of v2alpha1."""
    user.post(f"{ALPHA}/nodes?nodeId={name}", {**ONE_HOST, **more})
    user.wait(3600)
    return user.get(f"{ALPHA}/nodes/{name}")


def test_alpha_fields_are_not_shown_in_v2(user: User) -> None:
    disk = {"diskSizeGb": 200, "customerEncryptionKey": {"kmsKeyName": "k"}}
    node = alpha(user, autocheckpointEnabled=True, bootDiskConfig=disk)
    assert node["autocheckpointEnabled"] is True
    assert node["bootDiskConfig"] == {**disk, "diskSizeGb": "200"}
    shown = user.node()
    assert "autocheckpointEnabled" not in shown
    assert shown["bootDiskConfig"] == {"customerEncryptionKey": {"kmsKeyName": "k"}}


@pytest.mark.parametrize(
    ("model", "scheduling"),
    [
        ("STANDARD", {}),
        ("SPOT", {"spot": True}),
        ("RESERVATION_BOUND", {"reserved": True}),
    ],
)
def test_a_provisioning_model_is_a_tier(
    user: User, model: str, scheduling: dict[str, bool]
) -> None:
    node = alpha(user, schedulingConfig={"provisioningModel": model})
    assert node["schedulingConfig"] == {"provisioningModel": model, **scheduling}
    assert user.node()["schedulingConfig"] == scheduling


@pytest.mark.parametrize(
    ("tier", "kind", "spot"),
    [
        ({}, "on-demand", False),
        ({"spot": {}}, "spot", True),
        ({"bestEffort": {}}, "best-effort", True),
        ({"guaranteed": {"reserved": True}}, "guaranteed", False),
        ({"reservationName": f"{PARENT}/reservations/-"}, "guaranteed", False),
        ({"provisioningModel": "SPOT"}, "spot", True),
    ],
)
def test_a_request_has_one_tier(user: User, tier: dict[str, Any], kind: str, spot: bool) -> None:
    slot = {"parent": PARENT, "nodeId": "x", "node": ONE_HOST}
    user.post(f"{ALPHA}/queuedResources?queuedResourceId=q", {"tpu": {"nodeSpec": [slot]}, **tier})
    user.wait(3600)
    assert user.request().tier == kind and user.record("x").is_spot == spot
    shown = user.get(f"{ALPHA}/queuedResources/q")
    assert {name: shown[name] for name in tier} == tier


def test_several_network_interfaces(user: User) -> None:
    cards = [{"network": "default", "enableExternalIps": True}, {"network": "second"}]
    user.post(NETWORKS, {"name": "second"})
    user.post(f"{PLACE}/nodes?nodeId=n", {**POD, "networkConfigs": cards})
    user.wait(3600)
    node = user.node()
    assert [one["network"].rpartition("/")[2] for one in node["networkConfigs"]] == [
        "default",
        "second",
    ]
    assert node["networkConfig"] == node["networkConfigs"][0]
    # Two cards for each of two workers; the first of each pair is the worker's own.
    addresses = [one["ipAddress"] for one in node["networkEndpoints"]]
    assert len(set(addresses)) == 4
    assert addresses[::2] == [worker.internal_ip for worker in user.record().workers]
    assert ["accessConfig" in one for one in node["networkEndpoints"]] == [True, False] * 2
    body = {"networkConfig": {"enableExternalIps": False}}
    mask = "network_config.enable_external_ips"
    assert user.ask("PATCH", f"{PLACE}/nodes/n?updateMask={mask}", body).status == 200
    user.wait(60)
    assert not any("accessConfig" in one for one in user.node()["networkEndpoints"])
    assert user.node()["networkConfig"] == user.node()["networkConfigs"][0]


OWN = "projects/demo/global/networks/default"
URL = "https://www.googleapis.com/compute/v1"


@pytest.mark.parametrize(
    "network", ["default", "global/networks/default", OWN, f"{URL}/{OWN}", "", None]
)
def test_a_network_by_any_name(user: User, network: str | None) -> None:
    config: dict[str, Any] = {"enableExternalIps": True, "network": network}
    node = alpha(user, networkConfig=config)
    assert node["networkConfig"] == {
        "enableExternalIps": True,
        "network": "projects/demo/global/networks/default",
        "subnetwork": "projects/demo/regions/us-central2/subnetworks/default",
    }


def test_what_a_world_cannot_look_up_counts_as_there(user: User) -> None:
    user.post(NETWORKS, {"name": "own", "autoCreateSubnetworks": False})
    own = alpha(user, "a", networkConfig={"network": "own", "subnetwork": "any"})
    assert own["networkConfig"]["subnetwork"].endswith("regions/us-central2/subnetworks/any")
    shared = {"network": "projects/host/global/networks/lab"}
    account = {"email": "me@host.iam.gserviceaccount.com"}
    node = alpha(user, "b", networkConfig=shared, serviceAccount=account)
    subnetwork = "projects/host/regions/us-central2/subnetworks/lab"
    assert node["networkConfig"] == {**shared, "subnetwork": subnetwork}
    wrong = {"dataDisks": [{"sourceDisk": "d"}]}
    assert user.ask("PATCH", f"{ALPHA}/nodes/b?updateMask=dataDisks", wrong).status == 400


@pytest.mark.parametrize(
    "spelling",
    [
        {"networkConfig": {"queueCount": 3, "canIpForward": True}},
        {"network_config": {"queue_count": "3", "can_ip_forward": "true"}},
        {"networkConfig": {"queueCount": 3.0, "canIpForward": True, "network": None}},
    ],
)
def test_json_is_parsed_like_proto3(user: User, spelling: dict[str, Any]) -> None:
    config = alpha(user, **spelling)["networkConfig"]
    assert (config["queueCount"], config["canIpForward"]) == (3, True)


def test_output_only_fields_are_ignored(user: User) -> None:
    told: dict[str, Any] = {
        "state": "PREEMPTED",
        "id": "5",
        "name": "x",
        "multisliceNode": True,
        "health": 5,
    }
    node = alpha(user, **told, apiVersion=1)
    assert (node["state"], node["health"]) == ("READY", "HEALTHY")
    assert node["id"] != "5" and "multisliceNode" not in node


def test_a_custom_service_account(user: User) -> None:
    account = {"email": "me@x", "scope": ["s"]}
    assert alpha(user, "a", serviceAccount=account)["serviceAccount"] == account
    default = alpha(user, "b", serviceAccount={})["serviceAccount"]
    assert default["email"] == "123456789012-compute@developer.gserviceaccount.com"
    assert len(default["scope"]) == 6


def test_v1_shows_nodes_and_changes_their_runtime(user: User) -> None:
    place = f"/v1/{PARENT}/nodes"
    user.ready()
    assert user.get(f"{place}/n")["network"].endswith("/default")
    said = user.post(f"{place}/n:reimage", {"tensorflowVersion": "tpu-ubuntu2204-base"})
    assert user.get(f"{place}/n")["state"] == "REIMAGING"
    user.wait(3600)
    done = user.get(f"/v1/{said['name']}")
    assert done["response"]["@type"] == "type.googleapis.com/google.cloud.tpu.v1.Node"
    assert user.get(f"{place}/n")["tensorflowVersion"] == "tpu-ubuntu2204-base"
    assert user.ask("POST", f"{place}/n:reimage", {"tensorflowVersion": "none"}).status == 400


def test_deleting_with_the_same_request_id_is_one_deletion(user: User) -> None:
    user.ready()
    path = f"{ALPHA}/nodes/n?requestId=77"
    first = user.ask("DELETE", path).said
    assert user.ask("DELETE", f"{PLACE}/nodes/n").status == 400
    assert user.ask("DELETE", path).said["name"] == first["name"]
    user.wait(3600)
    assert user.ask("DELETE", path).said["done"] is True
    user.queue()
    user.wait(60)
    path = f"{PLACE}/queuedResources/q?requestId=78&force=true"
    first = user.ask("DELETE", path).said
    user.wait(3600)
    assert user.ask("DELETE", path).said["name"] == first["name"]


def test_a_request_without_a_name_gets_one(user: User) -> None:
    slot = {"parent": PARENT, "nodeId": "x", "node": ONE_HOST}
    user.post(f"{PLACE}/queuedResources", {"tpu": {"nodeSpec": [slot]}})
    (found,) = user.get(f"{PLACE}/queuedResources")["queuedResources"]
    assert found["name"].rpartition("/")[2].startswith("qr-")


def test_locations_and_types_come_in_pages(user: User) -> None:
    path, names = "/v2/projects/demo/locations?pageSize=7", []
    token = ""
    while True:
        page = user.get(f"{path}&pageToken={token}")
        names += [one["locationId"] for one in page["locations"]]
        token = page.get("nextPageToken", "")
        if not token:
            break
    assert names == sorted(set(names)) and len(names) > 20
    every = user.get("/v2/projects/demo/locations/-/acceleratorTypes")
    assert "nextPageToken" in every
    assert user.ask("GET", f"{PLACE}/acceleratorTypes/v6e-8").status == 404
