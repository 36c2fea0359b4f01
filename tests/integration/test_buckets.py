"""Buckets as a newcomer meets them: create one, let an account use it, check it from hosts."""

import json
from typing import Any

import jsonschema  # type: ignore[import-untyped]
import pytest
from json_schemas import SCHEMAS

from tests.conformance.world import until
from tests.integration.engines import Owner

pytestmark = pytest.mark.real
ACCOUNT = "herd-my-runs@demo.iam.gserviceaccount.com"


def read_json(user: Owner, *words: str, status: int = 0) -> Any:
    done = user.herd("bucket", *words, "--json")
    assert done.returncode == status, done.stderr
    found = json.loads(done.stdout)
    jsonschema.validate(found, SCHEMAS[f"herd bucket {words[0]} BUCKET --json"])
    return found


def test_a_bucket_from_nothing_to_a_write_and_a_read_on_hosts(user: Owner) -> None:
    asked = user.herd("bucket", "create", "gs://my-runs", "--location", "us-central2-b")
    assert asked.returncode == 2
    assert "gs://my-runs in US-CENTRAL2: uniform access, never public" in asked.stderr
    assert asked.stderr.endswith("without a terminal, confirm with --yes\n")
    make = ("create", "my-runs", "--location", "us-central2-b", "--yes")
    assert read_json(user, *make)["created"]
    assert not read_json(user, *make)["created"]
    other = user.herd("bucket", "create", "my-runs", "--location", "EU", "--yes")
    assert (other.returncode, "a bucket can't move" in other.stderr) == (2, True)

    given = read_json(user, "grant", "my-runs", "--yes")
    roles = ["roles/storage.legacyBucketReader", "roles/storage.objectUser"]
    assert (given["account"], given["created"], given["roles"]) == (ACCOUNT, True, roles)
    again = read_json(user, "grant", "my-runs")
    assert (again["created"], again["added"]) == (False, [])

    words = ("--accelerator", "v4-8", "--yes")
    user.world.ask("POST", "v1/projects/demo/serviceAccounts", {"accountId": "stranger"})
    for name, account in (("good", ACCOUNT), ("bad", "stranger@demo.iam.gserviceaccount.com")):
        done = user.herd("up", "--name", name, *words, "--set", f"service_account={account}")
        assert done.returncode == 0, done.stderr

    def both_ready() -> bool:
        jobs = json.loads(user.herd("ls", "--json").stdout)
        return sum(int(job["ready"]) for job in jobs) == 2

    until(both_ready, "both nodes", seconds=120)
    found = read_json(user, "check", "my-runs", "--from", "good,bad", status=1)
    good, bad = sorted(found["hosts"], key=lambda one: not one["works"])
    assert good["says"] == f"as {ACCOUNT}: wrote, read and deleted an object"
    assert bad["host"].startswith("bad-0")
    assert bad["says"].startswith(
        "stranger@demo.iam.gserviceaccount.com does not have storage.objects.create access"
    )
    assert found["accounts"][ACCOUNT] == roles
    assert found["near"] == ["us-central2-b"]
    shown = user.herd("bucket", "check", "my-runs", "--zone", "us-west4-a", "--from", "good")
    assert shown.returncode == 1, "a zone is far"
    assert "us-west4-a: in another region, reading costs $0.02 per GiB" in shown.stdout
    assert "good-0/w0: as herd-my-runs@" in shown.stdout
    objects = user.world.ask("GET", "storage/v1/b/my-runs/o")
    assert "items" not in objects, "the check leaves nothing behind"


def test_a_run_far_from_its_data_is_refused_and_nothing_is_stored(user: Owner) -> None:
    user.world.ask("POST", "storage/v1/b?project=demo", {"name": "tokens", "location": "EU"})
    code = user.home / "far"
    (code / "conf").mkdir(parents=True)
    (code / "train.py").write_text("print('hello')\n")
    (code / "conf/gpt.yaml").write_text("data:\n  cache_dir: gs://tokens/pile\n")
    words = ("run", "--name", "far", "--accelerator", "v4-8", "--workdir", code, "--detach")
    for more in ((), ("--dry-run",), ("--zones", "us-central2-b")):
        done = user.herd(*words, *more, "--", "python3", "train.py", "--config", "conf/gpt.yaml")
        assert done.returncode == 2
        assert "bucket tokens is in EU" in done.stderr
        assert "about $402.33 a day (1 host at 100 MB/s each, $0.05 per GiB)" in done.stderr
    assert "far" not in [job["job"] for job in json.loads(user.herd("ls", "--json").stdout)]
    dry = user.herd(
        *words, "--dry-run", "--json", "--set", "data_rate=1MB/s", "--set", "egress_budget=$5/day",
        "--", "python3", "train.py", "--config", "conf/gpt.yaml",
    )  # fmt: skip
    (estimate,) = json.loads(dry.stdout)["egress"]
    assert (estimate["bucket"], estimate["per_day"]) == ("tokens", 4.02)
