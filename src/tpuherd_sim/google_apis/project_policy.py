"""Who may do what in the project: its IAM policy.

The policy is stored, answers `testIamPermissions`, and says what hosts may do by their service
account. The world's user owns the project: their other requests are not checked against it.
"""

import re
from urllib.parse import unquote

from tpuherd_sim.google_apis.bucket_access import (
    HOST_HEADER,
    bytes_etag,
    caller_name,
    read_each_binding,
)
from tpuherd_sim.google_apis.links import is_own_project
from tpuherd_sim.google_apis.project_roles import ROLES, permitted_names
from tpuherd_sim.google_apis.service_accounts import default_account
from tpuherd_sim.model.compute_state import ProjectBinding
from tpuherd_sim.model.http_types import ApiCall, ApiError, Json, Request
from tpuherd_sim.model.world import World
from tpuherd_sim.tpu.errors import error_info, permission_denied_error
from tpuherd_sim.tpu.host_reports import find_worker
from tpuherd_sim.tpu.router import Route, RouteMatch

MEMBER_KINDS = ("user", "serviceAccount", "group", "domain", "principal", "principalSet")
PERMISSION = re.compile(r"[a-z][A-Za-z0-9]*(\.[A-Za-z0-9]+){1,3}")
PERMISSIONS_MAX = 100
CONDITIONS = 3  #: the version of policies that may have conditions
TPU_AGENT_ROLE = "roles/cloudtpu.serviceAgent"
#: The APIs that ask for permissions, by a part of their paths.
APIS = {
    "/sim/": "sim", "/compute/": "compute", "/storage/": "storage", "/locations": "tpu",
    "/serviceAccounts": "iam", "/services": "serviceusage", "/operations/": "serviceusage",
    "/users/": "oslogin", "/projects/": "resourcemanager",
}  # fmt: skip
#: Methods whose permissions have other names; "" for those that need none.
RENAMED = {
    "b.create": "buckets.create", "b.list": "buckets.list", "nodes.patch": "nodes.update",
    "setCommonInstanceMetadata.create": "projects.setCommonInstanceMetadata",
    "wait.create": "globalOperations.get", "projects.testIamPermissions": "",
}  # fmt: skip
CLOUD_SCOPE = "https://www.googleapis.com/auth/cloud-platform"


def check_own_project(world: World, call: ApiCall) -> None:
    if not is_own_project(world, call.path["project"]):
        raise ApiError(403, "PERMISSION_DENIED", "The caller does not have permission")


def tpu_agent(world: World) -> str:
    """Return the identity with which Cloud TPU acts in the project."""
    return f"service-{world.settings.project_number}@cloud-tpu.iam.gserviceaccount.com"


def default_policy(world: World) -> tuple[ProjectBinding, ...]:
    """Return the policy of a new project: the world's user owns it."""
    number, user = world.settings.project_number, f"serviceAccount:{default_account(world)}"
    services = f"serviceAccount:{number}@cloudservices.gserviceaccount.com"
    members = {
        TPU_AGENT_ROLE: (f"serviceAccount:{tpu_agent(world)}",),
        "roles/editor": (services,),
        "roles/owner": (user, f"user:user@{world.settings.project}.example"),
    }
    return tuple(ProjectBinding(role=role, members=who) for role, who in members.items())


def current_policy(world: World) -> tuple[ProjectBinding, ...]:
    held = world.services.policy
    return default_policy(world) if held is None else held


def store_policy(world: World, bindings: tuple[ProjectBinding, ...]) -> None:
    world.services.policy = bindings
    world.services.policy_version += 1


def policy_etag(world: World) -> str:
    """Return the version of the policy, which a writer must send back."""
    return bytes_etag(world.services.policy_version)


def project_policy_json(world: World) -> Json:
    bindings: list[Json] = []
    for one in current_policy(world):
        shown: Json = {"role": one.role, "members": list(one.members)}
        bindings.append(shown | ({"condition": dict(one.condition)} if one.condition else {}))
    version = CONDITIONS if any(one.condition for one in current_policy(world)) else 1
    content: Json = {"bindings": bindings} if bindings else {}
    return {"version": version, "etag": policy_etag(world), **content}


def get_project_policy(world: World, call: ApiCall, now: float) -> Json:
    check_own_project(world, call)
    return project_policy_json(world)


def set_project_policy(world: World, call: ApiCall, now: float) -> Json:
    """Replace the policy if the sent etag is the current one, or missing."""
    check_own_project(world, call)
    policy = call.body.get("policy")
    if not isinstance(policy, dict):
        raise ApiError(400, "INVALID_ARGUMENT", "Invalid JSON payload: 'policy' is missing.")
    if policy.get("etag", policy_etag(world)) != policy_etag(world):
        raise ApiError(
            409,
            "ABORTED",
            "There were concurrent policy changes. Please retry the whole read-modify-write with "
            "exponential backoff.",
        )
    sent = policy.get("bindings") or []
    bindings = tuple(read_each_binding(world, sent, ROLES, MEMBER_KINDS))
    if any(one.condition for one in bindings) and policy.get("version") != CONDITIONS:
        text = f"The specified policy version must be {CONDITIONS} to set conditions."
        raise ApiError(400, "INVALID_ARGUMENT", text)
    store_policy(world, bindings)
    return project_policy_json(world)


def test_project_permissions(world: World, call: ApiCall, now: float) -> Json:
    """Return those of the asked permissions that the world's user has."""
    check_own_project(world, call)
    asked = call.body.get("permissions") or []
    if not isinstance(asked, list) or not all(isinstance(one, str) for one in asked):
        raise ApiError(400, "INVALID_ARGUMENT", "'permissions' must be a list of names.")
    if len(asked) > PERMISSIONS_MAX:
        text = f"At most {PERMISSIONS_MAX} permissions can be tested at a time."
        raise ApiError(400, "INVALID_ARGUMENT", text)
    for name in asked:
        if not PERMISSION.fullmatch(name):
            text = f"Permission {name} is not valid for this resource."
            raise ApiError(400, "INVALID_ARGUMENT", text)
    held = held_permissions(world, call.request, asked)
    return {"permissions": held} if held else {}


# -- what hosts may do ----------------------------------------------------------------------------


def held_permissions(world: World, request: Request, asked: list[str]) -> list[str]:
    """Return those permissions that the caller has: a host's account, or the world's user."""
    who = f"serviceAccount:{caller_name(world, request)}"
    roles = [one.role for one in current_policy(world) if who in one.members and not one.condition]
    return permitted_names(roles, asked)


def permission_name(found: RouteMatch) -> str:
    """Return the permission that a method needs in the project, such as tpu.nodes.delete; "" if it
    needs none, its bucket's policy decides, or the parts of a batch are asked.
    """
    api = next((api for part, api in APIS.items() if part in f"{found.route.template}/"), "")
    name = RENAMED.get(found.name, found.name)
    if found.version == "batch" or "bucket" in found.path or not api or not name:
        return ""
    collection, _, verb = name.partition(".")
    return f"{api}.{collection.lower() if api == 'tpu' else collection}.{verb}"


def check_host(world: World, call: ApiCall, found: RouteMatch) -> None:
    """Refuse what a host may not do: what its account has no permission for, or its node no scope.
    A node that names no scopes has all of them.
    """
    request = call.request
    key = request.headers.get(HOST_HEADER)
    permission = "" if key is None else permission_name(found)
    if key is None or not permission:
        return
    api = permission.partition(".")[0]
    if api == "sim":
        raise ApiError(404, "NOT_FOUND", "Method not found.")
    worker = find_worker(world, key)
    account = worker[0].spec.get("serviceAccount", {}) if worker else {}
    if api != "storage" and CLOUD_SCOPE not in (account.get("scope") or [CLOUD_SCOPE]):
        info = error_info(
            "ACCESS_TOKEN_SCOPE_INSUFFICIENT", "googleapis.com", service=f"{api}.googleapis.com"
        )
        text = "Request had insufficient authentication scopes."
        raise ApiError(403, "PERMISSION_DENIED", text, details=(info,) if api != "compute" else ())
    if not held_permissions(world, request, [permission]):
        raise host_refusal(api, permission, request, found)
    if permission in ("tpu.nodes.create", "tpu.queuedresources.create"):
        check_node_accounts(world, call)


def check_node_accounts(world: World, call: ApiCall) -> None:
    """Refuse nodes with accounts as which a host's own may not act; the words are Compute's."""
    if held_permissions(world, call.request, ["iam.serviceAccounts.actAs"]):
        return
    specs = call.body.get("tpu", {}).get("nodeSpec") or [{"node": call.body}]
    account = specs[0].get("node", {}).get("serviceAccount", {})
    email = account.get("email") or default_account(world)
    text = (
        f"The user does not have access to service account '{email}'. User: "
        f"'{caller_name(world, call.request)}'. Ask a project owner to grant you the "
        "iam.serviceAccountUser role on the service account"
    )
    raise ApiError(403, "PERMISSION_DENIED", text)


def host_refusal(api: str, permission: str, request: Request, found: RouteMatch) -> ApiError:
    """Return the error in the words of each API; those of IAM and what is like it are assumed."""
    collection, _, verb = found.name.partition(".")
    path = unquote(request.path).partition("/projects/")[2]
    place = "projects/" + path.removesuffix(f":{verb}").removesuffix(f"/{collection}")
    if api == "tpu":
        return permission_denied_error(permission, place)
    if api == "compute":
        return ApiError(403, "", f"Required '{permission}' permission for '{place}'")
    text = f"Permission '{permission}' denied on resource (or it may not exist)."
    if api == "storage":
        return ApiError(403, "", text)
    info = error_info("IAM_PERMISSION_DENIED", "iam.googleapis.com", permission=permission)
    return ApiError(403, "PERMISSION_DENIED", text, details=(info,))


ROUTES = tuple(
    Route("POST", f"/{version}/projects/{{project}}:{verb}", answer)
    for version in ("v1", "v3")
    for verb, answer in (
        ("getIamPolicy", get_project_policy),
        ("setIamPolicy", set_project_policy),
        ("testIamPermissions", test_project_permissions),
    )
)
