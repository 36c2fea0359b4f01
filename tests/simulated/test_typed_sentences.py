"""What is typed without a job file or a name: what it is taken for, and what is refused."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.simulated.fixed_world import JOBS, FixedWorld, open_fixed_world

NEAR = ("src/tpuherd/cli/*.py", "src/tpuherd/jobfile/typed_*.py")


@pytest.fixture
def fixed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> Iterator[FixedWorld]:
    with open_fixed_world(tmp_path, monkeypatch, capfd) as world:
        yield world


def keep_jobs(fixed: FixedWorld, *kept: str) -> None:
    store = fixed.store()
    for job in JOBS.keys() - set(kept):
        store.remove_job(job)
    store.close()


@pytest.mark.parametrize("command", ["logs", "status", "why"])
def test_the_only_job_needs_no_name(command: str, fixed: FixedWorld) -> None:
    keep_jobs(fixed, "gpt")
    named = fixed.run(command, "gpt")
    status, out, err = fixed.run(command)
    assert (status, out) == named[:2]
    assert err == f"herd {command}: gpt, the only job there is\n{named[2]}"


def test_wait_and_ssh_take_the_only_job(fixed: FixedWorld) -> None:
    keep_jobs(fixed, "fine")
    assert fixed.run("wait") == (
        0, "", "herd wait: fine, the only job there is\nherd wait: fine-0 is done\n",
    )  # fmt: skip
    status, _, err = fixed.run("ssh")
    first, second = err.splitlines()
    assert first == "herd ssh: fine, the only job there is"
    assert status and second.startswith("herd ssh: fine is finished and its node is deleted")


@pytest.mark.parametrize("command", ["logs", "status", "why", "wait", "ssh"])
def test_among_several_jobs_none_is_guessed(command: str, fixed: FixedWorld) -> None:
    keep_jobs(fixed, "gpt", "fine")
    status, out, err = fixed.run(command)
    assert (status, out) == (2, "")
    assert err == f"herd {command}: say which job: fine,gpt; such as: herd {command} fine\n"
    keep_jobs(fixed)
    status, out, err = fixed.run(command)
    assert (status, out) == (4, "")
    assert err == f"herd {command}: no jobs; start one with `herd run`\n"


def test_exec_always_names_its_target(fixed: FixedWorld) -> None:
    keep_jobs(fixed, "gpt")
    status, _, err = fixed.run("exec", "ls -l")
    assert status == 2
    assert "give a target and a command" in err
