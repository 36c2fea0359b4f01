"""Which APIs are enabled in the project, and the identity that an API gets there.

All APIs of a new world are enabled. If Cloud TPU or Compute is disabled, it refuses requests; after
it is enabled again, it goes on refusing for a moment, as Google's APIs do.
"""

import hashlib
from collections.abc import Callable, Iterator

from tpuherd_sim.google_apis.pagination import parse_filter, take_page
from tpuherd_sim.google_apis.project_policy import (
    TPU_AGENT_ROLE,
    check_own_project,
    current_policy,
    store_policy,
    tpu_agent,
)
from tpuherd_sim.model.compute_state import ProjectBinding, ServiceOperation
from tpuherd_sim.model.http_types import ApiCall, ApiError, Json
from tpuherd_sim.model.world import World, scale_duration
from tpuherd_sim.tpu.router import Route

TPU, COMPUTE = "tpu.googleapis.com", "compute.googleapis.com"
#: The APIs that a project of this server may have enabled.
SERVICES = tuple(
    f"{name}.googleapis.com"
    for name in (
        "cloudresourcemanager", "compute", "iam", "iamcredentials", "iap", "oauth2", "oslogin",
        "serviceusage", "storage", "tpu",
    )
)  # fmt: skip
TITLES = {TPU: "Cloud TPU API", COMPUTE: "Compute Engine API"}
TAKES_S = 2.0  #: to enable an API
SPREADS_S = 5.0  #: until it answers everywhere
TYPES = "type.googleapis.com/google.api.serviceusage"


def numbered_project_path(world: World, call: ApiCall) -> str:
    """Return `projects/123456789012`; refuse a path of another project."""
    check_own_project(world, call)
    return f"projects/{world.settings.project_number}"


def check_service_answers(world: World, service: str, now: float) -> None:
    """Refuse a request to an API that is disabled."""
    answers_at = world.services.disabled.get(service, 0.0)
    if answers_at is None or now < answers_at:
        raise disabled_error(world.settings.project_number, service)


def disabled_error(number: int, service: str) -> ApiError:
    """Return Google's refusal, with the reason that clients read."""
    page = f"https://console.developers.google.com/apis/api/{service}/overview?project={number}"
    message = (
        f"{TITLES.get(service, service)} has not been used in project {number} before or it is "
        f"disabled. Enable it by visiting {page} then retry. If you enabled this API recently, "
        "wait a few minutes for the action to propagate to our systems and retry."
    )
    link = {"description": "Google developers console API activation", "url": page}
    about = {"service": service, "consumer": f"projects/{number}"}
    details: tuple[Json, ...] = (
        {"@type": "type.googleapis.com/google.rpc.Help", "links": [link]},
        {
            "@type": "type.googleapis.com/google.rpc.ErrorInfo",
            "reason": "SERVICE_DISABLED",
            "domain": "googleapis.com",
            "metadata": about,
        },
    )
    return ApiError(403, "PERMISSION_DENIED", message, details=details)


# -- services -------------------------------------------------------------------------------------


def is_service_enabled(world: World, name: str) -> bool:
    return world.services.disabled.get(name, 0.0) is not None


def service_json(world: World, name: str) -> Json:
    parent = f"projects/{world.settings.project_number}"
    return {
        "name": f"{parent}/services/{name}",
        "config": {"name": name, "title": TITLES.get(name, name.partition(".")[0])},
        "state": "ENABLED" if is_service_enabled(world, name) else "DISABLED",
        "parent": parent,
    }


def check_service_name(name: object) -> str:
    if not isinstance(name, str) or name not in SERVICES:
        text = f"Not found or permission denied for service(s): {name}."
        raise ApiError(403, "PERMISSION_DENIED", text)
    return name


def known_service(world: World, call: ApiCall) -> str:
    numbered_project_path(world, call)
    return check_service_name(call.path["service"])


def get_service(world: World, call: ApiCall, now: float) -> Json:
    return service_json(world, known_service(world, call))


def list_services(world: World, call: ApiCall, now: float) -> Json:
    numbered_project_path(world, call)
    found = [service_json(world, name) for name in SERVICES]
    chosen = filter(parse_filter(call.query.get("filter", "")), found)
    return take_page("services", list(chosen), call.query)


def enable_service(world: World, call: ApiCall, now: float) -> Json:
    return enable_all(world, call, (known_service(world, call),), now)


def enable_services(world: World, call: ApiCall, now: float) -> Json:
    """Enable several APIs at once."""
    numbered_project_path(world, call)
    names = call.body.get("serviceIds") or []
    if not isinstance(names, list) or not names:
        raise ApiError(400, "INVALID_ARGUMENT", "'serviceIds' must list services.")
    return enable_all(world, call, tuple(check_service_name(name) for name in names), now)


def enable_all(world: World, call: ApiCall, names: tuple[str, ...], now: float) -> Json:
    """Enable what is disabled; nothing to do is an operation that is done."""
    missing = [name for name in names if not is_service_enabled(world, name)]
    for name in missing:
        world.services.disabled[name] = now + scale_duration(world, SPREADS_S)
    return record_service_operation(world, call, names, now, takes_s=TAKES_S if missing else 0.0)


def disable_service(world: World, call: ApiCall, now: float) -> Json:
    """Disable an API; refuse if it is in use and the caller wants that checked."""
    name = known_service(world, call)
    used = name == TPU and (world.nodes or world.requests)
    if used and call.body.get("checkIfServiceHasUsage") == "CHECK":
        text = f"The service {name} has been used recently and can't be disabled."
        raise ApiError(400, "FAILED_PRECONDITION", text)
    takes_s = TAKES_S if is_service_enabled(world, name) else 0.0
    world.services.disabled[name] = None
    return record_service_operation(world, call, (name,), now, takes_s=takes_s)


# -- operations -----------------------------------------------------------------------------------


def record_service_operation(
    world: World, call: ApiCall, names: tuple[str, ...], now: float, *, takes_s: float
) -> Json:
    """Record a change of services and return its operation."""
    number, services = world.settings.project_number, world.services
    if takes_s == 0:
        done = ServiceOperation(name="operations/noop.DONE_OPERATION", services=names, ended=now)
        return service_operation_json(world, call, done, now)
    text = f"{world.settings.seed}:{now}:{names}:{len(services.service_operations)}"
    tail = hashlib.blake2b(text.encode(), digest_size=8).hexdigest()
    change = ServiceOperation(
        name=f"operations/acat.p2-{number}-{tail}",
        services=names,
        ended=now + scale_duration(world, takes_s),
    )
    services.service_operations[change.name] = change
    return service_operation_json(world, call, change, now)


def service_operation_json(
    world: World, call: ApiCall, change: ServiceOperation, now: float
) -> Json:
    if now < change.ended:
        return {"name": change.name}
    shown = [service_json(world, name) for name in change.services]
    many = len(shown) > 1
    kind = "BatchEnableServicesResponse" if many else "EnableServiceResponse"
    content: Json = {"services": shown} if many else {"service": shown[0]}
    return {
        "name": change.name,
        "done": True,
        "response": {"@type": f"{TYPES}.{call.version}.{kind}", **content},
    }


def get_service_operation(world: World, call: ApiCall, now: float) -> Json:
    name = f"operations/{call.path['operation']}"
    change = world.services.service_operations.get(name)
    if change is None:
        raise ApiError(404, "NOT_FOUND", f"Operation {name} was not found.")
    return service_operation_json(world, call, change, now)


def generate_identity(world: World, call: ApiCall, now: float) -> Json:
    """Create the API's own account, and give it its role; done already is fine."""
    name = known_service(world, call)
    if name != TPU:
        text = f"Service {name} does not have a service identity."
        raise ApiError(400, "INVALID_ARGUMENT", text)
    email, policy = tpu_agent(world), current_policy(world)
    member = f"serviceAccount:{email}"
    if not any(one.role == TPU_AGENT_ROLE and member in one.members for one in policy):
        store_policy(world, (*policy, ProjectBinding(role=TPU_AGENT_ROLE, members=(member,))))
    unique = int(hashlib.blake2b(email.encode(), digest_size=8).hexdigest(), 16)
    return {
        "name": "operations/finished.DONE_OPERATION",
        "done": True,
        "response": {
            "@type": f"{TYPES}.v1beta1.ServiceIdentity",
            "email": email,
            "uniqueId": str(unique),
        },
    }


def state_routes(version: str) -> Iterator[Route]:
    """Yield the routes of one version."""
    every = f"/{version}/projects/{{project}}/services"
    answers: tuple[tuple[str, str, Callable[[World, ApiCall, float], Json]], ...] = (
        ("GET", every, list_services),
        ("POST", f"{every}:batchEnable", enable_services),
        ("GET", f"{every}/{{service}}", get_service),
        ("POST", f"{every}/{{service}}:enable", enable_service),
        ("POST", f"{every}/{{service}}:disable", disable_service),
        ("GET", f"/{version}/operations/{{operation}}", get_service_operation),
    )
    yield from (Route(*one) for one in answers)
    if version == "v1beta1":
        yield Route("POST", f"{every}/{{service}}:generateServiceIdentity", generate_identity)


ROUTES = (*state_routes("v1"), *state_routes("v1beta1"))
