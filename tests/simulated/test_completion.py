"""Tab completes commands, options and the names of jobs, in each of the shells."""

import os
import shutil
import subprocess
import sys
from pathlib import Path
from time import time

import pytest

from tpuherd.model.slots_and_plan import Goal
from tpuherd.model.stored_job import StoredJob
from tpuherd.settings import project_access
from tpuherd.store.database import Database

HERD = [sys.executable, "-m", "tpuherd.launcher"]


@pytest.fixture
def environ(tmp_path: Path) -> dict[str, str]:
    """A user with the jobs gpt (two copies) and resnet, in a world that is deleted."""
    world = tmp_path / "world"
    environ = {"HOME": str(tmp_path), "PATH": f"{tmp_path}/bin:{os.environ['PATH']}"}
    store = Database(project_access.resolve_scope(environ, world=world).store_folder, time())
    for job, copies in (("gpt", 2), ("resnet", 1)):
        document = {"name": job, "accelerator": "v4-8", "copies": copies}
        store.put_job(
            StoredJob(job=job, goal=Goal.RUN, document=document, made_at=1.0, changed_at=1.0)
        )
    store.close()
    (tmp_path / "bin").mkdir()
    herd = tmp_path / "bin/herd"
    herd.write_text(f'#!/bin/sh\nexec {sys.executable} -m tpuherd.launcher "$@"\n')
    herd.chmod(0o755)
    return {**environ, "HERD_WORLD": str(world)}


def complete(environ: dict[str, str], *words: str) -> list[str]:
    """What bash would offer for the last of these words."""
    script = """
eval "$(herd completion bash)"
COMP_WORDS=("$@"); COMP_CWORD=$(($# - 1))
_herd_completion herd
printf '%s\\n' "${COMPREPLY[@]}"
"""
    done = subprocess.run(
        ["bash", "-c", script, "bash", "herd", *words], env=environ, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.split()


@pytest.mark.skipif(shutil.which("bash") is None, reason="there is no bash")
def test_bash_completes_names_of_jobs(environ: dict[str, str]) -> None:
    assert complete(environ, "logs", "") == ["gpt", "resnet"]
    assert complete(environ, "status", "r") == ["resnet"]
    assert complete(environ, "wait", "gpt", "re") == ["resnet"]
    assert complete(environ, "exec", "gpt-") == ["gpt-0", "gpt-1"]
    assert complete(environ, "sweep", "best", "g") == ["gpt"]
    assert complete(environ, "st") == ["status", "stop"]
    assert complete(environ, "logs", "--ta") == ["--tail"]
    assert complete(environ, "context", "use", "g") == []
    world = environ.pop("HERD_WORLD")
    assert complete(environ, "logs", "g") == []
    assert complete(environ, "--world", world, "logs", "g") == ["gpt"]
    assert complete(environ, "logs", "--world", world, "g") == ["gpt"]


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_each_shell_gets_a_script_and_answers(environ: dict[str, str], shell: str) -> None:
    script = subprocess.run(
        [*HERD, "completion", shell], env=environ, capture_output=True, text=True, check=True
    ).stdout
    assert f"_HERD_COMPLETE={shell}_complete" in script
    asked = {**environ, "_HERD_COMPLETE": f"{shell}_complete", "COMP_WORDS": "herd logs g",
             "COMP_CWORD": "g" if shell == "fish" else "2"}  # fmt: skip
    done = subprocess.run(HERD, env=asked, capture_output=True, text=True, check=True)
    assert "gpt" in done.stdout
    if shutil.which(shell):
        check = subprocess.run([shell, "-n"], input=script, text=True, capture_output=True)
        assert check.returncode == 0, check.stderr
