"""The examples in a world: a node is preempted halfway; nothing is lost or done twice."""

import io
import json
import re
import tarfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.conformance.world import client, until
from tests.integration.engines import Owner, owner
from tpuherd_host.train.storage import Place, place

EXAMPLES = Path(__file__).parents[2] / "examples"
SAMPLES = 1200

pytestmark = [pytest.mark.real, pytest.mark.heavy, pytest.mark.timeout(600)]


@pytest.fixture(scope="module")
def user() -> Iterator[Owner]:
    with owner("--time-scale", "60", "--offer", str(client("inside").parents[1])) as found:
        found.bucket("examples")
        yield found
        found.herd("down", "--all", "--yes", seconds=120)


def bucket(user: Owner, path: str) -> Place:
    return place(f"gs://examples/{path}", {"STORAGE_EMULATOR_HOST": user.world.url})


def lines(user: Owner, job: str) -> list[str]:
    """Its output on all hosts in all attempts."""
    return [line for about, said in user.said().items() if about.startswith(job) for line in said]


def test_every_file_is_packed_once_although_a_node_dies(user: Owner) -> None:
    raw, shards = bucket(user, "raw"), bucket(user, "shards")
    files = {f"{'ab'[one % 2]}/{one:04}.jpg": b"%d" % one for one in range(SAMPLES)}
    for name, content in files.items():
        raw.write(name, [content])
    command = "python3 prepare.py gs://examples/raw gs://examples/shards --samples 4"
    code = str(EXAMPLES / "prepare")
    user.job("prepare", command, copies=2, accelerator="v4-8", workdir=code)
    until(lambda: shards.names("done/shard-000001"), "the second node's first shard", seconds=180)
    sudden = {"target": "prepare-1-*", "notice_s": 0, "flag": False, "acpi": False}
    user.world.ask("POST", "sim/v1/weather/preempt", sudden)
    assert len(shards.names("done/")) < SAMPLES // 4
    done = user.herd("wait", "prepare", seconds=300)
    assert done.returncode == 0, done.stderr + "\n".join(lines(user, "prepare"))
    found = []
    for name in shards.names("shard-"):
        with tarfile.open(fileobj=io.BytesIO(shards.read(name))) as archive:
            found += [entry.name for entry in archive]
    assert sorted(found) == sorted(files)
    assert len(shards.names("done/")) == SAMPLES // 4
    sizes = json.loads(shards.read("sizes.json"))
    assert (len(sizes), set(sizes.values())) == (SAMPLES // 4, {4})
    assert len(user.events("attempt.started")) == 3  # one of them a second time


def test_a_sweep_continues_after_a_preemption(user: Owner) -> None:
    file, place = EXAMPLES / "sweep/job.yaml", "gs://examples/curve"
    few = ("--checkpoint", place, "--copies", "2", "--set", "sweep.trials=4")
    begun = user.herd("sweep", file, *few, "--detach", "--yes")
    assert begun.returncode == 0, begun.stderr
    names = bucket(user, "curve").names
    until(lambda: any("-t0-" in name for name in names()), "trial 0 to save", seconds=180)
    first = next(one for one in user.events("trial.assigned") if one.facts["trial"] == 0)
    user.world.herd("preempt", f"{first.slot}-*")
    done = user.herd("wait", "curve", seconds=300)
    assert done.returncode == 0, done.stderr
    each = json.loads(user.herd("sweep", "status", "curve", "--json").stdout)["trials"]
    assert {row["phase"] for row in each} <= {"complete", "pruned"}
    assert (each[0]["attempts"], each[0]["step"]) == (2, 30_000)
    assert re.search(r"begins at step [1-9]", "\n".join(lines(user, "curve")))
    assert {name.split("/")[0] for name in names()} <= {row["run_id"] for row in each}
    best = json.loads(user.herd("sweep", "best", "curve", "--json").stdout)
    assert best["value"] < 0.01


def test_the_classifier_continues_after_a_preemption(user: Owner) -> None:
    python = client("inside")
    user.job(
        "vision",
        f"{python} train.py --data ~/pictures --steps 250",
        accelerator="v5litepod-16",
        workdir=str(EXAMPLES / "vision"),
        setup="python3 pictures.py ~/pictures",
        checkpoint="gs://examples/vision",
    )
    said = "\n".join
    until(lambda: "step   75" in said(lines(user, "vision")), "75 steps", seconds=240)
    user.world.herd("preempt", "vision-0-*")
    done = user.herd("wait", "vision", seconds=300)
    log = said(lines(user, "vision"))
    assert done.returncode == 0, done.stderr + log
    assert re.search(r"resumed at step \d\d+, saved by attempt 1", log), log
    right = re.search(r"finished: 250 steps, (\d+)% of new pictures right", log)
    assert right is not None, log
    assert int(right[1]) >= 90
