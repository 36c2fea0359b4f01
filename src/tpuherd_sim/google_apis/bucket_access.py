"""Who may do what with a bucket: its IAM policy, and whose request it is."""

from base64 import b64encode
from collections.abc import Collection, Mapping
from dataclasses import replace
from typing import Any
from urllib.parse import parse_qsl

from tpuherd_sim.google_apis.links import is_own_project
from tpuherd_sim.google_apis.project_roles import read_role
from tpuherd_sim.google_apis.service_accounts import default_account, known_account
from tpuherd_sim.google_apis.storage_roles import ALL_PERMISSIONS, ROLES, permitted
from tpuherd_sim.model.compute_state import Bucket
from tpuherd_sim.model.http_types import ApiCall, ApiError, Json, Request
from tpuherd_sim.model.world import World
from tpuherd_sim.tpu.host_reports import find_worker
from tpuherd_sim.tpu.router import Route

#: Added to requests of hosts by the world itself: the host's key. No client can send it.
HOST_HEADER = "x-sim-host"
PUBLIC = ("allUsers", "allAuthenticatedUsers")
MEMBERS = ("user", "serviceAccount", "group", "domain", "projectOwner", "projectEditor",
           "projectViewer", *PUBLIC)  # fmt: skip


def storage_error(http: int, message: str) -> ApiError:
    """Return an error of the Storage API, which has no status field."""
    return ApiError(http, "", message)


def unserved_error(what: str) -> ApiError:
    """Return the error for what this world would have to ignore."""
    return storage_error(400, f"{what} is not supported by the simulated world; omit it.")


def bytes_etag(number: int) -> str:
    """Return a number as Google's etags are: base64, which clients decode and encode again."""
    return b64encode(number.to_bytes(8, "big")).decode()


def default_bindings(project: str) -> dict[str, tuple[str, ...]]:
    """Return the policy of a new bucket: the project's owners and editors, and its viewers."""
    writers = (f"projectEditor:{project}", f"projectOwner:{project}")
    readers = (f"projectViewer:{project}",)
    return {
        "roles/storage.legacyBucketOwner": writers,
        "roles/storage.legacyBucketReader": readers,
        "roles/storage.legacyObjectOwner": writers,
        "roles/storage.legacyObjectReader": readers,
    }


def host_account(world: World, key: str) -> str:
    """Return the service account of a host's node; "" if the host is gone."""
    found = find_worker(world, key)
    if found is None:
        return ""
    email = found[0].spec.get("serviceAccount", {}).get("email")
    return str(email or default_account(world))


def caller_name(world: World, request: Request) -> str:
    """Return the account of a request: of the host, else the world's user."""
    key = request.headers.get(HOST_HEADER)
    return default_account(world) if key is None else host_account(world, key)


def caller_permissions(world: World, bucket: Bucket, request: Request) -> frozenset[str]:
    """Return what the caller may do. The world's user owns the project; hosts are their account.

    The default account is an editor of the project, as in projects before 2024.
    """
    own = is_own_project(world, bucket.project)
    key = request.headers.get(HOST_HEADER)
    if key is None:
        return ALL_PERMISSIONS if own else frozenset()
    email = host_account(world, key)
    members = {f"serviceAccount:{email}", *PUBLIC}
    if email == default_account(world):
        members.add(f"projectEditor:{world.settings.project}")
    return permitted(bucket.bindings or default_bindings(bucket.project), members)


def check_permission(world: World, bucket: Bucket, request: Request, permission: str) -> None:
    """Refuse the request in Google's words unless the caller has the permission."""
    if permission in caller_permissions(world, bucket, request):
        return
    who = caller_name(world, request)
    kind = "object" if ".objects." in permission else "bucket"
    raise storage_error(
        403,
        f"{who} does not have {permission} access to the Google Cloud Storage {kind}. "
        f"Permission '{permission}' denied on resource (or it may not exist).",
    )


def named_bucket(world: World, request: Request, name: str, permission: str) -> Bucket:
    """Return a bucket if the caller has the permission."""
    bucket = world.services.buckets.get(name)
    if bucket is None:
        raise storage_error(404, "The specified bucket does not exist.")
    if permission:
        check_permission(world, bucket, request, permission)
    return bucket


def find_bucket(world: World, call: ApiCall, permission: str) -> Bucket:
    """Return the bucket of the path if the caller has the permission."""
    return named_bucket(world, call.request, call.path["bucket"], permission)


# -- the policy -----------------------------------------------------------------------------------


def policy_json(bucket: Bucket) -> Json:
    bindings = bucket.bindings or default_bindings(bucket.project)
    return {
        "kind": "storage#policy",
        "resourceId": f"projects/_/buckets/{bucket.name}",
        "version": 1,
        "etag": policy_etag(bucket),
        "bindings": [
            {"role": role, "members": list(members)} for role, members in sorted(bindings.items())
        ],
    }


def policy_etag(bucket: Bucket) -> str:
    """Return the version of the policy, which a writer must send back."""
    return bytes_etag(bucket.policy_version)


def get_policy(world: World, call: ApiCall, now: float) -> Json:
    return policy_json(find_bucket(world, call, "storage.buckets.getIamPolicy"))


def set_policy(world: World, call: ApiCall, now: float) -> Json:
    """Replace the policy if the sent etag is the current one, or missing."""
    bucket = find_bucket(world, call, "storage.buckets.setIamPolicy")
    if call.body.get("etag", policy_etag(bucket)) != policy_etag(bucket):
        raise storage_error(412, "At least one of the pre-conditions you specified did not hold.")
    bindings = read_bindings(world, call.body.get("bindings") or [])
    changed = with_policy(bucket, bindings)
    world.services.buckets[bucket.name] = changed
    return policy_json(changed)


def with_policy(bucket: Bucket, bindings: Mapping[str, tuple[str, ...]]) -> Bucket:
    return replace(bucket, bindings=bindings, policy_version=bucket.policy_version + 1)


def read_bindings(world: World, sent: Any) -> dict[str, tuple[str, ...]]:
    found: dict[str, tuple[str, ...]] = {}
    bindings: list[Any] = sent if isinstance(sent, list) else [None]
    for one in bindings:
        role = read_role(one, ROLES)
        members = one.get("members", [])
        if one.get("condition"):
            raise unserved_error("A binding's condition")
        if not isinstance(members, list) or not all(isinstance(who, str) for who in members):
            raise storage_error(400, "Invalid argument: members must be a list of names.")
        for member in members:
            check_member(world, member, MEMBERS)
        found[role] = tuple(dict.fromkeys((*found.get(role, ()), *members)))
    return {role: members for role, members in found.items() if members}


def check_member(world: World, member: object, kinds: Collection[str]) -> None:
    kind, _, name = str(member).partition(":")
    if not isinstance(member, str) or kind not in kinds or (kind in PUBLIC) == bool(name):
        text = f"Invalid argument: The member {member} is of an unknown type."
        raise ApiError(400, "INVALID_ARGUMENT", text)
    if kind == "serviceAccount" and not known_account(world, name):
        raise ApiError(400, "INVALID_ARGUMENT", f"Service account {name} does not exist.")


def test_permissions(world: World, call: ApiCall, now: float) -> Json:
    """Return those of the asked permissions that the caller has."""
    bucket = find_bucket(world, call, "")
    asked = [value for name, value in parse_qsl(call.request.query) if name == "permissions"]
    if not asked:
        raise storage_error(400, "Required parameter: permissions")
    allowed = caller_permissions(world, bucket, call.request)
    found = [one for one in asked if one in allowed]
    answer: Json = {"kind": "storage#testIamPermissionsResponse"}
    return {**answer, "permissions": found} if found else answer


ROUTES = (
    Route("GET", "/storage/v1/b/{bucket}/iam", get_policy),
    Route("PUT", "/storage/v1/b/{bucket}/iam", set_policy),
    Route("GET", "/storage/v1/b/{bucket}/iam/testPermissions", test_permissions),
)
