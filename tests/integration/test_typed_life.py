"""Sentences as people type them: a script and a type, at a terminal, until the job is done."""

import json
import subprocess
from collections.abc import Iterator

import pytest

from tests.integration.engines import Owner
from tests.integration.users import Terminal
from tpuherd.exit_status import ABORTED

pytestmark = pytest.mark.real
SCRIPT = """\
import argparse, pathlib, time
from near import WORD
parser = argparse.ArgumentParser()
parser.add_argument("--lr", default="1")
parser.add_argument("--steps", type=int, default=1)
given = parser.parse_args()
print("data", pathlib.Path("data.txt").read_text().strip(), WORD)
for step in range(given.steps):
    print("step", step, "lr", given.lr)
    time.sleep(0.1)
"""


@pytest.fixture(autouse=True)
def clean(user: Owner) -> Iterator[None]:
    yield
    assert user.herd("down", "--all", "--yes", seconds=120).returncode == 0


@pytest.fixture
def typed(user: Owner, monkeypatch: pytest.MonkeyPatch) -> Owner:
    """The user stands in a folder of a git repository, with a script."""
    folder = user.home / "toy" / "exp"
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "train-2.py").write_text(SCRIPT)
    (folder / "near.py").write_text("WORD = 'near'\n")
    (folder / "data.txt").write_text("here\n")
    program = folder / "go.sh"
    program.write_text('#!/bin/bash\necho "$1 $(cat data.txt)"\n')
    program.chmod(0o755)
    subprocess.run(["git", "init", "-q", folder.parent], check=True)
    monkeypatch.chdir(folder)
    return user


def test_a_script_runs_where_the_user_stands(typed: Owner) -> None:
    words = ("run", "train-2.py", "--accelerator", "v4-8", "--follow", "--", "--lr", "0.1")
    done = typed.herd(*words, seconds=180)
    assert done.returncode == 0, done.stderr
    assert "is called toy-exp-train2, as toy-exp-train-2 can't be a name" in done.stderr
    assert done.stdout.splitlines() == [
        f"toy-exp-train2-0/w0: {line}" for line in ("data here near", "step 0 lr 0.1")
    ]
    done = typed.herd("run", "go.sh", "--accelerator", "v4-8", "--follow", "--", "a b", seconds=180)
    assert (done.returncode, done.stdout) == (0, "toy-exp-go-0/w0: a b here\n"), done.stderr


def test_the_same_sentence_attaches_and_another_one_asks(typed: Owner) -> None:
    sentence = ("run", "train-2.py", "--accelerator", "v4-8", "--", "--steps", "3000")
    window = Terminal(typed, *sentence)
    window.expect(rb"Submitted toy-exp-train2")
    window.expect(rb"step 3 lr 1", 120)
    window.type(b"\x03")
    window.expect(rb"herd run: toy-exp-train2 keeps running")
    assert window.end() == 0
    window = Terminal(typed, *sentence)
    window.expect(rb"Attached to toy-exp-train2")
    window.expect(rb"step 3 lr 1")
    window.type(b"\x03")
    assert window.end() == 0
    for answer, seen in ((b"n\n", rb"nothing was changed"), (b"y\n", rb"step 0 lr 5")):
        window = Terminal(typed, *sentence, "--lr", "5", columns=200)
        window.expect(rb"a new attempt.*--name NAME starts another job beside it")
        window.type(answer)
        window.expect(seen, 120)
        window.type(b"\x03")
        window.end()
    ends = [one.facts["verdict"] for one in typed.events("attempt.ended") if "train2" in one.slot]
    assert ends[-1] == "stopped"


def test_a_home_folder_is_shipped_only_if_the_user_says_so(typed: Owner) -> None:
    (typed.home / "train.py").write_text("print(1)\n")
    window = Terminal(typed, "run", "../../train.py", "--accelerator", "v4-8", columns=250)
    window.expect(rb"would be shipped, your home folder; .*--workdir FOLDER")
    window.type(b"n\n")
    window.expect(rb"nothing was changed")
    assert window.end() == ABORTED
    rows = json.loads(typed.herd("ls", "--json").stdout)
    assert [row for row in rows if row["goal"] != "removed"] == []  # of earlier tests


def test_a_node_is_followed_until_it_is_ready(typed: Owner) -> None:
    for first in ("Submitted dev", "Attached to dev"):
        window = Terminal(typed, "up", "v4-8")
        window.expect(first.encode())
        window.expect(rb"herd up: dev is ready. Next:", 120)
        assert window.end() == 0
        shown = window.seen.decode().splitlines()
        assert shown[-3:] == ["  herd ssh dev", "  herd exec dev -- COMMAND", "  herd down dev"]
    assert typed.herd("exec", "dev", "ls / | grep -c bin").returncode == 0
    window = Terminal(typed, "ssh")
    window.expect(rb"herd ssh: dev, the only job there is")
    window.type(b"exit\n")
    assert window.end() == 0
