"""The commands that read what is remembered, on a store that no engine looks after."""

import json
from collections.abc import Callable
from pathlib import Path
from time import time

import jsonschema  # type: ignore[import-untyped]
import pytest

from tests.laws import test_goodput
from tests.laws.test_goodput import History
from tpuherd.cli.main import run
from tpuherd.core.goodput import State
from tpuherd.core.model import Goal
from tpuherd.core.trail import Verdict
from tpuherd.core.view_schema import SCHEMAS
from tpuherd.core.wish import Wish
from tpuherd.store.database import Database, home
from tpuherd.store.logs import About, Place, Shelf, folder
from tpuherd_host.agent.records import Record

Herd = Callable[..., tuple[int, str, str]]
Save = Callable[..., None]


@pytest.fixture
def world(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of a world that is not there any more: what was remembered of it is."""
    for name in ("XDG_STATE_HOME", "XDG_CONFIG_HOME", "XDG_RUNTIME_DIR"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("HERD_WORLD", str(tmp_path / "world"))
    return tmp_path / "world"


@pytest.fixture
def herd(world: Path, capfd: pytest.CaptureFixture[str]) -> Herd:
    """A command's status, and what it says."""

    def herd(*words: str) -> tuple[int, str, str]:
        status = run(words)
        said = capfd.readouterr()
        return status, said.out, said.err

    return herd


@pytest.fixture
def save(world: Path, tmp_path: Path) -> Save:
    """Puts a job with its story into the store."""

    def save(story: History, goal: Goal = Goal.RUN, *, wished: bool = True) -> None:
        store = Database(home(tmp_path / ".local/state/tpuherd", world=world, project=""), time())
        store.append(story.events)
        if wished:
            store.put(
                Wish(job="gpt", goal=goal, document={"name": "gpt"}, made_at=story.events[0].at,
                     changed_at=story.events[0].at)
            )  # fmt: skip
        store.put_states({"gpt-0": "attempt 1 has run for 1 min"})
        store.close()

    return save


def story(monkeypatch: pytest.MonkeyPatch) -> History:
    """A job that has run for a minute."""
    monkeypatch.setattr(test_goodput, "START", time() - 120)
    story = History()
    story.get(10, 20, 20)
    story.launch(10, step=0)
    story.wait(60, State.PRODUCTIVE)
    return story


def test_an_empty_store_says_so(herd: Herd) -> None:
    assert herd("ls") == (0, "nothing is wished; herd run begins a job\n", "")
    assert herd("capacity") == (0, "nothing was asked for yet\n", "")
    assert herd("events") == (0, "", "")
    assert herd("status", "gpt") == (
        4, "", "herd status: there is no job gpt, nor any other\n",
    )  # fmt: skip


def test_what_is_remembered_is_shown_where_the_world_is_gone(
    herd: Herd, save: Save, monkeypatch: pytest.MonkeyPatch
) -> None:
    save(story(monkeypatch))
    assert [row.split()[:3] for row in herd("ls")[1].splitlines()] == [
        ["JOB", "PHASE", "READY"], ["gpt", "running", "1/1"],
    ]  # fmt: skip
    assert "gpt-0: attempt 1 has run for 1 min" in herd("status", "gpt")[1]
    assert "gpt-0: attempt 1 has run for 1 min" in herd("why", "gpt-0")[1]
    events = herd("events", "gpt-0")[1].splitlines()
    assert events[0].split()[1:4] == ["gpt-0", "bid.asked", "gpt-0-g1-7kq"]
    assert len(herd("events", "--since", "65s")[1].splitlines()) == 1
    assert herd("status", "gpu")[::2] == (
        4, "herd status: there is no job gpu: did you mean gpt?\n",
    )  # fmt: skip
    assert herd("why", "gpt-1")[0] == 4


@pytest.mark.parametrize("command", sorted(SCHEMAS))
def test_json_fits_its_schema(
    herd: Herd, save: Save, monkeypatch: pytest.MonkeyPatch, command: str
) -> None:
    one = story(monkeypatch)
    one.tell("slot.done", why="it succeeded")
    save(one)
    words = command.replace("NAME", "gpt").split()[1:]
    status, out, _ = herd(*words)
    assert status == 0
    texts = out.splitlines() if command.startswith("herd events") else [out]
    assert texts
    for text in texts:
        jsonschema.validate(json.loads(text), SCHEMAS[command])


def test_wait_is_over_when_the_job_is(
    herd: Herd, save: Save, monkeypatch: pytest.MonkeyPatch
) -> None:
    one = story(monkeypatch)
    save(one)
    assert herd("wait", "gpt", "--timeout", "0.1s") == (124, "", "herd wait: gpt goes on\n")
    assert herd("wait", "gpt2")[0] == 4
    one.events.clear()
    one.tell("slot.done", why="it succeeded")
    save(one)
    assert herd("wait", "gpt") == (0, "", "herd wait: gpt-0 is done\n")


@pytest.mark.parametrize(
    ("verdict", "code", "status"),
    [(Verdict.FAILURE, 3, 3), (Verdict.FAILURE, None, 5), (Verdict.STALLED, 0, 5)],
)
def test_wait_has_the_status_of_a_command_that_failed_for_good(
    herd: Herd,
    save: Save,
    monkeypatch: pytest.MonkeyPatch,
    verdict: Verdict,
    code: int | None,
    status: int,
) -> None:
    one = story(monkeypatch)
    one.end(verdict, exit=code)
    one.tell("slot.gave_up", why="it failed 4 times")
    save(one)
    assert herd("wait", "gpt") == (status, "", "herd wait: gpt-0 gave up: it failed 4 times\n")


def test_wait_for_what_is_stopped_is_over_at_once(
    herd: Herd, save: Save, monkeypatch: pytest.MonkeyPatch
) -> None:
    save(story(monkeypatch), Goal.GONE)
    assert herd("wait", "gpt") == (5, "", "herd wait: gpt is stopped\n")


def test_wait_for_a_node_is_over_when_it_is_ready(
    herd: Herd, save: Save, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(test_goodput, "START", time() - 120)
    one = History()
    one.get(10, 20, 20)
    save(one, Goal.IDLE)
    assert herd("wait", "gpt") == (0, "", "herd wait: gpt-0 is ready\n")


def test_logs_of_a_job_are_those_of_all_its_attempts(
    herd: Herd, world: Path, tmp_path: Path
) -> None:
    shelf = Shelf(folder(tmp_path / ".local/state/tpuherd", world=world, project=""))
    now = time()
    said = [("gpt-0-a1-7kq", 1, "gpt-0-g1-7kq"), ("x", 0, "gpt-0-g1-7kq"),
            ("gpt-0-a2-7kq", 2, "gpt-0-g3-7kq"), ("gpt2-0-a1-7kq", 1, "gpt2-0-g1-7kq")]  # fmt: skip
    for at, (id, number, node) in enumerate(said):
        place = Place(zone="z", node=node, worker=0, incarnation="1")
        kind = "attempt" if number else "command"
        shelf.put(About(id=id, kind=kind, title="t", target="gpt", started=now + at,
                        places=(place,), number=number))  # fmt: skip
        writer = shelf.writer(id, place)
        writer.put(0, Record(now + at, 1, f"{id} says\n".encode()))
        writer.close()
    told = [line.split(" ")[-2] for line in herd("logs", "gpt")[1].splitlines() if "says" in line]
    assert told == ["gpt-0-a1-7kq", "x", "gpt-0-a2-7kq"]
    heads = [line.split()[:3] for line in herd("logs", "gpt")[1].splitlines() if line[0] == "-"]
    assert heads == [["--", "1", "gpt-0-a1-7kq"], ["--", "-", "x"], ["--", "2", "gpt-0-a2-7kq"]]
    assert "gpt-0-a2-7kq says" in herd("logs", "gpt-0", "--attempt", "2")[1]
    assert "gpt-0-a1-7kq says" not in herd("logs", "gpt-0", "--attempt", "2")[1]
