"""Compute, Storage and Service Usage with google-api-python-client, checked by their schemas."""

import json
from typing import Any

import pytest

from tests.conformance.schema import document

pytestmark = pytest.mark.filterwarnings("ignore")  # the client's own, not ours


class Service:
    """A service whose answers fail the test when they do not fit."""

    def __init__(self, build: Any, api: str, version: str) -> None:
        cache = pytest.importorskip("googleapiclient.discovery_cache")
        self.documents = document(json.loads(cache.get_static_doc(api, version)))
        self.api = build(version, api)

    def __call__(self, request: Any) -> Any:
        answer = request.execute()
        if "response" in self.documents.methods[request.methodId]:
            assert self.documents.faults(request.methodId, answer) == []
        return answer


def test_project_metadata_with_its_fingerprint(build: Any) -> None:
    say = Service(build, "compute", "v1")
    projects = say.api.projects()
    before = say(projects.get(project="demo"))["commonInstanceMetadata"]
    items = [{"key": "ssh-keys", "value": "me:ssh-ed25519 AAAA me"}]
    body = {"fingerprint": before["fingerprint"], "items": items}
    told = say(projects.setCommonInstanceMetadata(project="demo", body=body))
    done = say(say.api.globalOperations().wait(project="demo", operation=told["name"]))
    assert done["status"] == "DONE"
    assert say(projects.get(project="demo"))["commonInstanceMetadata"]["items"] == items
    error = pytest.importorskip("googleapiclient.errors").HttpError
    with pytest.raises(error) as caught:
        projects.setCommonInstanceMetadata(project="demo", body=body).execute()
    assert caught.value.resp.status == 412


def test_a_firewall_rule_from_insert_to_delete(build: Any) -> None:
    say = Service(build, "compute", "v1")
    rules, operations = say.api.firewalls(), say.api.globalOperations()
    body = {"name": "allow-all", "sourceRanges": ["0.0.0.0/0"], "allowed": [{"IPProtocol": "all"}]}

    def wait(operation: Any) -> None:
        say(operations.wait(project="demo", operation=operation["name"]))

    wait(say(rules.insert(project="demo", body=body)))
    assert say(rules.get(project="demo", firewall="allow-all"))["priority"] == 1000
    wait(say(rules.patch(project="demo", firewall="allow-all", body={"priority": 5})))
    found = {rule["name"]: rule["priority"] for rule in say(rules.list(project="demo"))["items"]}
    assert found["allow-all"] == 5
    wait(say(rules.delete(project="demo", firewall="allow-all")))
    assert "allow-all" not in {rule["name"] for rule in say(rules.list(project="demo"))["items"]}


def test_an_account_and_its_rights_in_a_bucket(build: Any) -> None:
    iam, storage = Service(build, "iam", "v1"), Service(build, "storage", "v1")
    accounts, buckets = iam.api.projects().serviceAccounts(), storage.api.buckets()
    made = iam(accounts.create(name="projects/demo", body={"accountId": "reader-1"}))
    assert iam(accounts.get(name=made["name"])) == made
    assert made in iam(accounts.list(name="projects/demo"))["accounts"]
    storage(buckets.insert(project="demo", body={"name": "policy-held", "location": "US"}))
    policy = storage(buckets.getIamPolicy(bucket="policy-held"))
    policy["bindings"].append(
        {"role": "roles/storage.objectViewer", "members": [f"serviceAccount:{made['email']}"]}
    )
    assert policy["bindings"][-1] in storage(
        buckets.setIamPolicy(bucket="policy-held", body=policy)
    )["bindings"]  # fmt: skip
    asked = ["storage.objects.get", "storage.objects.create"]
    answer = storage(buckets.testIamPermissions(bucket="policy-held", permissions=asked))
    assert answer["permissions"] == asked
    buckets.delete(bucket="policy-held").execute()
    accounts.delete(name=made["name"]).execute()


def test_apis_are_enabled_and_disabled(build: Any) -> None:
    say = Service(build, "serviceusage", "v1")
    services, operations = say.api.services(), say.api.operations()
    name = "projects/demo/services/oslogin.googleapis.com"
    disabled = say(services.disable(name=name, body={}))
    assert say(services.get(name=name))["state"] == "DISABLED"
    say(operations.get(name=disabled["name"]))
    wanted = {"serviceIds": ["oslogin.googleapis.com", "tpu.googleapis.com"]}
    say(services.batchEnable(parent="projects/demo", body=wanted))
    listed = say(services.list(parent="projects/demo", filter="state:ENABLED"))["services"]
    assert name.rpartition("/")[2] in {one["config"]["name"] for one in listed}
    beta = Service(build, "serviceusage", "v1beta1")
    identity = beta.api.services().generateServiceIdentity(
        parent="projects/demo/services/tpu.googleapis.com"
    )
    assert beta(identity)["response"]["email"].startswith("service-")


def test_the_policy_of_the_project(build: Any) -> None:
    error = pytest.importorskip("googleapiclient.errors").HttpError
    for version in ("v1", "v3"):
        say = Service(build, "cloudresourcemanager", version)
        projects = say.api.projects()
        resource = "demo" if version == "v1" else "projects/demo"
        policy = say(projects.getIamPolicy(resource=resource, body={}))
        added = {"role": "roles/tpu.viewer", "members": [f"user:{version}@example.com"]}
        body = {"policy": {**policy, "bindings": [*policy["bindings"], added]}}
        assert added in say(projects.setIamPolicy(resource=resource, body=body))["bindings"]
        with pytest.raises(error) as caught:
            projects.setIamPolicy(resource=resource, body=body).execute()
        assert caught.value.resp.status == 409
        asked = {"permissions": ["tpu.nodes.create"]}
        assert say(projects.testIamPermissions(resource=resource, body=asked)) == asked


def test_an_os_login_profile(build: Any) -> None:
    say = Service(build, "oslogin", "v1")
    users, name = say.api.users(), "users/ada@example.com"
    key = {"key": "ssh-ed25519 AAAAC3Nz ada"}
    profile = say(users.importSshPublicKey(parent=name, body=key))["loginProfile"]
    assert profile["posixAccounts"][0]["username"] == "ada_example_com"
    (fingerprint,) = profile["sshPublicKeys"]
    assert say(users.getLoginProfile(name=name)) == profile
    say(users.sshPublicKeys().delete(name=f"{name}/sshPublicKeys/{fingerprint}"))
    assert "sshPublicKeys" not in say(users.getLoginProfile(name=name))
