"""Three scripts as people have them, unmodified, on one host and on four.

What brings a script's own folder to the next node has tests of its own.
"""

import io
import json
import shutil
import subprocess
import zipfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.conformance.world import client
from tests.integration.engines import Owner, owner
from tests.simulated.tiny_wheel import REQUIREMENTS, write_wheel

CLIENTS = Path(__file__).parent / "clients"
SHAPES = [pytest.param("v2-8", 1, id="1 host"), pytest.param("v4-32", 4, id="4 hosts")]
RATES = (0.01, 0.1, 0.5)

pytestmark = pytest.mark.real


@pytest.fixture(scope="module")
def user() -> Iterator[Owner]:
    python = client("inside")
    with owner("--time-scale", "60", "--offer", str(python.parents[1])) as found:
        yield found


@pytest.fixture(autouse=True)
def clean(user: Owner) -> Iterator[None]:
    yield
    assert user.herd("down", "--all", "--yes", seconds=120).returncode == 0


@pytest.fixture(scope="module")
def packages() -> str:
    """Where the hosts' Python finds JAX and NumPy, which images of TPU VMs do not have either."""
    python = client("inside")
    return str(next((python.parents[1] / "lib").glob("python3*/site-packages")))


def outputs(user: Owner, job: str, name: str) -> list[bytes]:
    """The contents of an output, of all hosts."""
    into = user.home / "fetched"
    shutil.rmtree(into, ignore_errors=True)
    done = user.herd("outputs", job, name, "-o", into)
    assert done.returncode == 0, done.stderr
    return [file.read_bytes() for file in sorted(into.rglob(Path(name).name))]


def lines_of(user: Owner, job: str) -> list[str]:
    """What the job's attempts said, on all hosts."""
    return [
        line for log, lines in user.said().items() if log.startswith(f"{job}-") for line in lines
    ]


@pytest.mark.parametrize(("accelerator", "hosts"), SHAPES)
def test_one_file_with_options_and_savez(
    user: Owner, packages: str, accelerator: str, hosts: int
) -> None:
    folder = user.home / f"fit{hosts}"
    folder.mkdir()
    shutil.copy(CLIENTS / "ordinary_fit.py", folder / "fit.py")
    done = user.herd(
        "run", "fit.py", "--accelerator", accelerator, "--name", f"fit{hosts}", "--wait", "--yes",
        "--env", f"PYTHONPATH={packages}", "--outputs", "runs", "--zones", "any",
        "--", "--steps", "6", "--out", "runs/first", cwd=folder, seconds=240,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    said = lines_of(user, f"fit{hosts}")
    assert sum("starting at step 0" in line for line in said) == hosts
    assert sum("step 6 loss" in line for line in said) == hosts
    files = outputs(user, f"fit{hosts}", "runs/first/last.npz")
    assert len(files) == hosts
    for content in files:
        with zipfile.ZipFile(io.BytesIO(content)) as archive:
            assert set(archive.namelist()) == {"w.npy", "step.npy"}
    row = json.loads(user.herd("status", f"fit{hosts}", "--json").stdout)
    assert row["goodput"] is None
    assert row["goodput_why"] == "unknown: the script reports no steps"


@pytest.mark.parametrize(("accelerator", "hosts"), SHAPES)
def test_a_repository_with_requirements_on_a_pod(
    user: Owner, packages: str, accelerator: str, hosts: int
) -> None:
    folder = user.home / f"repo{hosts}"
    shutil.copytree(CLIENTS / "ordinary_repo", folder)
    write_wheel(folder / "wheels")
    (folder / "requirements.txt").write_text(REQUIREMENTS)
    who = ("-c", "user.name=a", "-c", "user.email=a@b.c")
    for words in (["init", "-q"], ["add", "."], [*who, "commit", "-qm", "all"]):
        subprocess.run(["git", "-C", folder, *words], check=True)
    done = user.herd(
        "run", "train.py", "--accelerator", accelerator, "--name", f"pod{hosts}", "--wait", "--yes",
        "--env", f"PYTHONPATH={packages}", "--outputs", "ckpt", "--zones", "any",
        "--", "configs/small.json", cwd=folder, seconds=240,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert "requirements.txt" in done.stderr
    [final] = outputs(user, f"pod{hosts}", "ckpt/final.json")
    found = json.loads(final)
    assert (found["processes"], found["tiny"]) == (hosts, "1.0")
    assert found["value"] == pytest.approx(2 - 2 * 0.5**8)
    said = lines_of(user, f"pod{hosts}")
    ended = {line for line in said if line.startswith("finished")}
    assert ended == {f"finished {n} of {hosts} tracked: False" for n in range(hosts)}


@pytest.mark.parametrize(("accelerator", "hosts"), SHAPES)
def test_a_sweep_of_a_script_that_continues_from_its_own_file(
    user: Owner, accelerator: str, hosts: int
) -> None:
    folder = user.home / f"rates{hosts}"
    folder.mkdir()
    shutil.copy(CLIENTS / "ordinary_rates.py", folder / "train.py")
    (folder / "job.yaml").write_text(
        f"name: rates{hosts}\naccelerator: {accelerator}\nzones: any\nworkdir: .\n"
        "run: python3 train.py --lr {lr}\noutputs: [results]\n"
        f"sweep: {{method: grid, parameters: {{lr: {list(RATES)}}}}}\n"
    )
    done = user.herd("sweep", "job.yaml", "--detach", "--yes", cwd=folder)
    assert done.returncode == 0, done.stderr
    assert user.herd("wait", f"rates{hosts}", seconds=240).returncode == 0
    found = [json.loads(content) for content in outputs(user, f"rates{hosts}", "results/loss.json")]
    losses = {one["lr"]: one["loss"] for one in found}
    assert len(found) == hosts * len(RATES)
    assert losses == {lr: pytest.approx((5 * (1 - lr) ** 10) ** 2) for lr in RATES}
    said = [line for line in lines_of(user, f"rates{hosts}") if line.startswith("begins")]
    assert said == ["begins at step 0"] * hosts * len(RATES)
