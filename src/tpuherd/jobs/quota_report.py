"""What the project may have, what is used, and what each job takes."""

from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from tpuherd.catalogue import accelerators, zones
from tpuherd.clock import Clock
from tpuherd.cloud import quota_api
from tpuherd.cloud.bids_api import BidsApi
from tpuherd.cloud.nodes_api import Cloud
from tpuherd.cloud.quota_api import QuotaLimit
from tpuherd.errors import NotAllowed, NotFound
from tpuherd.history.apply_bid_events import read_offer
from tpuherd.jobfile.grants import Grant
from tpuherd.jobfile.quota_ids import QuotaName, parse_quota_name
from tpuherd.settings import project_settings
from tpuherd.settings.project_access import ProjectAccess
from tpuherd.targets import split_bid_name

GRANT, QUOTA = "grant", "quota"
ELSEWHERE = "elsewhere"  #: the place of a limit that holds wherever no other is stated


@dataclass(frozen=True, kw_only=True, slots=True)
class Holding:
    """A node or a request for one."""

    zone: str
    type: str
    tier: str
    job: str  #: "" for what is not herd's


@dataclass(frozen=True, kw_only=True, slots=True)
class QuotaRow:
    """One limit, and who uses how much of it."""

    place: str  #: a zone or a region
    type: str  #: a generation, or one size
    tier: str
    unit: str  #: chips or cores
    allowed: int | None  #: None: not limited
    used: int
    jobs: dict[str, int] = field(default_factory=dict)
    source: str  #: grant or quota


@dataclass(frozen=True, kw_only=True, slots=True)
class QuotaReport:
    rows: tuple[QuotaRow, ...]
    trouble: str = ""  #: why Google's quotas are not shown

    def as_json(self) -> dict[str, Any]:
        return {"limits": [asdict(one) for one in self.rows], "trouble": self.trouble}


async def report_quota(place: ProjectAccess, cloud: Cloud, clock: Clock) -> QuotaReport:
    """Ask Service Usage for limits and the cloud for nodes and requests; add declared grants."""
    held = await find_holdings(place, cloud, clock)
    trouble = ""
    limits: Sequence[QuotaLimit] = ()
    try:
        limits = await quota_api.list_quota_limits(cloud.rest, place.project)
    except (NotAllowed, NotFound) as error:
        trouble = f"{error.sentence}; {error.hint}" if error.hint else error.sentence
    grants = project_settings.load_allowance(
        place.folders.config, world=place.world, project=place.project
    ).grants
    rows = [*(grant_row(one, held) for one in grants), *quota_rows(limits, held)]
    return QuotaReport(rows=tuple(rows), trouble=trouble)


async def find_holdings(place: ProjectAccess, cloud: Cloud, clock: Clock) -> list[Holding]:
    """Return all nodes of the project, and herd's requests that have none yet."""
    nodes = (await cloud.list_nodes()).nodes
    found = [
        Holding(zone=one.zone, type=one.type, tier=one.tier or "on-demand", job=job_of_bid(one.bid))
        for one in nodes
    ]
    bids = BidsApi(cloud, clock, place.ssh_port, cloud.list_nodes)
    survey = await bids.survey_bids(zones())
    for observation in survey.observations.values():
        offer = observation.card.get("offer")
        if not observation.nodes and isinstance(offer, dict):
            one = read_offer(offer)
            job = job_of_bid(observation.bid)
            found.append(Holding(zone=observation.zone, type=one.type, tier=one.tier, job=job))
    return [one for one in found if one.type in accelerators()]


def job_of_bid(bid: str) -> str:
    named = split_bid_name(bid) if bid else None
    return named.job if named is not None else ""


def grant_row(grant: Grant, held: Iterable[Holding]) -> QuotaRow:
    """Compare a declared grant with what is held."""
    same = Grant(zone=grant.zone, type=grant.type, tier=grant.tier)
    used = [
        (one.job, accelerators()[one.type].chips)
        for one in held
        if same.covers_node(one.zone, accelerators()[one.type], one.tier)
    ]
    return QuotaRow(
        place=grant.zone, type=grant.type, tier=grant.tier, unit="chips", allowed=grant.chips,
        used=sum(many for _, many in used), jobs=sum_by_job(used), source=GRANT,
    )  # fmt: skip


def quota_rows(limits: Iterable[QuotaLimit], held: Sequence[Holding]) -> list[QuotaRow]:
    """Return the quotas that allow something or are used, by place."""
    rows: list[QuotaRow] = []
    by_quota: dict[str, dict[str, int | None]] = {}
    for limit in limits:
        by_quota.setdefault(limit.id, {})[limit.place] = limit.allowed
    for id, allowed in by_quota.items():
        name = parse_quota_name(id)
        if name is not None:
            rows += place_rows(name, allowed, held)
    return sorted(rows, key=row_order)


def row_order(row: QuotaRow) -> tuple[bool, str, str, str]:
    return row.place == ELSEWHERE, row.place, row.type, row.tier


def place_rows(
    name: QuotaName, allowed: dict[str, int | None], held: Sequence[Holding]
) -> list[QuotaRow]:
    """Return a row for each place with a limit of its own or where something is held, and for the
    limit of all other places.
    """
    used: dict[str, list[tuple[str, int]]] = {}
    for one in held:
        accelerator = accelerators()[one.type]
        if name.covers(accelerator, one.tier):
            place = name.place(one.zone)
            used.setdefault(place, []).append((one.job, name.amount(accelerator)))
    places = {place for place, limit in allowed.items() if limit != 0} | used.keys()
    size = {"single": ", one board", "pods": ", pods"}.get(name.sizes, "")
    return [
        QuotaRow(
            place=place or ELSEWHERE,
            type=f"{name.generation}{size}",
            tier=name.tier,
            unit=name.unit,
            allowed=allowed.get(place, allowed.get("", 0)),
            used=sum(many for _, many in used.get(place, ())),
            jobs=sum_by_job(used.get(place, ())),
            source=QUOTA,
        )
        for place in sorted(places)
    ]


def sum_by_job(used: Iterable[tuple[str, int]]) -> dict[str, int]:
    """Return how much each job holds; what is not herd's is under ""."""
    found: dict[str, int] = {}
    for job, many in used:
        found[job] = found.get(job, 0) + many
    return dict(sorted(found.items()))
