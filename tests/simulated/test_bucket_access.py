"""Who may use a bucket of a simulated world: accounts, policies, and hosts with their identity."""

import asyncio
from pathlib import Path
from typing import Any

import pytest

from tests.simulated.in_process_world import Answer, Asker
from tpuherd_sim.google_apis.bucket_access import HOST_HEADER
from tpuherd_sim.handle import handle_request
from tpuherd_sim.http.gcs_objects import ObjectStore
from tpuherd_sim.model.http_types import Request, Response
from tpuherd_sim.model.world_codec import dump_world, load_world

ACCOUNTS = "/v1/projects/demo/serviceAccounts"
EMAIL = "trainer@demo.iam.gserviceaccount.com"
MEMBER = f"serviceAccount:{EMAIL}"
NODES = "/v2/projects/demo/locations/us-central2-b/nodes"


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
    for wrong in ("ab", "Trainer", "a" * 31, 5, None):
        assert world.ask("POST", ACCOUNTS, {"accountId": wrong}).status == 400
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
    added = {"role": "roles/storage.objectUser", "members": [MEMBER]}
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
            "Invalid argument: unknown member somebody.",
        ),
        ({"role": "roles/storage.admin", "members": "x"}, "Invalid argument: members must be"),
        (7, "Role None is not supported"),
    ],
    ids=str,
)  # fmt: skip
def test_a_malformed_policy_is_refused(world: Asker, binding: Any, sentence: str) -> None:
    answer = world.ask("PUT", "/storage/v1/b/mine/iam", {"bindings": [binding]})
    assert (answer.status, answer.reason) == (400, "invalid")
    assert answer.message.startswith(sentence)


class Host:
    """A host of a node with this account, before the world's buckets."""

    def __init__(self, world: Asker, folder: Path, account: str = "") -> None:
        self.world = world
        self.objects = ObjectStore(self, folder)  # type: ignore[arg-type]  # only answers
        spec = {"serviceAccount": {"email": account}} if account else {}
        body = {"acceleratorType": "v4-8", "runtimeVersion": "tpu-ubuntu2204-base", **spec}
        world.post(f"{NODES}?nodeId=n", body)
        world.wait(600)
        (node,) = world.world.nodes.values()
        self.key = f"{node.uid}-0"

    def handle_request(self, request: Request) -> Response:
        return handle_request(self.world.world, request, self.world.now)

    def ask(self, method: str, target: str, body: bytes = b"") -> int:
        path, _, query = target.partition("?")
        headers = {HOST_HEADER: self.key}
        request = Request(method=method, path=path, query=query, headers=headers, body=body)
        answer = asyncio.run(self.objects.answer_request(request)) or self.handle_request(request)
        self.last = answer.body
        return answer.status

    def rights(self) -> str:
        """What it may do, a letter each: create, get, list, overwrite, delete."""
        up = "/upload/storage/v1/b/mine/o?uploadType=media&name=x"
        made = {
            "c": self.ask("POST", f"{up}-{self.key}", b"1"),
            "g": self.ask("GET", "/storage/v1/b/mine/o/there?alt=media"),
            "l": self.ask("GET", "/storage/v1/b/mine/o"),
            "o": self.ask("POST", up.replace("=x", "=there"), b"2"),
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
    world: Asker, tmp_path: Path, account: str, roles: tuple[str, ...] | None, rights: str
) -> None:
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "there.object").write_bytes(b"0")
    if roles is not None:
        bind(world, *roles)
    host = Host(world, tmp_path, account)
    assert host.rights() == rights
    if account == EMAIL and not rights:
        host.ask("GET", "/storage/v1/b/mine/o/there?alt=media")
        assert (
            f"{EMAIL} does not have storage.objects.get access to the Google Cloud Storage"
            " object. Permission 'storage.objects.get' denied on resource (or it may not exist)."
        ) in host.last.decode()


def test_permissions_can_be_asked_for(world: Asker, tmp_path: Path) -> None:
    asked = "permissions=storage.objects.get&permissions=storage.objects.create"
    path = f"/storage/v1/b/mine/iam/testPermissions?{asked}"
    assert len(world.get(path)["permissions"]) == 2, "the world's user owns it"
    bind(world, "objectViewer")
    host = Host(world, tmp_path, EMAIL)
    host.ask("GET", path)
    assert b"objects.get" in host.last
    assert b"objects.create" not in host.last
    assert world.ask("GET", "/storage/v1/b/mine/iam/testPermissions").status == 400
    assert world.ask("GET", path.replace("mine", "none")).status == 404
