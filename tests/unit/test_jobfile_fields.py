"""What a job file says is what is kept, whichever way it was written."""

import json
from math import inf

import jsonschema  # type: ignore[import-untyped]
import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as some

from tpuherd.catalogue import accelerators
from tpuherd.jobfile.fields import FIELDS, TIERS, job_json_schema
from tpuherd.jobfile.job_spec import NodeRetention, Retry, Secret, Stall
from tpuherd.jobfile.read_job import JobSpec, job_document, read_fields, read_job, split_repository
from tpuherd.jobfile.value_types import format_duration, parse_duration

LEAST = """\
name: gpt
accelerator: v4-32
zones: any
tier: spot
workdir: .
setup: pip install -r requirements.txt
run: python train.py
"""
FULL = {
    "name": "gpt",
    "accelerator": ["v4-32", "v4-16"],
    "runtime": "tpu-ubuntu2204-base",
    "zones": "us-central2-b",
    "tier": ["spot", "reserved"],
    "copies": 3,
    "workdir": "src",
    "python": "3.11",
    "requirements": "more/requirements.txt",
    "nfs": {"/data": "10.0.0.2:/share", "/models": "w0"},
    "setup": ["pip install x", "pip install y", "pip install x"],
    "run": ["python", "train.py"],
    "cluster": "ray",
    "priority": "high",
    "env": {"A": "0.10"},
    "secrets": {"B": {"env": "B"}, "KEY": {"file": "~/key"}},
    "checkpoint": "gs://bucket/gpt",
    "profiler": True,
    "head_start": "boot",
    "buckets": {"bucket": "US-CENTRAL2", "old": "ignore"},
    "data_rate": "250MB/s",
    "egress_budget": 50.0,
    "outputs": ["results", "*.csv"],
    "retry": {"failures": "unlimited", "stalls": 0},
    "stall": {"step": "never", "first": "2h"},
    "grace": "90s",
    "max_lifetime": "3d",
    "idle_timeout": "90m",
    "max_cost": 100.0,
    "max_cost_per_hour": 12.5,
    "node": {"done": "keep", "failed": "30m"},
    "patience": "5m",
    "request": "direct",
    "exact": True,
    "reservation": "mine",
    "service_account": "me@p.iam.gserviceaccount.com",
    "network": {
        "name": "net",
        "subnetwork": "sub",
        "external_ips": False,
        "tags": ["ssh", "web"],
    },
    "labels": {"team": "vision"},
    "data_disks": "projects/p/zones/us-central2-b/disks/d",
    "metadata": {"startup-script": "echo"},
    "notify": [
        {"url": {"env": "HOOK"}, "on": ["done", "gave_up"], "digest": "1m", "cost": 0.5},
        {"kind": "command", "run": "notify-send x", "preemptions": 3, "waiting": "2h"},
    ],
    "sweep": {
        "method": "bayes",
        "parameters": {
            "lr": {"min": 1e-5, "max": 0.1, "log": True},
            "width": {"min": 64, "max": 512, "step": 64, "int": True},
            "kind": ["adam", "sgd", True, 3],
        },
        "metric": "accuracy",
        "goal": "maximize",
        "trials": 30,
        "seed": 7,
        "prune": {"rule": "halving", "warm_up": 100, "after": 6},
    },
}


def job(**fields: object) -> JobSpec:
    found = read_fields({"name": "gpt", "accelerator": "v4-32", **fields})
    assert isinstance(found, JobSpec), found
    return found


def test_the_smallest_job() -> None:
    found = read_job(LEAST)
    assert found == job(workdir=".", setup="pip install -r requirements.txt", run="python train.py")
    assert isinstance(found, JobSpec)
    assert (found.zones, found.tier, found.copies, found.slices) == ((), ("spot",), 1, 1)
    assert found.retry == Retry(failures=3, preemptions=None, stalls=3)


def test_every_field_keeps_its_value() -> None:
    assert FIELDS.keys() - FULL.keys() == {
        "slices", "repo", "node_name", "deadline", "work", "image",
    }  # fmt: skip
    found = read_fields(FULL)
    assert isinstance(found, JobSpec)
    assert job_document(found) == FULL
    assert read_job(yaml.safe_dump(FULL)) == found
    assert read_job(json.dumps(FULL)) == found
    assert found.retry == Retry(failures=None, preemptions=None, stalls=0)
    assert found.node == NodeRetention(done=inf, failed=1800.0)
    assert found.secrets[1] == Secret(name="KEY", source="file", value="~/key")
    assert found.stall == Stall(step=inf, first=7200.0)


def test_a_saved_job_reads_the_same_and_fits_the_schema() -> None:
    schema = job_json_schema()
    jsonschema.Draft202012Validator.check_schema(schema)
    for fields in (
        FULL,
        {
            "name": "a",
            "accelerator": "v4-8",
            "slices": 2,
            "repo": "g@h:x@v1",
            "tier": ["spot", "on-demand"],
            "deadline": "2026-11-27T18:00+0100",
            "work": "20h",
        },
    ):
        jsonschema.validate(fields, schema)
        found = read_fields(fields)
        assert isinstance(found, JobSpec)
        assert read_fields(job_document(found)) == found
    for wrong in ({**FULL, "x": 1}, {**FULL, "copies": 0}, {"name": "a"}, {**FULL, "tier": "x"}):
        with pytest.raises(jsonschema.ValidationError):
            jsonschema.validate(wrong, schema)


def test_an_empty_list_clears_the_field() -> None:
    """As `--set setup=[]` does."""
    none: dict[str, object] = {
        name: [] for name in ("setup", "outputs", "runtime", "data_disks")
    } | {"network": {"tags": []}}
    assert job(**none) == job()
    jsonschema.validate({"name": "gpt", "accelerator": "v4-32", **none}, job_json_schema())


def test_defaults_are_not_saved() -> None:
    assert job_document(job(tier="spot", copies=1, zones="any", stall="10m", retry={})) == {
        "name": "gpt",
        "accelerator": "v4-32",
    }


@pytest.mark.parametrize(
    ("text", "kept"),
    [
        ("0.10", "0.10"), ("3.10", "3.10"), ("no", "no"), ("on", "on"), ("1e-3", "1e-3"),
        ("0755", "0755"), ("12:30", "12:30"), ("2026-01-01", "2026-01-01"), ("'~'", "~"),
        ("''", ""), ("1_000", "1_000"), ("null_", "null_"),
    ],
)  # fmt: skip
def test_variables_are_kept_as_written(text: str, kept: str) -> None:
    found = read_job(f"name: gpt\naccelerator: v4-8\nenv:\n  X: {text}\n")
    assert isinstance(found, JobSpec)
    assert found.env == {"X": kept}


def test_merged_maps_and_one_without_brackets() -> None:
    found = read_job("name: gpt\naccelerator: v4-8\nenv: &e {A: x}\nlabels: {<<: *e, b: y}\n")
    assert isinstance(found, list)  # A is no label
    found = read_job("name: gpt\naccelerator: v4-8\nenv: &e {a: x}\nlabels: {<<: *e, b: y}\n")
    assert isinstance(found, JobSpec)
    assert found.labels == {"a": "x", "b": "y"}
    assert job(zones=["any"]) == job(zones="any") == job()
    assert job(secrets="A") == job(secrets=["A"]) == job(secrets={"A": None})


@pytest.mark.parametrize(
    ("repo", "parts"),
    [
        ("https://e.com/x.git@main", ("https://e.com/x.git", "main")),
        ("https://e.com/x.git@a/b", ("https://e.com/x.git", "a/b")),
        ("https://me@e.com/x.git", ("https://me@e.com/x.git", "HEAD")),
        ("git@e.com:u/x.git", ("git@e.com:u/x.git", "HEAD")),
        ("git@e.com:u/x.git@v1", ("git@e.com:u/x.git", "v1")),
        ("/srv/x", ("/srv/x", "HEAD")),
        ("../x@v1", ("../x", "v1")),
    ],
)
def test_a_repository_and_its_commit(repo: str, parts: tuple[str, str]) -> None:
    assert split_repository(repo) == parts


@given(some.integers(0, 10**11))
def test_durations_are_parsed_as_rendered(duration_ms: int) -> None:
    assert parse_duration(format_duration(duration_ms / 1000)) == duration_ms / 1000


@given(
    some.sampled_from(sorted(one.type for one in accelerators().values() if one.enum)),
    some.lists(some.sampled_from(TIERS), min_size=1, unique=True),
    some.integers(1, 50),
    some.dictionaries(some.text("AZ_", min_size=1, max_size=5), some.text("ab\n'\"$", max_size=5)),
)
def test_any_job_survives_saving(
    type_: str, tiers: list[str], copies: int, env: dict[str, str]
) -> None:
    found = job(accelerator=type_, tier=tiers, copies=copies, env=env)
    assert read_job(yaml.safe_dump(job_document(found))) == found
    assert read_fields(json.loads(json.dumps(job_document(found)))) == found
