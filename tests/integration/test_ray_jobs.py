"""Jobs with `cluster: ray` on the real Ray, over four simulated hosts that are lost."""

import json
import re
from collections.abc import Iterator
from pathlib import Path
from time import monotonic

import pytest

from tests.conformance.world import client, until
from tests.integration.engines import Owner, owner
from tpuherd.model.slots_and_plan import HistoryEvent
from tpuherd_host.train.storage import place

EXAMPLE = Path(__file__).parents[2] / "examples" / "ray_cluster"
ASK = Path(__file__).parent / "clients" / "ask_ray.py"
SHARDS, EPOCHS = 8, 8
PROCESSES = "pgrep -f -c '[r]ay/core/src|[r]ay::|[r]ay/_private|[r]ay/dashboard'"

pytestmark = [pytest.mark.real, pytest.mark.heavy, pytest.mark.timeout(900)]


@pytest.fixture(scope="module")
def user() -> Iterator[Owner]:
    with owner("--time-scale", "60", "--offer", str(client("ray").parents[1])) as found:
        found.bucket("waves")
        yield found
        found.herd("down", "--all", "--yes", seconds=120)


def lines(user: Owner, job: str) -> list[str]:
    """Its output on all hosts in all attempts."""
    return [line for about, said in user.said().items() if about.startswith(job) for line in said]


def await_line(user: Owner, job: str, pattern: str, many: int = 1) -> str:
    """Wait until so many lines match; return the last."""
    found = until(
        lambda: [line for line in lines(user, job) if re.search(pattern, line)][many - 1 :],
        f"{many} lines {pattern}", seconds=300,
    )  # fmt: skip
    return found[-1]


def of(user: Owner, job: str, kind: str) -> list[HistoryEvent]:
    return [one for one in user.events(kind) if one.slot == f"{job}-0"]


def run_on(user: Owner, target: str, script: str) -> str:
    done = user.herd("exec", target, "--json", "-c", script)
    texts = [json.loads(line).get("text") for line in done.stdout.splitlines()]
    return "\n".join(text for text in texts if text)


def test_data_and_training_go_on_after_a_lost_raylet_and_a_preemption(user: Owner) -> None:
    bucket = place("gs://waves/run", {"STORAGE_EMULATOR_HOST": user.world.url})
    user.job(
        "waves",
        f"{client('ray')} train.py --shards {SHARDS} --epochs {EPOCHS} --pause 1",
        accelerator="v4-32", workdir=str(EXAMPLE), checkpoint="gs://waves/run", cluster="ray",
    )  # fmt: skip
    await_line(user, "waves", f"^0 of {SHARDS} shards are complete")
    run_on(user, "waves/w2", "pkill -9 raylet")
    await_line(user, "waves", "training begins with epoch 0")
    assert len(of(user, "waves", "attempt.started")) == 1, "the cluster went on without the host"
    assert "joins the cluster again (1 of 3 times)" in "\n".join(lines(user, "waves"))
    assert len([name for name in bucket.names("shards/") if name.endswith("parquet")]) == SHARDS
    await_line(user, "waves", "epoch 2 loss")
    user.world.herd("preempt", "waves-0-*", "--no-notice")
    done = user.herd("wait", "waves", seconds=400)
    said = "\n".join(lines(user, "waves"))
    assert done.returncode == 0, done.stderr + said
    assert f"\n{SHARDS} of {SHARDS} shards are complete" in said
    resumed = int(re.findall(r"training begins with epoch (\d+)", said)[-1])
    assert 2 <= resumed < EPOCHS
    assert f"finished: {EPOCHS} epochs" in said
    assert len(of(user, "waves", "attempt.started")) == 2


def test_a_slices_names_and_the_ends_of_agents_hosts_and_attempts(user: Owner) -> None:
    user.job(
        "nodes", f"{client('ray')} {ASK.name} v4-32",
        accelerator="v4-32", workdir=str(ASK.parent), cluster="ray", grace="60s",
    )  # fmt: skip
    found = json.loads(await_line(user, "nodes", "TPU-v4-32-head"))
    name, hosts, chips, places = found["slice"]
    assert name.startswith("nodes-0-g") and (hosts, chips) == (4, 4)
    assert len(set(places)) == 4
    wanted = {"TPU": 16, "TPU-v4-32-head": 1, name: 4, "accelerator_type:TPU-V4": 4}
    assert {key: found["resources"].get(key) for key in wanted} == wanted
    assert sorted(one["ray.io/tpu-worker-id"] for one in found["labels"]) == ["0", "1", "2", "3"]
    assert {one["ray.io/tpu-slice-name"] for one in found["labels"]} == {name}

    user.world.herd("weather", "crash", f"{name}/w1")
    await_line(user, "nodes", "TPU-v4-32-head", many=2)
    run_on(user, "nodes/w0", "pkill -9 gcs_server")
    await_line(user, "nodes", "Ray's gcs_server on this host has ended; its log is in")
    await_line(user, "nodes", "TPU-v4-32-head", many=3)

    begun = monotonic()
    other = user.herd("set", "nodes", "cluster=", "run=cat saved; sleep 600", "--yes")
    assert other.returncode == 0, other.stderr
    until(
        lambda: [one for one in user.events("attempt.ended") if one.slot == "nodes-0"][2:],
        "the attempt's end",
        seconds=120,
    )
    print(f"Ray had ended after {monotonic() - begun:.1f} s")
    await_line(user, "nodes", "^saved$")
    assert run_on(user, "nodes", PROCESSES).split() == ["0"] * 4, "something of Ray's is left"
