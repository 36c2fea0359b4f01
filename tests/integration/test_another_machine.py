"""The page "Stop here, adopt there", typed by a user with two homes in place of two machines."""

import re
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.conformance.world import HERD, ROOT, until
from tests.integration.engines import Owner, owner

pytestmark = pytest.mark.real
PAGE = ROOT / "docs/howto/another-machine.md"
LOOK, STOP, ADOPT = re.findall(r"^```sh\n(.*?)^```$", PAGE.read_text(), re.M | re.S)


@pytest.fixture
def user() -> Iterator[Owner]:
    with owner() as found:
        yield found


def type_block(user: Owner, block: str) -> str:
    """Type the lines of a block in the user's home; what they print."""
    env = {**user.env, "PATH": f"{HERD.parent}:{user.env['PATH']}"}
    done = subprocess.run(
        ["sh", "-ec", block], cwd=user.home, env=env, capture_output=True, text=True, timeout=120
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_running_jobs_go_on_under_the_engine_of_another_machine(
    user: Owner, tmp_path: Path
) -> None:
    code = user.home / "code"
    code.mkdir()
    (code / "train.py").write_text("print('first words')")
    run = "python3 train.py; until [ -e ~/finish ]; do sleep 0.2; done"
    user.job("gpt", run, workdir=str(code))
    attempt = user.happened("attempt.started").facts["attempt"]
    assert "gpt" in type_block(user, LOOK)
    type_block(user, STOP)
    assert not (user.home / ".config/tpuherd").exists()
    there = Owner(tmp_path / "home", user.world)
    there.home.mkdir()
    shutil.move(user.home / "herd.tar", there.home)
    try:
        type_block(there, ADOPT)
        adopted = there.happened("bid.adopted")
        until(lambda: "running" in there.herd("ls").stdout, "the job to run there", seconds=60)
        known = there.events("attempt.launched", "attempt.started")
        assert {one.facts["attempt"] for one in known} <= {attempt}, "nothing started again"
        user.world.herd("preempt", adopted.facts["bid"])

        def newest() -> str:
            return str(there.events("attempt.started")[-1].facts["attempt"])

        until(lambda: newest() != attempt, "the next attempt", seconds=120)
        again = newest()
        log = f"{again}/0"
        until(lambda: "first words" in there.said().get(log, []), "the same code", seconds=30)
    finally:
        there.herd("down", "--all", "--yes")
        there.leave_all()
    assert user.all_there_is() == []
