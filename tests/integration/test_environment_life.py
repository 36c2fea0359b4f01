"""A job's environment on simulated hosts: installed once, used by all, and there again at once."""

from pathlib import Path

import pytest
from msgspec import json

from tests.conformance.world import until
from tests.integration.engines import Owner
from tests.simulated.tiny_wheel import REQUIREMENTS, write_wheel
from tpuherd.model.node_spec import EnvironmentNote
from tpuherd.sync.known_environments import FOLDER
from tpuherd.sync.snapshot_store import Archive
from tpuherd.sync.take_snapshot import load_snapshot

pytestmark = pytest.mark.real
RUN = "python3 train.py; exec sleep 600"
SCRIPT = (
    "import os, sys, tiny\nprint('tiny', tiny.version, os.environ['VIRTUAL_ENV'], flush=True)\n"
)


def write_code(folder: Path) -> None:
    write_wheel(folder / "wheels")
    (folder / "requirements.txt").write_text(REQUIREMENTS)
    (folder / "train.py").write_text(SCRIPT)


def wait_for_copy(user: Owner, key: str) -> None:
    """Wait until the user's machine has a copy, which the engine fetches in the background."""
    archive = Archive(user.home / ".local/state/tpuherd/snapshots")
    (note,) = (archive.folder / FOLDER).glob(f"*.gpt-*@{key}-*")
    digest = json.decode(note.read_bytes(), type=EnvironmentNote).digest
    until(lambda: load_snapshot(digest, archive), "a copy of the environment", seconds=60)


def test_a_preempted_node_gets_it_without_another_installation(user: Owner, tmp_path: Path) -> None:
    write_code(tmp_path)
    fields = {"workdir": str(tmp_path), "requirements": "requirements.txt"}
    user.job("gpt", RUN, setup="tiny > ~/told", **fields)
    user.happened("attempt.started")
    done = user.herd("exec", "gpt", "--env", "-c", "cat ~/told; command -v tiny; pip --version")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "tiny 1.0" in done.stdout
    assert "/herd/.environments/" in done.stdout
    wait_for_copy(user, user.happened("environment.installed").facts["environment"])
    user.world.herd("preempt", "gpt-0-*")
    user.happened("attempt.started", many=2)
    assert len(user.events("environment.installed")) == 1
    assert len(user.events("environment.copied")) >= 2
    lines = [line for text in user.said().values() for line in text if line.startswith("tiny 1.0")]
    assert len(lines) == 4, "two hosts, twice"
    user.herd("down", "gpt", "--yes")


def test_an_impossible_installation_ends_the_job_with_a_sentence(
    user: Owner, tmp_path: Path
) -> None:
    write_code(tmp_path)
    (tmp_path / "requirements.txt").write_text(REQUIREMENTS + "tiny==9.9\n")
    user.job("bad", "true", workdir=str(tmp_path), requirements="requirements.txt")
    assert user.herd("wait", "bad").returncode != 0
    why = user.herd("why", "bad").stdout
    assert "requirements.txt can't be installed: " in why
    assert "tiny==9.9" in why
    failed = [one for one in user.events("slot.setup_failed") if one.job == "bad"]
    early = [one for one in failed if one.facts.get("early")]  # before READY, which counts nothing
    assert (len(failed) - len(early), early in ([], failed[:1])) == (1, True)
    user.herd("down", "bad", "--yes")


def test_without_an_environment_exec_says_so(user: Owner) -> None:
    user.job("bare", "exec sleep 600")
    user.happened("attempt.started", many=len(user.events("attempt.started")) + 1)
    done = user.herd("exec", "bare", "--env", "--", "true")
    assert done.returncode == 125
    assert "this host has no environment: set python or requirements in the job" in (
        done.stdout + done.stderr
    )
    user.herd("down", "bare", "--yes")
