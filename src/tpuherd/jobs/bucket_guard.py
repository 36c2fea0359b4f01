"""Stops a job whose data is in another region, before a node is paid for."""

import asyncio
from collections.abc import Collection, Iterable, Mapping
from dataclasses import replace
from pathlib import Path

from tpuherd.catalogue import accelerators, zones
from tpuherd.errors import NoLogin, NotAllowed, NotFound, NotReached, OperationFailed
from tpuherd.jobfile.bucket_scan import BucketUse, scan_fields
from tpuherd.jobfile.data_egress import (
    EgressEstimate,
    allow_advice,
    distance_message,
    is_allowed,
    is_known_location,
    used_locations,
)
from tpuherd.jobfile.expand_slots import zone_estimator
from tpuherd.jobfile.job_spec import JobSpec
from tpuherd.jobfile.yaml_with_lines import YamlDocument
from tpuherd.jobs.named_code import scan_code
from tpuherd.jobs.open_project import Session
from tpuherd.settings import project_settings

BUCKETS_MAX = 30  #: looked up for one job
STATE_IT = "write where it is, such as buckets: {{{}: US}}, or {{{}: ignore}} if it is not used"


async def locate_buckets(page: YamlDocument, base: Path, here: Session) -> dict[str, str]:
    """Return the locations of all buckets that the job and its files name; report mistakes."""
    uses = [*scan_fields(page.value), *scan_code(page.value, base, here)]
    return await locate_uses(uses, page, here)


async def locate_uses(
    uses: Iterable[BucketUse], page: YamlDocument, here: Session
) -> dict[str, str]:
    """Return the locations of these buckets, without those that the job states itself."""
    stated = page.value.get("buckets")
    known: Collection[str] = stated if isinstance(stated, Mapping) else ()
    first: dict[str, BucketUse] = {}
    for use in uses:
        if use.bucket not in known and (use.is_certain or use.bucket not in first):
            first.setdefault(use.bucket, use)
    if len(first) > BUCKETS_MAX:
        sentence = f"names {len(first)} buckets, more than {BUCKETS_MAX}: state their locations"
        page.add_mistake(("buckets",), sentence)
        return {}
    found = await asyncio.gather(*(locate_bucket(use, page, here) for use in first.values()))
    return {name: place for name, place in zip(first, found, strict=True) if place}


async def locate_bucket(use: BucketUse, page: YamlDocument, here: Session) -> str:
    """Return a bucket's location and remember it; "" where there is none, which is a mistake."""
    bucket, location = use.bucket, ""
    config, world, project = here.config_folder, here.place.world, here.place.project
    cloud = await here.cloud()
    try:
        location = await cloud.get_bucket_location(bucket)
    except NotFound:
        if use.is_certain:
            report_bucket(page, use, f"bucket {bucket} does not exist")
        return ""
    except NoLogin:
        raise
    except NotAllowed:
        how = STATE_IT.format(bucket, bucket)
        report_bucket(page, use, f"you are not allowed to read bucket {bucket}: {how}")
        return ""
    except (NotReached, OperationFailed):
        before = project_settings.load_allowance(config, world=world, project=project).buckets
        if bucket not in before:
            raise  # the zones depend on the bucket's location
        return before[bucket]
    if not is_known_location(location):
        how = STATE_IT.format(bucket, bucket)
        what = f"bucket {bucket} is in {location or 'no location'}, which herd does not know"
        report_bucket(page, use, f"{what}: {how}")
        return ""
    project_settings.remember_bucket(
        config, world=world, project=project, bucket=(bucket, location)
    )
    return location


def report_bucket(page: YamlDocument, use: BucketUse, sentence: str) -> None:
    page.add_mistake(use.where, f"{use.file}: {sentence}" if use.file else sentence)


def add_locations(job: JobSpec, found: Mapping[str, str]) -> JobSpec:
    """Keep the locations in the job, so that later choices of a zone know them."""
    return replace(job, buckets={**found, **job.buckets})


def check_zones(job: JobSpec, page: YamlDocument) -> None:
    """Report each named zone that is far from the data and beyond the budget."""
    far = [one for one in zone_estimates(job) if not is_allowed(one, job.egress_budget)]
    for one in far:
        place = ("zones", job.zones.index(one.zone)) if len(job.zones) > 1 else ("zones",)
        page.add_mistake(place, f"{distance_message(one)}; {zone_advice(job, one)}")


def zone_estimates(job: JobSpec) -> list[EgressEstimate]:
    """Return the dearest estimate of each zone that the job names."""
    found: list[EgressEstimate] = []
    locations = used_locations(job)
    estimate = zone_estimator(job, locations)
    for zone in job.zones:
        here = zones()[zone].types if zone in zones() else frozenset()
        hosts = [accelerators()[one].hosts for one in job.accelerator if one in here]
        if hosts and locations:
            found.append(estimate(zone, max(hosts)))
    return found


def zone_advice(job: JobSpec, far: EgressEstimate) -> str:
    """Say what to change: the zone, the bucket or the budget."""
    if job.egress_budget and not far.saves:
        return f"egress_budget allows ${job.egress_budget:,.2f} a day"
    return (
        f"choose a zone in {far.location} (zones: any does), or allow it with"
        f" egress_budget: {allow_advice([far])}"
    )


def forget_former_buckets(
    job: JobSpec, before: Mapping[str, object], after: Mapping[str, object]
) -> JobSpec:
    """Drop the locations of buckets that the changed fields no longer name."""
    gone = {one.bucket for one in scan_fields(before)} - {one.bucket for one in scan_fields(after)}
    kept = {name: place for name, place in job.buckets.items() if name not in gone}
    return replace(job, buckets=kept)
