"""Decides whether the quotas allow what is granted and what jobs ask for: pure functions."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from tpuherd.catalogue import Accelerator, accelerators, zones
from tpuherd.checks.check_results import CheckResult, CheckStatus
from tpuherd.cloud.quota_api import QuotaLimit
from tpuherd.cloud.regions_api import AddressLimit
from tpuherd.jobfile.grants import Grant
from tpuherd.jobfile.job_spec import JobSpec
from tpuherd.jobfile.quota_ids import QuotaName, parse_quota_name
from tpuherd.jobs.quota_report import GRANT, QuotaRow

ASK = "ask for more on the console's page IAM & Admin → Quotas, or choose other zones"
NO_ADDRESSES = (
    "set network.external_ips=false in the job and reach hosts another way"
    " (herd setup gcp --way iap), or ask for more of the quota IN_USE_ADDRESSES on the console"
)
SHOWN_MAX = 4


@dataclass(frozen=True, kw_only=True, slots=True)
class QuotaWish:
    """Nodes in one zone, any of which would do."""

    who: str
    zone: str
    types: tuple[Accelerator, ...]
    tiers: tuple[str, ...]
    nodes: int = 1


def judge_quota(
    where: str,
    limits: Sequence[QuotaLimit],
    rows: Sequence[QuotaRow],
    grants: Sequence[Grant],
    jobs: Sequence[JobSpec],
) -> list[CheckResult]:
    """`rows`: what is used, as `herd quota` shows it."""
    by_quota: dict[str, dict[str, int | None]] = {}
    for limit in limits:
        by_quota.setdefault(limit.id, {})[limit.place] = limit.allowed
    wishes = [*map(grant_wish, grants), *(one for job in jobs for one in job_wishes(job))]
    found = [result for wish in wishes if (result := judge_wish(where, wish, by_quota)) is not None]
    found += list(judge_use(where, rows))
    if not found:
        found.append(
            CheckResult(check="quota", where=where, status=CheckStatus.OK, found=describe_use(rows))
        )
    return found


def grant_wish(grant: Grant) -> QuotaWish:
    """One node of the granted type, of any size if the grant names none."""
    there = zones()[grant.zone].types if grant.zone in zones() else frozenset()
    types = tuple(
        one
        for name, one in accelerators().items()
        if grant.type in (name, one.generation) and name in there
    )
    return QuotaWish(
        who=f"the grant of {grant.tier} {grant.type}",
        zone=grant.zone,
        types=types,
        tiers=(grant.tier,),
    )


def job_wishes(job: JobSpec) -> Iterator[QuotaWish]:
    """Yield what a job needs in each zone that it names."""
    for zone in job.zones:
        there = zones()[zone].types if zone in zones() else frozenset()
        types = tuple(accelerators()[one] for one in job.accelerator if one in there)
        yield QuotaWish(who=job.name, zone=zone, types=types, tiers=job.tier, nodes=job.slices)


def judge_wish(
    where: str, wish: QuotaWish, by_quota: Mapping[str, Mapping[str, int | None]]
) -> CheckResult | None:
    """Return a finding if no size and no tier fits into its quota."""
    closest = ""
    for one in wish.types:
        for tier in wish.tiers:
            name = find_quota(by_quota, one, tier)
            if name is None:
                return None  # reserved, or a quota that we do not know
            place = name.place(wish.zone)
            limits = by_quota[name.id]
            allowed = limits.get(place, limits.get("", 0))
            needed = name.amount(one) * wish.nodes
            if allowed is None or needed <= allowed:
                return None
            closest = closest or (
                f"{wish.who} needs {needed} {name.unit} of {name.tier} {name.generation} in"
                f" {place}, and the quota allows {allowed}"
            )
    if not closest:
        return None
    return CheckResult(
        check="quota", where=where, status=CheckStatus.PROBLEM, found=closest, remedy=ASK
    )


def find_quota(by_quota: Iterable[str], accelerator: Accelerator, tier: str) -> QuotaName | None:
    """Return the quota in which such a node counts."""
    names = (parse_quota_name(id) for id in by_quota)
    return next((one for one in names if one is not None and one.covers(accelerator, tier)), None)


def judge_use(where: str, rows: Iterable[QuotaRow]) -> Iterator[CheckResult]:
    """Yield a finding for each limit that is used up."""
    for row in rows:
        if row.allowed is None or not row.used or row.used < row.allowed:
            continue
        said = f"{row.used} of {row.allowed} {row.unit} of {row.tier} {row.type} in {row.place}"
        over = row.used > row.allowed and row.source == GRANT
        yield CheckResult(
            check="quota",
            where=where,
            status=CheckStatus.WARNING,
            found=f"{said} are used{': more than is granted' if over else ''}",
            matters="What is beyond a grant is billed" if over else "",
            remedy="herd quota shows which jobs use them",
        )


def judge_addresses(
    where: str, limits: Mapping[str, AddressLimit], jobs: Iterable[JobSpec]
) -> list[CheckResult]:
    """`limits`: of external addresses, by region."""
    found = []
    wanted = [job for job in jobs if job.network.external_ips]
    for job in wanted:
        for region, hosts in regions_of_job(job).items():
            limit = limits.get(region)
            if limit is not None and hosts > limit.allowed:
                said = f"{job.name} needs {hosts} external addresses in {region}"
                found.append(
                    address_result(
                        where, CheckStatus.PROBLEM, f"{said}, and the quota allows {limit.allowed}"
                    )
                )
    used = {name: limit for name, limit in limits.items() if limit.used}
    for region, limit in used.items():
        if limit.used >= limit.allowed and not found:
            said = f"all {limit.allowed} external addresses of {region} are in use"
            found.append(address_result(where, CheckStatus.WARNING, said))
    if not found:
        parts = [f"{one.used} of {one.allowed} in {region}" for region, one in used.items()]
        text = f"in use: {', '.join(parts[:SHOWN_MAX])}" if parts else "none is in use"
        found.append(address_result(where, CheckStatus.OK, text))
    return found


def address_result(where: str, status: CheckStatus, found: str) -> CheckResult:
    return CheckResult(
        check="external-addresses",
        where=where,
        status=status,
        found=found,
        remedy="" if status is CheckStatus.OK else NO_ADDRESSES,
    )


def regions_of_job(job: JobSpec) -> Mapping[str, int]:
    """Return the most hosts that a job may have in each region that it names."""
    found: dict[str, int] = {}
    for zone in job.zones:
        there = zones()[zone].types if zone in zones() else frozenset()
        for name in job.accelerator:
            if name in there:
                hosts = accelerators()[name].hosts * job.slices * job.copies
                region = zone.rpartition("-")[0]
                found[region] = max(found.get(region, 0), hosts)
    return found


def describe_use(rows: Sequence[QuotaRow]) -> str:
    """Return what is used of which limit."""
    used = [row for row in rows if row.used and row.allowed is not None]
    if not used:
        return "no limit is in the way of what is granted and asked for"
    parts = [
        f"{row.used} of {row.allowed} {row.unit} of {row.tier} {row.type} in {row.place}"
        for row in used[:SHOWN_MAX]
    ]
    more = f" and {len(used) - SHOWN_MAX} more (herd quota)" if len(used) > SHOWN_MAX else ""
    return f"{'; '.join(parts)}{more}"
