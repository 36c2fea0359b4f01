"""The demo and the tutorial do what they say, from a shell with an empty home."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
TUTORIAL = ROOT / "docs" / "tutorial.md"

pytestmark = pytest.mark.real


def bare(home: Path) -> dict[str, str]:
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    return {"PATH": path, "HOME": str(home), "LANG": "C.UTF-8"}


def test_the_demo_tells_its_story(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, ROOT / "examples" / "demo" / "demo.py"],
        env=bare(tmp_path),
        capture_output=True,
        text=True,
        timeout=220,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    told = ["taken back", "preempted", "resumed at step", "loss", "goodput", "lists nothing"]
    assert [word for word in told if word not in done.stdout] == [], done.stdout
    assert done.stderr == ""
    assert "\033" not in done.stdout, "coloured although it is no terminal"
    assert list(tmp_path.iterdir()) == [], "something was left in the user's home"


@pytest.mark.needs("curl", "ssh", "ssh-keygen")
def test_the_tutorial_runs_as_it_stands(tmp_path: Path) -> None:
    blocks = re.findall(r"^```sh\n(.*?)^```", TUTORIAL.read_text(), re.M | re.S)
    script = "set -e\n" + "\n".join(blocks)
    try:
        done = subprocess.run(
            ["bash", "-c", script],
            env=bare(tmp_path),
            cwd=tmp_path,
            capture_output=True,
            text=True,
            timeout=240,
        )
    finally:
        stop = [sys.executable, "-m", "tpuherd.front", "sim", "stop"]
        subprocess.run(stop, env=bare(tmp_path), capture_output=True)
    assert done.returncode == 0, done.stdout + done.stderr
    told = ("t1v-n-", "/dev/accel3\n0\n", "v4-16", "training", "saved", "PREEMPTED", "nobody is")
    for word in told:
        assert word in done.stdout, f"{word}\n{done.stdout}\n{done.stderr}"
