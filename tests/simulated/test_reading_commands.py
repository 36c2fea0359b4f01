"""The commands that read the store, without an engine."""

import json
import os
from collections.abc import Callable
from dataclasses import asdict
from itertools import pairwise
from pathlib import Path
from time import time
from typing import Any

import jsonschema  # type: ignore[import-untyped]
import pytest
from json_schemas import SCHEMAS

from tests.simulated.conftest import Herd
from tests.simulated.terminals import run_in_terminal
from tests.unit.event_stories import StoryLog, struck
from tpuherd.accounting.goodput import GoodputState
from tpuherd.jobs.job_queries import DONE, no_node_messages
from tpuherd.model.slot_history import Verdict
from tpuherd.model.slots_and_plan import Goal, HistoryEvent
from tpuherd.model.stored_job import StoredJob
from tpuherd.settings import project_access
from tpuherd.settings.folders import logs_folder
from tpuherd.store.database import Database
from tpuherd.store.log_store import LogHost, LogInfo, LogStore
from tpuherd.views.printable import COLOURED, show_controls
from tpuherd_host.agent.log_records import Record

Save = Callable[..., None]


@pytest.fixture
def save(world: Path, tmp_path: Path) -> Save:
    """Puts a job with its story into the store."""

    def save(
        story: StoryLog,
        goal: Goal = Goal.RUN,
        *,
        submitted: bool = True,
        job: str = "gpt",
        state: str = "attempt 1 has run for 1 min",
    ) -> None:
        store = Database(
            project_access.resolve_scope({"HOME": str(tmp_path)}, world=world).store_folder, time()
        )
        store.append_events([named(event, job) for event in story.events])
        if submitted:
            at = story.events[0].at
            document = {"name": job, "accelerator": "v4-8", "run": "python train.py"}
            store.put_job(
                StoredJob(job=job, goal=goal, document=document, made_at=at, changed_at=at)
            )
        store.put_slot_messages({f"{job}-0": state})
        store.close()

    return save


def named(event: HistoryEvent, job: str) -> HistoryEvent:
    """The same of a job of another name."""
    told = json.loads(json.dumps(asdict(event)).replace("gpt", job))
    return HistoryEvent(**told)


def story() -> StoryLog:
    """A job that has run for a minute."""
    story = StoryLog(time() - 120)
    story.get(10, 20, 20)
    story.launch(10, step=0)
    story.wait(60, GoodputState.PRODUCTIVE)
    return story


def tried(story: StoryLog) -> StoryLog:
    """The same, as a sweep whose first trial is complete and whose second runs."""
    for number, loss in enumerate((0.5, 0.25)):
        params = {"lr": 0.1 * (number + 1)}
        made: dict[str, Any] = {
            "params": params,
            "run_id": f"gpt-t{number}",
            "metric": "loss",
            "direction": "minimize",
        }
        story.tell("trial.created", trial=number, **made)
        story.tell("trial.assigned", trial=number, resumed=False, usage={})
        story.tell("trial.reported", trial=number, step=10, value=loss)
        if number == 0:
            story.tell("trial.ended", trial=number, outcome="complete", why="its command is done")
    return story


def test_an_empty_store_says_so(herd: Herd, world: Path, tmp_path: Path) -> None:
    Database(
        project_access.resolve_scope({"HOME": str(tmp_path)}, world=world).store_folder, time()
    ).close()
    assert herd("ls") == (0, "No jobs. Start one with `herd run`.\n", "")
    assert herd("types", "--zones") == (0, "No node has been requested yet.\n", "")
    assert herd("events") == (0, "", "")
    assert herd("status", "gpt") == (
        4, "", "herd status: there is no job gpt: no jobs exist\n",
    )  # fmt: skip


def test_stored_data_is_shown_without_the_world(herd: Herd, save: Save) -> None:
    save(story())
    assert [row.split()[:3] for row in herd("ls")[1].splitlines()] == [
        ["JOB", "PHASE", "READY"], ["gpt", "running", "1/1"],
    ]  # fmt: skip
    assert "gpt-0: attempt 1 has run for 1 min" in herd("status", "gpt")[1]
    assert "gpt-0: attempt 1 has run for 1 min" in herd("why", "gpt-0")[1]
    events = herd("events", "gpt-0")[1].splitlines()
    assert events[0].split()[1:4] == ["gpt-0", "bid.requested", "gpt-0-g1-7kq"]
    for since in ("65s", f"{time() - 65:.0f}"):  # seconds ago, or a time since 1970
        assert len(herd("events", "--since", since)[1].splitlines()) == 1
    assert herd("status", "gpu")[::2] == (
        4, "herd status: there is no job gpu: did you mean gpt?\n",
    )  # fmt: skip
    assert herd("why", "gpt-1")[0] == 4


def test_why_misses_an_engine_only_while_something_is_left_to_do(
    herd: Herd, save: Save, world: Path, tmp_path: Path
) -> None:
    save(story())
    assert "No engine is running" in herd("why", "gpt")[1]
    scope = project_access.resolve_scope({"HOME": str(tmp_path)}, world=world)
    store = Database(scope.store_folder, time())
    store.append_events([HistoryEvent(at=time(), kind="engine.stopped", facts={"code": "rest"})])
    store.close()
    assert "No engine is running" not in herd("why", "gpt")[1]


def test_a_sweep_is_shown_as_table_csv_and_chart(herd: Herd, save: Save) -> None:
    save(tried(story()))
    status, out, _ = herd("sweep", "status", "gpt")
    assert status == 0
    assert [line.split()[:6] for line in out.splitlines()[2:]] == [
        ["TRIAL", "PHASE", "SLOT", "LOSS", "LR", "ATTEMPT"],
        ["0", "*", "complete", "gpt-0", "0.5", "0.1"],
        ["1", "running", "gpt-0", "0.25", "0.2", "-"],
    ]
    status, out, _ = herd("sweep", "status", "gpt", "--csv")
    assert [line.split(",")[:3] for line in out.splitlines()] == [
        ["trial", "phase", "value"], ["0", "complete", "0.5"], ["1", "running", "0.25"],
    ]  # fmt: skip
    status, out, err = herd("sweep", "best", "gpt")
    assert (status, out.splitlines()[:2], err) == (
        0, ["loss 0.5 at step 10, trial 0 of 2, run gpt-t0", "  lr: 0.1"], "",
    )  # fmt: skip
    command, again = out.splitlines()[2:]
    assert command.endswith("; python train.py") and "HERD_PARAM_LR=0.1 " in command
    assert "herd sweep JOB_FILE --name gpt-best --copies 1 --set 'sweep=" in again
    assert "loss by lr" in herd("sweep", "plot", "gpt")[1]
    assert herd("sweep", "plot", "gpt", "--svg")[1].startswith("<svg ")


def test_wait_ends_with_the_job(herd: Herd, save: Save) -> None:
    one = story()
    save(one)
    assert herd("wait", "gpt", "--timeout", "0.1s") == (
        124,
        "",
        "herd wait: gpt is still running\n",
    )
    assert herd("wait", "gpt2")[0] == 4
    one.events.clear()
    one.tell("slot.done", why="it succeeded")
    save(one)
    assert herd("wait", "gpt") == (0, "", "herd wait: gpt-0 is done\n")


def test_wait_for_several_jobs_ends_with_the_last(herd: Herd, save: Save) -> None:
    """Each is shown as it ends; the greatest status counts, and what still runs at the timeout."""
    done, failed = story(), story()
    done.tell("slot.done", why="it succeeded")
    save(done)
    save(failed, job="sad")
    said = "herd wait: gpt-0 is done\nherd wait: sad is still running\n"
    assert herd("wait", "gpt", "sad", "--timeout", "0.1s") == (124, "", said)
    assert herd("wait", "gpt", "sax*")[::2] == (
        4, "herd wait: there is no job sax*: the jobs are gpt,sad\n",
    )  # fmt: skip
    failed.events.clear()
    failed.end(Verdict.FAILURE, exit=3)
    failed.tell("slot.gave_up", why="it failed 4 times")
    save(failed, job="sad")
    said = "herd wait: gpt-0 is done\nherd wait: sad-0 gave up: it failed 4 times\n"
    assert herd("wait", "g*", "*", "sad") == (3, "", said)
    status, out, _ = herd("wait", "*", "--json")
    told = json.loads(out)
    jsonschema.validate(told, SCHEMAS["herd wait NAME --json"])
    assert (status, [(one["job"], one["status"]) for one in told["jobs"]]) == (
        3, [("gpt", 0), ("sad", 3)],
    )  # fmt: skip


@pytest.mark.parametrize(
    ("verdict", "code", "status"),
    [(Verdict.FAILURE, 3, 3), (Verdict.FAILURE, None, 5), (Verdict.STALLED, 0, 5)],
)
def test_wait_returns_the_status_of_the_failed_command(
    herd: Herd,
    save: Save,
    verdict: Verdict,
    code: int | None,
    status: int,
) -> None:
    one = story()
    one.end(verdict, exit=code)
    one.tell("slot.gave_up", why="it failed 4 times")
    save(one)
    assert herd("wait", "gpt") == (status, "", "herd wait: gpt-0 gave up: it failed 4 times\n")


def test_a_job_without_a_node_is_described(save: Save, world: Path) -> None:
    """Not awaited if it is over: `exec` on it says so."""

    def said(name: str) -> str:
        store = Database(
            project_access.resolve_scope({"HOME": os.environ["HOME"]}, world=world).store_folder,
            time(),
        )
        try:
            return no_node_messages(store, time())[name]
        finally:
            store.close()

    one = StoryLog(time() - 120)
    one.ask()
    save(one)
    assert "`herd why` shows what it waits for" in said("gpt")
    one = story()
    one.tell("slot.done", why="it succeeded")
    save(one)
    assert said("gpt") == said("gpt-0") == DONE
    save(story(), Goal.GONE, job="off")
    assert "is stopped" in said("off")
    failed = story()
    failed.tell("slot.gave_up", why="it failed 4 times")
    save(failed, job="sad")
    assert "gave up" in said("sad")
    assert "gave up" in said("sad-0")


def test_wait_for_a_stopped_job_ends_at_once(herd: Herd, save: Save) -> None:
    save(story(), Goal.GONE)
    assert herd("wait", "gpt") == (5, "", "herd wait: gpt is stopped\n")


def test_wait_for_a_node_ends_when_it_is_ready(herd: Herd, save: Save) -> None:
    one = StoryLog(time() - 120)
    one.get(10, 20, 20)
    save(one, Goal.IDLE)
    assert herd("wait", "gpt") == (0, "", "herd wait: gpt-0 is ready\n")


def test_logs_of_a_job_include_all_attempts(herd: Herd, world: Path, tmp_path: Path) -> None:
    shelf = LogStore(logs_folder(tmp_path / ".local/state/tpuherd", world=world, project=""))
    now = time()
    said = [("gpt-0-a1-7kq", 1, "gpt-0-g1-7kq"), ("x", 0, "gpt-0-g1-7kq"),
            ("gpt-0-a2-7kq", 2, "gpt-0-g3-7kq"), ("gpt2-0-a1-7kq", 1, "gpt2-0-g1-7kq")]  # fmt: skip
    for at, (id, number, node) in enumerate(said):
        place = LogHost(zone="z", node=node, worker=0, incarnation="1")
        kind = "attempt" if number else "command"
        shelf.write_info(LogInfo(id=id, kind=kind, title="t", target="gpt", started=now + at,
                        places=(place,), number=number))  # fmt: skip
        writer = shelf.open_writer(id, place)
        writer.put(0, Record(now + at, 1, f"{id} says\n".encode()))
        writer.close()
    told = [line.split(" ")[-2] for line in herd("logs", "gpt")[1].splitlines() if "says" in line]
    assert told == ["gpt-0-a1-7kq", "x", "gpt-0-a2-7kq"]
    heads = [line.split()[:3] for line in herd("logs", "gpt")[1].splitlines() if line[0] == "-"]
    assert heads == [["--", "1", "gpt-0-a1-7kq"], ["--", "-", "x"], ["--", "2", "gpt-0-a2-7kq"]]
    assert "gpt-0-a2-7kq says" in herd("logs", "gpt-0", "--attempt", "2")[1]
    assert "gpt-0-a1-7kq says" not in herd("logs", "gpt-0", "--attempt", "2")[1]


def logged(
    world: Path, home: Path, id: str, node: str, times: tuple[float, ...], said: str = "says"
) -> None:
    """Output of an attempt at these times."""
    shelf = LogStore(logs_folder(home / ".local/state/tpuherd", world=world, project=""))
    place = LogHost(zone="z", node=node, worker=0, incarnation="1")
    shelf.write_info(LogInfo(id=id, kind="attempt", title="t", target="gpt", started=min(times),
                    places=(place,), number=int(id != "x")))  # fmt: skip
    writer = shelf.open_writer(id, place)
    for at in times:
        writer.put(writer.offset, Record(at, 1, f"{said}\n".encode()))
    writer.close()


def test_logs_name_a_host_once_before_its_lines(herd: Herd, world: Path, tmp_path: Path) -> None:
    """Alternating hosts need no heading each time; a host that returns to another log does."""
    now = time()
    said = [
        ("gpt-0-a1-7kq", "gpt-0-g1-7kq", (0, 2, 6)),
        ("gpt-1-a1-7kq", "gpt-1-g1-7kq", (1, 3, 5)),
        ("x", "gpt-1-g1-7kq", (4,)),
    ]
    for id, node, times in said:
        logged(world, tmp_path, id, node, tuple(now + at for at in times))
    lines = [line.split() for line in herd("logs", "gpt")[1].splitlines()]
    assert [words[2 if words[0] == "--" else 1] for words in lines] == [
        "gpt-0-a1-7kq", "gpt-0/w0:", "gpt-1-a1-7kq", "gpt-1/w0:", "gpt-0/w0:", "gpt-1/w0:",
        "x", "gpt-1/w0:", "gpt-1-a1-7kq", "gpt-1/w0:", "gpt-0/w0:",
    ]  # fmt: skip


HOSTILE = "\x1b]0;owned\x07\x1b[2J\x9b31m\u202egnp.exe\u2066\x1b[31mred"


def hostile(world: Path, home: Path) -> StoryLog:
    """A job whose host, cloud and script say what a terminal would obey."""
    story = struck(host="gpt-0-g1-7kq/w3", exit=1, lines=[HOSTILE, "killed"])
    story.tell("bid.refused", bid=story.bid, refusal="stockout", message=HOSTILE)
    story.tell(
        "trial.created",
        trial=0,
        params={"lr": 0.1},
        run_id="r",
        metric="loss",
        direction="minimize",
    )
    story.tell("trial.ended", trial=0, outcome="failed", why=HOSTILE)
    logged(world, home, "gpt-0-a1-7kq", "gpt-0-g1-7kq", (story.now,), HOSTILE)
    return story


READING = [
    "ls",
    "status gpt",
    "why gpt",
    "events gpt",
    "types --zones",
    "sweep status gpt",
    "logs gpt",
]


@pytest.mark.parametrize("command", READING + [f"{one} --json" for one in READING])
def test_foreign_output_never_controls_the_terminal(
    herd: Herd, save: Save, world: Path, tmp_path: Path, command: str
) -> None:
    save(hostile(world, tmp_path), state=f"waits: {HOSTILE}")
    status, seen = run_in_terminal(*command.split())
    assert status == 0, seen
    assert "owned" in seen or command.split()[0] in ("ls", "types")
    plain = COLOURED.sub("", seen)
    assert show_controls(plain, keep="\r") == plain
    if command.startswith("logs"):
        assert run_in_terminal("engine", "daemon", "stop")[0] == 0
    if command.startswith("logs") or "--json" in command:
        return
    assert "\x1b[31mred" not in seen, "its colours are not ours"
    _, out, err = herd(*command.split())
    assert show_controls(out + err) == out + err, "in a pipe, too"


def test_logs_in_a_pipe_are_unchanged(herd: Herd, world: Path, tmp_path: Path) -> None:
    logged(world, tmp_path, "gpt-0-a1-7kq", "gpt-0-g1-7kq", (time(),), HOSTILE)
    assert HOSTILE in herd("logs", "gpt")[1]


@pytest.mark.parametrize("columns", [80, 60])
@pytest.mark.parametrize("command", [*READING[:-1], "wait gpt2", "status gpt-1", "ls --nonsense"])
def test_no_word_is_cut(
    herd: Herd, save: Save, world: Path, tmp_path: Path, command: str, columns: int
) -> None:
    long = "there is no more capacity in the zone us-central2-b for 32 chips of v4; try it again"
    save(hostile(world, tmp_path), state=f"asks for v4-32 in three zones, since {long}")
    save(story(), job="a-job-with-quite-a-long-name", state=long)
    _, seen = run_in_terminal(*command.split(), columns=columns)
    assert seen.strip()
    for line in COLOURED.sub("", seen).split("\n"):
        assert len(line) <= columns or " " not in line.strip(), line


def test_the_cost_of_a_job_and_of_all(herd: Herd, save: Save) -> None:
    save(story())
    status, out, _ = herd("cost", "gpt")
    assert status == 0
    assert "goodput" in out and "where the time went" in out
    _, out, _ = herd("cost", "gpt-0", "--json")
    page = json.loads(out)
    jsonschema.validate(page, SCHEMAS["herd cost JOB --json"])
    assert [slot["slot"] for slot in page["slots"]] == ["gpt-0"]
    status, out, _ = herd("cost")
    assert (status, "per hour" in out, "gpt" in out) == (0, True, True)
    _, out, _ = herd("cost", "--json", "--days", "40")
    page = json.loads(out)
    jsonschema.validate(page, SCHEMAS["herd cost --json"])
    assert len(page["days"]) == 40
    for before, after in pairwise(page["days"]):
        assert before["end"] == after["start"]
    assert sum(day["cost"] for day in page["days"]) == pytest.approx(page["total"])


def test_a_job_without_attempts_and_a_removed_one_have_costs(herd: Herd, save: Save) -> None:
    waits = StoryLog(time() - 60)
    waits.ask()
    save(waits, job="waits")
    status, out, _ = herd("cost", "waits")
    assert status == 0
    assert "nothing has run yet" in out
    gone = story()
    gone.tell("job.removed", slot="")
    save(gone, job="gone", submitted=False)
    status, out, _ = herd("cost", "gone")
    assert status == 0
    assert "gone (removed)" in out
