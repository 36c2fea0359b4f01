"""What moving a job's data costs, as lines and as JSON."""

import re
from collections.abc import Sequence
from typing import Any

from tpuherd.jobfile.bucket_scan import field_texts, unresolved_places
from tpuherd.jobfile.data_egress import (
    EgressEstimate,
    cost_sentence,
    internet_price,
    used_locations,
)
from tpuherd.jobfile.expand_slots import zone_estimator
from tpuherd.jobfile.read_job import JobSpec, job_document
from tpuherd.model.slots_and_plan import Offer

OTHER_CLOUDS = re.compile(r"\b(?:s3|r2|az|abfss?|wasbs?|oci)://[a-z0-9][\w.-]*", re.I)
DOWNLOADS = re.compile(r"\b(?:https?|hf|ftp)://[\w.-]+", re.I)
STORAGE = re.compile(r"https?://storage\.(?:googleapis|cloud\.google)\.com", re.I)


def zone_estimates(job: JobSpec, offers: Sequence[Offer]) -> list[EgressEstimate]:
    """Return the dearest estimate of each zone, in the order of the offers."""
    locations = used_locations(job)
    estimate_zone = zone_estimator(job, locations)
    found: dict[str, EgressEstimate] = {}
    for one in offers if locations else ():
        estimate = estimate_zone(one.zone, one.hosts)
        before = found.setdefault(one.zone, estimate)
        found[one.zone] = max(before, estimate, key=lambda each: each.per_day)
    return list(found.values())


def egress_rows(job: JobSpec, offers: Sequence[Offer]) -> list[dict[str, Any]]:
    return [
        {
            "zone": one.zone,
            "bucket": one.bucket,
            "location": one.location,
            "hosts": one.hosts,
            "bytes_per_s": job.data_rate,
            "per_gib": one.per_gib,
            "per_day": None if one.saves or one.per_gib is None else round(one.per_day, 2),
        }
        for one in zone_estimates(job, offers)
    ]


def egress_lines(job: JobSpec, offers: Sequence[Offer]) -> list[str]:
    """Return all that is known of the price of data, for `--dry-run`."""
    places = [f"gs://{name} is in {place}" for name, place in sorted(used_locations(job).items())]
    lines = [f"data: {', '.join(places)}"] if places else []
    free = [one.zone for one in zone_estimates(job, offers) if one.per_gib == 0]
    if free:
        lines.append(f"data: reading it is free in {', '.join(free)}")
    lines += billed_lines(job, offers)
    lines += internet_lines(job, offers)
    unknown = unresolved_places(job_document(job))
    if unknown:
        lines.append(
            f"data: herd can't tell which bucket {', '.join(unknown)} is; name it in buckets"
        )
    return lines


def billed_lines(job: JobSpec, offers: Sequence[Offer]) -> list[str]:
    """Return a line for each price at which moving the data is billed, with its zones."""
    zones: dict[tuple[str, str], list[str]] = {}
    for one in zone_estimates(job, offers):
        if one.per_gib != 0:
            what = f"gs://{one.bucket} ({one.location})"
            what = f"writing checkpoints to {what}" if one.saves else f"reading {what}"
            zones.setdefault((what, cost_sentence(one)), []).append(one.zone)
    return [
        f"data: {what} from {', '.join(names)} costs {cost}"
        for (what, cost), names in zones.items()
    ]


def internet_lines(job: JobSpec, offers: Sequence[Offer]) -> list[str]:
    """Return what leaves Google Cloud, as far as the job shows."""
    prices = {internet_price(one.zone) for one in offers} - {None}
    cost = f"${max(filter(None, prices)):g} per GiB" if prices else "an unknown price"
    texts = [text for _, text in field_texts(job_document(job))]
    clouds = dict.fromkeys(one for text in texts for one in OTHER_CLOUDS.findall(text))
    sources = dict.fromkeys(
        one for text in texts for one in DOWNLOADS.findall(text) if not STORAGE.match(one)
    )
    lines = []
    if job.outputs:
        lines.append(f"internet: bringing outputs to this machine costs {cost}")
    if clouds:
        lines.append(f"internet: what nodes write to {', '.join(clouds)} costs {cost}")
    if sources:
        lines.append(f"internet: downloads from {', '.join(sources)} to nodes are free at Google")
    return lines
