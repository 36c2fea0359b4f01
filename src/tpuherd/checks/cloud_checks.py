"""The checks of a project: each asks the cloud and lets a pure function judge the answer."""

import asyncio
from collections.abc import Mapping, Sequence
from functools import partial
from json import loads

from tpuherd.checks.check_results import CheckResult, CheckStatus
from tpuherd.checks.cloud_view import CloudView
from tpuherd.checks.judge_access import (
    COMPUTE_API,
    TPU_API,
    judge_network,
    judge_permissions,
    judge_project,
    judge_service_agent,
    judge_services,
    judge_unseen_project,
    needed_permissions,
    needed_services,
    used_networks,
)
from tpuherd.checks.judge_cloud import (
    describe_login,
    judge_buckets,
    judge_clock,
    judge_login,
    judge_ssh_login,
)
from tpuherd.checks.judge_firewall import judge_firewall
from tpuherd.checks.judge_quota import judge_addresses, judge_quota
from tpuherd.checks.run_checks import CheckFunction
from tpuherd.cloud.cloud_time import read_cloud_time
from tpuherd.cloud.error_reasons import error_info
from tpuherd.cloud.firewalls_api import list_firewalls, list_networks
from tpuherd.cloud.project_metadata_api import get_compute_project
from tpuherd.cloud.project_policy_api import held_project_permissions, project_roles
from tpuherd.cloud.projects_api import get_project
from tpuherd.cloud.quota_api import list_quota_limits
from tpuherd.cloud.regions_api import list_address_limits
from tpuherd.cloud.services_api import list_enabled_services
from tpuherd.errors import HerdError, NoLogin, NotAllowed, NotFound
from tpuherd.jobfile.data_egress import used_locations
from tpuherd.jobs.quota_report import find_holdings, grant_row, quota_rows

SECOND_S = 1.0  #: the cloud tells its time in whole seconds


def cloud_checks(view: CloudView) -> Mapping[str, CheckFunction]:
    """Return the check functions of a project by their ids."""
    functions = {
        "login": check_login,
        "clock": check_clock,
        "project": check_project,
        "apis": check_services,
        "service-agent": check_service_agent,
        "permissions": check_permissions,
        "quota": check_quota,
        "external-addresses": check_addresses,
        "ssh-login": check_ssh_login,
        "network": check_networks,
        "firewall": check_firewalls,
        "bucket-region": check_buckets,
    }
    return {check: partial(function, view) for check, function in functions.items()}


async def check_login(view: CloudView) -> Sequence[CheckResult]:
    """Get a token and try it; that the account may not list anything is no matter of the login."""
    credentials = view.place.credentials
    source = describe_login(credentials, str(view.place.world or ""), read_kind(view))
    error: HerdError | None = None
    try:
        if view.place.project:
            await view.cloud.check_access()
        else:
            await view.cloud.rest.bearer.auth_headers()
    except (NotAllowed, NotFound) as refused:
        error = refused if isinstance(refused, NoLogin) else None
    except HerdError as trouble:
        error = trouble
    return [judge_login(view.where, source, error)]


def read_kind(view: CloudView) -> str:
    """Return the type that a credentials file states; "" if there is none."""
    file = view.place.credentials.file
    try:
        content = loads(file.read_bytes()) if file else None
    except (OSError, ValueError):
        return ""
    return str(content.get("type", "")) if isinstance(content, dict) else ""


async def check_clock(view: CloudView) -> Sequence[CheckResult]:
    before = view.clock.now()
    there = await read_cloud_time(view.cloud.rest)
    after = view.clock.now()
    ahead_s = 0.0
    if there < before - SECOND_S:
        ahead_s = before - SECOND_S - there
    elif there > after:
        ahead_s = after - there
    return [judge_clock(view.where, ahead_s)]


async def check_project(view: CloudView) -> Sequence[CheckResult]:
    """Ask Resource Manager, whose API may be disabled, or else Compute."""
    rest, project = view.cloud.rest, view.place.project
    try:
        about = await get_project(rest, project)
        return [judge_project(view.where, project, about.state, about.number)]
    except NoLogin:
        raise
    except (NotAllowed, NotFound) as refused:
        try:
            number = (await get_compute_project(rest, project)).number
        except (NotAllowed, NotFound):
            return [judge_unseen_project(view.where, project, refused.sentence)]
        return [judge_project(view.where, project, "", number)]


async def check_services(view: CloudView) -> Sequence[CheckResult]:
    """Read the list of enabled APIs; who may not read it learns what calls of each API answer."""
    rest, project = view.cloud.rest, view.place.project
    needed = needed_services(view.jobs, view.place.routes)
    try:
        missing = needed.keys() - await list_enabled_services(rest, project)
        guessed = False
    except NoLogin:
        raise
    except NotAllowed:
        calls = {
            TPU_API: rest.call_tpu("GET", f"projects/{project}/locations", pageSize=1),
            COMPUTE_API: rest.call_compute("GET", f"projects/{project}"),
        }
        needed = {name: why for name, why in needed.items() if name in calls}
        answers = await asyncio.gather(*calls.values(), return_exceptions=True)
        missing = {name for name, it in zip(calls, answers, strict=True) if is_disabled(it)}
        guessed = True
    return [judge_services(view.where, project, needed, missing, guessed=guessed)]


def is_disabled(answer: object) -> bool:
    """Whether an answer is Google's refusal because the API is not enabled."""
    return (
        isinstance(answer, NotAllowed)
        and error_info(answer.reply).get("reason") == "SERVICE_DISABLED"
    )


async def check_service_agent(view: CloudView) -> Sequence[CheckResult]:
    rest, project = view.cloud.rest, view.place.project
    roles, about = await asyncio.gather(
        project_roles(rest, project), get_compute_project(rest, project)
    )
    agent = f"service-{about.number}@cloud-tpu.iam.gserviceaccount.com"
    held = roles.get(f"serviceAccount:{agent}", frozenset())
    return [judge_service_agent(view.where, project, agent, held)]


async def check_permissions(view: CloudView) -> Sequence[CheckResult]:
    project, needed = view.place.project, needed_permissions(view.place.routes)
    names = [one.name for one in needed]
    held = await held_project_permissions(view.cloud.rest, project, names)
    return judge_permissions(view.where, project, needed, held)


async def check_networks(view: CloudView) -> Sequence[CheckResult]:
    project = view.place.project
    known = await list_networks(view.cloud.rest, project)
    names = used_networks(view.jobs)
    return [judge_network(view.where, project, one, known) for one in names] or [
        CheckResult(
            check="network",
            where=view.where,
            status=CheckStatus.SKIPPED,
            found="could not look: the networks of your jobs belong to another project",
        )
    ]


async def check_firewalls(view: CloudView) -> Sequence[CheckResult]:
    rest, place = view.cloud.rest, view.place
    known = await list_networks(rest, place.project)
    names = [one for one in used_networks(view.jobs) if one in known]
    rules = [await list_firewalls(rest, place.project, name) for name in names]
    found = [
        result
        for name, its in zip(names, rules, strict=True)
        for result in judge_firewall(view.where, name, its, place.routes, auto=known[name])
    ]
    return found or [
        CheckResult(
            check="firewall",
            where=view.where,
            status=CheckStatus.SKIPPED,
            found="could not look: the project has no network that your jobs use",
        )
    ]


async def check_quota(view: CloudView) -> Sequence[CheckResult]:
    cloud, grants = view.cloud, view.allowance.grants
    limits = await list_quota_limits(cloud.rest, view.place.project)
    held = await find_holdings(view.place, cloud, view.clock)
    rows = [*(grant_row(one, held) for one in grants), *quota_rows(limits, held)]
    return judge_quota(view.where, limits, rows, grants, view.jobs)


async def check_addresses(view: CloudView) -> Sequence[CheckResult]:
    limits = await list_address_limits(view.cloud.rest, view.place.project)
    return judge_addresses(view.where, limits, view.jobs)


async def check_ssh_login(view: CloudView) -> Sequence[CheckResult]:
    about = await get_compute_project(view.cloud.rest, view.place.project)
    key = view.place.login if view.place.project_keys else ""
    return [judge_ssh_login(view.where, about, chosen_login=view.chosen_login, project_key=key)]


async def check_buckets(view: CloudView) -> Sequence[CheckResult]:
    """Look up where the buckets are now; one that can't be seen keeps its known place."""
    known: dict[str, str | None] = dict(view.allowance.buckets) if not view.jobs else {}
    for job in view.jobs:
        known |= used_locations(job)
    for name in known:
        try:
            known[name] = await view.cloud.get_bucket_location(name)
        except NotFound:
            known[name] = None
        except NotAllowed:
            continue
    return judge_buckets(view.where, view.jobs, known, view.allowance)
