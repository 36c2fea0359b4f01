"""What agents are told to launch: equal for every attempt, and set up again only for a reason."""

import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from tests.unit.test_jobfile_slots import EVERYTHING, job, stored_job
from tpuherd.engine.gang_client import command_arguments
from tpuherd.jobfile.expand_slots import expand_slots
from tpuherd.jobfile.launch_spec import (
    APT_WAITS,
    STAGGER_FROM,
    STAGGER_S_MAX,
    build_launch_spec,
    stagger_steps,
)
from tpuherd.model.node_spec import LaunchSpec

FILES = {"requirements.txt": "r1", "train.py": "t1", "sub/pyproject.toml": "p1", "data.sh": "d1"}


def order(
    snapshot: str = "s1", files: Mapping[str, str] | None = None, slot: int = 0, **fields: object
) -> LaunchSpec:
    one = job(workdir=".", **fields)
    row = stored_job(one, snapshot)
    return build_launch_spec(one, expand_slots(one, row, EVERYTHING)[slot], row, files)


def stamps(snapshot: str, files: Mapping[str, str] | None, *setup: str) -> list[str]:
    return [step["hash"] for step in order(snapshot, files, setup=list(setup)).setup]


def test_the_command_and_its_folder() -> None:
    found = order(run="python train.py", outputs=["out"], secrets=["KEY"], env={"LR": "0.1"})
    assert (found.shell, found.argv) == ("python train.py", ())
    assert (found.dest, found.directory) == ("herd/gpt", "herd/gpt")
    assert (found.outputs, found.secrets) == (("out",), ("KEY",))
    assert found.env["LR"] == "0.1"
    assert "KEY" not in found.env
    words = order(run=["python", "a b.py"])
    assert (words.shell, words.argv) == ("", ("python", "a b.py"))
    assert order(snapshot="").directory == ""


def test_variables_are_equal_for_every_attempt_and_different_for_every_slot() -> None:
    first, second = order(copies=2), order(copies=2, slot=1)
    assert first.env["HERD_JOB"] == "gpt"
    assert (first.env["HERD_SLOT"], second.env["HERD_SLOT"]) == ("0", "1")
    assert first.env["HERD_SLOTS"] == "2"
    assert first.env["RUN_ID"] == first.env["HERD_RUN_ID"] == order(copies=2).env["RUN_ID"]
    assert first.env["RUN_ID"].startswith("gpt-0-")
    assert second.env["RUN_ID"].startswith("gpt-1-")
    assert "HERD_CHECKPOINT" not in first.env
    assert order(checkpoint="gs://bkt/x").env["HERD_CHECKPOINT"] == "gs://bkt/x"
    assert "HERD_PROFILER_PORT" not in first.env
    assert order(profiler=True).env["HERD_PROFILER_PORT"] == "9012"


def test_what_a_script_prints_is_written_at_once_unless_the_user_chose() -> None:
    assert order().env["PYTHONUNBUFFERED"] == "1"
    assert order(env={"PYTHONUNBUFFERED": ""}).env["PYTHONUNBUFFERED"] == ""


def test_a_job_may_continue_a_run_that_began_elsewhere() -> None:
    env = order(env={"RUN_ID": "k3v9x0ab"}).env
    assert env["RUN_ID"] == env["HERD_RUN_ID"] == "k3v9x0ab"


def test_a_changed_command_keeps_the_run_and_the_setup() -> None:
    before, after = order(run="a", setup="pip install x"), order(run="b", setup="pip install x")
    assert before.env["RUN_ID"] == after.env["RUN_ID"]
    assert before.setup == after.setup


@pytest.mark.parametrize(
    ("text", "reads"),
    [
        ("pip install jax", {"requirements.txt", "sub/pyproject.toml"}),
        ("pip install -r requirements.txt", {"requirements.txt", "sub/pyproject.toml"}),
        ("python3 -m pip install -e .", {"requirements.txt", "sub/pyproject.toml"}),
        ("sudo apt-get install -y x && uv pip sync ./train.py", {
            "requirements.txt", "sub/pyproject.toml", "train.py",
        }),
        ("bash data.sh", set(FILES)),
        ("python train.py", set(FILES)),
        ("pip install $(cat data.sh)", set(FILES)),
        ("pip install < data.sh", set(FILES)),
        ("X=1 make", set(FILES)),
    ],
)  # fmt: skip
def test_a_setup_step_repeats_if_and_only_if_it_may_read_the_change(
    text: str, reads: set[str]
) -> None:
    before = stamps("s1", FILES, text)
    for path in FILES:
        after = stamps("s2", {**FILES, path: "new"}, text)
        assert (after != before) == (path in reads), path


def test_of_unknown_code_every_file_counts() -> None:
    assert stamps("s1", None, "pip install x") != stamps("s2", None, "pip install x")
    assert stamps("s1", {}, "pip install x") == stamps("s2", {}, "pip install x")
    assert stamps("", None, "pip install x") == stamps("", None, "pip install x")


def test_a_step_depends_on_earlier_steps_and_the_variables() -> None:
    one, two = stamps("s", FILES, "pip install a", "pip install b")
    assert stamps("s", FILES, "pip install a", "pip install c")[0] == one
    assert stamps("s", FILES, "pip install x", "pip install b")[1] != two
    assert stamps("s", FILES, "pip install a", "pip install a")[0] == one
    assert len(set(stamps("s", FILES, "pip install a", "pip install a"))) == 2
    other = order("s", FILES, setup=["pip install a"], env={"A": "1"}).setup[0]["hash"]
    assert other != one


def test_steps_are_encoded_for_the_agent() -> None:
    (apt, pip) = order(setup=["sudo apt-get install -y g++", "pip install x"], env={"A": "1"}).setup
    assert apt["shell"].splitlines() == [APT_WAITS, "sudo apt-get install -y g++"]
    assert (pip["name"], pip["shell"].splitlines()[-1]) == ("2 pip install x", "pip install x")
    assert pip["directory"] == "herd/gpt"
    assert pip["env"] == {"A": "1"}
    assert "directory" not in order(snapshot="", setup="ls").setup[0]


def test_setup_uses_the_environment_and_runs_again_in_another_one() -> None:
    def step(**fields: Any) -> Mapping[str, Any]:
        return order("s", FILES, setup=["pip list"], **fields).setup[0]

    plain, old, new = step(), step(python="3.11"), step(python="3.12")
    assert "environment" not in plain
    assert len({plain["hash"], old["hash"], new["hash"]}) == 3
    found = order("s", FILES, requirements="requirements.txt", setup=["pip list"])
    assert found.environment is not None
    assert found.setup[0]["environment"] == found.environment.key != ""


@pytest.mark.parametrize(
    ("step", "says"),
    [
        ("cd . && pip install x", ["-m pip install x"]),
        ("pip3 list; pip list", ["-m pip list", "-m pip list"]),
        ("uv sync --frozen", ["-m pip install --quiet --user uv", "uv sync --frozen"]),
        ("uvx tool", ["-m pip install --quiet --user uv", "uvx tool"]),
        ("ls -d .", ["."]),
    ],
)
def test_a_host_without_an_installer_uses_its_python(
    tmp_path: Path, step: str, says: list[str]
) -> None:
    """A Python that tells what it is asked, and "installs" what does the same."""
    own = tmp_path / ".local/bin"
    own.mkdir(parents=True)
    uv = f"for it in uv uvx; do cp {own}/told {own}/$it; done"
    (own / "told").write_text('#!/bin/sh\necho "${0##*/} $*"\n')
    (tmp_path / "python3").write_text(f'#!/bin/sh\necho "$*"\nPATH=/usr/bin:/bin; {uv}\n')
    (tmp_path / "ls").symlink_to("/bin/ls")
    for file in (own / "told", tmp_path / "python3"):
        file.chmod(0o755)
    shell = order(setup=[step]).setup[0]["shell"]
    env = {"PATH": str(tmp_path), "HOME": str(tmp_path)}
    words = ["/bin/sh", "-c", shell]
    done = subprocess.run(words, capture_output=True, text=True, env=env, cwd=tmp_path)
    assert (done.stdout.splitlines(), done.stderr) == (says, "")


@pytest.mark.parametrize("workers", [1, 4, STAGGER_FROM - 1, STAGGER_FROM, 64, 512])
def test_many_hosts_do_not_download_packages_at_once(workers: int) -> None:
    steps = order(setup=["echo", "pip install a", "pip install b"]).setup
    delays = []
    for worker in range(workers):
        first, second, third = stagger_steps(steps, worker, workers)
        assert "delay_s" not in first
        assert "delay_s" not in third
        delays.append(second.get("delay_s", 0.0))
    if workers < STAGGER_FROM:
        assert set(delays) == {0.0}
    else:
        assert delays == sorted(delays)
        assert delays[0] == 0.0
        assert delays[-1] <= STAGGER_S_MAX
        assert delays[-1] > STAGGER_S_MAX / 5
    assert stagger_steps(order(setup="ls").setup, 1, 64) == list(order(setup="ls").setup)


@pytest.mark.parametrize(
    ("run", "words"),
    [
        ("python train.py | tee log", ["$SHELL", "-c", "python train.py | tee log"]),
        (["python", "train.py"], ["python", "train.py"]),
    ],
)
def test_a_cluster_starts_in_place_of_the_command(run: str | list[str], words: list[str]) -> None:
    spec = order(run=run, cluster="ray")
    assert command_arguments(spec, {}) == {
        "argv": ["python3", "-m", "tpuherd_host.ray_cluster", *words]
    }
