"""Expands a job into slots with their offers, and digests that show when a change matters."""

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from hashlib import sha256
from math import inf
from typing import Any

from tpuherd.catalogue import Accelerator, generations, runtimes
from tpuherd.jobfile.bucket_scan import checkpoint_bucket
from tpuherd.jobfile.data_egress import (
    EgressEstimate,
    allow_advice,
    distance_message,
    estimate_egress,
    is_allowed,
    location_words,
    read_price,
    reading_words,
    used_locations,
)
from tpuherd.jobfile.deadline_types import deadline_time
from tpuherd.jobfile.fields import FIELDS, ChangeImpact
from tpuherd.jobfile.grants import (
    Allowance,
    find_places,
    hourly_price,
    other_tiers,
    parse_bucket,
)
from tpuherd.jobfile.job_spec import PRIORITIES
from tpuherd.jobfile.joined_fields import split_network
from tpuherd.jobfile.read_job import JobSpec, job_document
from tpuherd.model.node_spec import NodeSpec
from tpuherd.model.slots_and_plan import Deadline, Goal, Limits, Offer, RequestKind, Slot
from tpuherd.model.stored_job import StoredJob

Place = tuple[str, Accelerator, str, bool]  #: zone, size, tier, whether it is free
ZoneEstimate = Callable[[str, int], EgressEstimate]  #: of a zone, and nodes of so many hosts
DIGEST_LENGTH = 16
#: These are part of an offer, which the planner compares; the other fields are in the digest.
IN_OFFER = frozenset(("accelerator",))


def expand_slots(job: JobSpec, stored: StoredJob, allowed: Allowance) -> tuple[Slot, ...]:
    """Return the slots of a job, each with every offer it may take."""
    offers, obstacle = find_offers(job, allowed)
    node, code = job_digests(job, stored.snapshot)
    return tuple(
        Slot(
            name=f"{job.name}-{index}",
            job=job.name,
            goal=stored.goal,
            offers=offers,
            node_digest=node,
            code_digest=code,
            desired_since=stored.made_at,
            nodes=job.slices,
            limits=slot_limits(job),
            outputs=bool(job.outputs),
            exact=job.exact or bool(job.node_name),
            boots_ahead="boot" in job.head_start,
            patient=stored.patient,
            no_offer="" if offers else obstacle,
            trials=job.sweep is not None and (job.sweep.keep or stored.goal is not Goal.IDLE),
            items=job.sweep is not None and bool(job.sweep.items),
            deadline=slot_deadline(job, stored),
            user=stored.user,
            priority=PRIORITIES.index(job.priority) - 1,
        )
        for index in range(job.copies)
    )


def slot_limits(job: JobSpec) -> Limits:
    """Return the limits of one slot; the copies share the cost limit equally."""
    return Limits(
        failures=job.retry.failures,
        preemptions=job.retry.preemptions,
        stalls=job.retry.stalls,
        stall_s=job.stall.step,
        first_step_s=job.stall.first,
        lifetime_s=job.max_lifetime,
        timeout_s=inf if job.sweep is None else job.sweep.timeout,
        idle_s=job.idle_timeout,
        cost=job.max_cost / job.copies,
        done_keep_s=job.node.done,
        failed_keep_s=job.node.failed,
        patience_s=job.patience,
        grace_s=job.grace,
        notice_grace_s=min(job.grace, Limits().notice_grace_s),
    )


def slot_deadline(job: JobSpec, stored: StoredJob) -> Deadline | None:
    """Until when each slot is to be done; every copy has all of the work."""
    if not job.deadline:
        return None
    at = deadline_time(job.deadline, stored.made_at)
    return Deadline(at=at, since=stored.made_at, work_s=job.work)


def find_offers(job: JobSpec, allowed: Allowance) -> tuple[tuple[Offer, ...], str]:
    """Return all allowed offers, best first, or why there are none."""
    found = find_places(job.accelerator, job.tier, allowed)
    types = " or ".join(job.accelerator)
    if not found:
        tiers = " or ".join(job.tier)
        if allowed.everything:
            return (), f"no known zone has {types}"
        have = other_tiers(job.accelerator, job.tier, allowed)
        what = f"you have {have}" if have else "add one with herd context grant"
        return (), f"no grant covers {types} at {tiers}: {what}"
    inside = [one for one in found if one[0] in job.zones] if job.zones else found
    if not inside:
        return (
            (),
            f"no grant covers {types} in {', '.join(job.zones)}: add one with herd context grant",
        )
    locations = data_locations(job, allowed)
    estimate = zone_estimator(job, locations)
    affordable = [
        one for one in inside if is_allowed(estimate(one[0], one[1].hosts), job.egress_budget)
    ]
    if not affordable:
        return (), far_message(job, inside, estimate)
    inside = affordable
    offers = [
        replace(make_offer(job, one, estimate), per_gib=checkpoint_price(job, locations, one[0]))
        for one in inside
    ]
    dear = [one for one in offers if not is_affordable(one, job)]
    offers = [one for one in offers if is_affordable(one, job)]
    if not offers:
        return (), cost_limit_message(job, dear)
    order = sorted(offers, key=lambda one: (one.rank, price_key(one), one.zone))
    return tuple(order), ""


def data_locations(job: JobSpec, allowed: Allowance) -> Mapping[str, str]:
    """Return the known locations of the job's buckets.

    A location that only the project remembers does not overrule zones that the user named.
    """
    bucket = parse_bucket(job.checkpoint)
    known = {name: place for name, place in allowed.buckets.items() if name == bucket}
    return used_locations(job, {} if job.zones else known)


def zone_estimator(job: JobSpec, locations: Mapping[str, str]) -> ZoneEstimate:
    """Return the function that estimates what the job's data costs in a zone."""
    saved_to = checkpoint_bucket(job_document(job)) if locations else ""
    return partial(estimate_egress, job, locations, saved_to=saved_to)


def far_message(job: JobSpec, places: Iterable[Place], estimate: ZoneEstimate) -> str:
    """Return why no zone may be used, and how to allow the cheapest."""
    found = [estimate(zone, one.hosts) for zone, one, *_ in places]
    least = min(found, key=lambda one: one.per_day)
    types = " or ".join(job.accelerator)
    if job.egress_budget and not least.saves:
        return (
            f"{distance_message(least)}, the least of all zones with {types}, and egress_budget"
            f" allows ${job.egress_budget:,.2f} a day"
        )
    return (
        f"{location_words(least)}, and no {types} is available nearby: {reading_words(least)};"
        f" allow it with egress_budget: {allow_advice([least])}, or use a bucket near the nodes"
    )


def cost_limit_message(job: JobSpec, dear: Iterable[Offer]) -> str:
    """Return the user's limit, and the cost of the cheapest of these offers."""
    prices = [one.price * job.copies for one in dear if one.price is not None]
    most = f"max_cost_per_hour allows ${job.max_cost_per_hour:,.2f} for all copies together"
    many = f"{job.copies} copies of " if job.copies > 1 else ""
    least = f"at least ${min(prices):,.2f} an hour" if prices else "an unknown price"
    verb = "cost" if job.copies > 1 else "costs"
    what = " or ".join(job.accelerator)
    return f"{most}, and {many}{what} {verb if prices else 'has'} {least}"


def make_offer(job: JobSpec, place: Place, estimate: ZoneEstimate) -> Offer:
    zone, accelerator, tier, free = place
    cost = 0.0 if free else hourly_price(zone, accelerator, tier)
    rank = job.accelerator.index(accelerator.type) * len(job.tier) + job.tier.index(tier)
    return Offer(
        zone=zone,
        type=accelerator.type,
        runtime=choose_runtime(job, accelerator.generation),
        tier=tier,
        kind=RequestKind(job.request),
        rank=rank,
        hosts=accelerator.hosts,
        price=None if cost is None else cost * job.slices,
        egress=hourly_egress(estimate(zone, accelerator.hosts), job.copies),
    )


def checkpoint_price(job: JobSpec, locations: Mapping[str, str], zone: str) -> float | None:
    """Return dollars per GiB between a zone and the bucket of checkpoints; None: not known."""
    location = locations.get(parse_bucket(job.checkpoint), "")
    return read_price(location, zone) if location else 0.0


def hourly_egress(estimate: EgressEstimate, copies: int) -> float | None:
    """Return the dollars an hour of one copy; None: not known."""
    return None if estimate.per_day == inf else round(estimate.per_day / 24 / copies, 4)


def choose_runtime(job: JobSpec, generation: str) -> str:
    """Return the first listed image that fits or is unknown, else the documented one."""
    for version in job.runtime:
        known = runtimes().get(version)
        if known is None or generation in known.generations:
            return version
    return generations()[generation].runtime


def is_affordable(one: Offer, job: JobSpec) -> bool:
    """Whether all copies together stay within max_cost_per_hour."""
    if job.max_cost_per_hour == float("inf"):
        return True
    return one.price is not None and one.price * job.copies <= job.max_cost_per_hour


def price_key(one: Offer) -> float:
    """Sort by what a node and its data cost; unknown prices last."""
    if one.price is None or one.egress is None:
        return float("inf")
    return one.price + one.egress


def job_digests(job: JobSpec, snapshot: str) -> tuple[str, str]:
    """Return a digest of what needs a new node, and one of what needs a new attempt."""
    said = job_document(job)
    node = {
        name: said.get(name) for name in fields_needing(ChangeImpact.NODE) if name not in IN_OFFER
    }
    node = {**node, "network": None, **split_network(said)}
    code = {name: said.get(name) for name in fields_needing(ChangeImpact.ATTEMPT)}
    return content_digest(node), content_digest({**code, "snapshot": snapshot})


def fields_needing(need: ChangeImpact) -> list[str]:
    return [field.name for field in FIELDS.values() if field.needs is need]


def content_digest(content: Mapping[str, Any]) -> str:
    """Digest the fields that are set, so that new unset fields change no digest."""
    said = {name: value for name, value in content.items() if value not in (None, "", [], {})}
    text = json.dumps(said, sort_keys=True, separators=(",", ":"))
    return sha256(text.encode()).hexdigest()[:DIGEST_LENGTH]


def build_node_spec(job: JobSpec, slot: Slot) -> NodeSpec:
    """What the offer does not say of a node's making."""
    return NodeSpec(
        labels={"herd-job": job.name, **job.labels},
        metadata=job.metadata,
        tags=job.network.tags,
        network=job.network.name,
        subnetwork=job.network.subnetwork,
        external_ips=job.network.external_ips,
        service_account=job.service_account,
        disks=job.data_disks,
        reservation=job.reservation,
        node_name=exact_node_name(job, slot.name),
        description=f"{slot.name} of tpuherd",
    )


def exact_node_name(job: JobSpec, slot: str) -> str:
    """Return the name that the job wants for the node of a slot; "" if it wants none."""
    if not job.node_name or job.copies == 1:
        return job.node_name
    return f"{job.node_name}-{slot.rpartition('-')[2]}"


def exact_node_names(job: JobSpec) -> list[str]:
    """Return the names that the job wants for its nodes."""
    names = [exact_node_name(job, f"{job.name}-{index}") for index in range(job.copies)]
    if job.slices == 1:
        return names
    return [f"{name}-{part}" for name in names for part in range(job.slices)]


@dataclass(frozen=True, kw_only=True, slots=True)
class PriceRange:
    """The hourly cost of all slots together, wherever they run."""

    least: float | None = None  #: None: no price is known
    most: float | None = None
    unknown_in: tuple[str, ...] = ()  #: zones whose price is not known


def price_range(slots: Sequence[Slot]) -> PriceRange:
    """Return the lowest and highest known price, and the zones without one."""
    least = most = 0.0
    unknown: set[str] = set()
    for slot in slots:
        best = [one for one in slot.offers if one.rank == slot.offers[0].rank]
        known = [one.price for one in best if one.price is not None]
        unknown |= {one.zone for one in best if one.price is None}
        if not known:
            return PriceRange(unknown_in=tuple(sorted(unknown)))
        least, most = least + min(known), most + max(known)
    return PriceRange(least=least, most=most, unknown_in=tuple(sorted(unknown)))
