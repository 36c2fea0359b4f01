"""Exported scripts run on a real Slurm of several nodes on this machine."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.integration.slurm_cluster import SlurmCluster
from tpuherd.exports.exported_job import ExportedJob
from tpuherd.exports.slurm_script import SlurmOptions, slurm_script
from tpuherd.jobfile.read_job import JobSpec, read_fields

pytestmark = [
    pytest.mark.needs("slurmctld", "slurmd", "sbatch"), pytest.mark.root, pytest.mark.real,
]  # fmt: skip
TRAIN = """\
import os, pathlib, time
place = pathlib.Path(os.environ["HERD_CHECKPOINT"], os.environ["HERD_RUN_ID"])
place.mkdir(parents=True, exist_ok=True)
mine = place / os.environ["HERD_WORKER"]
step = int(mine.read_text()) if mine.exists() else 0
names = "HERD_RUN_ID HERD_ATTEMPT HERD_RESUME HERD_WORKER HERD_WORKERS".split()
print("began", *(os.environ[name] for name in names), step > 0, flush=True)
while not pathlib.Path("finish").exists():
    step += 1
    new = mine.with_name(f"{mine.name}.new")
    new.write_text(str(step))
    new.rename(mine)
    time.sleep(0.05)
"""
FAIL = """\
import os, sys
print("attempt", os.environ["HERD_ATTEMPT"], flush=True)
sys.exit(int(os.environ["HERD_WORKER"]) and int(os.environ["STATUS"]))
"""


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[SlurmCluster]:
    (tmp_path / "train.py").write_text(TRAIN)
    (tmp_path / "fail.py").write_text(FAIL)
    with SlurmCluster(tmp_path, nodes=3) as found:
        yield found


def script(**fields: object) -> str:
    job = read_fields({"name": "gpt", "accelerator": "v4-16", "grace": "5s", **fields})
    assert isinstance(job, JobSpec), job
    return slurm_script(ExportedJob(job=job), SlurmOptions())


def read_log(cluster: SlurmCluster, job: str, word: str) -> list[str]:
    log = cluster.folder / f"gpt-{job}.log"
    lines = log.read_text().splitlines() if log.exists() else []
    return sorted(one for one in lines if one.startswith(word))


def test_a_lost_node_costs_no_run_and_no_step(cluster: SlurmCluster) -> None:
    job = cluster.submit(script(run="python3 train.py", checkpoint=f"{cluster.folder}/saved"))
    saved = cluster.folder / "saved" / f"gpt-0-{job}"
    cluster.wait_for("step of both hosts", lambda: all((saved / one).exists() for one in "01"))
    used = cluster.read("squeue", "-h", "-j", job, "-o", "%N")
    assert used == "n[0-1]"
    cluster.lose("n1")
    cluster.wait_for("second start", lambda: bool(cluster.state(job)) and
                     len(read_log(cluster, job, "began")) == 4)  # fmt: skip
    assert cluster.read("squeue", "-h", "-j", job, "-o", "%N") == "n[0,2]"
    (cluster.folder / "finish").touch()
    cluster.wait_for_state(job, "COMPLETED")
    assert read_log(cluster, job, "began") == [
        f"began gpt-0-{job} 1 0 0 2 False", f"began gpt-0-{job} 1 0 1 2 False",
        f"began gpt-0-{job} 2 1 0 2 True", f"began gpt-0-{job} 2 1 1 2 True",
    ]  # fmt: skip


def test_failures_are_counted_and_a_hopeless_or_cancelled_job_ends(cluster: SlurmCluster) -> None:
    failing = cluster.submit(
        script(run="python3 fail.py", env={"STATUS": "3"}, retry={"failures": 1})
    )
    cluster.wait_for_state(failing, "FAILED")
    assert set(read_log(cluster, failing, "attempt")) == {"attempt 1", "attempt 2"}
    assert "ExitCode=3:0" in cluster.read("scontrol", "show", "job", failing)
    unfit = cluster.submit(script(run="python3 fail.py", env={"STATUS": "78"}))
    cluster.wait_for_state(unfit, "FAILED")
    assert set(read_log(cluster, unfit, "attempt")) == {"attempt 1"}
    stays = cluster.submit(script(run="python3 train.py", checkpoint=f"{cluster.folder}/saved"))
    cluster.wait_for("its start", lambda: len(read_log(cluster, stays, "began")) == 2)
    cluster.read("scancel", stays)
    cluster.wait_for_state(stays, "CANCELLED")


def test_a_time_limit_is_no_failure(cluster: SlurmCluster) -> None:
    """The signal comes soon: the limit is a minute, and the grace most of it."""
    text = script(run="python3 train.py", checkpoint=f"{cluster.folder}/saved", grace="55s")
    job = cluster.submit(text.replace("#SBATCH --requeue", "#SBATCH --time=1\n#SBATCH --requeue"))
    cluster.wait_for("second start", lambda: bool(cluster.state(job)) and
                     len(read_log(cluster, job, "began")) >= 4)  # fmt: skip
    (cluster.folder / "finish").touch()
    cluster.wait_for_state(job, "COMPLETED")
    assert "failures=" not in cluster.read("scontrol", "show", "job", job)
    assert {one.split()[1] for one in read_log(cluster, job, "began")} == {f"gpt-0-{job}"}
