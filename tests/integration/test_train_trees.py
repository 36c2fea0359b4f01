"""Trees, keys and conversions as documented, with real JAX, optax, flax and PyTorch."""

import json
import os
import subprocess
from pathlib import Path
from typing import Any

import pytest

from tests.conformance.world import client

SRC = Path(__file__).parents[2] / "src"
PROGRAM = Path(__file__).parent / "clients" / "train_trees.py"

pytestmark = [pytest.mark.real, pytest.mark.heavy]


def ran(*words: str | Path, home: Path) -> "subprocess.CompletedProcess[str]":
    env = {
        "PATH": os.environ["PATH"],
        "HOME": str(home),
        "PYTHONPATH": str(SRC),
        "JAX_PLATFORMS": "cpu",
        "JAX_NUM_CPU_DEVICES": "4",
    }
    return subprocess.run(words, env=env, capture_output=True, text=True, timeout=200)


@pytest.fixture(scope="module")
def said(tmp_path_factory: pytest.TempPathFactory) -> list[Any]:
    done = ran(client("torch"), PROGRAM, home=tmp_path_factory.mktemp("home"))
    assert done.returncode == 0, done.stderr
    found: list[Any] = json.loads(done.stdout.splitlines()[-1])
    return found


def test_copies_between_numpy_pytorch_and_jax_are_copies(said: list[Any]) -> None:
    numbers = [float(number) for number in range(6)]
    more = [number + 1 for number in numbers]
    assert said[0] == [numbers, numbers, more, more, True]


def test_frozen_parameters_stay_and_have_no_moments(said: list[Any]) -> None:
    moved, moments, table = said[1]
    assert moved == {"embed": {"w": False}, "out": {"b": True, "w": True}}
    assert moments == [[], [2, 3], [3]]
    assert table == [
        "['embed']['w']  float32   (4, 2)",
        "['out']['b']    float32   (3,)",
        "['out']['w']    float32   (2, 3)",
        "17 numbers in 3 arrays",
    ]


def test_a_parameter_file_is_loaded_as_saved(said: list[Any]) -> None:
    assert said[2] == [[0.0, 1.0, 2.0, 3.0], "bfloat16", 3]


def test_trees_are_on_all_chips_replicated_or_sharded(said: list[Any]) -> None:
    numbers = [float(number) for number in range(8)]
    assert said[3] == [4, numbers, [numbers[at : at + 2] for at in range(0, 8, 2)]]


def test_keys_and_seeds(said: list[Any]) -> None:
    place, seeds, (first, second, again) = said[4]
    assert place == "cpu"
    assert len({seed for both in seeds for seed in both}) == 6
    assert first != second == again


def test_init_must_come_first(tmp_path: Path) -> None:
    late = "import jax; jax.devices(); from tpuherd_host import train; train.init()"
    done = ran(client("torch"), "-c", late, home=tmp_path)
    assert (done.returncode, done.stdout) == (78, "")
    assert done.stderr.splitlines() == [
        "herd: error: call train.init() before any other use of JAX, including jax.devices()"
    ]
