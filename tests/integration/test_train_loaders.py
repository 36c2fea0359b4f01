"""Loaders of other libraries use our splitter and our batches unchanged."""

import io
import json
import os
import subprocess
import tarfile
from pathlib import Path
from typing import Any

import pytest

from tests.conformance.world import client

SRC = Path(__file__).parents[2] / "src"
PROGRAMS = Path(__file__).parent / "clients"

pytestmark = [pytest.mark.real, pytest.mark.heavy]


def shards(folder: Path) -> tuple[list[str], list[str]]:
    """Seven tars of unlike length, and the keys of all samples."""
    paths, keys = [], []
    for shard in range(7):
        paths.append(str(folder / f"{shard}.tar"))
        with tarfile.open(paths[-1], "w") as archive:
            for place in range(9 + shard):
                keys.append(f"{shard}-{place}")
                one = tarfile.TarInfo(f"{keys[-1]}.txt")
                one.size = 2
                archive.addfile(one, io.BytesIO(b"ab"))
    return paths, keys


def said_by(python: Path, program: str, *words: str, home: Path) -> Any:
    env = {
        "PATH": os.environ["PATH"],
        "HOME": str(home),
        "PYTHONPATH": str(SRC),
        "JAX_PLATFORMS": "cpu",
    }
    command: list[str | Path] = [python, PROGRAMS / program, *words]
    done = subprocess.run(command, env=env, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.splitlines()[-1])


def test_every_sample_once_on_four_hosts(tmp_path: Path) -> None:
    paths, keys = shards(tmp_path)
    said = said_by(client("train"), "train_loaders.py", *paths, home=tmp_path)
    assert sorted(said["pipeline"]) == sorted(keys)
    assert sorted(said["wrapped"]) == sorted(keys)
    steps = len(keys) // 8
    assert {len(batches) for batches in said["grain"]} == {steps - 3}
    seen = [key for batches in said["grain"] for batch in batches for key in batch]
    assert len(set(seen)) == len(seen) == (steps - 3) * 8


@pytest.mark.parametrize("workers", ["none", "fork", "forkserver"])
def test_pytorch_reads_by_number_and_resumes_with_other_hosts(tmp_path: Path, workers: str) -> None:
    paths, keys = shards(tmp_path)
    said = said_by(client("torch"), "train_torch.py", workers, *paths, home=tmp_path)
    steps = len(keys) // 8
    assert [len(batches) for batches in said["numbers"]] == [3] * 4 + [steps - 3] * 2
    seen = [key for batches in said["numbers"] for batch in batches for key in batch]
    assert len(set(seen)) == len(seen) == steps * 8
    if workers == "fork":
        assert sorted(said["pipeline"]) == sorted(keys)


def test_tfds_is_shared_with_random_access_and_as_streams(tmp_path: Path) -> None:
    said = said_by(client("tfds"), "train_tfds.py", home=tmp_path)
    assert not said["tensorflow"]
    assert len(set(said["random"])) == len(said["random"]) == 40, "on four hosts, then on two"
    assert said["stacked"]["number"] == ["8"]
    assert [len(batches) for batches in said["streams"]] == [5] * 4
    seen = [number for batches in said["streams"] for batch in batches for number in batch]
    assert len(set(seen)) == len(seen) == 40
    assert said["resumed"] == [batches[3:] for batches in said["streams"]]
