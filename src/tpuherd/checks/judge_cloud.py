"""Decides what the facts of a project mean: pure functions."""

from collections.abc import Iterable, Mapping
from dataclasses import replace

from tpuherd.checks.check_results import CheckResult, CheckStatus
from tpuherd.cloud.nodes_api import OS_LOGIN_HINT
from tpuherd.cloud.parse import SSH_KEYS
from tpuherd.cloud.project_metadata_api import ComputeProject
from tpuherd.errors import HerdError
from tpuherd.jobfile.data_egress import (
    allow_advice,
    distance_message,
    is_allowed,
    nearby_regions,
    used_locations,
)
from tpuherd.jobfile.grants import Allowance
from tpuherd.jobfile.job_spec import JobSpec
from tpuherd.jobs.bucket_guard import zone_estimates
from tpuherd.settings.endpoints import LOG_IN, CredentialSource
from tpuherd.views.format_text import format_span

SKEW_LOW_S, SKEW_MOST_S = 10.0, 120.0
SET_CLOCK = "sudo timedatectl set-ntp true"


def judge_no_login(where: str, error: HerdError) -> CheckResult:
    """Return the result if there is no way to get a token."""
    return CheckResult(
        check="login",
        where=where,
        status=CheckStatus.PROBLEM,
        found=error.sentence,
        remedy=error.hint or LOG_IN,
    )


def judge_login(where: str, source: str, error: HerdError | None) -> CheckResult:
    """`source`: which credentials there are; `error`: why they are of no use."""
    if error is None:
        return CheckResult(check="login", where=where, status=CheckStatus.OK, found=source)
    why = error.sentence
    return CheckResult(
        check="login",
        where=where,
        status=CheckStatus.PROBLEM,
        found=why if "gcloud" in why or source in why else f"{why} ({source})",
        remedy=error.hint or LOG_IN,
    )


#: What Google calls the kinds of credentials files, and what they are.
KINDS: Mapping[str, str] = {
    "authorized_user": "your own login",
    "service_account": "the key of a service account",
    "impersonated_service_account": "an impersonated service account",
    "external_account": "an identity of another provider",
    "external_account_authorized_user": "your login at another provider",
}


def describe_login(source: CredentialSource, world: str, kind: str) -> str:
    """Return which credentials are used. `kind`: the type that a file states; "": none."""
    if world:
        return "a simulated world needs no login"
    if source.file is not None:
        return f"{KINDS.get(kind, 'credentials')} in {source.file}"
    if source.metadata_url is not None:
        return "the service account of this machine"
    return f"gcloud's active account ({source.gcloud})"


def judge_clock(where: str, ahead_s: float) -> CheckResult:
    """`ahead_s`: how far this machine's clock is ahead of the cloud's; its replies are in whole
    seconds."""
    off = abs(ahead_s)
    if off <= SKEW_LOW_S:
        return CheckResult(
            check="clock", where=where, status=CheckStatus.OK, found="the clocks agree"
        )
    return CheckResult(
        check="clock",
        where=where,
        status=CheckStatus.PROBLEM if off > SKEW_MOST_S else CheckStatus.WARNING,
        found=f"this machine's clock is {format_span(off)} {'ahead' if ahead_s > 0 else 'behind'}",
        remedy=SET_CLOCK,
    )


def judge_ssh_login(
    where: str, project: ComputeProject, *, chosen_login: str, project_key: str
) -> CheckResult:
    """`project_key`: the login whose key belongs into the project's metadata; "": none does."""
    if project.os_login and not chosen_login:
        return CheckResult(
            check="ssh-login",
            where=where,
            status=CheckStatus.WARNING,
            found="the project's metadata turns OS Login on",
            remedy="herd setup gcp --keys os-login --member YOU@EXAMPLE.COM puts your key into"
            f" your profile; or {OS_LOGIN_HINT}",
        )
    found = "hosts accept the keys in metadata; herd adds its key to a node when it needs it"
    if project.os_login:
        found = f"OS Login decides; herd logs in as {chosen_login}, whose profile must have its key"
    elif project_key:
        keys = project.metadata.items.get(SSH_KEYS, "").splitlines()
        has = "has" if any(one.startswith(f"{project_key}:") for one in keys) else "will get"
        found = f"hosts accept the keys in metadata; the project's {has} the key of {project_key}"
    return CheckResult(check="ssh-login", where=where, status=CheckStatus.OK, found=found)


def judge_buckets(
    where: str, jobs: Iterable[JobSpec], locations: Mapping[str, str | None], allowed: Allowance
) -> list[CheckResult]:
    """`locations`: where the buckets are, as the cloud says now; None: they do not exist."""
    jobs, gone = list(jobs), sorted(name for name, place in locations.items() if place is None)
    there = {name: place for name, place in locations.items() if place is not None}
    found = [one for job in jobs for one in far_zones(where, job, there)]
    found += [missing_bucket(where, name, jobs) for name in gone] if jobs else []
    if found:
        return found
    zones = {one.zone for one in allowed.grants}
    for bucket, location in sorted(there.items() if zones and not jobs else ()):
        if not any(zone.rpartition("-")[0] in nearby_regions(location) for zone in zones):
            found.append(
                CheckResult(
                    check="bucket-region",
                    where=where,
                    status=CheckStatus.WARNING,
                    found=f"bucket {bucket} is in {location}, near none of the granted zones",
                    remedy="herd bucket create NAME --location ZONE, with a granted zone",
                )
            )
    if not found:
        names = ", ".join(f"{name} in {place}" for name, place in sorted(there.items()))
        text = f"near their jobs: {names}" if names else "no job uses a bucket"
        found.append(
            CheckResult(check="bucket-region", where=where, status=CheckStatus.OK, found=text)
        )
    return found


def missing_bucket(where: str, name: str, jobs: Iterable[JobSpec]) -> CheckResult:
    users = ", ".join(job.name for job in jobs if name in used_locations(job))
    return CheckResult(
        check="bucket-region",
        where=where,
        status=CheckStatus.PROBLEM,
        found=f"{users}: bucket {name} does not exist",
        matters="The job can't read or write there",
        remedy=f"herd bucket create {name} --location ZONE, with the job's zone",
    )


def far_zones(where: str, job: JobSpec, locations: Mapping[str, str]) -> Iterable[CheckResult]:
    """Yield a result for each zone of a job that is far from its data and beyond its budget."""
    used = used_locations(job)
    moved = {name: place for name, place in locations.items() if name in used}
    for estimate in zone_estimates(replace(job, buckets={**used, **moved})):
        if not is_allowed(estimate, job.egress_budget):
            yield CheckResult(
                check="bucket-region",
                where=where,
                status=CheckStatus.WARNING,
                found=f"{job.name}: {distance_message(estimate)}",
                remedy=f"herd set {job.name} zones=any, or allow the cost: herd set {job.name}"
                f" egress_budget={allow_advice([estimate])}",
            )
