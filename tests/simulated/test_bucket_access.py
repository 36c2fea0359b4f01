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

    def ask(self, method: str, target: str, body: object = b"") -> int:
        path, _, query = target.partition("?")
        headers = {HOST_HEADER: self.key, CONTENT_HEADER: CONTENT}
        sent = body if isinstance(body, bytes) else msgspec.json.encode(body)
        request = Request(method=method, path=path, query=query, headers=headers, body=sent)
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


# -- access lists ---------------------------------------------------------------------------------

MINE, LISTS = "/storage/v1/b/mine", "/storage/v1/b/lists"
ME = f"user-{EMAIL}"
READ_ME = f"{LISTS}/o/x?alt=media"
UNIFORM = {
    "/acl": ("Cannot get legacy ACL for a bucket that has uniform bucket-level access.",
             "Cannot use ACL API to update bucket policy when uniform bucket-level access is "
             "enabled."),
    "/o/x/acl": ("Cannot get legacy ACL for an object when uniform bucket-level access is enabled.",
                 "Cannot update access control for an object when uniform bucket-level access is "
                 "enabled."),
}  # fmt: skip
UNIFORM["/defaultObjectAcl"] = UNIFORM["/acl"]


def upload(world: Asker, bucket: str, name: str = "x") -> Any:
    target = f"/upload/storage/v1/b/{bucket}/o?uploadType=media&name={name}"
    return world.ask("POST", target, headers={CONTENT_HEADER: CONTENT}).said


@pytest.fixture
def lists(world: Asker) -> Asker:
    """The same with a bucket whose access is not uniform, and an object in it."""
    access = {"uniformBucketLevelAccess": {"enabled": False}}
    world.post("/storage/v1/b?project=demo", {"name": "lists", "iamConfiguration": access})
    upload(world, "lists")
    return world


def roles(world: Asker, place: str) -> dict[str, str]:
    return {one["entity"]: one["role"] for one in world.get(place).get("items", [])}


@pytest.mark.parametrize("place", UNIFORM)
def test_where_access_is_uniform_google_refuses_lists(world: Asker, place: str) -> None:
    upload(world, "mine")
    where, one = f"{MINE}{place}", f"{MINE}{place}/allUsers"
    entry = {"entity": "allUsers", "role": "READER"}
    reads: list[tuple[str, str, Any]] = [("GET", where, None), ("GET", one, None)]
    changes: list[tuple[str, str, Any]] = [
        ("POST", where, entry), ("PUT", one, entry), ("PATCH", one, entry), ("DELETE", one, None),
    ]  # fmt: skip
    if "default" not in place:
        changes.append(("PATCH", where[:-4], {"acl": [entry]}))
    for writes, requests in enumerate((reads, changes)):
        for request in requests:
            answer = world.ask(*request)
            assert (answer.status, answer.message) == (
                400, f"{UNIFORM[place][writes]} Read more at "
                "https://cloud.google.com/storage/docs/uniform-bucket-level-access",
            ), request  # fmt: skip
    policy = world.ask("GET", f"{MINE}/o/x/iam")
    assert (policy.status, policy.message) == (400, "Object policies are disabled for bucket.")


def test_a_buckets_list_is_a_view_of_its_policy(lists: Asker) -> None:
    teams = {f"project-{team}-123456789012": "OWNER" for team in ("editors", "owners")}
    teams["project-viewers-123456789012"] = "READER"
    assert roles(lists, f"{LISTS}/acl") == teams
    host = Host(lists, EMAIL)
    create = "/upload/storage/v1/b/lists/o?uploadType=media&name=y"
    assert host.ask("POST", create) == 403
    made = lists.post(f"{LISTS}/acl", {"entity": ME, "role": "WRITER"})
    assert (made["email"], made["id"]) == (EMAIL, f"lists/{ME}")
    assert host.ask("POST", create) == 200
    policy = lists.get(f"{LISTS}/iam")
    added = {"role": "roles/storage.legacyBucketWriter", "members": [MEMBER]}
    assert added in policy["bindings"]
    assert not any("legacyObject" in one["role"] for one in policy["bindings"])
    assert lists.ask("PATCH", f"{LISTS}/acl/{ME}", {"role": "READER"}).said["role"] == "READER"
    assert host.ask("POST", create) == 403
    assert lists.get(f"{LISTS}/acl/{ME}")["role"] == "READER"
    names = ("objectViewer", "legacyBucketOwner", "legacyBucketReader")
    bindings = [{"role": f"roles/storage.{name}", "members": [MEMBER]} for name in names]
    lists.ask("PUT", f"{LISTS}/iam", {"bindings": bindings})
    assert roles(lists, f"{LISTS}/acl") == {ME: "OWNER"}
    assert lists.ask("DELETE", f"{LISTS}/acl/{ME}").status == 204
    assert lists.get(f"{LISTS}/iam")["bindings"] == bindings[:1], "what no list shows stays"
    assert lists.ask("GET", f"{LISTS}/acl/{ME}").status == 404
    assert load_world(dump_world(lists.world)).services == lists.world.services


def test_an_objects_list_says_what_a_host_may(lists: Asker) -> None:
    host, where = Host(lists, EMAIL), f"{LISTS}/o/x/acl"
    owner = "user-123456789012-compute@developer.gserviceaccount.com"
    assert roles(lists, where)[owner] == "OWNER", "who wrote it"
    patch = ("PATCH", f"{LISTS}/o/x", {"contentType": "a/b"})
    assert [host.ask("GET", READ_ME), host.ask(*patch), host.ask("GET", where)] == [403] * 3
    entry = lists.post(where, {"entity": ME, "role": "READER"})
    assert (entry["kind"], entry["object"]) == ("storage#objectAccessControl", "x")
    assert [host.ask("GET", READ_ME), host.ask(*patch), host.ask("GET", where)] == [200, 403, 403]
    changed = lists.ask("PUT", f"{where}/{ME}", {"entity": ME, "role": "OWNER"})
    assert changed.said["role"] == "OWNER"
    assert [host.ask("GET", READ_ME), host.ask(*patch), host.ask("GET", where)] == [200] * 3
    test = f"{LISTS}/o/x/iam/testPermissions?permissions=storage.objects.get"
    assert host.ask("GET", test) == 200
    assert b'"permissions":["storage.objects.get"]' in host.last
    assert host.ask("DELETE", f"{LISTS}/o/x") == 403, "which its bucket decides"
    assert host.ask("DELETE", f"{where}/{ME}") == 204
    assert host.ask("GET", READ_ME) == 403
    policy = lists.get(f"{LISTS}/o/x/iam")
    policy["bindings"] = [{"role": "roles/storage.legacyObjectReader", "members": [MEMBER]}]
    assert lists.ask("PUT", f"{LISTS}/o/x/iam", policy).status == 200
    assert roles(lists, where) == {ME: "READER"}
    assert host.ask("GET", READ_ME) == 200
    policy = {"bindings": [{"role": "roles/storage.objectViewer", "members": [MEMBER]}]}
    assert lists.ask("PUT", f"{LISTS}/o/x/iam", policy).status == 400
    new = upload(lists, "lists")
    assert host.ask("GET", READ_ME) == 403, "another generation has a list of its own"
    older = f"{where}?generation={int(new['generation']) - 1}"
    assert lists.ask("GET", older).status == 404
    assert load_world(dump_world(lists.world)).services == lists.world.services


def test_new_objects_have_the_default_list_and_their_writer(lists: Asker) -> None:
    host, default = Host(lists, EMAIL), f"{LISTS}/defaultObjectAcl"
    assert {*roles(lists, default).values()} == {"OWNER", "READER"}
    lists.post(default, {"entity": "domain-example.com", "role": "READER"})
    assert lists.get(f"{default}/domain-example.com")["domain"] == "example.com"
    for team in ("owners", "editors", "viewers"):
        assert lists.ask("DELETE", f"{default}/project-{team}-demo").status == 204
    lists.post(f"{LISTS}/acl", {"entity": ME, "role": "WRITER"})
    assert host.ask("POST", "/upload/storage/v1/b/lists/o?uploadType=media&name=own") == 200
    assert host.ask("GET", f"{LISTS}/o/own") == 200
    assert roles(lists, f"{LISTS}/o/own/acl") == {"domain-example.com": "READER", ME: "OWNER"}
    copy = lists.post(f"{LISTS}/o/own/rewriteTo/b/lists/o/copy")
    assert ME not in roles(lists, f"{LISTS}/o/copy/acl"), copy
    lists.post(f"{LISTS}/o/own/moveTo/o/moved")
    assert roles(lists, f"{LISTS}/o/moved/acl")[ME] == "OWNER"
    lists.ask("DELETE", f"{LISTS}/o/moved")
    (gone,) = lists.get(f"{LISTS}/o?softDeleted=true&prefix=moved")["items"]
    lists.post(f"{LISTS}/o/moved/restore?generation={gone['generation']}&copySourceAcl=true")
    assert roles(lists, f"{LISTS}/o/moved/acl")[ME] == "OWNER"


def test_lists_are_fields_too(lists: Asker) -> None:
    """As Google's Python client writes them."""
    entry = {"entity": ME, "role": "READER"}
    shown = lists.ask("PATCH", f"{LISTS}/o/x?projection=full", {"acl": [entry]}).said
    assert [(one["entity"], one["role"]) for one in shown["acl"]] == [(ME, "READER")]
    assert lists.get(f"{LISTS}/o?projection=full")["items"][0]["acl"] == shown["acl"]
    assert "acl" not in lists.get(f"{LISTS}/o/x?projection=noAcl")
    full = lists.get(f"{LISTS}?projection=full")
    body = {"defaultObjectAcl": [entry], "acl": [*full["acl"], entry]}
    changed = lists.ask("PATCH", f"{LISTS}?projection=full", body).said
    assert [one["entity"] for one in changed["defaultObjectAcl"]] == [ME]
    assert roles(lists, f"{LISTS}/acl")[ME] == "READER"
    assert Host(lists, EMAIL).ask("GET", f"{LISTS}?projection=full") == 200
    before = lists.get(f"{LISTS}?projection=full")
    for wrong in ({"acl": [7]}, {"acl": "x"}, {"acl": [entry], "defaultObjectAcl": [{}]}):
        assert lists.ask("PATCH", LISTS, wrong).status == 400
    assert lists.get(f"{LISTS}?projection=full") == before
    assert lists.ask("POST", "/storage/v1/b?project=demo&predefinedAcl=private", {"name": "new"}
                     ).status == 400  # fmt: skip


@pytest.mark.parametrize(
    "entry",
    [
        {}, {"entity": ME}, {"role": "READER"}, {"entity": 7, "role": "READER"},
        {"entity": "somebody", "role": "READER"}, {"entity": "user-", "role": "READER"},
        {"entity": ME, "role": "ADMIN"}, {"entity": ME, "role": ["READER"]},
        {"entity": "user-gone@demo.iam.gserviceaccount.com", "role": "READER"},
    ],
    ids=str,
)  # fmt: skip
def test_a_malformed_entry_is_refused(lists: Asker, entry: Any) -> None:
    for place in ("acl", "defaultObjectAcl", "o/x/acl"):
        before = roles(lists, f"{LISTS}/{place}")
        assert lists.ask("POST", f"{LISTS}/{place}", entry).status == 400
        assert roles(lists, f"{LISTS}/{place}") == before
    assert lists.ask("POST", f"{LISTS}/o/x/acl", {"entity": ME, "role": "WRITER"}).status == 400


def test_nobody_is_public_where_that_is_prevented(lists: Asker) -> None:
    access = {"publicAccessPrevention": "enforced"}
    lists.ask("PATCH", LISTS, {"iamConfiguration": access})
    everyone = {"bindings": [{"role": "roles/storage.objectViewer", "members": ["allUsers"]}]}
    entry = {"entity": "allAuthenticatedUsers", "role": "READER"}
    for request in (
        ("PUT", f"{LISTS}/iam", everyone), ("POST", f"{LISTS}/acl", entry),
        ("POST", f"{LISTS}/o/x/acl", entry), ("PATCH", f"{LISTS}/o/x", {"acl": [entry]}),
    ):  # fmt: skip
        answer = lists.ask(*request)
        assert (answer.status, answer.message) == (
            412,
            "The member bindings allUsers and allAuthenticatedUsers are not allowed since public "
            "access prevention is enforced.",
        )


def test_uniform_access_hides_lists_and_keeps_them(lists: Asker) -> None:
    host, policy = Host(lists, EMAIL), lists.get(f"{LISTS}/iam")["bindings"]
    lists.post(f"{LISTS}/o/x/acl", {"entity": ME, "role": "READER"})
    for uniform, status in ((True, 403), (False, 200)):
        access = {"uniformBucketLevelAccess": {"enabled": uniform}}
        lists.ask("PATCH", LISTS, {"iamConfiguration": access})
        assert host.ask("GET", READ_ME) == status
        assert lists.get(f"{LISTS}/iam")["bindings"] == policy


def test_an_empty_policy_permits_nothing(world: Asker) -> None:
    condition = {"role": "roles/storage.admin", "members": [MEMBER], "condition": {"title": "x"}}
    assert world.ask("PUT", f"{MINE}/iam", {"bindings": [condition]}).status == 400
    assert "bindings" not in world.ask("PUT", f"{MINE}/iam", {}).said
    assert Host(world).rights() == ""


def test_a_managed_folder_has_a_policy_of_its_own(world: Asker) -> None:
    folders = f"{MINE}/managedFolders"
    made = world.post(folders, {"name": "data"})
    assert (made["name"], world.get(f"{folders}/data%2F")) == ("data/", made)
    assert world.ask("POST", folders, {"name": "data/"}).status == 409
    for wrong in ({}, {"name": 7}, {"name": "../x"}, {"name": "y", "rapidCacheConfig": {"a": 1}}):
        assert world.ask("POST", folders, wrong).status == 400
    for name in ("data/x", "other"):
        upload(world, "mine", name)
    host = Host(world, EMAIL)
    asked = [f"{MINE}/{one}" for one in ("o/data%2Fx", "o/other", "o?prefix=data/", "o")]
    assert [host.ask("GET", one) for one in asked] == [403] * 4
    policy = world.get(f"{folders}/data%2F/iam")
    policy["bindings"] = [{"role": "roles/storage.objectUser", "members": [MEMBER]}]
    assert world.ask("PUT", f"{folders}/data%2F/iam", policy).status == 200
    assert world.ask("PUT", f"{folders}/data%2F/iam", policy).status == 412
    assert [host.ask("GET", one) for one in asked] == [200, 403, 200, 403]
    create = "/upload/storage/v1/b/mine/o?uploadType=media&name="
    assert [host.ask("POST", create + name) for name in ("data/y", "y")] == [200, 403]
    test = f"{folders}/data%2F/iam/testPermissions?permissions=storage.objects.create"
    assert host.ask("GET", test) == 200
    assert b"storage.objects.create" in host.last
    assert world.get(f"{folders}?prefix=d")["items"] == [made]
    assert "items" not in world.get(f"{folders}?prefix=x")
    world.post(folders, {"name": "data/empty"})
    for flag, prefix, prefixes in (
        ("True", "", ["data/"]), ("true", "data/", ["data/empty/"]), ("false", "data/", None),
    ):  # fmt: skip
        query = f"delimiter=/&includeFoldersAsPrefixes={flag}&prefix={prefix}"
        assert world.get(f"{MINE}/o?{query}").get("prefixes") == prefixes
    access = {"uniformBucketLevelAccess": {"enabled": False}}
    assert world.ask("PATCH", MINE, {"iamConfiguration": access}).status == 400
    assert world.ask("DELETE", f"{folders}/data%2F").status == 409
    assert load_world(dump_world(world.world)).services == world.world.services
    assert host.ask("DELETE", f"{folders}/data%2F?allowNonEmpty=true") == 403
    assert world.ask("DELETE", f"{folders}/data%2F?allowNonEmpty=true").status == 204
    assert host.ask("GET", asked[0]) == 403
    assert world.ask("GET", f"{folders}/data%2F").status == 404


def test_what_there_is_none_of(world: Asker) -> None:
    lists = ("notificationConfigs", "anywhereCaches", "rapidCaches")
    paths = [f"{MINE}/{name}" for name in lists] + ["/storage/v1/projects/demo/hmacKeys"]
    for path in paths:
        assert world.get(path).keys() == {"kind"}
        assert world.ask("POST", path, {}).status == 404
        assert world.ask("GET", path.replace("mine", "none").replace("demo", "no")).status == 404
    agent = world.get("/storage/v1/projects/demo/serviceAccount")["email_address"]
    assert agent == "service-123456789012@gs-project-accounts.iam.gserviceaccount.com"


def test_a_deleted_bucket_is_gone_after_a_week(world: Asker) -> None:
    made = world.get(MINE)
    restore = f"{MINE}/restore?generation={made['generation']}"
    world.ask("DELETE", MINE)
    host = Host(world, EMAIL)
    assert host.ask("POST", restore) == 403
    world.wait(6 * 86400)
    world.post(restore)
    world.ask("DELETE", MINE)
    world.wait(2 * 86400)
    assert world.get(f"{MINE}?softDeleted=true&generation={made['generation']}")["name"] == "mine"
    world.wait(6 * 86400)
    assert world.ask("POST", restore).status == 404


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
