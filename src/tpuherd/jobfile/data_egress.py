"""What it costs to read a job's buckets from a zone, and which zones are near them."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from math import inf

from tpuherd.catalogue import bucket_locations, egress, regions
from tpuherd.jobfile.bucket_scan import IGNORED
from tpuherd.jobfile.job_spec import JobSpec

GIB = 1 << 30
DAY_S = 86_400
PAIR = "+"  #: US-EAST1+US-EAST4 is a dual-region of two chosen regions


@dataclass(frozen=True, kw_only=True, slots=True)
class EgressEstimate:
    """What all hosts of a job pay for the bucket that is dearest to read from one zone."""

    zone: str
    bucket: str = ""
    location: str = ""
    hosts: int = 0  #: of all copies and slices
    rate: float = 0.0  #: bytes a second and host, as assumed
    per_gib: float | None = 0.0  #: None: not in the price table
    near: bool = True  #: no bucket is in another region, or on another continent than its own
    saves: bool = False  #: only checkpoints go to the bucket: how much that is, no one knows before

    @property
    def per_day(self) -> float:
        """Dollars a day; infinite if the price is not known, or far checkpoints are written."""
        if self.per_gib is None:
            return inf
        if self.saves:
            return 0.0 if self.near else inf
        return self.per_gib * self.hosts * self.rate * DAY_S / GIB


def data_regions(location: str) -> frozenset[str]:
    """Return the regions that hold the data; none for a multi-region or an unknown location."""
    known = bucket_locations().get(location.upper())
    if known is not None:
        return frozenset(known.regions)
    found = frozenset(location.lower().split(PAIR))
    return found if found <= regions().keys() else frozenset()


def is_known_location(location: str) -> bool:
    return location.upper() in bucket_locations() or bool(data_regions(location))


def nearby_regions(location: str) -> frozenset[str]:
    """Return the regions that hold a bucket's data; for a multi-region those of its continent."""
    known = bucket_locations().get(location.upper())
    if known is None or known.regions:
        return data_regions(location) or frozenset((location.lower(),))
    return frozenset(name for name, one in regions().items() if one.continent == known.continent)


def bucket_continent(location: str) -> str:
    known = bucket_locations().get(location.upper())
    if known is not None:
        return known.continent
    return next((regions()[one].continent for one in data_regions(location)), "")


def read_price(location: str, zone: str) -> float | None:
    """Return dollars per GiB between a bucket and a zone; None: not in the table.

    Writing is assumed to cost what reading does.
    """
    region = zone.rpartition("-")[0]
    if region in data_regions(location):
        return 0.0
    reader = regions()[region].continent if region in regions() else ""
    return egress().get((bucket_continent(location), reader))


def internet_price(zone: str) -> float | None:
    """Return dollars per GiB that leaves Google Cloud from this zone; None: not in the table."""
    region = zone.rpartition("-")[0]
    continent = regions()[region].continent if region in regions() else ""
    return egress().get((continent, "internet"))


def used_locations(job: JobSpec, known: Mapping[str, str] | None = None) -> dict[str, str]:
    """Return the locations of a job's buckets; `known`: of buckets looked up before."""
    stated = {name: place for name, place in job.buckets.items() if place != IGNORED}
    return {**(known or {}), **stated}


def estimate_egress(
    job: JobSpec, locations: Mapping[str, str], zone: str, hosts: int, *, saved_to: str = ""
) -> EgressEstimate:
    """Estimate the cost of one zone with nodes of so many hosts. `saved_to`: the bucket that only
    checkpoints are written to."""
    region = zone.rpartition("-")[0]
    all_hosts = hosts * job.slices * job.copies
    found = EgressEstimate(zone=zone)
    for bucket, location in sorted(locations.items()):
        one = EgressEstimate(
            zone=zone,
            bucket=bucket,
            location=location,
            hosts=all_hosts,
            rate=job.data_rate,
            per_gib=read_price(location, zone),
            near=region in nearby_regions(location),
            saves=bucket == saved_to,
        )
        found = max(found, one, key=lambda each: (not each.near, each.per_day, each.per_gib or 0.0))
    return found


def is_allowed(estimate: EgressEstimate, budget: float) -> bool:
    """Whether the job may run there: near its data, or within the budget that it states."""
    if budget:
        return estimate.per_day <= budget or budget == inf
    return estimate.near


def format_rate(rate: float) -> str:
    """100 MB/s"""
    for size, unit in ((1e9, "GB"), (1e6, "MB"), (1e3, "kB")):
        if rate >= size:
            return f"{rate / size:g} {unit}/s"
    return f"{rate:g} B/s"


def cost_sentence(estimate: EgressEstimate) -> str:
    """Return what reading costs: about $161 a day (1 host, 100 MB/s each)."""
    if estimate.saves:
        return "an unknown price" if estimate.per_gib is None else f"${estimate.per_gib:g} per GiB"
    hosts = f"{estimate.hosts} host{'s' if estimate.hosts > 1 else ''}"
    how = f"{hosts} at {format_rate(estimate.rate)} each"
    if estimate.per_gib is None:
        return f"an unknown price ({how})"
    return f"about ${estimate.per_day:,.2f} a day ({how}, ${estimate.per_gib:g} per GiB)"


def allow_advice(estimates: Iterable[EgressEstimate]) -> str:
    """Return how to allow the cheapest of these."""
    least = min((one.per_day for one in estimates), default=inf)
    return "unlimited" if least == inf else f"${-(-least // 1):.0f}/day"


def distance_message(estimate: EgressEstimate) -> str:
    """Return the sentence for one zone far from the data."""
    return f"{location_words(estimate)}, and {reading_words(estimate)}"


def location_words(estimate: EgressEstimate) -> str:
    return f"bucket {estimate.bucket} is in {estimate.location}"


def reading_words(estimate: EgressEstimate) -> str:
    if estimate.saves:
        return f"writing checkpoints from {estimate.zone} would cost {cost_sentence(estimate)}"
    return f"reading it from {estimate.zone} would cost {cost_sentence(estimate)}"
