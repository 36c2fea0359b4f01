"""Which goals a request makes, in the order in which they are reached."""

from collections.abc import Iterator

from tpuherd.cloud.firewall_rules import IAP_RANGE, MOSH, SSH, traffic_text
from tpuherd.project_setup.setup_types import Facts, GoalKind, SetupGoal, SetupRequest
from tpuherd.settings.host_routes import RouteKind

TPU = "tpu.googleapis.com"
COMPUTE = "compute.googleapis.com"
PROJECTS = "cloudresourcemanager.googleapis.com"
IAP = "iap.googleapis.com"
OS_LOGIN = "oslogin.googleapis.com"
ALWAYS = (PROJECTS, COMPUTE, TPU)

#: The permissions by which we tell whether the caller needs a role.
USER_ROLES = {
    "roles/tpu.admin": (
        "tpu.nodes.create", "tpu.nodes.delete", "tpu.nodes.get", "tpu.nodes.list",
        "tpu.nodes.update",
    ),
    "roles/iam.serviceAccountUser": ("iam.serviceAccounts.actAs",),
    "roles/serviceusage.serviceUsageConsumer": ("serviceusage.services.use",),
}  # fmt: skip
#: What a role allows besides what its name says.
ROLE_NOTES = {
    "roles/iam.serviceAccountUser": ", on every account of the project: a job may name any as its"
    " service_account, and the default one need not exist yet",
}
OS_LOGIN_ROLE = {"roles/compute.osAdminLogin": ("compute.instances.osAdminLogin",)}
IAP_ROLE = {"roles/iap.tunnelResourceAccessor": ("iap.tunnelInstances.accessViaIAP",)}
#: What TPU VMs write themselves: logs and metrics. Buckets: `herd bucket grant`.
NODE_ROLES = ("roles/logging.logWriter", "roles/monitoring.metricWriter")


INSIDE = frozenset({RouteKind.INTERNAL, RouteKind.JUMP, RouteKind.COMMAND})


def list_goals(
    request: SetupRequest, *, owner: str, login: str, public_key: str
) -> list[SetupGoal]:
    goals = list(service_goals(request))
    goals += role_goals(request)
    goals.append(
        SetupGoal(
            kind=GoalKind.IDENTITY,
            name=TPU,
            fact=f"{TPU} has its service identity",
            action=f"Create the service identity of {TPU}",
        )
    )
    goals.append(firewall_goal(request, owner))
    goals += key_goals(request, login, public_key)
    if request.context:
        way = request.way.text
        goals.append(
            SetupGoal(
                kind=GoalKind.WAY,
                name=request.context,
                fact=f"herd reaches hosts by {way}",
                action=f"Reach hosts by {way}",
                facts={"way": way},
            )
        )
    return goals


def service_goals(request: SetupRequest) -> Iterator[SetupGoal]:
    names = [*ALWAYS, *request.apis]
    names += [IAP] if request.way.kind is RouteKind.IAP else []
    names += [OS_LOGIN] if request.keys == "os-login" else []
    for name in dict.fromkeys(names):
        yield SetupGoal(
            kind=GoalKind.SERVICE,
            name=name,
            fact=f"{name} is enabled",
            action=f"Enable {name}",
        )


def role_goals(request: SetupRequest) -> Iterator[SetupGoal]:
    """Yield the roles of the user, then those of the nodes' account."""
    roles = {
        **USER_ROLES,
        **(IAP_ROLE if request.way.kind is RouteKind.IAP else {}),
        **(OS_LOGIN_ROLE if request.keys == "os-login" else {}),
    }
    who = request.member or "you"
    for role, permissions in roles.items():
        facts: Facts = {"role": role, "member": request.member, "permissions": permissions}
        yield role_goal(role, who, facts)
    for role in NODE_ROLES if request.node_account else ():
        yield role_goal(role, request.node_account, {"role": role, "member": request.node_account})


def role_goal(role: str, who: str, facts: Facts) -> SetupGoal:
    return SetupGoal(
        kind=GoalKind.ROLE,
        name=f"{role} {who}",
        fact=f"{who} has {role}" if facts["member"] else f"you may do what {role} allows",
        action=f"Give {who} {role}{ROLE_NOTES.get(role, '')}",
        api=PROJECTS,
        facts=facts,
    )


def firewall_goal(request: SetupRequest, owner: str) -> SetupGoal:
    """Return the goal that SSH gets through by the chosen way."""
    by_iap = request.way.kind is RouteKind.IAP
    sources = [IAP_RANGE] if by_iap else list(request.sources)
    traffic = [SSH, *([MOSH] if request.mosh else [])]
    name = f"herd-{'iap' if by_iap else 'ssh'}-{request.network[:40]}-{owner}"
    said = ", ".join(map(traffic_text, traffic))
    inside = request.way.kind in INSIDE
    near = ", ".join(sources) or ("the network itself" if inside else "your address")
    return SetupGoal(
        kind=GoalKind.FIREWALL,
        name=name,
        fact=f"{said} from {near} reaches the network {request.network}",
        action=f"Let {said} from {near} reach the network {request.network}",
        api=COMPUTE,
        facts={
            "network": request.network,
            "sources": sources,
            "inside": inside,
            "mosh": request.mosh,
        },
    )


def key_goals(request: SetupRequest, login: str, public_key: str) -> Iterator[SetupGoal]:
    if request.keys == "project":
        yield SetupGoal(
            kind=GoalKind.KEY,
            name=f"{login}:{public_key}",
            fact=f"the SSH key of {login} is in the project's metadata",
            action=f"Add the SSH key of {login} to the project's metadata",
            api=COMPUTE,
        )
    elif request.keys == "os-login":
        email = request.member.partition(":")[2]
        yield SetupGoal(
            kind=GoalKind.OS_LOGIN,
            name=f"{email} {public_key}",
            fact=f"the SSH key is in the OS Login profile of {email}",
            action=f"Add the SSH key to the OS Login profile of {email}",
            api=OS_LOGIN,
            facts={"email": email, "public": public_key},
        )
