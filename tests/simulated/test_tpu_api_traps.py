"""The rules that break clients when an emulator gets them wrong, one test each."""

import re
from typing import Any

import pytest

from tests.simulated.tpu_user import ALPHA, EVERYWHERE, ONE_HOST, PARENT, PLACE, POD, SPOT, User
from tpuherd_sim.tpu.faults import preempt_node


@pytest.fixture
def user() -> User:
    return User()


def test_01_done_is_always_present(user: User) -> None:
    operation = user.create()
    assert user.get(operation)["done"] is False
    user.wait(3600)
    assert user.get(operation)["done"] is True


def test_02_empty_fields_are_omitted(user: User) -> None:
    assert user.get(f"{PLACE}/nodes") == {}
    assert user.get(f"{PLACE}/queuedResources") == {}
    assert user.get(f"{PLACE}/operations") == {}
    node = user.ready(description="", labels={}, tags=[], metadata={})
    assert not {"description", "labels", "tags", "metadata", "symptoms"} & node.keys()
    assert None not in node.values()


@pytest.mark.parametrize("version", ["v2", "v2alpha1"])
def test_03_operation_types_match_the_version(user: User, version: str) -> None:
    place = f"/{version}/{PARENT}"
    created = user.post(f"{place}/nodes?nodeId=n", ONE_HOST)
    user.wait(3600)
    stem = f"type.googleapis.com/google.cloud.tpu.{version}"
    done = user.get(f"/{version}/{created['name']}")
    assert done["metadata"]["@type"] == f"{stem}.OperationMetadata"
    assert done["response"]["@type"] == f"{stem}.Node"
    assert done["response"]["state"] == "READY"
    deleted = user.ask("DELETE", f"{place}/nodes/n").said
    user.wait(3600)
    done = user.get(f"/{version}/{deleted['name']}")
    assert done["response"] == {"@type": "type.googleapis.com/google.protobuf.Empty"}
    slot = {"parent": PARENT, "nodeId": "m", "node": ONE_HOST}
    body = {"tpu": {"nodeSpec": [slot]}}
    queued = user.post(f"{place}/queuedResources?queuedResourceId=q", body)
    user.wait(60)
    done = user.get(f"/{version}/{queued['name']}")
    assert done["response"]["@type"] == f"{stem}.QueuedResource"


@pytest.mark.parametrize("form", [(7, 2), ("V4", "READ_ONLY")], ids=["numbers", "names"])
def test_04_enums_come_as_numbers_or_names(user: User, form: tuple[Any, Any]) -> None:
    kind, mode = form
    node = user.ready(
        "n",
        {
            "acceleratorConfig": {"type": kind, "topology": "2x2x2"},
            "runtimeVersion": "tpu-ubuntu2204-base",
            "dataDisks": [
                {"sourceDisk": "projects/demo/zones/us-central2-b/disks/d", "mode": mode}
            ],
        },
    )
    assert node["acceleratorType"] == "v4-16"
    assert node["acceleratorConfig"] == {"type": "V4", "topology": "2x2x2"}
    assert node["dataDisks"][0]["mode"] == "READ_ONLY"


def test_05_system_parameters_are_ignored(user: User) -> None:
    user.ready()
    same = user.node()
    for query in (
        "%24alt=json%3Benum-encoding%3Dint",
        "alt=json&prettyPrint=false&key=k&quotaUser=u&fields=name",
        "%24.xgafv=2&access_token=t&oauth_token=t&uploadType=u&upload_protocol=p&callback=c",
    ):
        assert user.get(f"{PLACE}/nodes/n?{query}") == same


@pytest.mark.parametrize("force", ["true", "True", "TRUE", "1"])
def test_06_force_in_any_spelling(user: User, force: str) -> None:
    user.active()
    assert user.ask("DELETE", f"{PLACE}/queuedResources/q").status == 400
    assert user.ask("DELETE", f"{PLACE}/queuedResources/q?force={force}").status == 200


@pytest.mark.parametrize(
    "mask",
    [
        "labels,description,networkConfig.enableExternalIps",
        "network_config.enable_external_ips,description,labels",
        " description , labels,network_config.enableExternalIps",
    ],
)
def test_07_masks_in_any_case_and_order_ignore_the_rest_of_the_body(user: User, mask: str) -> None:
    node = user.ready(tags=["old"])
    assert "accessConfig" in node["networkEndpoints"][0]
    body = {**node, "labels": {"a": "b"}, "description": "new", "tags": ["new"]}
    body["networkConfig"] = {"network": "default", "enableExternalIps": False}
    answer = user.ask("PATCH", f"{PLACE}/nodes/n?updateMask={mask.replace(',', '%2C')}", body)
    assert answer.status == 200, answer
    user.wait(60)
    node = user.node()
    assert (node["labels"], node["description"], node["tags"]) == ({"a": "b"}, "new", ["old"])
    assert "accessConfig" not in node["networkEndpoints"][0]


def test_08_numbers_are_text_and_times_have_nine_digits(user: User) -> None:
    node = user.ready()
    assert isinstance(node["id"], str) and node["id"].isdecimal()
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d[.]\d{9}Z", node["createTime"])
    operation = user.get(f"{PLACE}/operations")["operations"][0]
    assert re.fullmatch(r"(.*[.][0-9]{6})[0-9]*Z", operation["metadata"]["endTime"])


def test_09_a_single_node_spec_need_not_be_a_list(user: User) -> None:
    slot = {"parent": PARENT, "nodeId": "n", "node": ONE_HOST}
    body = {"tpu": {"nodeSpec": slot}, "spot": {}}
    user.post(f"{PLACE}/queuedResources?queuedResourceId=q", body)
    assert [one["nodeId"] for one in user.queued()["tpu"]["nodeSpec"]] == ["n"]


@pytest.mark.parametrize("body", [b"", b"{}", b" \n"])
def test_10_verbs_need_no_body(user: User, body: bytes) -> None:
    user.ready()
    assert user.ask("POST", f"{PLACE}/nodes/n:stop", raw=body).status == 200
    user.wait(3600)
    assert user.node()["state"] == "STOPPED"


def test_11_answers_have_their_content_type(user: User) -> None:
    answer = user.ask("GET", f"{PLACE}/nodes")
    assert dict(answer.response.headers)["content-type"] == "application/json; charset=UTF-8"


def test_12_verbs_follow_the_last_colon_and_names_are_decoded(user: User) -> None:
    name, escaped = "Q.a~b+c%-d", "Q.a%7Eb+c%25-d"
    slot = {"parent": PARENT, "nodeId": "n", "node": ONE_HOST}
    query = "queuedResourceId=Q.a~b%2Bc%25-d"
    user.post(f"{PLACE}/queuedResources?{query}", {"tpu": {"nodeSpec": [slot]}})
    assert user.get(f"{PLACE}/queuedResources/{escaped}")["name"].endswith(f"/{name}")
    refused = user.ask("POST", f"{PLACE}/queuedResources/{escaped}:reset")
    assert refused.status == 400 and refused.said["error"]["status"] == "FAILED_PRECONDITION"


def test_13_a_dash_is_every_zone(user: User) -> None:
    user.ready("here")
    there = f"{EVERYWHERE.removesuffix('-')}europe-west4-a"
    body = {"acceleratorType": "v6e-8", "runtimeVersion": "v2-alpha-tpuv6e"}
    user.post(f"{there}/nodes?nodeId=there", body)
    names = [one["name"] for one in user.get(f"{EVERYWHERE}/nodes")["nodes"]]
    assert [name.split("/")[3] for name in names] == ["europe-west4-a", "us-central2-b"]
    user.weather("unreachable-zone", zone="europe-west4-a", times=1)
    partial = user.get(f"{EVERYWHERE}/nodes")
    assert [one["name"] for one in partial["nodes"]] == [f"{PARENT}/nodes/here"]
    assert partial["unreachable"] == ["projects/demo/locations/europe-west4-a"]


def test_14_nodes_have_no_filter(user: User) -> None:
    refused = user.ask("GET", f"{PLACE}/nodes?filter=x")
    assert refused.status == 400 and 'Unknown name "filter"' in refused.message


@pytest.mark.parametrize(
    ("list_", "name"),
    [
        ("acceleratorTypes", "filter"),
        ("acceleratorTypes", "orderBy"),
        ("runtimeVersions", "filter"),
        ("runtimeVersions", "orderBy"),
        ("operations", "filter"),
    ],
)
def test_14_an_unsupported_filter_is_refused(user: User, list_: str, name: str) -> None:
    """It came whole, as if everything in it fitted."""
    refused = user.ask("GET", f"{PLACE}/{list_}?{name}=type")
    assert refused.status == 400 and refused.message.startswith(f"{name} is not supported by the ")
    assert user.ask("GET", f"{PLACE}/{list_}?{name}=").status == 200


@pytest.mark.parametrize("method", ["GET", "DELETE"])
@pytest.mark.parametrize("resource", ["nodes/n", "queuedResources/q"])
def test_14_a_name_with_a_colon_at_its_end_is_another_name(
    user: User, method: str, resource: str
) -> None:
    user.ready()
    slot = {"parent": PARENT, "nodeId": "m", "node": ONE_HOST}
    user.post(f"{PLACE}/queuedResources?queuedResourceId=q", {"tpu": {"nodeSpec": [slot]}})
    assert user.ask(method, f"{PLACE}/{resource}:").status == 404
    assert user.ask("GET", f"{PLACE}/{resource}").status == 200


def test_15_a_node_has_its_network_and_labels(user: User) -> None:
    node = user.ready(labels={"a": "b"})
    assert node["networkConfig"]["network"] == "projects/demo/global/networks/default"
    subnetwork = "projects/demo/regions/us-central2/subnetworks/default"
    assert node["networkConfig"]["subnetwork"] == subnetwork
    assert node["labels"] == {"a": "b"}


def test_16_endpoints_are_workers_in_order_and_internal_ones_have_no_access(user: User) -> None:
    node = user.ready("pod", POD)
    record = user.record("pod")
    assert [one["ipAddress"] for one in node["networkEndpoints"]] == [
        worker.internal_ip for worker in record.workers
    ]
    assert [one["accessConfig"]["externalIp"] for one in node["networkEndpoints"]] == [
        worker.external_ip for worker in record.workers
    ]
    inside = user.ready("inside", POD, networkConfig={"network": "default"})
    assert all("accessConfig" not in one for one in inside["networkEndpoints"])


def test_17_the_version_is_one_that_gcloud_shows(user: User) -> None:
    user.ready()
    assert user.node()["apiVersion"] == "V2"
    assert user.get(f"{ALPHA}/nodes/n")["apiVersion"] == "V2_ALPHA1"


def test_18_an_empty_worker_is_every_worker(user: User) -> None:
    user.ready("pod", POD)
    record = user.record("pod")
    for worker in record.workers:
        key = f"{record.uid}-{worker.index}"
        path = f"/sim/v1/hosts/{key}/guest-attributes/hostkeys/ssh-ed25519"
        assert user.ask("PUT", path, {"value": f"key{worker.index}"}).status == 200
    for asked, keys in (
        ({"workerIds": [""]}, ["key0", "key1"]),
        ({}, ["key0", "key1"]),
        ({"workerIds": ["1"]}, ["key1"]),
        ({"queryPath": "hostkeys/", "workerIds": ["0"]}, ["key0"]),
    ):
        found = user.post(f"{PLACE}/nodes/pod:getGuestAttributes", asked)["guestAttributes"]
        items = [one["queryValue"]["items"][0] for one in found]
        assert [item["value"] for item in items] == keys
        assert {(item["namespace"], item["key"]) for item in items} == {("hostkeys", "ssh-ed25519")}
    assert (
        user.ask("POST", f"{PLACE}/nodes/pod:getGuestAttributes", {"workerIds": ["2"]}).status
        == 400
    )


def test_19_no_capacity_is_an_operation_that_ends_with_code_8(user: User) -> None:
    user.weather("capacity", zone="us-central2-b", type="v4-*", nodes=0)
    operation = user.create()
    assert user.node()["state"] == "CREATING"
    user.wait(30)
    ended = user.get(operation)
    assert ended["done"] is True and ended["error"]["code"] == 8
    assert user.ask("GET", f"{PLACE}/nodes/n").status == 404


def test_21_requests_are_polled_in_seconds_and_nodes_in_minutes(user: User) -> None:
    queued, node = user.queue(), user.create()
    user.wait(5)
    assert user.get(queued)["done"] is True and user.get(node)["done"] is False
    assert user.get(queued)["response"]["state"]["state"] == "ACCEPTED"


def test_22_a_preempted_node_stays_and_one_of_a_request_goes(user: User) -> None:
    user.create("direct", **SPOT)
    user.active()
    for key in list(user.world.nodes):
        preempt_node(user.world, key, user.now)
    user.wait(29)
    assert user.node("direct")["state"] == user.node("q-n")["state"] == "READY"
    user.wait(1)
    assert user.node("direct")["state"] == "PREEMPTED"
    assert user.ask("GET", f"{PLACE}/nodes/q-n").status == 404
    user.until("SUSPENDING")
    user.until("SUSPENDED")
    state = user.queued()["state"]
    assert state == {"state": "SUSPENDED", "stateInitiator": "SERVICE", "suspendedData": {}}
    user.wait(86400)
    assert user.node("direct")["state"] == "PREEMPTED"
    user.delete("direct")
    user.wait(3600)
    assert user.ask("GET", f"{PLACE}/nodes/direct").status == 404


def test_24_a_multislice_request_shows_its_nodes(user: User) -> None:
    spec = {"parent": PARENT, "node": POD, "multisliceParams": {"nodeCount": 3}}
    body = {"tpu": {"nodeSpec": [spec]}, "spot": {}}
    user.post(f"{PLACE}/queuedResources?queuedResourceId=ms", body)
    slots = user.queued("ms")["tpu"]["nodeSpec"]
    assert [slot["nodeId"] for slot in slots] == ["ms-0", "ms-1", "ms-2"]
    user.wait(3600)
    nodes = [user.node(f"ms-{number}") for number in range(3)]
    assert all(node["multisliceNode"] and node["schedulingConfig"]["spot"] for node in nodes)
    assert {node["queuedResource"] for node in nodes} == {f"{PARENT}/queuedResources/ms"}
    places = [user.record(f"ms-{number}").multislice for number in range(3)]
    assert [place and (place.slices, place.slice) for place in places] == [(3, 0), (3, 1), (3, 2)]
    assert {place and place.coordinator for place in places} == {
        user.record("ms-0").workers[0].internal_ip
    }


def test_25_discovery_documents_are_served(user: User) -> None:
    assert user.get("/$discovery/rest")["version"] == "v2"
    assert user.get("/%24discovery/rest?version=v2alpha1")["version"] == "v2alpha1"
