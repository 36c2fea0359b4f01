"""The checks of a project: each asks the cloud and lets a pure function judge the answer."""

from collections.abc import Mapping, Sequence
from functools import partial
from json import loads

from tpuherd.checks.check_results import CheckResult
from tpuherd.checks.cloud_view import CloudView
from tpuherd.checks.judge_cloud import (
    describe_login,
    judge_buckets,
    judge_clock,
    judge_login,
    judge_ssh_login,
)
from tpuherd.checks.judge_quota import judge_quota
from tpuherd.checks.run_checks import CheckFunction
from tpuherd.cloud import parse
from tpuherd.cloud.cloud_time import read_cloud_time
from tpuherd.cloud.quota_api import list_quota_limits
from tpuherd.errors import HerdError, NoLogin, NotAllowed, NotFound
from tpuherd.jobfile.data_egress import used_locations
from tpuherd.jobs.quota_report import find_holdings, grant_row, quota_rows

SECOND_S = 1.0  #: the cloud tells its time in whole seconds


def cloud_checks(view: CloudView) -> Mapping[str, CheckFunction]:
    """Return the check functions of a project by their ids."""
    functions = {
        "login": check_login,
        "clock": check_clock,
        "quota": check_quota,
        "ssh-login": check_ssh_login,
        "bucket-region": check_buckets,
    }
    return {check: partial(function, view) for check, function in functions.items()}


async def check_login(view: CloudView) -> Sequence[CheckResult]:
    """Get a token and try it; that the account may not list anything is no matter of the login."""
    credentials = view.place.credentials
    source = describe_login(credentials, str(view.place.world or ""), read_kind(view))
    error: HerdError | None = None
    try:
        await view.cloud.check_access()
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


async def check_quota(view: CloudView) -> Sequence[CheckResult]:
    cloud, grants = view.cloud, view.allowance.grants
    limits = await list_quota_limits(cloud.rest, view.place.project)
    held = await find_holdings(view.place, cloud, view.clock)
    rows = [*(grant_row(one, held) for one in grants), *quota_rows(limits, held)]
    return judge_quota(view.where, limits, rows, grants, view.jobs)


async def check_ssh_login(view: CloudView) -> Sequence[CheckResult]:
    content = await view.cloud.rest.call_compute("GET", f"projects/{view.place.project}")
    items = parse.parse_project(content).items
    login = view.place.login if view.place.project_keys else ""
    keys = items.get(parse.SSH_KEYS, "").splitlines()
    has_key = any(line.startswith(f"{login}:") for line in keys)
    return [judge_ssh_login(view.where, items, project_key=login, has_key=has_key)]


async def check_buckets(view: CloudView) -> Sequence[CheckResult]:
    """Look up where the buckets are now; one that can't be seen keeps its known place."""
    known = dict(view.allowance.buckets) if not view.jobs else {}
    for job in view.jobs:
        known |= used_locations(job)
    for name in known:
        try:
            known[name] = await view.cloud.get_bucket_location(name)
        except (NotAllowed, NotFound):
            continue
    return judge_buckets(view.where, view.jobs, known, view.allowance)
