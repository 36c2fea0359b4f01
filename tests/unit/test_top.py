"""`herd top`: the rows of its tree, the lines they become, and the screen under the keys."""

import asyncio
from collections.abc import Callable, Coroutine, Sequence
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tpuherd.commands.log_pages import LineId, PageLine
from tpuherd.errors import OperationFailed
from tpuherd.model.samples import Series, SeriesName, SeriesPoint
from tpuherd.results import Problem
from tpuherd.store.trouble_files import TroubleStore
from tpuherd.top.detail_lines import JobDetail, explain_row
from tpuherd.top.row_cells import head_text, row_pieces, visible_columns
from tpuherd.top.tree_rows import Json, TreeRow, build_rows
from tpuherd.views.text_width import cell_width
from tpuherd.views.trouble_line import TITLES, problem_rows

GIB = 1 << 30


def host(worker: int, *, heard: bool = True) -> dict[str, Any]:
    known: dict[str, Any] = {
        "at": 990.0, "cpu": 12.0, "ram_used": 3 * GIB, "ram_total": 16 * GIB, "disk_free": 40 * GIB,
        "disk_total": 100 * GIB, "net_in": 1e6, "net_out": 2e6, "duty": [80.0, 100.0, 60.0, None],
        "hbm_used": [8 * GIB, 8 * GIB, 8 * GIB, None], "hbm_total": [16 * GIB] * 4,
    }  # fmt: skip
    unknown: list[None] = [None] * 4
    if not heard:
        known = dict.fromkeys(known) | dict.fromkeys(("duty", "hbm_used", "hbm_total"), unknown)
    return {"worker": worker, "why": "", **known}


def slot(name: str, phase: str, *, node: str | None = None, why: str = "") -> dict[str, Any]:
    return {
        "slot": name, "phase": phase, "state": "productive", "why": why, "zone": "us-central2-b",
        "type": "v4-16", "tier": "spot", "attempt": 1, "step": 1200, "total": None, "saved": 1000,
        "goodput": 0.9, "goodput_why": "", "cost": 1.0, "per_hour": 2.5, "node": node,
    }  # fmt: skip


def build_job(name: str, slots: Sequence[dict[str, Any]]) -> dict[str, Any]:
    phases: dict[str, int] = {}
    for one in slots:
        phases[one["phase"]] = phases.get(one["phase"], 0) + 1
    return {
        "job": name, "goal": "run", "phase": ", ".join(phases), "phases": phases, "kind": "job",
        "slots": len(slots), "type": ["v4-16"], "zones": ["us-central2-b"], "goodput": 0.9,
        "goodput_why": "", "cost": 1.0, "per_hour": 2.5, "price_known": True,
        "slot_rows": list(slots),
    }  # fmt: skip


def build_overview(*jobs: dict[str, Any], hosts: int = 2) -> dict[str, Any]:
    nodes = [
        {"node": one["node"], "hosts": [host(worker) for worker in range(hosts)]}
        for row in jobs
        for one in row["slot_rows"]
        if one["node"]
    ]
    return {
        "now": 1000.0, "engine": {"running": True, "since": 900.0}, "problems": [], "notices": [],
        "cost": {"total": 3.0, "per_hour": 2.5, "price_known": True}, "jobs": list(jobs),
        "nodes": nodes,
    }  # fmt: skip


FLEET = build_overview(
    build_job("eval", [slot("eval-0", "running", node="eval-0-g1-aaa")]),
    build_job("gpt", [
        slot("gpt-0", "running", node="gpt-0-g1-aaa"),
        slot("gpt-1", "failing", why="attempt 1 failed: it starts again in 30 s"),
    ]),
)  # fmt: skip


def test_what_is_wrong_comes_first_and_a_closed_row_has_none_below_it() -> None:
    rows = build_rows(FLEET, ())
    assert [(row.name, row.sign, row.opens) for row in rows] == [
        ("gpt", "✗", True), ("eval", "●", True)
    ]  # fmt: skip
    assert "starts again" in rows[0].why
    opened = [("gpt",), ("gpt", "gpt-0"), ("gpt", "gpt-0", "1"), ("gpt", "gpt-1")]
    names = [row.name for row in build_rows(FLEET, opened)]
    chips = [f"chip {at}" for at in range(4)]
    assert names == ["gpt", "gpt-0", "w0", "w1", *chips, "gpt-1", "eval"]


def test_sums_leave_out_what_is_not_known() -> None:
    (row,) = build_rows(build_overview(FLEET["jobs"][0]), ())
    assert row.duty == 80.0 and row.memory == (2 * 3 * 8 * GIB, 2 * 3 * 16 * GIB)
    bare = build_overview(FLEET["jobs"][0])
    bare["nodes"][0]["hosts"] = [host(0, heard=False)]
    (row,) = build_rows(bare, ())
    assert row.duty is None and row.memory is None


@pytest.mark.parametrize(
    ("words", "names"),
    [("gpt-1", ["gpt", "gpt-1"]), ("!gpt", ["eval", "eval-0"]), ("FAILING", ["gpt", "gpt-1"]),
     ("nothing", []), ("", ["gpt", "gpt-0", "gpt-1", "eval", "eval-0"])],
)  # fmt: skip
def test_a_filter_keeps_what_matches(words: str, names: list[str]) -> None:
    rows = build_rows(FLEET, [("gpt",), ("eval",)], words)
    assert [row.name for row in rows] == names


@given(
    name=st.text(max_size=60), why=st.text(max_size=200), width=st.integers(10, 250),
    duty=st.none() | st.floats(0, 1e6),
)  # fmt: skip
def test_every_line_fills_the_width_and_carries_no_control(
    name: str, why: str, width: int, duty: float | None
) -> None:
    rows = [TreeRow(key=("job",), kind="job", name=name, why=why, duty=duty, per_hour=1e9)]
    columns = visible_columns(rows, width)
    line = "".join(text for text, _ in row_pieces(rows[0], columns, width))
    assert cell_width(line) == width and cell_width(head_text(columns, width)) == width
    assert not any(ord(letter) < 32 or 0x7F <= ord(letter) < 0xA0 for letter in line)


def test_a_narrow_screen_keeps_names_and_phases() -> None:
    rows = build_rows(FLEET, [("gpt",)])
    titles = [[column.title for column in visible_columns(rows, width)] for width in (40, 80, 240)]
    assert titles[0] == ["NAME", "PHASE"]
    assert titles[1] == ["NAME", "PHASE", "STEP", "DUTY"]
    assert titles[2][2] == "WHERE" and titles[2][-1] == "$/H"


PAGE: Json = {
    "timeline": {
        "start": 0.0, "end": 1000.0,
        "slots": {"gpt-0": [[0.0, 500.0, "queue_first"], [500.0, 1000.0, "productive"]],
                  "gpt-1": [[0.0, 1000.0, "process_down"]]},
    },
    "incidents": [
        {"slot": "gpt-0", "at": 400.0, "verdict": "preempted", "seconds": 90.0, "steps_lost": 12}
    ],
}  # fmt: skip


def test_the_reason_the_time_and_the_losses_of_a_slot_are_explained() -> None:
    row = build_rows(FLEET, [("gpt",)])[1]
    lines = explain_row(row, JobDetail(page=PAGE), 1000.0, 57)
    text = "\n".join("".join(part for part, _ in line) for line in lines)
    assert "▁" * 20 + "█" * 20 in text and "▁ queued  █ training" in text
    assert "1 loss; the last, preempted, 10 m 00 s ago, took 1 m 30 s, 12 steps lost" in text
    assert "×" not in text  # the other slot's


# ---- the screen ----------------------------------------------------------------------------------


class CannedFeed:
    """A TopFeed without a store."""

    def __init__(self, found: Json) -> None:
        self.found: Json | None = found
        self.trouble: str = ""
        self.asked: list[str] = []

    async def read_changes(self) -> Json | None:
        if self.trouble:
            raise OperationFailed(self.trouble)
        found, self.found = self.found, None
        return found

    async def read_job(self, job: str, slot: str) -> JobDetail:
        self.asked.append(slot)
        return JobDetail(page=PAGE)

    async def read_logs(self, target: str) -> list[PageLine]:
        self.asked.append(target)
        id = LineId(1.0, "log", 0, 0)
        text = "\x1b[31mloss [red]0.5[/red]"
        return [PageLine(id=id, slot="gpt-0", worker=1, stream="stdout", text=text)]


class HandClock:
    """Every rest ends when the test lets time pass."""

    def __init__(self) -> None:
        self.passed = asyncio.Event()

    def now(self) -> float:
        return 1000.0

    async def sleep(self, seconds: float) -> None:
        await self.passed.wait()

    def pass_time(self) -> None:
        self.passed.set()
        self.passed = asyncio.Event()


def drive_screen(
    feed: CannedFeed, play: Callable[[Any, Any], Coroutine[Any, Any, None]], ran: list[list[str]]
) -> None:
    """Run the screen with these keys pressed."""
    textual = pytest.importorskip("textual", reason="herd top needs textual")
    assert textual
    from tpuherd.top.top_screen import TopScreen

    async def run_herd(words: Sequence[str]) -> str:
        ran.append(list(words))
        return "done"

    async def both() -> None:
        app = TopScreen(feed, HandClock(), run_herd)  # type: ignore[arg-type]
        async with app.run_test(size=(100, 30)) as pilot:
            await pilot.pause()
            await play(app, pilot)

    asyncio.run(both())


async def shows(app: Any, pilot: Any, text: str) -> None:
    """Wait until the screen has this text."""
    async with asyncio.timeout(20):
        while text not in screen_text(app):
            app.clock.pass_time()
            await pilot.pause()


def screen_text(app: Any) -> str:
    tree = app.tree_view
    lines = [tree.render_line(y).text for y in range(tree.size.height)]
    named = ("#summary", "#problems", "#title", "#text")
    return "\n".join([*lines, *(str(app.query_one(name).content) for name in named)])


def test_keys_open_rows_and_show_logs_as_they_are() -> None:
    feed = CannedFeed(FLEET)

    async def play(app: Any, pilot: Any) -> None:
        await shows(app, pilot, "why of gpt")
        await pilot.press("right", "down", "right", "down", "right")
        await shows(app, pilot, "chip 3")
        await shows(app, pilot, "why of gpt-0/w0")
        await pilot.press("l")
        await shows(app, pilot, "loss [red]0.5[/red]")
        assert "\x1b" not in screen_text(app) and feed.asked[-1] == "gpt-0/w0"
        await pilot.press("left", "left", "left", "left", "left")
        await shows(app, pilot, "▸ ✗ gpt")

    drive_screen(feed, play, [])


def test_only_yes_stops_a_job() -> None:
    ran: list[list[str]] = []

    async def play(app: Any, pilot: Any) -> None:
        await shows(app, pilot, "▸ ✗ gpt")
        await pilot.press("x", "n", "x", "enter")
        await pilot.pause()
        assert ran == []
        await pilot.press("x", "y")
        await pilot.pause()
        await pilot.press("ctrl+d", "y")
        await pilot.pause()
        assert ran == [["stop", "gpt"], ["down", "gpt", "--yes", "--no-wait"]]

    drive_screen(CannedFeed(FLEET), play, ran)


def test_a_store_that_can_not_be_read_is_a_sentence_and_the_rows_stay() -> None:
    feed = CannedFeed(FLEET)

    async def play(app: Any, pilot: Any) -> None:
        await shows(app, pilot, "▸ ✗ gpt")
        feed.trouble = "the store is gone"
        await shows(app, pilot, "✗ the store is gone")
        assert "gpt" in screen_text(app)
        feed.trouble, feed.found = "", build_overview(build_job("other", [slot("other-0", "done")]))
        await shows(app, pilot, "other-0")
        assert "the store is gone" not in screen_text(app)

    drive_screen(feed, play, [])


@pytest.mark.parametrize("source", TITLES)
def test_a_problem_of_any_source_is_shown(source: str, tmp_path: Path) -> None:
    troubles = TroubleStore(tmp_path)
    for at in (920.0, 940.0):
        troubles.record_trouble(source, "it \x1bfailed", hint="do this", now=at)
    rows = problem_rows(troubles.read())
    assert [msgspec.convert(row, Problem).source for row in rows] == [source]
    feed = CannedFeed(FLEET | {"problems": rows, "notices": ["set aside"]})

    async def play(app: Any, pilot: Any) -> None:
        when = "for 1 m 20 s, seen 2 times, last 1 m 00 s ago"
        await shows(app, pilot, f"✗ Problem with {TITLES[source]}, {when}: it ")
        assert "failed; do this\n✗ set aside" in screen_text(app)
        assert "\x1b" not in screen_text(app)
        feed.found = FLEET
        while "Problem" in screen_text(app):
            app.clock.pass_time()
            await pilot.pause()

    drive_screen(feed, play, [])


def test_problems_of_all_sources_are_shown_together(tmp_path: Path) -> None:
    troubles = TroubleStore(tmp_path)
    for source in TITLES:
        troubles.record_trouble(source, "it failed", hint="do this", now=940.0)
    feed = CannedFeed(FLEET | {"problems": problem_rows(troubles.read())})

    async def play(app: Any, pilot: Any) -> None:
        for title in TITLES.values():
            await shows(app, pilot, f"✗ Problem with {title}, ")

    drive_screen(feed, play, [])


def test_the_cursor_stays_on_its_row_while_others_come_and_go() -> None:
    feed = CannedFeed(FLEET)

    async def play(app: Any, pilot: Any) -> None:
        await shows(app, pilot, "▸ ✗ gpt")
        await pilot.press("down")
        await shows(app, pilot, "why of eval")
        feed.found = build_overview(
            build_job("alpha", [slot("alpha-0", "failing")]), *FLEET["jobs"]
        )
        await shows(app, pilot, "alpha")
        assert app.tree_view.chosen.name == "eval"
        await pilot.press("slash", *"alpha")
        await shows(app, pilot, "why of alpha")
        assert "eval" not in screen_text(app)
        await pilot.press("escape")
        await shows(app, pilot, "▸ ● eval")

    drive_screen(feed, play, [])


def test_a_sparkline_has_no_gap_between_reports_and_the_step_is_the_latest() -> None:
    def series(name: str, last: float) -> Series:
        points = tuple(SeriesPoint(10.0 * at, last, last, last) for at in range(40))
        return Series(name=SeriesName(job="gpt", slot="gpt-0", name=name), points=points)

    row = build_rows(FLEET, [("gpt",)])[1]
    told = [series("loss", 0.5), series("step", 1234.0)]
    lines = explain_row(row, JobDetail(page=PAGE, series=told), 1000.0, 90)
    text = ["".join(part for part, _ in line) for line in lines]
    assert text[0] == "gpt-0 running  step 1234"
    (loss,) = [line for line in text if line.startswith("loss")]
    assert loss == f"{'loss':17}{'▄' * 20} 0.5"
