"""Who may do what with a bucket: its IAM policy, and whose request it is."""

from base64 import b64encode
from collections.abc import Collection, Iterator, Mapping
from typing import Any

from tpuherd_sim.google_apis.links import is_own_project
from tpuherd_sim.google_apis.project_roles import read_role
from tpuherd_sim.google_apis.service_accounts import default_account, known_account
from tpuherd_sim.google_apis.storage_roles import ALL_PERMISSIONS, ROLES, permitted
from tpuherd_sim.model.compute_state import Bucket, ProjectBinding
from tpuherd_sim.model.http_types import ApiCall, ApiError, Request
from tpuherd_sim.model.storage_state import StoredObject
from tpuherd_sim.model.world import World
from tpuherd_sim.tpu.host_reports import find_worker

Bindings = Mapping[str, tuple[str, ...]]  #: members by role
#: Added to requests of hosts by the world itself: the host's key. No client can send it.
HOST_HEADER = "x-sim-host"
UNMET = "At least one of the pre-conditions you specified did not hold."
UNIFORM_MORE = " Read more at https://cloud.google.com/storage/docs/uniform-bucket-level-access"
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


def team_bindings(project: str, owner: str, reader: str) -> Bindings:
    """Return what a new bucket gives the project's owners and editors, and its viewers."""
    writers = (f"projectEditor:{project}", f"projectOwner:{project}")
    readers = (f"projectViewer:{project}",)
    return {f"roles/storage.legacy{owner}": writers, f"roles/storage.legacy{reader}": readers}


def bucket_bindings(bucket: Bucket) -> Bindings:
    """Return the policy of a bucket: that of a new one is about objects where access is uniform."""
    if bucket.policy_version > 1:
        return bucket.bindings
    usual = team_bindings(bucket.project, "BucketOwner", "BucketReader")
    return {**usual, **object_bindings(bucket)} if bucket.uniform else usual


def object_bindings(bucket: Bucket, one: StoredObject | None = None) -> Bindings:
    """Return the policy of an object, else that of new ones."""
    found = one.bindings if one else None
    found = bucket.object_bindings if found is None else found
    usual = team_bindings(bucket.project, "ObjectOwner", "ObjectReader")
    return usual if found is None else found


def check_public(bucket: Bucket, bindings: Bindings) -> None:
    """Refuse to give everyone a role where the bucket prevents it."""
    public = {member for members in bindings.values() for member in members} & {*PUBLIC}
    if public and bucket.public_access == "enforced":
        text = "The member bindings allUsers and allAuthenticatedUsers are not allowed since "
        raise storage_error(412, f"{text}public access prevention is enforced.")


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


def caller_permissions(
    world: World, bucket: Bucket, request: Request, name: str = "", one: StoredObject | None = None
) -> frozenset[str]:
    """Return what the caller may do with a bucket, or an object of it, by all policies about it.

    The world's user owns the project; hosts are their account. The default account is an editor
    of the project, as in projects before 2024.
    """
    own = is_own_project(world, bucket.project)
    key = request.headers.get(HOST_HEADER)
    if key is None:
        return ALL_PERMISSIONS if own else frozenset()
    email = host_account(world, key)
    members = {f"serviceAccount:{email}", *PUBLIC}
    if email == default_account(world):
        members.add(f"projectEditor:{world.settings.project}")
    policies = [held.bindings for start, held in bucket.folders.items() if name.startswith(start)]
    if one is not None and not bucket.uniform:
        policies.append(object_bindings(bucket, one))
    policies.append(bucket_bindings(bucket))
    return frozenset().union(*(permitted(bindings, members) for bindings in policies))


def check_permission(
    world: World,
    bucket: Bucket,
    request: Request,
    permission: str,
    name: str = "",
    one: StoredObject | None = None,
) -> None:
    """Refuse the request in Google's words unless the caller has the permission."""
    if permission in caller_permissions(world, bucket, request, name, one):
        return
    who = caller_name(world, request)
    kind = "object" if ".objects." in permission else "bucket"
    raise storage_error(
        403,
        f"{who} does not have {permission} access to the Google Cloud Storage {kind}. "
        f"Permission '{permission}' denied on resource (or it may not exist).",
    )


def named_bucket(
    world: World, request: Request, bucket_name: str, permission: str, name: str = ""
) -> Bucket:
    """Return a bucket if the caller has the permission, there or for the objects so named."""
    bucket = world.services.buckets.get(bucket_name)
    if bucket is None:
        raise storage_error(404, "The specified bucket does not exist.")
    if permission:
        check_permission(world, bucket, request, permission, name)
    return bucket


def find_bucket(world: World, call: ApiCall, permission: str) -> Bucket:
    """Return the bucket of the path if the caller has the permission."""
    return named_bucket(world, call.request, call.path["bucket"], permission)


def find_folder(world: World, call: ApiCall, verb: str) -> tuple[Bucket, str]:
    """Return the bucket and the name of the folder that the path names, if the caller may."""
    name = call.path["folder"]
    name = name if name.endswith("/") else f"{name}/"
    permission = verb and f"storage.managedFolders.{verb}"
    bucket = named_bucket(world, call.request, call.path["bucket"], permission, name)
    if name not in bucket.folders:
        raise storage_error(404, "The specified managed folder does not exist.")
    return bucket, name


def check_metageneration(call: ApiCall, number: int) -> None:
    """Check the conditions of a request about a bucket, or what is like one."""
    query = call.query
    wanted = query.get("ifMetagenerationMatch") or str(number)
    if wanted != str(number) or query.get("ifMetagenerationNotMatch") == str(number):
        reads = call.request.method == "GET" and wanted == str(number)
        raise storage_error(304 if reads else 412, UNMET)


# -- policies -------------------------------------------------------------------------------------


def read_bindings(world: World, sent: Any) -> dict[str, tuple[str, ...]]:
    """Return the policy of a request."""
    found: dict[str, tuple[str, ...]] = {}
    for one in read_each_binding(world, sent, ROLES, MEMBERS):
        if one.condition:
            raise unserved_error("The field condition")
        found[one.role] = tuple(dict.fromkeys((*found.get(one.role, ()), *one.members)))
    return found


def read_each_binding(
    world: World, sent: Any, roles: Collection[str], kinds: Collection[str]
) -> Iterator[ProjectBinding]:
    bindings: list[Any] = sent if isinstance(sent, list) else [None]
    for one in bindings:
        role = read_role(one, roles)
        members, condition = one.get("members", []), one.get("condition") or {}
        if not isinstance(members, list) or not isinstance(condition, dict):
            text = "Invalid argument: members must be a list of names, a condition an object."
            raise ApiError(400, "INVALID_ARGUMENT", text)
        for member in members:
            check_member(world, member, kinds)
        if members:
            known = tuple(dict.fromkeys(members))
            yield ProjectBinding(role=role, members=known, condition=condition)


def check_member(world: World, member: object, kinds: Collection[str]) -> None:
    kind, _, name = str(member).partition(":")
    if not isinstance(member, str) or kind not in kinds or (kind in PUBLIC) == bool(name):
        text = f"Invalid argument: The member {member} is of an unknown type."
        raise ApiError(400, "INVALID_ARGUMENT", text)
    if kind == "serviceAccount" and not known_account(world, name):
        raise ApiError(400, "INVALID_ARGUMENT", f"Service account {name} does not exist.")
