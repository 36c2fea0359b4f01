"""Scripts and job files written for the former names of modules still work."""

import subprocess
import sys
from pathlib import Path

from tpuherd_host.train import storage
from tpuherd_host.train.places import Place, Unreachable, of_run, place


def test_a_script_finds_its_storage_by_the_former_name(tmp_path: Path) -> None:
    there: Place = place(of_run(str(tmp_path), "gpt-0"))
    there.write("notes/a", [b"one"])
    assert there.names() == ["notes/a"]
    assert there.read("notes/a") == b"one"
    there.remove("notes/")
    assert not there.names()
    assert Unreachable is storage.Unreachable


def test_a_job_file_runs_the_agent_of_a_sweep_by_its_former_name() -> None:
    words = [sys.executable, "-m", "tpuherd_host.train.trials"]
    done = subprocess.run(words, env={}, capture_output=True, text=True)
    assert done.returncode
    assert "ENTITY/PROJECT/SWEEP" in done.stderr
