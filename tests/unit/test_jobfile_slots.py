"""From a job to its slots: allowed zones, prices, and what must never change."""

from dataclasses import replace
from itertools import product
from typing import Any

import pytest

from tpuherd.catalogue import accelerators, generations, runtimes, zones
from tpuherd.jobfile.data_egress import nearby_regions
from tpuherd.jobfile.expand_slots import build_node_spec, expand_slots, job_digests, price_range
from tpuherd.jobfile.fields import FIELDS, TIERS, ChangeImpact
from tpuherd.jobfile.grants import Allowance, Grant, hourly_price, parse_mail_grants
from tpuherd.jobfile.job_diff import diff_documents
from tpuherd.jobfile.read_job import JobSpec, job_document, read_fields
from tpuherd.model.slots_and_plan import Deadline, Goal, RequestKind, Slot
from tpuherd.model.stored_job import StoredJob
from tpuherd.views.deadline_line import deadline_lines

ALLOWS = "max_cost_per_hour allows ${} for all copies together"
EVERYTHING = Allowance(everything=True)
#: Another value for every field that can be changed.
OTHER: dict[str, Any] = {
    "accelerator": "v4-16", "runtime": "tpu-vm-v4-base", "zones": "us-central2-b",
    "tier": "on-demand", "copies": 2, "slices": 2, "workdir": "x", "repo": "https://e.com/x",
    "python": "3.11", "nfs": {"/data": "w0"}, "setup": "x", "run": "x",
    "env": {"A": "x"}, "secrets": ["A"], "checkpoint": "/x",
    "buckets": {"mine": "US-CENTRAL2"}, "data_rate": "1GB/s", "egress_budget": "$5/day",
    "outputs": "x", "retry": {"stalls": 9}, "stall": {"step": "1h", "first": "1h"}, "grace": "1m",
    "max_lifetime": "1h", "idle_timeout": "1h", "max_cost": 1, "max_cost_per_hour": 1000,
    "node": {"done": "keep"}, "patience": "1h", "priority": "high",
    "request": "direct", "exact": True,
    "service_account": "a@b.c", "node_name": "x",
    "network": {"name": "x", "subnetwork": "x", "external_ips": False, "tags": "x"},
    "labels": {"a": "x"}, "metadata": {"a": "x"},
    "sweep": {"method": "grid", "parameters": {"lr": [1, 2]}},
    "profiler": True, "head_start": ["boot"], "notify": {"kind": "command", "run": "./tell"},
}  # fmt: skip


def job(**fields: object) -> JobSpec:
    found = read_fields({"name": "gpt", "accelerator": "v4-32", **fields})
    assert isinstance(found, JobSpec), found
    return found


def stored_job(one: JobSpec, snapshot: str = "") -> StoredJob:
    return StoredJob(
        job=one.name, goal=Goal.RUN, document=job_document(one), snapshot=snapshot, made_at=1.0,
        changed_at=1.0,
    )  # fmt: skip


def slots(allowed: Allowance = EVERYTHING, **fields: object) -> tuple[Slot, ...]:
    one = job(**fields)
    return expand_slots(one, stored_job(one), allowed)


def test_the_smallest_job_is_one_slot_with_one_offer() -> None:
    (slot,) = slots()
    assert (slot.name, slot.job, slot.goal, slot.nodes, slot.desired_since) == (
        "gpt-0", "gpt", Goal.RUN, 1, 1.0,
    )  # fmt: skip
    (offer,) = slot.offers
    assert (offer.zone, offer.type, offer.tier, offer.hosts) == (
        "us-central2-b", "v4-32", "spot", 4,
    )  # fmt: skip
    assert offer.kind is RequestKind.QUEUED
    assert offer.runtime == "tpu-ubuntu2204-base"
    assert offer.price == pytest.approx(16 * 0.9215)


def test_copies_are_slots_and_slices_are_nodes_of_one_slot() -> None:
    assert [slot.name for slot in slots(copies=3)] == ["gpt-0", "gpt-1", "gpt-2"]
    (slot,) = slots(slices=2)
    assert slot.nodes == 2
    assert slot.offers[0].price == pytest.approx(2 * 16 * 0.9215)


def test_more_copies_rename_and_change_nothing() -> None:
    assert slots(copies=3)[0] == slots()[0]


@pytest.mark.parametrize("type_", sorted(one.type for one in accelerators().values() if one.enum))
def test_a_world_grants_every_zone_with_the_type(type_: str) -> None:
    (slot,) = slots(accelerator=type_)
    there = {one.name for one in zones().values() if type_ in one.types}
    assert {offer.zone for offer in slot.offers} == there
    assert bool(slot.no_offer) == (not there)


#: As Google's page "TPU software versions" has them.
DOCUMENTED = {
    "v2": "tpu-ubuntu2204-base",
    "v3": "tpu-ubuntu2204-base",
    "v4": "tpu-ubuntu2204-base",
    "v5litepod": "v2-alpha-tpuv5-lite",
    "v5p": "v2-alpha-tpuv5",
    "v6e": "v2-alpha-tpuv6e",
}


@pytest.mark.parametrize("type_", sorted(one.type for one in accelerators().values() if one.enum))
def test_every_type_gets_its_documented_image(type_: str) -> None:
    (slot,) = slots(accelerator=type_)
    assert {one.runtime for one in slot.offers} == {DOCUMENTED[type_.rpartition("-")[0]]}


def test_every_default_image_is_known_and_compatible() -> None:
    for kind in generations().values():
        assert kind.name in runtimes()[kind.runtime].generations


def test_each_type_takes_the_first_compatible_runtime() -> None:
    wanted = ["v2-alpha-tpuv5-lite", "tpu-ubuntu2204-base"]
    (slot,) = slots(accelerator=["v4-32", "v5litepod-16"], runtime=wanted)
    assert {(one.type, one.runtime) for one in slot.offers} == {
        ("v4-32", "tpu-ubuntu2204-base"),
        ("v5litepod-16", "v2-alpha-tpuv5-lite"),
    }
    assert slots(runtime="tpu-brand-new-2030")[0].offers[0].runtime == "tpu-brand-new-2030"


def test_ranks_follow_the_users_order_then_the_price() -> None:
    (slot,) = slots(accelerator=["v5litepod-16", "v4-32"], tier=["spot", "on-demand"])
    ranks = [(one.rank, one.type, one.tier) for one in slot.offers]
    assert ranks == sorted(ranks, key=lambda one: one[0])
    assert {rank for rank, *_ in ranks} == {0, 1, 2, 3}
    assert {(t, tier) for rank, t, tier in ranks if rank == 1} == {("v5litepod-16", "on-demand")}
    best = [one.price for one in slot.offers if one.rank == 0 and one.price is not None]
    assert best == sorted(best)


@pytest.mark.parametrize(("grant_tier", "tier"), list(product(TIERS, TIERS)))
def test_a_grant_covers_its_tier_and_spot_and_preemptible_are_one(
    grant_tier: str, tier: str
) -> None:
    allowed = Allowance(grants=(Grant(zone="us-central2-b", type="v4", tier=grant_tier, chips=32),))
    (slot,) = slots(allowed, tier=tier)
    same = grant_tier == tier or {grant_tier, tier} == {"spot", "preemptible"}
    assert bool(slot.offers) == same
    assert slot.no_offer == (
        ""
        if same
        else f"no grant covers v4-32 at {tier}: you have {grant_tier} v4-32 in us-central2-b"
    )


def test_a_refusal_suggests_only_tiers_that_would_work() -> None:
    grants = (
        Grant(zone="us-central1-f", type="v2-8", tier="on-demand", chips=20),
        Grant(zone="europe-west4-a", type="v3-8", tier="on-demand", chips=20),
    )
    (slot,) = slots(Allowance(grants=grants), accelerator="v3-8")
    said = "no grant covers v3-8 at spot: you have on-demand v3-8 in europe-west4-a"
    assert slot.no_offer == said
    (slot,) = slots(Allowance(grants=grants), accelerator="v3-32")
    assert slot.no_offer == "no grant covers v3-32 at spot: add one with herd context grant"


@pytest.mark.parametrize(
    ("grant", "fits"),
    [
        (Grant(zone="us-central2-b", type="v4", tier="spot", chips=16), True),
        (Grant(zone="us-central2-b", type="v4", tier="spot", chips=15), False),
        (Grant(zone="us-central2-b", type="v4", tier="spot"), True),
        (Grant(zone="us-central2-b", type="v4-32", tier="spot"), True),
        (Grant(zone="us-central2-b", type="v4-8", tier="spot", chips=99), False),
        (Grant(zone="us-central2-b", type="v5e", tier="spot"), False),
        (Grant(zone="us-central2-a", type="v4", tier="spot"), True),  # newer than our table
    ],
)
def test_a_grant_covers_only_what_it_names(grant: Grant, fits: bool) -> None:
    (slot,) = slots(Allowance(grants=(grant,)))
    assert [one.zone for one in slot.offers] == ([grant.zone] if fits else [])


def test_a_free_grant_costs_nothing() -> None:
    grant = Grant(zone="us-central2-b", type="v4", tier="spot", free=True)
    assert slots(Allowance(grants=(grant,)))[0].offers[0].price == 0.0
    both = Allowance(grants=(replace(grant, free=False), replace(grant, free=True, chips=1)))
    assert slots(both)[0].offers[0].price == pytest.approx(16 * 0.9215)


def test_named_zones_must_be_granted() -> None:
    allowed = Allowance(grants=(Grant(zone="us-east5-a", type="v5e", tier="spot"),))
    (slot,) = slots(allowed, accelerator="v5litepod-16", zones=["us-east5-b"])
    assert slot.no_offer.startswith("no grant covers v5litepod-16 in us-east5-b")


@pytest.mark.parametrize(
    ("location", "regions"),
    [
        ("EUROPE-WEST4", {"europe-west4"}),
        ("EU", {"europe-west4", "europe-west1"}),
        ("US-EAST5", {"us-east5"}),
    ],
)
def test_any_zone_is_one_near_the_bucket(location: str, regions: set[str]) -> None:
    allowed = replace(EVERYTHING, buckets={"mine": location})
    fields: dict[str, Any] = {"accelerator": "v5litepod-16", "checkpoint": "gs://mine/x"}
    found = {one.zone.rpartition("-")[0] for one in slots(allowed, **fields)[0].offers}
    assert found
    assert found <= regions
    named = slots(allowed, **fields, zones=["us-west4-a"])[0]
    assert [one.zone for one in named.offers] == ["us-west4-a"]


def test_a_bucket_far_from_every_tpu_of_that_type() -> None:
    allowed = replace(EVERYTHING, buckets={"mine": "ASIA-EAST1"})
    (slot,) = slots(allowed, checkpoint="gs://mine")
    assert slot.no_offer.startswith("bucket mine is in ASIA-EAST1, and no v4-32 is available")
    assert nearby_regions("NAM4") <= {"us-central1", "us-east1"}


@pytest.mark.parametrize(
    ("most", "copies", "why"),
    [
        (14.75, 1, ""),
        (14.75, 2, f"{ALLOWS.format('14.75')}, and 2 copies of v4-32 cost at least $29.49 an hour"),
        (14.74, 1, f"{ALLOWS.format('14.74')}, and v4-32 costs at least $14.74 an hour"),
        (30, 2, ""),
    ],
)
def test_the_hourly_limit_covers_all_copies(most: float, copies: int, why: str) -> None:
    assert slots(max_cost_per_hour=most, copies=copies)[0].no_offer == why


def test_an_unknown_price_is_not_within_a_limit() -> None:
    unpriced: dict[str, Any] = {"accelerator": "v2-32", "zones": "us-central1-a"}
    assert slots(**unpriced)[0].offers[0].price is None
    assert slots(**unpriced, max_cost_per_hour=999)[0].no_offer == (
        f"{ALLOWS.format('999.00')}, and v2-32 has an unknown price"
    )
    found = price_range(slots(**unpriced))
    assert (found.least, found.most, found.unknown_in) == (None, None, ("us-central1-a",))


def test_prices_of_several_zones_are_a_range_and_unknown_ones_are_named() -> None:
    (first,) = slots()
    offers = [
        replace(first.offers[0], zone=zone, price=price)
        for zone, price in (("a", 9.36), ("b", 6.12), ("c", None))
    ]
    two = [replace(first, offers=tuple(offers))] * 2
    found = price_range(two)
    assert (found.least, found.most, found.unknown_in) == (12.24, 18.72, ("c",))


def test_limits_come_from_the_job() -> None:
    (first, _) = slots(
        copies=2, max_cost=10, retry={"failures": "unlimited", "stalls": 1}, stall="never",
        node={"done": "1h", "failed": "keep"}, grace="10s", idle_timeout="5m", outputs="x",
        exact=True,
    )  # fmt: skip
    limits = first.limits
    assert (limits.cost, limits.failures, limits.preemptions, limits.stalls) == (5, None, None, 1)
    assert (limits.stall_s, limits.done_keep_s, limits.failed_keep_s) == (
        float("inf"), 3600, float("inf"),
    )  # fmt: skip
    assert (limits.grace_s, limits.notice_grace_s, limits.idle_s) == (10, 10, 300)
    assert first.outputs
    assert first.exact


def test_prices_are_for_all_chips_of_the_size() -> None:
    single, pod = accelerators()["v3-8"], accelerators()["v3-32"]
    assert hourly_price("europe-west4-a", single, "spot") == pytest.approx(4 * 0.561)
    assert hourly_price("europe-west4-a", pod, "preemptible") == pytest.approx(16 * 0.66)
    assert hourly_price("europe-west4-a", pod, "reserved") == pytest.approx(16 * 2.0)
    assert hourly_price("us-west9-a", pod, "spot") is None
    found = price_range(slots(copies=2))
    assert found.least == found.most == pytest.approx(29.488)


def test_every_changeable_field_is_tested() -> None:
    assert FIELDS.keys() - OTHER.keys() == {
        "name", "cluster", "image", "data_disks", "requirements", "reservation", "deadline", "work",
    }  # fmt: skip


def test_a_changed_deadline_costs_nothing() -> None:
    tiers = ["spot", "on-demand"]
    before, after = (job(tier=tiers, deadline=one, work=f"{n}h") for n, one in enumerate(
        ("48h", "2026-11-27T18:00Z"), 1
    ))  # fmt: skip
    assert job_digests(before, "s") == job_digests(after, "s") == job_digests(job(tier=tiers), "s")
    change = diff_documents(job_document(before), job_document(after))
    assert change.fields == ("deadline", "work") and change.needs is ChangeImpact.NOTHING
    assert change.lines == ("deadline: 2d → 2026-11-27T18:00Z", "work: 1h → 2h")


def test_what_a_deadline_may_cost_is_said_before() -> None:
    tiers = ["spot", "on-demand"]
    wanted = job(tier=tiers, deadline="48h", copies=2)
    (said,) = deadline_lines(wanted, slots(tier=tiers, copies=2)[0].offers)
    price = 2 * 16 * 3.22
    assert said == (
        f"deadline 2d: on-demand as far as that demands it, from ${price:.2f} an hour;"
        " state work, if the script reports no steps"
    )
    (said,) = deadline_lines(wanted, slots()[0].offers)
    assert said.endswith("only spot can meet it")
    assert deadline_lines(job(), ()) == []


def test_the_deadline_counts_from_the_submission() -> None:
    tiers = ["spot", "on-demand"]
    (slot,) = slots(tier=tiers, deadline="48h", work="20h")
    assert slot.deadline == Deadline(at=1.0 + 48 * 3600, since=1.0, work_s=72_000.0)
    (slot,) = slots(tier=tiers, deadline="2026-11-27T18:00+01:00")
    assert slot.deadline == Deadline(at=1_795_798_800.0, since=1.0)
    assert slots()[0].deadline is None


@pytest.mark.parametrize("name", OTHER)
def test_a_digest_changes_if_and_only_if_the_field_needs_it(name: str) -> None:
    before, after = job(), job(**{name: OTHER[name]})
    node, code = (
        one != other
        for one, other in zip(job_digests(before, "s"), job_digests(after, "s"), strict=True)
    )
    needs = FIELDS[name].needs
    assert code == (needs is ChangeImpact.ATTEMPT)
    assert node == (needs is ChangeImpact.NODE and name != "accelerator")  # that is in the offer
    change = diff_documents(job_document(before), job_document(after))
    assert change.fields == (name,)
    assert change.needs is needs
    assert change.lines[0].startswith(f"{name}: ")
    assert "→" in change.lines[0]


def test_digests_never_change() -> None:
    assert job_digests(job(), "") == job_digests(job(), "")
    assert job_digests(job(env={"A": "1", "B": "2"}), "s") == job_digests(
        job(env={"B": "2", "A": "1"}), "s"
    )
    assert job_digests(job(), "s")[0] == job_digests(job(), "t")[0]
    assert job_digests(job(), "s")[1] != job_digests(job(), "t")[1]


def test_differences_in_words() -> None:
    before = job_document(job(copies=3, run="a"))
    after = job_document(job(copies=1, tier=["spot", "on-demand"], run="b" * 99))
    change = diff_documents(before, after, code=("a" * 64, "b" * 64))
    assert change.lines == (
        'tier: spot → ["spot", "on-demand"]',
        "copies: 3 → 1",
        f"run: a → {'b' * 59}…",
        f"code: {'a' * 12} → {'b' * 12}",
    )
    assert change.needs is ChangeImpact.ATTEMPT
    assert change.sentence.startswith(
        "2 of its nodes are deleted, with what runs there; for the others"
    )
    assert diff_documents(before, before).lines == ()
    assert diff_documents(before, before).needs is ChangeImpact.NOTHING
    fewer = diff_documents(job_document(job(copies=2)), job_document(job()))
    assert fewer.sentence == "1 of its nodes is deleted, with what runs there"


def test_the_node_spec_of_a_job() -> None:
    one = job(labels={"team": "x"}, network={"name": "n", "tags": "ssh", "external_ips": False})
    order = build_node_spec(one, slots()[0])
    assert order.labels == {"herd-job": "gpt", "team": "x"}
    assert (order.tags, order.network, order.external_ips) == (("ssh",), "n", False)
    assert order.description == "gpt-0 of tpuherd"


# ---- grants out of mails -------------------------------------------------------------------------

MAIL = """\
> Your Google Cloud project tokyo-carving-231908 now has access to the following quota:
>
> **5 on-demand Cloud TPU v3-8 device(s) in zone europe-west4-a**
> **100 preemptible Cloud TPU v2-8 device(s)
> in zone us-central1-f**
  * 64 spot Cloud TPU v6e chips in zone us-east1-d
  * 32 on-demand Cloud TPU v4 chips in zone us-central2-b
  * 32 on-demand Cloud TPU v4 chips in zone us-central2-b.
  * 1,024 spot Cloud TPU v3 cores in the zone europe-west4-a
"""


def test_a_grant_mail_is_parsed_as_pasted() -> None:
    rows = [(one.zone, one.type, one.tier, one.chips) for one in parse_mail_grants(MAIL)]
    assert rows == [
        ("europe-west4-a", "v3-8", "on-demand", 20),
        ("us-central1-f", "v2-8", "preemptible", 400),
        ("us-east1-d", "v6e", "spot", 64),
        ("us-central2-b", "v4", "on-demand", 32),
        ("europe-west4-a", "v3", "spot", 512),
    ]
    assert all(one.free for one in parse_mail_grants(MAIL))
    assert parse_mail_grants("no such thing: 3 spot Cloud TPUs") == []


def test_single_host_grants_do_not_cover_pods() -> None:
    allowed = Allowance(grants=tuple(parse_mail_grants(MAIL)))
    assert slots(allowed, accelerator="v3-8", tier="on-demand")[0].offers
    assert not slots(allowed, accelerator="v3-32", tier="on-demand")[0].offers


def test_a_change_of_a_sweep_is_described_by_its_fields() -> None:
    grid = {"method": "grid", "parameters": {"lr": [1, 2, 3]}}
    change = diff_documents({"sweep": grid}, {"sweep": {**grid, "trials": 2}})
    assert change.lines == ("sweep.trials: none → 2",)
    assert diff_documents({}, {"sweep": grid}).lines[0].startswith("sweep: none → {")
