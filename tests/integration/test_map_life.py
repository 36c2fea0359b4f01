"""Maps as their users run them: on nodes of `herd up`, from a job file, and from Python."""

import json
import signal
import subprocess
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.conformance.world import HERD, until
from tests.integration.engines import Owner, owner
from tpuherd import Herd, Job
from tpuherd.errors import InvalidInput

pytestmark = pytest.mark.real

WORD = 'it\'s "$(touch broken)" ; {} *'


@pytest.fixture(scope="module")
def user() -> Iterator[Owner]:
    with owner() as found:
        done = found.herd("up", "--name", "dev", "--accelerator", "v4-8", "--copies", "2", "--yes")
        assert done.returncode == 0, done.stderr
        assert found.herd("wait", "dev", seconds=120).returncode == 0
        yield found


def write_items(user: Owner, *items: str) -> Path:
    file = user.home / "items.txt"
    file.write_text("\n".join(items))
    return file


def nodes(user: Owner) -> list[str]:
    return sorted(name for name in user.all_there_is() if "/nodes/" in name)


def test_items_run_on_nodes_that_stay(user: Owner) -> None:
    before = nodes(user)
    file = write_items(user, "5", "", "0", WORD)
    command = 'echo "number $HERD_ITEM_NUMBER" {}; exit {}'
    done = user.herd("map", "dev", file, "--json", "--", command, seconds=120)
    assert done.returncode == 5, done.stderr  # bash ends with 2 where the third is no number
    page = json.loads(done.stdout)
    assert [(one["text"], one["exit"]) for one in page["items"]] == [("5", 5), ("0", 0), (WORD, 2)]
    assert page["exit"] == 5
    assert "item 0 (5) failed with exit status 5:\n  number 0 5\n" in done.stderr
    said = user.herd("map", "logs", "dev", "2").stdout
    assert f"number 2 {WORD}" in said
    words = user.herd("map", "dev", file, "--again", "--", "printf", "<%s>", "a{}", "{}")
    assert words.returncode == 0, words.stderr
    assert f"<a{WORD}><{WORD}>" in user.herd("map", "logs", "dev", "2").stdout
    assert nodes(user) == before
    assert user.herd("exec", "dev", "--", "ls", "broken").returncode == 2


def test_only_what_failed_runs_again(user: Owner) -> None:
    file = write_items(user, "a", "b", "c")
    command = "echo {} >> ~/ran-{}; test {} != b || test -e ~/fixed"
    assert user.herd("map", "dev", file, "--", command, seconds=120).returncode == 1
    again = user.herd("exec", "dev", "-c", "touch ~/fixed")
    assert again.returncode == 0
    done = user.herd("map", "dev", file, "--", command, seconds=120)
    assert done.returncode == 0, done.stderr
    assert "3 of 3 items have ended: 3 complete" in done.stderr
    ran = user.herd("exec", "dev", "-c", "cat ~/ran-a ~/ran-c 2>/dev/null; true").stdout
    assert Counter(line.split()[-1] for line in ran.splitlines()) == {"a": 1, "c": 1}
    same = user.herd("map", "dev", file, "--", command)
    assert same.returncode == 0 and "3 of 3 items have ended" in same.stderr


def test_the_command_and_the_engine_are_killed_and_a_node_dies(user: Owner) -> None:
    file = write_items(user, *(f"part-{number}" for number in range(8)))
    (user.home / "evals.yaml").write_text(
        json.dumps({"name": "evals", "accelerator": "v4-8", "copies": 2, "run": "sleep 2; echo {}"})
    )
    words = ("map", user.home / "evals.yaml", file, "--yes")
    first = subprocess.Popen([HERD, *words], env=user.env, stderr=subprocess.DEVNULL)

    def ended() -> int:
        return sum(one.job == "evals" for one in user.events("trial.ended"))

    until(lambda: ended() >= 1, "the first item", seconds=120)
    first.send_signal(signal.SIGKILL)
    first.wait()
    running = [one for one in user.events("trial.assigned") if one.job == "evals"][-1]
    assert user.kill_engine()
    done = user.herd("sim", "weather", "preempt", f"{running.slot}-*", "0s")
    assert done.returncode == 0, done.stderr
    done = user.herd(*words, seconds=180)
    assert done.returncode == 0, done.stderr
    assert "evals goes on: 8 items" in done.stderr
    ends = [one.facts for one in user.events("trial.ended") if one.job == "evals"]
    assert Counter(one["trial"] for one in ends) == dict.fromkeys(range(8), 1)
    assert {one["outcome"] for one in ends} == {"complete"}
    page = json.loads(user.herd("map", "status", "evals", "--json").stdout)
    assert sum(one["attempts"] for one in page["items"]) >= 9  # one of them a second time
    until(lambda: len(nodes(user)) == 2, "its nodes to go", seconds=60)


def test_from_python(user: Owner) -> None:
    herd = Herd(world=user.world.folder, environ=user.env)
    found = herd.map("dev", ["x", "y"], ["test", "x", "="], timeout="1m")
    assert [(one.text, one.phase, one.exit) for one in found.items] == [
        ("x", "complete", 0),
        ("y", "failed", 1),
    ]
    assert (found.map, found.exit, found.phases) == ("dev", 1, {"complete": 1, "failed": 1})
    job = Job(name="two", accelerator="v4-8")
    found = herd.map(job, ["3"], "echo {}", wait=False, yes=True)
    assert (found.total, found.exit) == (1, None)
    assert herd.wait("two", timeout=120) == 0
    assert herd.map_status("two").items[0].exit == 0
    with pytest.raises(InvalidInput, match="has no items"):
        herd.map("dev", [], "echo")
