"""Decides what the account may do in a project, and what the project lacks: pure functions."""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass

from tpuherd.checks.check_results import CheckResult, CheckStatus
from tpuherd.jobfile.job_spec import JobSpec
from tpuherd.settings.host_routes import Route

TPU_API, COMPUTE_API = "tpu.googleapis.com", "compute.googleapis.com"
STORAGE_API, IAP_API = "storage.googleapis.com", "iap.googleapis.com"
DEFAULT_NETWORK = "default"
ACTIVE = "ACTIVE"
SETUP = "herd setup gcp"


@dataclass(frozen=True, kw_only=True, slots=True)
class NeededPermission:
    """A permission on the project, and what herd needs it for."""

    name: str
    role: str  #: the smallest predefined role that has it
    for_what: str
    needed: bool = True  #: False: herd works without it, but a check or a convenience does not


PERMISSIONS: Sequence[NeededPermission] = (
    *(
        NeededPermission(name=f"tpu.nodes.{verb}", role="roles/tpu.admin", for_what=what)
        for verb, what in (
            ("create", "to request nodes"),
            ("delete", "to delete nodes"),
            ("get", "to see nodes"),
            ("list", "to see nodes"),
            ("update", "to add SSH keys to nodes"),
        )
    ),
    NeededPermission(
        name="tpu.operations.get", role="roles/tpu.admin", for_what="to learn why a request failed"
    ),
    NeededPermission(
        name="iam.serviceAccounts.actAs",
        role="roles/iam.serviceAccountUser",
        for_what="to let nodes act as their service account",
    ),
    NeededPermission(
        name="serviceusage.services.use",
        role="roles/serviceusage.serviceUsageConsumer",
        for_what="to use the project's quota",
    ),
    NeededPermission(
        name="compute.projects.get",
        role="roles/compute.viewer",
        for_what="to see which SSH keys hosts accept",
        needed=False,
    ),
    NeededPermission(
        name="compute.firewalls.list",
        role="roles/compute.viewer",
        for_what="to check the firewall",
        needed=False,
    ),
)

IAP_PERMISSION = NeededPermission(
    name="iap.tunnelInstances.accessViaIAP",
    role="roles/iap.tunnelResourceAccessor",
    for_what="to reach hosts through Identity-Aware Proxy",
)


def judge_project(where: str, project: str, state: str, number: str) -> CheckResult:
    """`state`: as Resource Manager calls it; "": unknown."""
    if state not in ("", ACTIVE):
        return CheckResult(
            check="project",
            where=where,
            status=CheckStatus.PROBLEM,
            found=f"the project is being deleted (its state is {state})",
            remedy=f"gcloud projects undelete {project}",
        )
    found = f"{project}, number {number}" if number else project
    return CheckResult(check="project", where=where, status=CheckStatus.OK, found=found)


def judge_unseen_project(where: str, project: str, why: str) -> CheckResult:
    """Return the result for a project that does not exist, or not for this account."""
    return CheckResult(
        check="project",
        where=where,
        status=CheckStatus.PROBLEM,
        found=f"the project {project} does not exist, or your account may not see it ({why})",
        remedy="gcloud projects list shows yours; then: herd context add NAME --project PROJECT",
    )


def needed_services(jobs: Iterable[JobSpec], routes: Iterable[Route]) -> Mapping[str, str]:
    """Return the APIs that must be enabled, and for what."""
    found = {TPU_API: "nodes", COMPUTE_API: "SSH keys and the firewall"}
    if any(job.buckets for job in jobs):
        found[STORAGE_API] = "the buckets of jobs"
    if uses_iap(routes):
        found[IAP_API] = "the way to hosts"
    return found


def judge_services(
    where: str, project: str, needed: Mapping[str, str], missing: Collection[str], *, guessed: bool
) -> CheckResult:
    """`guessed`: the list of APIs may not be read, so what calls answer has to do."""
    how = " (as their answers show)" if guessed else ""
    if missing:
        names = " ".join(sorted(missing))
        what = ", ".join(f"{one} for {needed[one]}" for one in sorted(missing))
        return CheckResult(
            check="apis",
            where=where,
            status=CheckStatus.PROBLEM,
            found=f"not enabled: {what}{how}",
            remedy=f"{SETUP}, or: gcloud services enable {names} --project={project}; then wait a"
            " few minutes",
        )
    names = ", ".join(one.partition(".")[0] for one in needed)
    return CheckResult(
        check="apis", where=where, status=CheckStatus.OK, found=f"enabled: {names}{how}"
    )


def judge_service_agent(
    where: str, project: str, agent: str, roles: Collection[str]
) -> CheckResult:
    """`agent`: the e-mail address of Cloud TPU's account; `roles`: what it has."""
    if roles:
        return CheckResult(check="service-agent", where=where, status=CheckStatus.OK, found=agent)
    return CheckResult(
        check="service-agent",
        where=where,
        status=CheckStatus.WARNING,
        found=f"{agent} has no role in the project",
        remedy=f"{SETUP}, or: gcloud beta services identity create --service={TPU_API}"
        f" --project={project}",
    )


def needed_permissions(routes: Iterable[Route]) -> list[NeededPermission]:
    """Return what the account needs if it reaches hosts in these ways."""
    return [*PERMISSIONS, *((IAP_PERMISSION,) if uses_iap(routes) else ())]


def uses_iap(routes: Iterable[Route]) -> bool:
    """Whether hosts are reached through Identity-Aware Proxy, by herd or by a command."""
    return any("iap" in f"{route.kind.value} {route.by}" for route in routes)


def judge_permissions(
    where: str, project: str, needed: Sequence[NeededPermission], held: Collection[str]
) -> list[CheckResult]:
    """One result for each role that is missing."""
    missing = [one for one in needed if one.name not in held]
    by_role: dict[str, list[NeededPermission]] = {}
    for one in missing:
        by_role.setdefault(one.role, []).append(one)
    found = [
        CheckResult(
            check="permissions",
            where=where,
            status=CheckStatus.PROBLEM if any(one.needed for one in ones) else CheckStatus.WARNING,
            found=f"your account lacks {', '.join(one.name for one in ones)}",
            matters=f"herd needs it {' and '.join(dict.fromkeys(one.for_what for one in ones))}",
            remedy=f"{SETUP} if you own the project, or ask an owner: gcloud projects"
            f" add-iam-policy-binding {project} --member=user:YOU --role={role}",
        )
        for role, ones in by_role.items()
    ]
    if found:
        return found
    text = f"all {len(needed)} that herd asks for"
    return [CheckResult(check="permissions", where=where, status=CheckStatus.OK, found=text)]


def used_networks(jobs: Iterable[JobSpec]) -> list[str]:
    """Return the networks of jobs by name; those of other projects can't be looked at."""
    found = {
        job.network.name or DEFAULT_NETWORK: None
        for job in jobs
        if job.network.name
        or not job.network.subnetwork  # a subnetwork alone does not tell its network
    }
    names = found or {DEFAULT_NETWORK: None}
    own = (name.rpartition("/")[2] for name in names if not name.startswith("projects/"))
    return list(dict.fromkeys(own))


def judge_network(where: str, project: str, name: str, known: Collection[str]) -> CheckResult:
    if name in known:
        return CheckResult(
            check="network", where=where, status=CheckStatus.OK, found=f"{name} exists"
        )
    there = f"; there are {', '.join(sorted(known))}" if known else "; there is none"
    create = f"gcloud compute networks create {name} --subnet-mode=auto --project={project}"
    return CheckResult(
        check="network",
        where=where,
        status=CheckStatus.PROBLEM,
        found=f"there is no network {name}{there}",
        remedy=f"name another one in `network` of your jobs, or create it: {create}",
    )
