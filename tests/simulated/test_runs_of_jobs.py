"""`herd logs` and `herd events` of a name used by an earlier job, and how much they show."""

import asyncio
from collections.abc import Callable
from pathlib import Path
from time import time

import pytest

from tests.unit.event_stories import StoryLog
from tpuherd.cli import logs
from tpuherd.cli.follow import FoldedLogPrinter
from tpuherd.cli.main import run
from tpuherd.clock import WallClock
from tpuherd.commands import find_logs as finding
from tpuherd.commands.console import Console
from tpuherd.commands.find_logs import JobEnds, LogFollower, LogQuery, find_logs
from tpuherd.model.slot_history import Verdict
from tpuherd.settings import project_access
from tpuherd.settings.folders import logs_folder
from tpuherd.store.database import Database
from tpuherd.store.log_store import LogHost, LogInfo, LogStore
from tpuherd_host.agent.log_records import Record

Herd = Callable[..., str]


@pytest.fixture
def herd(world: Path, capfd: pytest.CaptureFixture[str]) -> Herd:
    def herd(*words: str, status: int = 0) -> str:
        assert run(words) == status
        said = capfd.readouterr()
        return said.out + said.err

    return herd


def write_log(world: Path, id: str, text: str, *, at: float, workers: int = 1) -> LogStore:
    """An attempt's log in which each host writes this."""
    shelf = LogStore(logs_folder(world.parent / ".local/state/tpuherd", world=world, project=""))
    places = tuple(
        LogHost(zone="z", node=id.replace("-a", "-g"), worker=worker, incarnation="1")
        for worker in range(workers)
    )
    shelf.write_info(LogInfo(id=id, kind="attempt", title="t", target="gpt", started=at,
        places=places,
                    number=int(id.split("-a")[1][0])))  # fmt: skip
    for place in places:
        writer = shelf.open_writer(id, place)
        writer.put(0, Record(at, 1, text.format(place.worker).encode()))
        writer.close()
    return shelf


def submit_twice(world: Path) -> None:
    """A job that was dropped, and submitted again a minute ago."""
    first, second = StoryLog(time() - 600), StoryLog(time() - 60)
    first.ask("z-of-before")
    second.ask("z-of-now")
    store = Database(
        project_access.resolve_scope({"HOME": str(world.parent)}, world=world).store_folder, time()
    )
    store.append_events([*first.events, *second.events])
    store.close()
    write_log(world, "gpt-0-a1-abc", "before\n", at=time() - 500)


def test_events_show_the_current_run_unless_all(herd: Herd, world: Path) -> None:
    submit_twice(world)
    for name in ("gpt", "gpt-0"):
        assert "z-of-before" not in herd("events", name, "--json")
        assert "z-of-now" in herd("events", name, "--json")
        assert "z-of-before" in herd("events", name, "--all", "--json")
    assert "z-of-before" in herd("events", "--json"), "of all jobs it is one log"


def test_logs_show_the_current_run_unless_all(herd: Herd, world: Path) -> None:
    submit_twice(world)
    assert herd("logs", "gpt", status=4) == (
        "herd logs: gpt has no log yet; --all shows those of earlier jobs of this name;"
        " commands without output leave no log\n"
    )
    write_log(world, "gpt-0-a1-xyz", "now\n", at=time() - 50)
    for target in ("gpt", "gpt-0/w0"):
        assert "before" not in herd("logs", target)
        assert "now" in herd("logs", target)
        assert "before" in herd("logs", target, "--all")
    assert "before" in herd("logs", "--attempt", "gpt-0-a1-abc")
    assert "before" in herd("logs", "gpt", "--attempt", "gpt-0-a1-abc")
    assert "before" not in herd("logs", "gpt", "--attempt", "1")


def test_a_tail_is_the_last_lines_of_all_hosts(herd: Herd, world: Path) -> None:
    write_log(world, "gpt-0-a1-xyz", "".join(f"{n} of {{0}}\n" for n in range(50)), at=time(),
              workers=2)  # fmt: skip
    shown = [line.split(": ")[1] for line in herd("logs", "gpt", "--tail", "3").splitlines()[1:]]
    assert shown == ["47 of 1", "48 of 1", "49 of 1"]
    assert herd("logs", "gpt", "--tail", "0") == ""
    assert len(herd("logs", "gpt", "--tail", "200", "--json").splitlines()) == 100


class Ticking(WallClock):
    """A second later at each call: longer than output waits for another host."""

    seconds = 0.0

    def now(self) -> float:
        self.seconds += 1.0
        return self.seconds


def test_following_shows_each_line_once(world: Path, tmp_path: Path) -> None:
    text = "Traceback\n  worker {0}\nValueError\n"
    shelf = write_log(world, "gpt-0-a1-xyz", text, at=time(), workers=8)
    write_log(world, "gpt-1-a1-xyz", text, at=time(), workers=8)

    async def follow() -> str:
        with (tmp_path / "out").open("w+b") as out:
            console = Console([out.fileno()] * 3, tmp_path, {}, colour=False)
            page = FoldedLogPrinter(shelf, console, Ticking(), since=0.0)
            await page.print_new(find_logs(LogQuery(target="gpt"), shelf))
            write_log(world, "gpt-0-a2-xyz", "again\n", at=time(), workers=8)
            await page.print_new(find_logs(LogQuery(target="gpt"), shelf))
            await page.close()
            await console.flush()
            return (tmp_path / "out").read_text()

    lines = asyncio.run(follow()).splitlines()
    assert lines[0] == "gpt-[0-1]/w[0-7]: Traceback"
    assert lines.count("gpt-[0-1]/w[0-7]: ValueError") == 1
    assert lines[-1] == "gpt-0/w[0-7]: again"
    assert len(lines) == 2 + 8 + 1


def finished(story: StoryLog) -> StoryLog:
    """A job that ran to its end, without its node."""
    story.get(1, 1, 1)
    story.launch(1, step=0)
    story.end(Verdict.SUCCESS)
    story.tell("slot.done", why="it has succeeded")
    story.tell("bid.deleted", bid=story.bid)
    return story


def test_following_ends_with_the_job(
    herd: Herd, world: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    scope = project_access.resolve_scope({"HOME": str(world.parent)}, world=world)
    story, store = StoryLog(time() - 60), Database(scope.store_folder, time())
    later = finished(story).events[-2:]
    store.append_events(story.events[:-2])
    ends = [JobEnds(target, scope) for target in ("gpt", "gpt-0/w0", "gpt-0-g1-7kq", "other")]
    assert [one.are_over() for one in ends] == [False] * 4
    store.append_events(later)
    assert [one.are_over() for one in ends] == [True, True, True, False]
    for one in ends:
        one.close()
    store.close()
    monkeypatch.setattr(logs, "LAST_WORDS_S", 0.1)
    write_log(world, "gpt-0-a1-xyz", "now\n", at=time() - 50)
    shown = herd("logs", "gpt", "-f")
    assert "gpt-0/w0: now" in shown and shown.endswith("herd logs: gpt has ended\n")


def test_following_looks_at_what_may_grow(world: Path) -> None:
    for number in range(1, 41):
        shelf = write_log(world, f"gpt-0-a{number}-xyz", "now\n", at=1000.0 + number, workers=2)
    shelf.write_info(LogInfo(id="c1", kind="command", title="t", target="gpt", started=1.0,
                             places=(shelf.list_logs()[0].places[0],)))  # fmt: skip
    follower = LogFollower(LogQuery(target="gpt"), shelf)
    known = [log.about.id for log in follower.find_growing(0.0)]
    assert known == ["c1", *sorted(["gpt-0-a39-xyz", "gpt-0-a40-xyz"] * 2)]
    assert len(follower.find_growing(1.0)) == 5
    write_log(world, "gpt-0-a41-xyz", "now\n", at=2000.0)
    assert "gpt-0-a41-xyz" not in {log.about.id for log in follower.find_growing(1.5)}
    grown = follower.find_growing(finding.FIND_S)
    assert [log.about.id for log in grown].count("gpt-0-a41-xyz") == 1 and len(grown) == 5
    assert len(follower.find_growing(finding.REST_S + 1)) == 82
