"""Who may use a simulated world's APIs: accounts, policies, and hosts with their identity."""

import json
import re
from typing import Any

import msgspec
import pytest

from tests.simulated.in_process_world import Answer, Asker
from tpuherd_sim.google_apis import routes
from tpuherd_sim.google_apis.bucket_access import HOST_HEADER
from tpuherd_sim.google_apis.uploads import CONTENT_HEADER, Received
from tpuherd_sim.handle import TPU_ROUTES, handle_request
from tpuherd_sim.model.http_types import Part, Request
from tpuherd_sim.model.storage_state import Content
from tpuherd_sim.model.world_codec import dump_world, load_world
from tpuherd_sim.tpu import host_reports
from tpuherd_sim.weather import http_commands

ACCOUNTS = "/v1/projects/demo/serviceAccounts"
EMAIL = "trainer@demo.iam.gserviceaccount.com"
DEFAULT = "123456789012-compute@developer.gserviceaccount.com"
MEMBER = f"serviceAccount:{EMAIL}"
#: As the server names the content of a request.
PART = Part("file", 1)
CONTENT = msgspec.json.encode(
    Received(part=PART, content=Content(parts=(PART,), crc32c="AAAAAA=="))
).decode()
NODES = "/v2/projects/demo/locations/us-central2-b/nodes"
POLICY = "/v1/projects/demo"
SCOPE = "https://www.googleapis.com/auth/devstorage.read_write"
#: What a host tries in the project.
TRIED = {
    "get": ("GET", f"{NODES}/n"),
    "networks": ("GET", "/compute/v1/projects/demo/global/networks"),
    "accounts": ("POST", ACCOUNTS),
    "policy": ("POST", f"{POLICY}:getIamPolicy"),
    "buckets": ("GET", "/storage/v1/b?project=demo"),
    "delete": ("DELETE", f"{NODES}/n"),
}


@pytest.fixture
def world() -> Asker:
    made = Asker()
    made.post("/storage/v1/b?project=demo", {"name": "mine", "location": "us-central2"})
    made.post(ACCOUNTS, {"accountId": "trainer", "serviceAccount": {"displayName": "Trainer"}})
    return made


def test_accounts_are_created_once_and_found(world: Asker) -> None:
    found = world.get(f"{ACCOUNTS}/{EMAIL}")
    assert (found["email"], found["projectId"], found["displayName"]) == (EMAIL, "demo", "Trainer")
    assert world.get(f"/v1/projects/-/serviceAccounts/{found['uniqueId']}") == found
    assert world.get(ACCOUNTS)["accounts"] == [found]
    again = world.ask("POST", ACCOUNTS, {"accountId": "trainer"})
    assert (again.status, again.said["error"]["status"]) == (409, "ALREADY_EXISTS")
    assert again.said["error"]["details"][0]["resourceName"] == found["name"]
    for wrong in ("ab", "Trainer", "a" * 31, 5, None):
        assert world.ask("POST", ACCOUNTS, {"accountId": wrong}).status == 400
    short = world.ask("POST", ACCOUNTS, {"accountId": "solv"}).message
    assert short == 'The account ID "solv" does not have a length between 6 and 30.'
    assert world.ask("GET", f"{ACCOUNTS}/other@demo.iam.gserviceaccount.com").status == 404
    assert world.ask("POST", ACCOUNTS.replace("demo", "other"), {}).status == 403
    world.ask("DELETE", f"{ACCOUNTS}/{EMAIL}")
    assert "accounts" not in world.get(ACCOUNTS)


def test_a_policy_is_replaced_only_by_who_read_it(world: Asker) -> None:
    policy = world.get("/storage/v1/b/mine/iam")
    assert {one["role"] for one in policy["bindings"]} == {
        "roles/storage.legacyBucketOwner", "roles/storage.legacyBucketReader",
        "roles/storage.legacyObjectOwner", "roles/storage.legacyObjectReader",
    }  # fmt: skip
    added = {"role": "roles/iam.roleViewer", "members": [MEMBER]}
    wanted = {**policy, "bindings": [*policy["bindings"], added]}
    changed = world.ask("PUT", "/storage/v1/b/mine/iam", wanted)
    assert changed.status == 200
    assert added in world.get("/storage/v1/b/mine/iam")["bindings"]
    stale = world.ask("PUT", "/storage/v1/b/mine/iam", wanted)
    assert (stale.status, stale.reason) == (412, "conditionNotMet")
    assert load_world(dump_world(world.world)).services == world.world.services


@pytest.mark.parametrize(
    ("binding", "sentence"),
    [
        (
            {"role": "roles/storage.objectUser",
             "members": ["serviceAccount:gone@demo.iam.gserviceaccount.com"]},
            "Service account gone@demo.iam.gserviceaccount.com does not exist.",
        ),
        (
            {"role": "roles/owner", "members": [MEMBER]},
            "Role roles/owner is not supported for this resource.",
        ),
        (
            {"role": "roles/storage.admin", "members": ["somebody"]},
            "Invalid argument: The member somebody is of an unknown type.",
        ),
        ({"role": "roles/storage.admin", "members": "x"}, "Invalid argument: members must be"),
        (7, "The role name must be in the form"),
    ],
    ids=str,
)  # fmt: skip
def test_a_malformed_policy_is_refused(world: Asker, binding: Any, sentence: str) -> None:
    answer = world.ask("PUT", "/storage/v1/b/mine/iam", {"bindings": [binding]})
    assert (answer.status, answer.reason) == (400, "invalid")
    assert answer.message.startswith(sentence)


class Host:
    """A host of a node with this account, before the world's APIs."""

    def __init__(self, world: Asker, account: str = "", *scopes: str) -> None:
        self.world = world
        spec = {"serviceAccount": {"email": account, "scope": scopes}} if account else {}
        body = {"acceleratorType": "v4-8", "runtimeVersion": "tpu-ubuntu2204-base", **spec}
        world.post(f"{NODES}?nodeId=n", body)
        world.wait(600)
        (node,) = world.world.nodes.values()
        self.key = f"{node.uid}-0"

    def ask(self, method: str, target: str, body: bytes = b"") -> int:
        path, _, query = target.partition("?")
        headers = {HOST_HEADER: self.key, CONTENT_HEADER: CONTENT}
        request = Request(method=method, path=path, query=query, headers=headers, body=body)
        answer = handle_request(self.world.world, request, self.world.now)
        self.last = answer.body
        return answer.status

    def rights(self) -> str:
        """What it may do, a letter each: create, get, list, overwrite, delete."""
        up = "/upload/storage/v1/b/mine/o?uploadType=media&name=x"
        made = {
            "c": self.ask("POST", f"{up}-{self.key}"),
            "g": self.ask("GET", "/storage/v1/b/mine/o/there?alt=media"),
            "l": self.ask("GET", "/storage/v1/b/mine/o"),
            "o": self.ask("POST", up.replace("=x", "=there")),
            "b": self.ask("GET", "/storage/v1/b/mine"),
            "d": self.ask("DELETE", "/storage/v1/b/mine/o/there"),
        }
        assert set(made.values()) <= {200, 204, 403}, made
        return "".join(letter for letter, status in made.items() if status < 300)


def bind(world: Asker, *roles: str) -> None:
    bindings = [{"role": f"roles/storage.{role}", "members": [MEMBER]} for role in roles]
    answer: Answer = world.ask("PUT", "/storage/v1/b/mine/iam", {"bindings": bindings})
    assert answer.status == 200, answer


@pytest.mark.parametrize(
    ("account", "roles", "rights"),
    [
        ("", None, "cglobd"),  # the default account is an editor of the project
        ("", ("objectViewer",), ""),  # but not once the policy names others alone
        (EMAIL, None, ""),
        (EMAIL, ("objectViewer",), "gl"),
        (EMAIL, ("objectCreator",), "c"),
        (EMAIL, ("legacyBucketReader",), "lb"),
        (EMAIL, ("objectUser",), "cglod"),
        (EMAIL, ("objectUser", "legacyBucketReader"), "cglobd"),
        ("nobody@other.iam.gserviceaccount.com", ("objectUser",), ""),
    ],
)
def test_a_host_has_the_rights_of_its_account(
    world: Asker, account: str, roles: tuple[str, ...] | None, rights: str
) -> None:
    there = "/upload/storage/v1/b/mine/o?uploadType=media&name=there"
    assert world.ask("POST", there, headers={CONTENT_HEADER: CONTENT}).status == 200
    if roles is not None:
        bind(world, *roles)
    host = Host(world, account)
    assert host.rights() == rights
    if account == EMAIL and not rights:
        host.ask("GET", "/storage/v1/b/mine/o/there?alt=media")
        assert (
            f"{EMAIL} does not have storage.objects.get access to the Google Cloud Storage"
            " object. Permission 'storage.objects.get' denied on resource (or it may not exist)."
        ) in host.last.decode()


def test_permissions_can_be_asked_for(world: Asker) -> None:
    asked = "permissions=storage.objects.get&permissions=storage.objects.create"
    path = f"/storage/v1/b/mine/iam/testPermissions?{asked}"
    assert len(world.get(path)["permissions"]) == 2, "the world's user owns it"
    bind(world, "objectViewer")
    host = Host(world, EMAIL)
    host.ask("GET", path)
    assert b"objects.get" in host.last
    assert b"objects.create" not in host.last
    assert world.ask("GET", "/storage/v1/b/mine/iam/testPermissions").status == 400
    assert world.ask("GET", path.replace("mine", "none")).status == 404


@pytest.mark.parametrize(
    ("account", "role", "allowed"),
    [
        ("", "", " ".join(TRIED)),  # the default account owns a world's project
        (EMAIL, "viewer", "get networks buckets"),
        (EMAIL, "editor", "get networks accounts buckets delete"),
        (EMAIL, "tpu.admin", "get delete"),
        (f"{EMAIL} {SCOPE}", "owner", "buckets"),  # without the scope of all APIs
    ],
)
def test_a_host_may_do_in_the_project_what_its_account_may(
    world: Asker, account: str, role: str, allowed: str
) -> None:
    bound = world.post(f"{POLICY}:getIamPolicy")["bindings"]
    bound += [{"role": f"roles/{role}", "members": [MEMBER]}] if role else []
    world.post(f"{POLICY}:setIamPolicy", {"policy": {"bindings": bound}})
    host = Host(world, *account.split())
    assert [name for name in TRIED if host.ask(*TRIED[name]) != 403] == allowed.split()


@pytest.mark.parametrize(
    ("roles", "status"),
    [("tpu.admin", 403), ("tpu.admin iam.serviceAccountUser", 200), ("editor", 200)],
)
@pytest.mark.parametrize("named", [EMAIL, ""])
def test_nodes_have_accounts_as_which_their_maker_may_act(
    world: Asker, roles: str, status: int, named: str
) -> None:
    host = Host(world, EMAIL)
    bound = [{"role": f"roles/{role}", "members": [MEMBER]} for role in roles.split()]
    world.post(f"{POLICY}:setIamPolicy", {"policy": {"bindings": bound}})
    account = {"serviceAccount": {"email": named}} if named else {}
    node = {"acceleratorType": "v4-8", "runtimeVersion": "tpu-ubuntu2204-base", **account}
    place = NODES.removesuffix("nodes")
    slot = {"parent": place.strip("/").removeprefix("v2/"), "nodeId": "b", "node": node}
    queued = {"tpu": {"nodeSpec": [slot]}}
    for url, body in (
        (f"{NODES}?nodeId=a", node), (f"{place}queuedResources?queuedResourceId=q", queued),
    ):  # fmt: skip
        assert host.ask("POST", url, json.dumps(body).encode()) == status, host.last
        refusal = f"access to service account '{named or DEFAULT}'. User: '{EMAIL}'"
        assert (refusal in host.last.decode()) == (status == 403)


def test_without_a_role_a_host_reaches_no_method_of_the_project(world: Asker) -> None:
    """A search over all methods: those of tokens and documents ask for no permission, those of the
    world itself are not there, and those of buckets have their own policies.
    """
    host, names = Host(world, EMAIL), {"project": "demo", "zone": "us-central2-b", "node": "n"}
    own = (*host_reports.ROUTES, *http_commands.ROUTES)
    for route in (*TPU_ROUTES, *routes.ROUTES, *own):
        path = re.sub(r"\{(\w+)\}", lambda found: names.get(found[1], "x"), route.template)
        free = re.match(r"/(o/|oauth2/|token|revoke|.?discovery)|.*:testIamPermissions$", path)
        if "{bucket}" not in route.template and not free:
            status = host.ask(route.method, path)
            assert status == (404 if route in own else 403), (path, host.last)
    assert host.ask("GET", "/%73im/v1/log") == 404
    host.ask("DELETE", f"{NODES}/n")
    assert (
        "Permission 'tpu.nodes.delete' denied on resource '//tpu.googleapis.com/projects/demo/"
        "locations/us-central2-b/nodes/n' (or it may not exist)."
    ) in host.last.decode()
