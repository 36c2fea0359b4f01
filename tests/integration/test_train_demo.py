"""The demo's training, preempted halfway, ends with the same bits as an uninterrupted one."""

import os
import re
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from tests.conformance.world import client

ROOT = Path(__file__).parents[2]
FINISHED = re.compile(r"finished: 200 steps, loss ([\d.]+), parameters (\w+)")

pytestmark = [pytest.mark.real, pytest.mark.heavy, pytest.mark.timeout(900)]


def undisturbed(python: Path, home: Path) -> tuple[str, str]:
    """Four processes of this machine with four chips each, as a v5litepod-16 has."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
    env = {
        "PATH": os.environ["PATH"],
        "HOME": str(home),
        "PYTHONPATH": str(ROOT / "src"),
        "JAX_PLATFORMS": "cpu",
        "JAX_NUM_CPU_DEVICES": "4",
        "HERD_COORDINATOR": f"127.0.0.1:{port}",
        "HERD_WORKERS": "4",
    }
    processes = [
        subprocess.Popen(
            [python, "train.py", "--steps", "200"],
            cwd=ROOT / "examples" / "charlm",
            env={**env, "HERD_WORKER": str(index)},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        for index in range(4)
    ]
    try:
        said = [process.communicate(timeout=400)[0] for process in processes]
    finally:
        for process in processes:
            process.kill()
    found = FINISHED.search(said[0])
    assert found is not None, said[0]
    return found[1], found[2]


def test_a_preempted_training_ends_with_the_same_bits(tmp_path: Path) -> None:
    python = client("inside")
    demo: list[str | Path] = [
        sys.executable,
        ROOT / "examples/demo/demo.py",
        "--offer",
        python.parents[1],
    ]
    env = {"PATH": os.environ["PATH"], "HOME": str(tmp_path), "LANG": "C.UTF-8"}
    done = subprocess.run(demo, env=env, capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stdout + done.stderr
    found = FINISHED.search(done.stdout)
    assert found is not None, done.stdout
    assert re.search(r"resumed at step \d\d+, saved by attempt 1", done.stdout), done.stdout
    assert re.search(r"attempt 1 ended, preempted: \S+ received a", done.stdout), done.stdout
    assert "attempt 2 ended, success: " in done.stdout
    assert "0 steps lost" in done.stdout
    assert float(found[1]) < 0.6
    assert (found[1], found[2]) == undisturbed(python, tmp_path)
