"""The project of a simulated world: which APIs are enabled, and its IAM policy."""

from base64 import b64decode, b64encode
from typing import Any

import pytest

from tests.simulated.in_process_world import Asker
from tpuherd_sim.model.world_codec import dump_world, load_world

TPU, COMPUTE = "tpu.googleapis.com", "compute.googleapis.com"
SERVICES = "/v1/projects/demo/services"
NODES = "/v2/projects/demo/locations/us-central2-b/nodes"
FIREWALLS = "/compute/v1/projects/demo/global/firewalls"
POLICY = "/v1/projects/demo:{}IamPolicy"
ADA = "user:ada@example.com"


@pytest.fixture
def world() -> Asker:
    return Asker()


def enabled(world: Asker) -> set[str]:
    listed = world.get(f"{SERVICES}?filter=state:ENABLED")["services"]
    return {one["config"]["name"] for one in listed}


def test_a_disabled_api_refuses_in_the_words_of_google(world: Asker) -> None:
    world.post(f"{SERVICES}/{TPU}:disable")
    assert TPU not in enabled(world)
    refused = world.ask("GET", NODES)
    assert refused.status == 403
    info = refused.said["error"]["details"][1]
    assert (info["reason"], info["metadata"]["service"]) == ("SERVICE_DISABLED", TPU)
    assert refused.message.startswith("Cloud TPU API has not been used in project")
    world.get(FIREWALLS)
    world.post(f"{SERVICES}/{COMPUTE}:disable")
    refused = world.ask("GET", FIREWALLS)
    assert (refused.status, refused.reason) == (403, "accessNotConfigured")
    assert refused.said["error"]["details"][1]["reason"] == "SERVICE_DISABLED"


def test_an_enabled_api_answers_a_moment_later(world: Asker) -> None:
    for name in (TPU, COMPUTE):
        world.post(f"{SERVICES}/{name}:disable")
    told = world.post(f"{SERVICES}:batchEnable", {"serviceIds": [TPU, COMPUTE]})
    assert "done" not in told
    world.wait(3)
    done = world.get(f"/v1/{told['name']}")
    assert [one["state"] for one in done["response"]["services"]] == ["ENABLED", "ENABLED"]
    assert world.ask("GET", NODES).status == 403
    world.wait(3)
    assert {world.ask("GET", path).status for path in (NODES, FIREWALLS)} == {200}
    again = world.post(f"{SERVICES}/{TPU}:enable")
    assert (again["name"], again["done"]) == ("operations/noop.DONE_OPERATION", True)
    assert world.ask("GET", "/v1/operations/none").status == 404
    assert load_world(dump_world(world.world)).services == world.world.services


def test_an_api_in_use_is_not_disabled_if_that_is_checked(world: Asker) -> None:
    spec = {"acceleratorType": "v4-8", "runtimeVersion": "tpu-ubuntu2204-base"}
    world.post(f"{NODES}?nodeId=n", spec)
    refused = world.ask("POST", f"{SERVICES}/{TPU}:disable", {"checkIfServiceHasUsage": "CHECK"})
    assert (refused.status, refused.said["error"]["status"]) == (400, "FAILED_PRECONDITION")
    world.post(f"{SERVICES}/{TPU}:disable")
    assert TPU not in enabled(world)


def test_an_api_gets_its_identity_with_its_role(world: Asker) -> None:
    policy = world.post(POLICY.format("get"))
    kept = [one for one in policy["bindings"] if "cloudtpu" not in one["role"]]
    world.post(POLICY.format("set"), {"policy": {**policy, "bindings": kept}})
    path = f"/v1beta1/projects/demo/services/{TPU}:generateServiceIdentity"
    email = world.post(path)["response"]["email"]
    assert email.endswith("@cloud-tpu.iam.gserviceaccount.com")
    assert world.post(path)["response"]["email"] == email
    bindings = world.post(POLICY.format("get"))["bindings"]
    role = {"role": "roles/cloudtpu.serviceAgent", "members": [f"serviceAccount:{email}"]}
    assert [one for one in bindings if one["role"] == role["role"]] == [role]
    assert world.ask("POST", path.replace("tpu", "storage")).status == 400


def test_a_policy_is_replaced_only_by_who_read_it(world: Asker) -> None:
    policy = world.post(POLICY.format("get"), {"options": {"requestedPolicyVersion": 3}})
    added = {"role": "roles/tpu.admin", "members": [ADA]}
    wanted = {"policy": {**policy, "bindings": [*policy["bindings"], added]}}
    assert added in world.post(POLICY.format("set"), wanted)["bindings"]
    assert world.post("/v3/projects/demo:getIamPolicy") == world.post(POLICY.format("get"))
    stale = world.ask("POST", POLICY.format("set"), wanted)
    assert (stale.status, stale.said["error"]["status"]) == (409, "ABORTED")
    assert load_world(dump_world(world.world)).services == world.world.services


@pytest.mark.parametrize(
    ("binding", "sentence"),
    [
        ({"role": "roles/nope", "members": [ADA]}, "Role roles/nope is not supported"),
        ({"role": "roles/tpu.admin", "members": ["ada"]}, "The member ada is of an unknown type"),
        ({"role": "roles/tpu.admin", "members": [7]}, "The member 7 is of an unknown type"),
        (
            {
                "role": "roles/tpu.admin",
                "members": ["serviceAccount:gone@demo.iam.gserviceaccount.com"],
            },
            "Service account gone@demo.iam.gserviceaccount.com does not exist",
        ),
        (
            {"role": "roles/tpu.admin", "members": [ADA], "condition": {"expression": "true"}},
            "policy version must be 3",
        ),
        ({"role": "roles/tpu.admin", "members": ADA}, "members must be a list"),
        (7, "The role name must be in the form"),
        ({"role": "tpu.admin", "members": [ADA]}, "The role name must be in the form"),
    ],
    ids=str,
)
def test_a_malformed_policy_is_refused(world: Asker, binding: Any, sentence: str) -> None:
    refused = world.ask("POST", POLICY.format("set"), {"policy": {"bindings": [binding]}})
    assert refused.status == 400
    assert sentence in refused.message
    assert world.ask("POST", POLICY.format("set"), {}).status == 400
    assert world.ask("POST", POLICY.format("get").replace("demo", "other")).status == 403


@pytest.mark.parametrize("role", ["roles/iam.roleViewer", "projects/x/roles/a", "roles/browser"])
def test_roles_of_google_are_granted_and_etags_are_base64(world: Asker, role: str) -> None:
    """gcloud decodes an etag, and sends back what it encodes from that."""
    for _ in range(2):
        policy = world.post(POLICY.format("get"))
        assert b64encode(b64decode(policy["etag"])).decode() == policy["etag"]
        policy["bindings"] = [{"role": role, "members": [ADA]}]
        assert (
            world.post(POLICY.format("set"), {"policy": policy})["bindings"] == policy["bindings"]
        )


def test_permissions_follow_from_the_roles_of_the_user(world: Asker) -> None:
    asked = {"permissions": ["tpu.nodes.create", "tpu.nodes.get", "iam.serviceAccounts.actAs"]}
    test = "/v1/projects/demo:testIamPermissions"
    assert world.post(test, asked) == asked, "the world's user owns the project"
    policy = world.post(POLICY.format("get"))
    owners = next(one for one in policy["bindings"] if one["role"] == "roles/owner")["members"]
    viewer = [{"role": "roles/tpu.viewer", "members": owners}]
    world.post(POLICY.format("set"), {"policy": {**policy, "bindings": viewer}})
    assert world.post(test, asked) == {"permissions": ["tpu.nodes.get"]}
    assert world.post(test, {"permissions": ["storage.buckets.get"]}) == {}
    assert world.ask("POST", test, {"permissions": ["tpu.*"]}).status == 400
