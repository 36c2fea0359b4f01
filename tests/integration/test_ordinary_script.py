"""The script that everybody has, with argparse, print and np.savez, unmodified, in a world."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jsonschema  # type: ignore[import-untyped]
import pytest
from json_schemas import SCHEMAS

from tests.conformance.world import until
from tests.integration.engines import Owner

pytestmark = pytest.mark.real

PRINTS_AND_WAITS = """
import time
print("it has begun")
time.sleep(900)
"""

SHOWS_VARIABLES = """
import json, os, sys
print(json.dumps([sys.argv[1], dict(os.environ)]))
"""


@pytest.fixture(autouse=True)
def clean(user: Owner) -> Iterator[None]:
    yield
    assert user.herd("down", "--all", "--yes", seconds=120).returncode == 0


def code(user: Owner, name: str, text: str) -> str:
    """Write a script into the folder that jobs ship."""
    folder = user.home / "code"
    folder.mkdir(exist_ok=True)
    (folder / name).write_text(text)
    return str(folder)


def test_what_it_prints_is_in_the_log_while_it_runs(user: Owner) -> None:
    where = code(user, "prints.py", PRINTS_AND_WAITS)
    user.job("prints", "python3 prints.py", accelerator="v4-8", workdir=where)
    until(
        lambda: "it has begun" in user.herd("logs", "prints").stdout, "its first line", seconds=120
    )


def test_only_the_launcher_of_torch_gives_processes_a_rank(user: Owner) -> None:
    """A library that shards by RANK refuses to start on several hosts if it was not told how."""
    where = code(user, "shows.py", SHOWS_VARIABLES)
    plain = "python3 shows.py plain && exec python3 -m tpuherd_host.torch shows.py torch"
    user.job("shows", plain, workdir=where)
    assert user.herd("wait", "shows", seconds=180).returncode == 0
    found = [json.loads(line) for log, lines in user.said().items() for line in lines
             if log.startswith("shows-")]  # fmt: skip
    by_kind = {kind: [env for name, env in found if name == kind] for kind in ("plain", "torch")}
    assert {env["NODE_RANK"] for env in by_kind["plain"]} == {"0", "1"}
    assert not any({"RANK", "WORLD_SIZE", "TPU_WORKER_HOSTNAMES"} & {*env}
                   for env in by_kind["plain"])  # fmt: skip
    first, second = sorted(by_kind["torch"], key=lambda env: str(env["RANK"]))
    for env in (first, second):
        assert (env["WORLD_SIZE"], env["NNODES"], env["TORCH_TPU_TOPOLOGY"]) == ("2", "2", "2x2x2")
        assert env["MASTER_ADDR"] == env["TPU_WORKER_HOSTNAMES"].split(",")[0]
    assert second["WANDB_RUN_ID"] == f"{first['WANDB_RUN_ID']}-w1"


#: Writes a folder an attempt, as W&B does offline, and ends when it is told to.
WRITES = """
import os, signal, sys, time
def leave(*_):
    print("last line")
    sys.exit(75)
signal.signal(signal.SIGTERM, leave)
attempt = os.environ["HERD_ATTEMPT"]
os.makedirs(f"wandb/offline-run-{attempt}")
with open(f"wandb/offline-run-{attempt}/run.wandb", "w") as file:
    file.write(attempt)
print("written")
if attempt == "1":
    time.sleep(900)
"""


def test_outputs_come_back_from_a_preemption(user: Owner) -> None:
    """The promise of the page on W&B: offline folders of all attempts are fetched."""
    where = code(user, "writes.py", WRITES)
    user.job("writes", "python3 writes.py", workdir=where, outputs=["wandb/offline-run-*"])
    until(lambda: "written" in user.herd("logs", "writes").stdout, "the first attempt", seconds=120)
    assert user.herd("sim", "preempt", "writes-0-*").returncode == 0
    assert user.herd("wait", "writes", seconds=180).returncode == 0
    first, second = user.events("slot.collected")
    assert sorted(path.partition("/")[2] for path in first.facts["paths"]) == [
        "offline-run-1/run.wandb", "offline-run-1/run.wandb",
    ]  # fmt: skip
    assert first.facts["why"].startswith("2 outputs came before the node went: writes-0-g1-")
    (gone,) = (
        one for one in user.events("bid.withdrawn") if one.facts["bid"] == first.facts["bid"]
    )
    assert gone.at >= first.at
    for event, attempt in ((first, "1"), (second, "2")):
        found = [*Path(event.facts["folder"]).glob("*.w*/offline-run-*/run.wandb")]
        assert [file.read_text() for file in found] == [attempt, attempt]
    assert user.herd("logs", "writes", "--attempt", "1").stdout.count("last line") >= 1


#: argparse, files in a folder and print: what everybody has; hosts have no NumPy.
SAVES = """
import argparse, os, pathlib, time
parser = argparse.ArgumentParser()
parser.add_argument("--steps", type=int, default=3)
parser.add_argument("--wait", action="store_true")
args = parser.parse_args()
out = pathlib.Path("results")
out.mkdir(exist_ok=True)
for step in range(args.steps):
    print("step", step)
    (out / f"step-{step}.npz").write_bytes(bytes(step + 1))
while args.wait:
    time.sleep(1)
"""


def test_outputs_are_listed_and_copied_of_a_running_and_a_finished_job(
    user: Owner, tmp_path: Path
) -> None:
    where = code(user, "saves.py", SAVES)
    fields: dict[str, Any] = {"workdir": where, "outputs": ["results"]}
    user.job("saves", "python3 saves.py --wait", **fields)
    until(lambda: "step 2" in user.herd("logs", "saves").stdout, "the last step", seconds=120)
    listed = user.herd("outputs", "saves", "--json")
    rows = json.loads(listed.stdout)
    jsonschema.validate(rows, SCHEMAS["herd outputs JOB --json"])
    names = [f"saves-0/a1/w{host}/results/step-{n}.npz" for host in (0, 1) for n in range(3)]
    assert sorted(row["name"] for row in rows) == names
    assert {row["file"] for row in rows} == {None}
    done = user.herd("outputs", "saves", "results/step-1.npz", "-o", tmp_path / "live")
    assert (done.returncode, done.stdout[:14]) == (0, "copied 2 files"), done.stderr
    assert len([*tmp_path.glob("live/w[01]/results/step-1.npz")]) == 2
    none = user.herd("outputs", "saves", "*.csv")
    assert none.returncode == 4
    assert "no output of saves matches *.csv" in none.stderr

    user.job("saves", "python3 saves.py --steps 2", **fields)
    ended = user.herd("wait", "saves", seconds=180)
    place = user.store_folder / "outputs/saves-0"
    assert f"herd wait: outputs are in {place};" in ended.stderr
    table = user.herd("outputs", "saves").stdout
    assert "saves-0/a2/w1/results/step-1.npz" in table and "here" in table
    done = user.herd("outputs", "saves", "saves-0/a2/w0", "-o", tmp_path / "over")
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "over/results/step-1.npz").stat().st_size > 0
    assert user.herd("down", "saves", "--yes", seconds=120).returncode == 0
    assert "saves-0/a2/w1/results/step-1.npz" in user.herd("outputs", "saves").stdout


def test_a_job_without_outputs_says_how_to_name_them(user: Owner) -> None:
    user.job("bare", "sleep 900", accelerator="v4-8")
    done = user.herd("outputs", "bare")
    assert done.returncode == 4
    assert "herd set bare outputs=results" in done.stderr
