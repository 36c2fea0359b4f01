"""The loaders of others take our splitter and our batches as they are."""

import io
import json
import os
import subprocess
import tarfile
from pathlib import Path

import pytest

from tests.conformance.world import client

SRC = Path(__file__).parents[2] / "src"
PROGRAM = Path(__file__).parent / "clients" / "train_loaders.py"

pytestmark = [pytest.mark.real, pytest.mark.heavy]


def test_every_sample_once_on_four_hosts(tmp_path: Path) -> None:
    paths, keys = [], []
    for shard in range(7):
        paths.append(str(tmp_path / f"{shard}.tar"))
        with tarfile.open(paths[-1], "w") as archive:
            for place in range(9 + shard):
                keys.append(f"{shard}-{place}")
                one = tarfile.TarInfo(f"{keys[-1]}.txt")
                one.size = 2
                archive.addfile(one, io.BytesIO(b"ab"))
    env = {"PATH": os.environ["PATH"], "HOME": str(tmp_path), "PYTHONPATH": str(SRC)}
    words: list[str | Path] = [client("train"), PROGRAM, *paths]
    done = subprocess.run(words, env=env, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    said = json.loads(done.stdout.splitlines()[-1])
    assert sorted(said["pipeline"]) == sorted(keys)
    assert sorted(said["wrapped"]) == sorted(keys)
    steps = len(keys) // 8
    assert {len(batches) for batches in said["grain"]} == {steps - 3}
    seen = [key for batches in said["grain"] for batch in batches for key in batch]
    assert len(set(seen)) == len(seen) == (steps - 3) * 8
