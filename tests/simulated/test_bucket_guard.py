"""A job whose data is far away is stopped before anything is stored."""

from pathlib import Path
from typing import Any

import pytest

from tests.simulated.test_submit import JOB, SubmitRig
from tpuherd.engine.desired_slots import load_desired_state
from tpuherd.errors import InvalidInput, NotAllowed, NotFound, NotReached
from tpuherd.jobs.bucket_guard import BUCKETS_MAX

POD = "name: gpt\naccelerator: v5litepod-16\n"


@pytest.fixture
def rig(tmp_path: Path) -> Any:
    made = SubmitRig(tmp_path)
    yield made
    made.session.store.close()


def engine_zones(rig: SubmitRig) -> set[str]:
    """Where the engine may ask for nodes, from what is stored alone."""
    rows = rig.session.store.stored_jobs()
    state = load_desired_state(rows, rig.session.place, owner="abc")
    return {offer.zone for offer in state.desired_slots.slots["gpt-0"].offers}


def test_a_far_zone_stops_the_launch_with_its_price(rig: SubmitRig) -> None:
    rig.buckets = {"data": "EU"}
    text = f"{POD}zones: [us-west4-a, europe-west4-b]\nrun: cat gs://data/x\n"
    assert rig.submit_file(text) == [
        "job.yaml:3: zones[0]: bucket data is in EU, and reading it from us-west4-a would cost"
        " about $1,609.33 a day (4 hosts at 100 MB/s each, $0.05 per GiB); choose a zone in EU"
        " (zones: any does), or allow it with egress_budget: $1610/day"
    ]
    assert rig.session.store.stored_jobs() == {}
    assert rig.log() == []
    assert rig.word(f"{text}egress_budget: $1610/day\n") == "submitted"
    assert engine_zones(rig) == {"us-west4-a", "europe-west4-b"}


def test_a_far_bucket_for_checkpoints_stops_the_launch_with_the_price_of_a_gib(
    rig: SubmitRig,
) -> None:
    rig.buckets = {"ckpt": "EU"}
    text = f"{POD}zones: us-west4-a\ncheckpoint: gs://ckpt/gpt\nrun: train $HERD_CHECKPOINT\n"
    assert rig.submit_file(text) == [
        "job.yaml:3: zones: bucket ckpt is in EU, and writing checkpoints from us-west4-a would"
        " cost $0.05 per GiB; choose a zone in EU (zones: any does), or allow it with"
        " egress_budget: unlimited"
    ]
    assert rig.word(f"{text}egress_budget: unlimited\n") == "submitted"
    assert engine_zones(rig) == {"us-west4-a"}


def test_the_engine_keeps_to_zones_near_the_data(rig: SubmitRig) -> None:
    rig.buckets = {"data": "EUROPE-WEST4", "public": NotAllowed("no")}
    text = f"{POD}run: cat gs://data/x\nenv: {{FROM: gs://public/y}}\n"
    (refused,) = rig.submit_file(text)  # type: ignore[misc]
    assert "you are not allowed to read bucket public: write where it is" in str(refused)
    assert rig.word(f"{text}buckets: {{public: EU}}\n") == "submitted"
    assert engine_zones(rig) == {"europe-west4-a", "europe-west4-b"}
    assert rig.word(f"{text}buckets: {{public: EU}}\n") == "unchanged"
    with pytest.raises(InvalidInput, match="bucket far is in US-EAST1"):
        rig.buckets["far"] = "US-EAST1"
        rig.set(env={"FROM": "gs://far/y"})
    rig.buckets["far"] = "EUROPE-WEST4"
    assert rig.set(env={"FROM": "gs://far/y"}) is not None
    stated = rig.session.get_job("gpt").document["buckets"]
    assert stated == {"data": "EUROPE-WEST4", "far": "EUROPE-WEST4"}, "public is not used now"


def test_files_that_the_command_names_are_read(rig: SubmitRig, tmp_path: Path) -> None:
    code = tmp_path / "code"
    (code / "conf").mkdir(parents=True)
    (code / "train.py").write_text("HELP = 'such as gs://example-only/x'\n")
    config = code / "conf" / "a.yaml"
    config.write_text("# gs://commented/x\ncache_dir: gs://tokens/x\n")
    (code / "unnamed.yaml").write_text("cache_dir: gs://never-asked/x\n")
    text = f"{POD}workdir: code\nrun: python train.py --config conf/a.yaml\nzones: us-west4-a\n"
    rig.buckets = {"tokens": NotFound("no"), "example-only": NotFound("no")}
    assert rig.submit_file(text) == [
        "job.yaml:4: run: conf/a.yaml:2: bucket tokens does not exist",
    ]
    rig.buckets["tokens"] = "EU"
    (refused,) = rig.submit_file(text)  # type: ignore[misc]
    assert "bucket tokens is in EU, and reading it from us-west4-a would cost" in str(refused)
    assert rig.word(text.replace("us-west4-a", "europe-west4-b")) == "submitted"
    assert rig.session.get_job("gpt").document["buckets"] == {"tokens": "EU"}
    config.write_bytes(b"gs://binary-file/x\0")
    assert rig.word(text) == "changed"
    config.write_text("x" * (1 << 20) + "gs://too-long/x")
    assert rig.word(text) == "changed"


def test_an_unknown_location_is_not_guessed(rig: SubmitRig) -> None:
    rig.buckets = {"mine": "MARS1"}
    assert rig.submit_file(f"{JOB}checkpoint: gs://mine/x") == [
        "job.yaml:4: checkpoint: bucket mine is in MARS1, which herd does not know: write where"
        " it is, such as buckets: {mine: US}, or {mine: ignore} if it is not used"
    ]
    assert rig.word(f"{JOB}checkpoint: gs://mine/x\nbuckets: {{mine: ignore}}") == "submitted"


def test_look_ups_are_bounded(rig: SubmitRig) -> None:
    many = " ".join(f"gs://bucket-{number}/x" for number in range(BUCKETS_MAX + 1))
    assert rig.submit_file(f"{POD}run: cat {many}\n") == [
        f"job.yaml:1: buckets: names {BUCKETS_MAX + 1} buckets, more than {BUCKETS_MAX}: state"
        " their locations"
    ]


def test_without_an_answer_only_known_locations_count(rig: SubmitRig) -> None:
    rig.buckets = {"mine": "US-WEST4"}
    text = f"{POD}run: cat gs://mine/x\n"
    assert rig.word(text) == "submitted"
    rig.buckets = {"mine": NotReached("no network"), "new": NotReached("no network")}
    assert rig.word(text) == "unchanged"
    with pytest.raises(NotReached):
        rig.submit_file(text.replace("mine", "new"))
