"""Who may do what in the project: its IAM policy.

The policy is stored and answers `testIamPermissions`; other requests are not checked against it.
"""

import re
from typing import Any

from tpuherd_sim.google_apis.links import is_own_project
from tpuherd_sim.google_apis.project_roles import ROLES, permitted_names
from tpuherd_sim.google_apis.service_accounts import default_account, known_account
from tpuherd_sim.model.compute_state import ProjectBinding
from tpuherd_sim.model.http_types import ApiCall, ApiError, Json
from tpuherd_sim.model.world import World
from tpuherd_sim.tpu.router import Route

MEMBER_KINDS = ("user", "serviceAccount", "group", "domain", "principal", "principalSet")
PERMISSION = re.compile(r"[a-z][A-Za-z0-9]*(\.[A-Za-z0-9]+){1,3}")
PERMISSIONS_MAX = 100
CONDITIONS = 3  #: the version of policies that may have conditions
TPU_AGENT_ROLE = "roles/cloudtpu.serviceAgent"


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
    return f"BwX{world.services.policy_version:07d}="


def project_policy_json(world: World) -> Json:
    bindings: list[Json] = []
    for one in current_policy(world):
        shown: Json = {"role": one.role, "members": list(one.members)}
        bindings.append(shown | ({"condition": dict(one.condition)} if one.condition else {}))
    version = CONDITIONS if any(one.condition for one in current_policy(world)) else 1
    return {"version": version, "etag": policy_etag(world), "bindings": bindings}


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
    bindings = read_project_bindings(world, policy.get("bindings") or [])
    if any(one.condition for one in bindings) and policy.get("version") != CONDITIONS:
        text = f"The specified policy version must be {CONDITIONS} to set conditions."
        raise ApiError(400, "INVALID_ARGUMENT", text)
    store_policy(world, bindings)
    return project_policy_json(world)


def read_project_bindings(world: World, sent: Any) -> tuple[ProjectBinding, ...]:
    found: list[ProjectBinding] = []
    for one in sent if isinstance(sent, list) else [None]:
        role = one.get("role") if isinstance(one, dict) else None
        members = one.get("members", []) if isinstance(one, dict) else None
        condition = one.get("condition") or {} if isinstance(one, dict) else {}
        if not isinstance(role, str) or role not in ROLES:
            text = f"Role {role} is not supported for this resource."
            raise ApiError(400, "INVALID_ARGUMENT", text)
        if not isinstance(members, list) or not isinstance(condition, dict):
            raise ApiError(400, "INVALID_ARGUMENT", "Invalid argument: malformed binding.")
        for member in members:
            check_project_member(world, member)
        if members:
            known = tuple(dict.fromkeys(members))
            found.append(ProjectBinding(role=role, members=known, condition=condition))
    return tuple(found)


def check_project_member(world: World, member: object) -> None:
    kind, _, name = str(member).partition(":")
    if not isinstance(member, str) or kind not in MEMBER_KINDS or not name:
        text = f"Invalid argument: The member {member} is of an unknown type."
        raise ApiError(400, "INVALID_ARGUMENT", text)
    if kind == "serviceAccount" and not known_account(world, name):
        raise ApiError(400, "INVALID_ARGUMENT", f"Service account {name} does not exist.")


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
    user = f"serviceAccount:{default_account(world)}"
    roles = [one.role for one in current_policy(world) if user in one.members and not one.condition]
    held = permitted_names(roles, asked)
    return {"permissions": held} if held else {}


ROUTES = tuple(
    Route("POST", f"/{version}/projects/{{project}}:{verb}", answer)
    for version in ("v1", "v3")
    for verb, answer in (
        ("getIamPolicy", get_project_policy),
        ("setIamPolicy", set_project_policy),
        ("testIamPermissions", test_project_permissions),
    )
)
