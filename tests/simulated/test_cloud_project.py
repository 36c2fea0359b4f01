"""What our client reads and changes in a project: APIs, firewall rules, roles, metadata."""

import json
from typing import Any

import httpx2
import pytest

from tests.simulated.cloud_user import User, live
from tpuherd.cloud import (
    firewalls_api,
    project_metadata_api,
    project_policy_api,
    services_api,
)
from tpuherd.cloud.error_replies import MalformedAnswer
from tpuherd.cloud.firewall_rules import ANYWHERE, MOSH, SSH, FirewallRule, is_allowed
from tpuherd.cloud.rest import CloudConflict
from tpuherd.errors import InvalidInput, NotAllowed, OperationFailed

TPU = "tpu.googleapis.com"
ADA = "user:ada@example.com"
ROLE = "roles/tpu.admin"


def test_an_api_is_enabled_and_disabled() -> None:
    async def work(user: User) -> None:
        rest = user.cloud.rest
        assert TPU in await services_api.list_enabled_services(rest, "demo")
        await services_api.disable_service(rest, "demo", TPU, user.clock)
        assert TPU not in await services_api.list_enabled_services(rest, "demo")
        with pytest.raises(NotAllowed) as caught:
            await user.cloud.list_nodes()
        assert "gcloud services enable tpu.googleapis.com" in caught.value.hint
        await services_api.enable_service(rest, "demo", TPU, user.clock)
        assert TPU in await services_api.list_enabled_services(rest, "demo")
        email = await services_api.create_identity(rest, "demo", TPU, user.clock)
        assert email.endswith("@cloud-tpu.iam.gserviceaccount.com")

    live(work)


def test_an_api_in_use_stays_enabled() -> None:
    async def work(user: User) -> None:
        await user.node("n")
        with pytest.raises(InvalidInput, match="has been used recently"):
            await services_api.disable_service(user.cloud.rest, "demo", TPU, user.clock)
        assert TPU in await services_api.list_enabled_services(user.cloud.rest, "demo")

    live(work)


def test_an_operation_that_fails_or_never_ends_is_an_error() -> None:
    async def work(user: User) -> None:
        failed = {"name": "operations/x", "done": True, "error": {"code": 9, "message": "No."}}
        user.wire.instead = lambda request: httpx2.Response(200, json=failed)
        with pytest.raises(OperationFailed, match=r"^No$"):
            await services_api.enable_service(user.cloud.rest, "demo", TPU, user.clock)
        user.wire.instead = lambda request: httpx2.Response(200, json={"name": "operations/x"})
        with pytest.raises(OperationFailed, match="not finished"):
            await services_api.enable_service(user.cloud.rest, "demo", TPU, user.clock)
        pages = {"services": [], "nextPageToken": "again"}
        user.wire.instead = lambda request: httpx2.Response(200, json=pages)
        with pytest.raises(MalformedAnswer, match="never ends"):
            await services_api.list_enabled_services(user.cloud.rest, "demo")

    live(work)


def test_a_firewall_rule_from_creation_to_deletion() -> None:
    async def work(user: User) -> None:
        rest = user.cloud.rest
        rule = FirewallRule(
            name="mine", network="default", sources=("203.0.113.7/32",), allowed=(SSH, MOSH),
            description="of a test",
        )  # fmt: skip
        assert await firewalls_api.get_firewall(rest, "demo", "mine") is None
        await firewalls_api.create_firewall(rest, "demo", rule, user.clock)
        assert await firewalls_api.get_firewall(rest, "demo", "mine") == rule
        with pytest.raises(CloudConflict):
            await firewalls_api.create_firewall(rest, "demo", rule, user.clock)
        changed = FirewallRule(
            name="mine", network="default", sources=("198.51.100.9/32",), allowed=(SSH,)
        )
        await firewalls_api.change_firewall(rest, "demo", changed, user.clock)
        listed = await firewalls_api.list_firewalls(rest, "demo", "default")
        assert changed in listed
        assert {one.name for one in listed} > {"default-allow-ssh", "mine"}
        assert is_allowed(listed, SSH, ANYWHERE)
        assert not is_allowed(listed, MOSH, ANYWHERE)
        for _ in range(2):
            await firewalls_api.delete_firewall(rest, "demo", "mine", user.clock)
        assert await firewalls_api.get_firewall(rest, "demo", "mine") is None

    live(work)


def test_networks_are_listed() -> None:
    async def work(user: User) -> None:
        path = "compute/v1/projects/demo/global/networks"
        await user.ask("POST", path, {"name": "own", "autoCreateSubnetworks": False})
        found = await firewalls_api.list_networks(user.cloud.rest, "demo")
        assert dict(found) == {"default": True, "own": False}
        assert await firewalls_api.list_firewalls(user.cloud.rest, "demo", "own") == []

    live(work)


@pytest.mark.parametrize(
    "odd",
    [
        {"targetTags": ["web"]},
        {"sourceTags": ["web"]},
        {"sourceRanges": ["203.0.113.7/32", "nonsense"]},
        {"targetServiceAccounts": ["a@b"]},
    ],
    ids=str,
)
def test_a_rule_about_some_hosts_is_partial(odd: dict[str, Any]) -> None:
    async def work(user: User) -> None:
        one = {"name": "r", "network": "x/global/networks/default", **odd}
        user.wire.instead = lambda request: httpx2.Response(200, json={"items": [one]})
        (rule,) = await firewalls_api.list_firewalls(user.cloud.rest, "demo", "default")
        assert rule.partial
        del one["name"]
        one["allowed"] = [{"IPProtocol": "tcp", "ports": ["x"]}]
        with pytest.raises(MalformedAnswer):
            await firewalls_api.list_firewalls(user.cloud.rest, "demo", "default")

    live(work)


async def policy(user: User) -> list[Any]:
    found = await user.ask("POST", "v1/projects/demo:getIamPolicy", {})
    bindings: list[Any] = found["bindings"]
    return bindings


def test_a_role_is_added_and_removed_and_nothing_else_changes() -> None:
    async def work(user: User) -> None:
        rest = user.cloud.rest
        before = await policy(user)
        assert await project_policy_api.add_project_role(rest, "demo", ADA, ROLE)
        assert not await project_policy_api.add_project_role(rest, "demo", ADA, ROLE)
        assert (await project_policy_api.project_roles(rest, "demo"))[ADA] == {ROLE}
        await project_policy_api.add_project_role(rest, "demo", "user:eve@example.com", ROLE)
        assert await project_policy_api.remove_project_role(rest, "demo", ADA, ROLE)
        assert not await project_policy_api.remove_project_role(rest, "demo", ADA, ROLE)
        eve = {"role": ROLE, "members": ["user:eve@example.com"]}
        assert await policy(user) == [*before, eve]

    live(work)


def test_a_role_under_a_condition_is_not_ours() -> None:
    async def work(user: User) -> None:
        rest = user.cloud.rest
        found = await user.ask("POST", "v1/projects/demo:getIamPolicy", {})
        only = {"role": ROLE, "members": [ADA], "condition": {"expression": "false"}}
        wanted = {**found, "version": 3, "bindings": [*found["bindings"], only]}
        await user.ask("POST", "v1/projects/demo:setIamPolicy", {"policy": wanted})
        assert ADA not in await project_policy_api.project_roles(rest, "demo")
        assert not await project_policy_api.remove_project_role(rest, "demo", ADA, ROLE)
        assert await project_policy_api.add_project_role(rest, "demo", ADA, ROLE)
        assert only in await policy(user)

    live(work)


def test_a_policy_that_others_write_meanwhile_is_read_again() -> None:
    async def work(user: User) -> None:
        times = iter(range(3))

        def meddle(request: httpx2.Request) -> None:
            if request.url.path.endswith(":setIamPolicy") and next(times, None) is not None:
                user.world.services.policy_version += 1

        user.wire.between = meddle
        assert await project_policy_api.add_project_role(user.cloud.rest, "demo", ADA, ROLE)
        user.wire.between = lambda request: None
        assert {"role": ROLE, "members": [ADA]} in await policy(user)

    live(work)


def test_held_permissions() -> None:
    async def work(user: User) -> None:
        asked = {"tpu.nodes.create", "storage.buckets.get"}
        held = await project_policy_api.held_project_permissions(user.cloud.rest, "demo", asked)
        assert held == asked
        user.world.services.policy = ()
        held = await project_policy_api.held_project_permissions(user.cloud.rest, "demo", asked)
        assert held == set()

    live(work)


def test_metadata_is_merged_also_if_others_write_meanwhile() -> None:
    async def work(user: User) -> None:
        times = iter(range(2))

        def meddle(request: httpx2.Request) -> None:
            writes = request.url.path.endswith("setCommonInstanceMetadata")
            if writes and (number := next(times, None)) is not None:
                user.world.services.metadata[f"theirs-{number}"] = "kept"

        user.wire.between = meddle
        change = project_metadata_api.change_metadata
        assert await change(
            user.cloud.rest, "demo", lambda items: {**items, "ours": "x"}, user.clock
        )
        assert user.world.services.metadata == {
            "theirs-0": "kept", "theirs-1": "kept", "ours": "x",
        }  # fmt: skip
        assert not await change(user.cloud.rest, "demo", lambda items: None, user.clock)
        about = await project_metadata_api.get_compute_project(user.cloud.rest, "demo")
        assert about.account == f"{about.number}-compute@developer.gserviceaccount.com"
        assert not about.os_login
        user.world.services.metadata["enable-oslogin"] = "TRUE"
        assert (await project_metadata_api.get_compute_project(user.cloud.rest, "demo")).os_login

    live(work)


def test_a_failed_compute_operation_is_an_error() -> None:
    async def work(user: User) -> None:
        failed = {"name": "o", "status": "DONE", "error": {"errors": [{"message": "Too many."}]}}
        user.wire.instead = lambda request: httpx2.Response(200, content=json.dumps(failed))
        with pytest.raises(OperationFailed, match=r"^Too many$"):
            await firewalls_api.delete_firewall(user.cloud.rest, "demo", "x", user.clock)
        running = {"name": "o", "status": "RUNNING"}
        user.wire.instead = lambda request: httpx2.Response(200, json=running)
        with pytest.raises(OperationFailed, match="not finished a change"):
            await firewalls_api.delete_firewall(user.cloud.rest, "demo", "x", user.clock)

    live(work)
