"""The demo and the tutorial run as documented, from a shell with an empty home."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
README = ROOT / "README.md"
GOOGLE = ROOT / "docs" / "howto" / "google.md"
TUTORIAL = ROOT / "docs" / "tutorial.md"
SCENARIOS = ROOT / "docs" / "howto" / "scenarios.md"

pytestmark = pytest.mark.real


def bare(home: Path) -> dict[str, str]:
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    return {"PATH": path, "HOME": str(home), "LANG": "C.UTF-8"}


def run_script(script: str, home: Path) -> "subprocess.CompletedProcess[str]":
    """Run it as a new user does; end its engine, daemon and world."""
    try:
        return subprocess.run(
            ["bash", "-c", script],
            env=bare(home),
            cwd=home,
            capture_output=True,
            text=True,
            timeout=230,
        )
    finally:
        world = {**bare(home), "HERD_WORLD": str(home / ".local/state/tpuherd/world")}
        for words in ("engine stop", "engine daemon stop", "sim stop"):
            herd = [sys.executable, "-m", "tpuherd.launcher", *words.split()]
            subprocess.run(herd, env=world, capture_output=True, timeout=60)


def test_the_demo_runs_as_shown(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, ROOT / "examples" / "demo" / "demo.py"],
        env=bare(tmp_path),
        capture_output=True,
        text=True,
        timeout=220,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    told = ["preempt its spot", "preempted", "resumed at step", "loss", "goodput", "lists nothing"]
    assert [word for word in told if word not in done.stdout] == [], done.stdout
    assert done.stderr == ""
    assert "\033" not in done.stdout, "colored although it is not a terminal"
    assert list(tmp_path.iterdir()) == [], "something was left in the user's home"


@pytest.mark.needs("curl", "ssh", "ssh-keygen")
def test_the_tutorial_runs_as_written(tmp_path: Path) -> None:
    blocks = re.findall(r"^```sh\n(.*?)^```", TUTORIAL.read_text(), re.M | re.S)
    script = "set -e\n" + "\n".join(blocks)
    done = run_script(script, tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr
    told = ("t1v-n-", "/dev/accel3\n0\n", "v4-16", "training", "saved", "PREEMPTED", "host is off")
    for word in told:
        assert word in done.stdout, f"{word}\n{done.stdout}\n{done.stderr}"
    begun = [int(n) for n in re.findall(r"count-0/w0: starting at step ([0-9]+)", done.stdout)]
    assert begun[0] == 0 and begun[-1] >= 20, "the job did not resume where it had saved"
    assert "saved at step 60" in done.stdout


def test_the_trace_of_the_scenario_page_works(tmp_path: Path) -> None:
    page = SCENARIOS.read_text()
    (trace,) = re.findall(r"^```json\n(.*?)^```", page, re.M | re.S)
    (scenario,) = re.findall(r"^```yaml\n(traces:.*?)^```", page, re.M | re.S)
    (command,) = re.findall(r"^(herd sim start --scenario measured.*)$", page, re.M)
    (tmp_path / "us-east-2b.json").write_text(trace)
    (tmp_path / "measured.yaml").write_text(scenario)
    folder = tmp_path / ".local/state/tpuherd/world"
    done = run_script(
        f"{command.replace('/tmp/measured', str(folder))} --detach --hosts none; herd sim weather",
        tmp_path,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "capacity us-east1-d/v6e-16" in done.stdout, done.stdout


def test_the_readme_job_runs_in_the_readme_world(tmp_path: Path) -> None:
    """With minimal files: a script and an empty list of requirements."""
    (job,) = re.findall(r"^```yaml\n(# job.yaml\n.*?)^```", README.read_text(), re.M | re.S)
    folder = tmp_path / "gpt"
    folder.mkdir()
    (folder / "job.yaml").write_text(job)
    (folder / "train.py").write_text("import socket; print('trained on', socket.gethostname())")
    (folder / "requirements.txt").write_text("")
    script = """set -e
        herd sim start --detach --time-scale 30
        export HERD_WORLD=~/.local/state/tpuherd/world
        cd gpt
        herd run job.yaml --detach
        herd wait gpt --timeout 120
        herd logs gpt"""
    done = run_script(script, tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.count("trained on t1v-n-") == 4, done.stdout


def test_the_first_hour_on_google_as_far_as_possible_without_google(tmp_path: Path) -> None:
    """Only the commands that need no Google; the rest of the page asks Google."""
    page = GOOGLE.read_text()
    (mail,) = re.findall(r"^```mail\n(.*?)^```", page, re.M | re.S)
    (tmp_path / "mail.txt").write_text(mail)
    blocks = re.findall(r"^```sh\n(.*?)^```", page, re.M | re.S)
    done = run_script("set -e\n" + "\n".join(blocks), tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr
    for zone in ("europe-west4-a", "us-central1-f", "us-central2-b"):
        assert zone in done.stdout, done.stdout
