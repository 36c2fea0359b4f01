"""Where a job's data is, and what reading it costs."""

from math import inf
from typing import Any

import pytest

from tpuherd.catalogue import bucket_locations, regions, zones
from tpuherd.jobfile.bucket_scan import (
    candidate_files,
    scan_fields,
    scan_file,
    unresolved_places,
)
from tpuherd.jobfile.data_egress import (
    estimate_egress,
    is_allowed,
    is_known_location,
    nearby_regions,
    read_price,
    used_locations,
)
from tpuherd.jobfile.expand_slots import expand_slots, zone_estimator
from tpuherd.jobfile.grants import Allowance
from tpuherd.jobfile.read_job import JobSpec, job_document, read_fields
from tpuherd.model.slots_and_plan import Goal, Offer
from tpuherd.model.stored_job import StoredJob
from tpuherd.views.egress_lines import egress_lines, egress_rows


def job(**fields: Any) -> JobSpec:
    found = read_fields({"name": "gpt", "accelerator": "v5litepod-8", "run": "x", **fields})
    assert isinstance(found, JobSpec), found
    return found


@pytest.mark.parametrize(
    ("location", "zone", "price", "near"),
    [
        ("US-CENTRAL1", "us-central1-a", 0.0, True),
        ("us-central1", "us-central1-a", 0.0, True),
        ("NAM4", "us-central1-a", 0.0, True),
        ("NAM4", "us-east1-d", 0.0, True),
        ("NAM4", "us-west4-a", 0.02, False),
        ("EUR4", "europe-west4-a", 0.0, True),
        ("ASIA1", "asia-northeast1-b", 0.0, True),
        ("ASIA1", "asia-east1-c", 0.08, False),
        ("US-EAST1+US-EAST5", "us-east5-a", 0.0, True),
        ("US-EAST1+US-EAST5", "us-east4-a", 0.02, False),
        ("US", "us-central2-b", 0.02, True),
        ("EU", "europe-west4-a", 0.02, True),
        ("EU", "us-central2-b", 0.05, False),
        ("ASIA", "us-central2-b", 0.08, False),
        ("US-CENTRAL1", "us-central2-b", 0.02, False),
        ("US-CENTRAL1", "europe-west4-a", 0.05, False),
        ("EUROPE-WEST4", "us-central1-a", 0.05, False),
        ("SOUTHAMERICA-EAST1", "us-central1-a", None, False),
    ],
)
def test_price_and_distance_of_a_location(
    location: str, zone: str, price: float | None, near: bool
) -> None:
    assert read_price(location, zone) == price
    assert (zone.rpartition("-")[0] in nearby_regions(location)) == near


def test_every_location_of_the_catalogue_is_free_in_its_own_regions_only() -> None:
    for name, place in bucket_locations().items():
        assert is_known_location(name)
        for zone in zones().values():
            assert (read_price(name, zone.name) == 0) == (zone.region in place.regions)
    for region in regions():
        assert {zone for zone in zones() if read_price(region, zone) == 0} == {
            zone.name for zone in zones().values() if zone.region == region
        }
    for unknown in ("MARS1", "", "US-EAST1+MARS1", "us-central1-a"):
        assert not is_known_location(unknown)


def test_the_price_of_a_day_is_of_all_hosts() -> None:
    """100 MB/s for a day are 8640 GB, which are 8046.6 GiB."""
    one = job(buckets={"far": "US-CENTRAL1", "near": "EUROPE-WEST4"}, copies=2)
    found = estimate_egress(one, used_locations(one), "europe-west4-b", 4)
    assert (found.bucket, found.hosts, found.per_gib) == ("far", 8, 0.05)
    assert found.per_day == pytest.approx(8 * 8046.627 * 0.05, rel=1e-6)
    slow = job(buckets={"far": "US-CENTRAL1"}, data_rate="10MB/s", slices=2)
    found = estimate_egress(slow, used_locations(slow), "europe-west4-b", 4)
    assert found.per_day == pytest.approx(8 * 804.6627 * 0.05, rel=1e-6)


def test_what_a_budget_allows() -> None:
    one = job(buckets={"usa": "US", "far": "SOUTHAMERICA-EAST1"})
    unknown = estimate_egress(one, used_locations(one), "us-central1-a", 1)
    assert (unknown.bucket, unknown.per_day) == ("far", inf)
    assert not is_allowed(unknown, 0.0)
    assert not is_allowed(unknown, 1e9)
    assert is_allowed(unknown, inf)
    close = estimate_egress(one, {"usa": "US"}, "us-central1-a", 1)  # 161 dollars a day
    assert is_allowed(close, 0.0), "a multi-region of the same continent is only pointed out"
    assert not is_allowed(close, 160.0), "but it counts against a stated budget"
    assert is_allowed(close, 161.0)
    ignored = job(buckets={"old": "ignore"})
    assert used_locations(ignored) == {}


def offered(**fields: Any) -> tuple[set[str], str]:
    """The zones that the planner may choose from, or why there are none."""
    one = job(**fields)
    stored = StoredJob(
        job="gpt", goal=Goal.RUN, document=job_document(one), snapshot="", made_at=1.0,
        changed_at=1.0,
    )  # fmt: skip
    (slot,) = expand_slots(one, stored, Allowance(everything=True))
    return {offer.zone for offer in slot.offers}, slot.no_offer


def test_zones_near_the_data_are_the_planners_only_choice() -> None:
    assert offered(buckets={"aaa": "EUROPE-WEST4"})[0] == {"europe-west4-a", "europe-west4-b"}
    both = {"aaa": "EUROPE-WEST4", "bbb": "US-WEST4"}
    zones_, why = offered(buckets=both)
    assert not zones_
    assert "is available nearby: reading it from" in why
    assert "allow it with egress_budget: $403/day" in why
    named, why = offered(buckets={"aaa": "EUROPE-WEST4"}, zones=["us-west4-a", "europe-west4-b"])
    assert (named, why) == ({"europe-west4-b"}, "")
    within, _ = offered(buckets=both, egress_budget="$500/day")
    assert within == {"us-west4-a", "us-west4-b", "europe-west4-a", "europe-west4-b"} | {
        zone for zone in zones() if "v5litepod-8" in zones()[zone].types and zone.startswith("us-")
    }
    nowhere, why = offered(buckets=both, egress_budget=100)
    assert not nowhere
    assert why.endswith("egress_budget allows $100.00 a day")


CONFIG = """\
# cache_dir: gs://commented/out
data:
  cache_dir: "gs://tokens-eu/pile"   # 2 TB
  other: gs://$BUCKET/x
url: https://storage.googleapis.com/public-data/x.json
"""


def test_buckets_are_found_where_they_are_named() -> None:
    content = {
        "name": "gpt",
        "run": "BASE=left-over; python train.py --data gs://mine/a --to gs://${BASE}-x/y gs://$BASE",
        "env": {"BUCKET": "from-env", "DATA": "gs://$BUCKET/z", "LATER": "gs://$OTHER/z"},
        "checkpoint": "gs://ckpt/gpt",
        "setup": ["gcloud storage cp -r gs://setup.it/x ~"],
        "buckets": {"stated": "US"},
        "labels": {"text": "gs://BUCKET gs://my-{bucket} gs://a gs://"},
    }
    found = {use.bucket for use in scan_fields(content)}
    assert found == {"mine", "left-over-x", "left-over", "from-env", "ckpt", "setup.it"}
    assert unresolved_places(content) == ["gs://$OTHER"]
    uses = list(scan_file("a.yaml", CONFIG, content))
    assert [(use.bucket, use.file, use.where) for use in uses] == [
        ("tokens-eu", "a.yaml:3", ("run",)),
        ("from-env", "a.yaml:4", ("run",)),
        ("public-data", "a.yaml:5", ("run",)),
    ]
    assert uses[0].is_certain
    (example,) = scan_file("train.py", "help='gs://bucket/x'", {})
    assert not example.is_certain


def test_only_files_that_the_command_names_are_candidates() -> None:
    run = "cd x && python -m pkg.main --config=conf/a.yaml 'b.json' ~/c /etc/d ../e gs://f/g -v"
    found = set(candidate_files({"run": run}))
    assert {"pkg/main.py", "conf/a.yaml", "b.json", "x/pkg/main.py", "x/conf/a.yaml"} <= found
    assert not found & {"~/c", "/etc/d", "../e", "gs://f/g", "-v"}
    assert "run.sh" in candidate_files({"run": ["bash", "run.sh"]})
    assert candidate_files({}) == []
    at_home = {"run": "cd && bash ~/run.sh python3 x --config levanter/config/a.yaml"}
    assert "config/a.yaml" in candidate_files(at_home)  # the link to the code is named levanter


def test_the_estimate_names_what_leaves_google() -> None:
    one = job(
        buckets={"mine": "US"},
        zones="us-central1-a",
        outputs="results",
        run="wget https://example.com/x.tar && python t.py --to s3://bucket/x",
    )
    stored = StoredJob(
        job="gpt", goal=Goal.RUN, document=job_document(one), snapshot="", made_at=1.0,
        changed_at=1.0,
    )  # fmt: skip
    (slot,) = expand_slots(one, stored, Allowance(everything=True))
    assert egress_lines(one, slot.offers) == [
        "data: gs://mine is in US",
        "data: reading gs://mine (US) from us-central1-a costs about $160.93 a day"
        " (1 host at 100 MB/s each, $0.02 per GiB)",
        "internet: bringing outputs to this machine costs $0.12 per GiB",
        "internet: what nodes write to s3://bucket costs $0.12 per GiB",
        "internet: downloads from https://example.com to nodes are free at Google",
    ]


def test_a_bucket_for_checkpoints_alone_has_no_price_per_day() -> None:
    """How much a job saves is not known before: only the price of a GiB is."""
    fields = {"checkpoint": "gs://ckpt/gpt", "run": "python t.py --to $HERD_CHECKPOINT"}
    far = job(**fields, buckets={"ckpt": "EU"}, zones="us-west4-a")
    zone = zone_estimator(far, used_locations(far))("us-west4-a", 4)
    assert [is_allowed(zone, budget) for budget in (0.0, 1e9, inf)] == [False, False, True]
    _, why = offered(**fields, buckets={"ckpt": "EU"}, zones="us-west4-a", egress_budget=50)
    assert why == (
        "bucket ckpt is in EU, and no v5litepod-8 is available nearby: writing checkpoints from"
        " us-west4-a would cost $0.05 per GiB; allow it with egress_budget: unlimited, or use a"
        " bucket near the nodes"
    )
    near = job(**fields, buckets={"ckpt": "US"}, zones="us-west4-a")
    zone = zone_estimator(near, used_locations(near))("us-west4-a", 4)
    assert [is_allowed(zone, budget) for budget in (0.0, 1.0, inf)] == [True, True, True]
    offer = Offer(zone="us-west4-a", type="v5litepod-8", runtime="r", tier="spot")
    assert egress_lines(near, [offer]) == [
        "data: gs://ckpt is in US",
        "data: writing checkpoints to gs://ckpt (US) from us-west4-a costs $0.02 per GiB",
    ]
    assert [row["per_day"] for row in egress_rows(near, [offer])] == [None]
    read = job(**{**fields, "run": "cat gs://ckpt/data"}, buckets={"ckpt": "EU"})
    found = zone_estimator(read, used_locations(read))("us-west4-a", 4)
    assert found.per_day == pytest.approx(1609.33, rel=1e-3)


@pytest.mark.parametrize(
    ("field", "value", "sentence"),
    [
        ("buckets", {"mine": "MARS1"}, "'MARS1' is not a location that herd knows"),
        ("buckets", {"Mine": "US"}, "'Mine' is not a bucket's name"),
        ("data_rate", "fast", "'fast' is not a rate: write 100MB/s or 1.5GB/s"),
        ("data_rate", "0MB/s", "is not a rate"),
        ("egress_budget", "much", "'much' is not an amount"),
        ("egress_budget", 0, "must be more than 0"),
    ],
)
def test_bad_values_are_refused(field: str, value: Any, sentence: str) -> None:
    found = read_fields({"name": "gpt", "accelerator": "v4-8", field: value})
    assert isinstance(found, list)
    assert sentence in found[0].sentence


@pytest.mark.parametrize(
    "value", ["100MB/s", "1.5GB/s", "250 MiB/s", "1GB", "0.3MB/s", "123.456kB/s"]
)
def test_a_rate_is_kept_as_written(value: str) -> None:
    one = job(data_rate=value)
    assert read_fields(job_document(one)) == one


@pytest.mark.parametrize("value", ["$50/day", "50", 50, "$50 per day", "USD 50/ day", "unlimited"])
def test_a_budget_is_kept_as_written(value: Any) -> None:
    one = job(egress_budget=value)
    assert one.egress_budget == (inf if value == "unlimited" else 50.0)
    assert read_fields(job_document(one)) == one
