"""The parts of charts: ticks, gaps, folding, the cursor, zoom, live points and broken values."""

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import pytest

from tests.page.conftest import (
    OpenTab,
    Tab,
    find_axe_problems,
    open_tabs,
    serve_page,
    wait_until,
)

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

pytestmark = [pytest.mark.real, pytest.mark.needs("chromium")]

SCALE, DATA = "/parts/chart_scale.js", "/parts/chart_data.js"
T = 1_795_435_200  #: 2026-11-23 13:00 in Berlin


@pytest.fixture(scope="module")
def tab(browser: "Browser") -> Iterator[Tab]:
    """One tab for all: each test draws its own chart into it."""
    with serve_page() as server, open_tabs(browser, server) as open_tab:
        found = open_tab()
        found.open("#/quota")
        found.page.get_by_role("heading", name="Quota").wait_for()
        yield found


@pytest.mark.parametrize(
    ("low", "high", "labels"),
    [
        (0, 1, ["0.0", "0.2", "0.4", "0.6", "0.8", "1.0"]),
        (0, 7, ["0", "2", "4", "6"]),
        (2.31, 2.34, ["2.31", "2.32", "2.33", "2.34"]),
        (-1, 1, ["−1.0", "−0.5", "0.0", "0.5", "1.0"]),
        (0, 3e-6, ["0", "1e−6", "2e−6", "3e−6"]),
    ],
)
def test_ticks_are_round_and_labelled_alike(
    tab: Tab, low: float, high: float, labels: list[str]
) -> None:
    said = tab.import_module(SCALE, f"return it.tickLabels(it.linearTicks({low}, {high}))")
    assert said == labels


@pytest.mark.parametrize(
    ("unit", "value", "text"),
    [
        ("bytes", 17_179_869_184, "17.18 GB"),
        ("percent", 93.25, "93.25 %"),
        ("dollars", 1204.5, "$1,204.50"),
        ("seconds", 3725, "1 h 02 m"),
        ("rate", 2.5, "2.5 /s"),
        ("number", 1.25e-5, "1.25e−5"),
        ("number", 123456, "123456"),
    ],
)
def test_values_have_their_unit(tab: Tab, unit: str, value: float, text: str) -> None:
    assert tab.import_module(SCALE, f"return it.valueLabel({value}, {unit!r})") == text


@pytest.mark.parametrize(
    ("length", "labels"),
    [
        (60, ["13:00:00", "13:00:10", "13:00:20", "13:00:30", "13:00:40", "13:00:50", "13:01:00"]),
        (3600, ["13:00", "13:10", "13:20", "13:30", "13:40", "13:50", "14:00"]),
        (86_400, ["18:00", "00:00", "06:00", "12:00"]),
        (5 * 86_400, ["24 Nov", "25 Nov", "26 Nov", "27 Nov", "28 Nov"]),
    ],
)
def test_times_are_round_on_the_local_clock(tab: Tab, length: int, labels: list[str]) -> None:
    body = f"""const {{step, ticks}} = it.timeTicks({T}, {T + length});
        return ticks.map((at) => it.timeLabel(at, step))"""
    assert tab.import_module(SCALE, body) == labels


def test_the_change_to_winter_time_moves_no_label(tab: Tab) -> None:
    since = 1_792_879_200  # 2026-10-25 00:00 in Berlin; the clock goes back at 3:00
    body = f"""const {{step, ticks}} = it.timeTicks({since}, {since + 25 * 3600}, 5);
        return ticks.map((at) => it.timeLabel(at, step))"""
    assert tab.import_module(SCALE, body) == ["00:00", "06:00", "12:00", "18:00", "00:00"]


def test_a_gap_and_a_broken_value_split_a_line(tab: Tab) -> None:
    body = """const one = it.parseSeries({key: "a", name: "a", points:
        [[0, 1, 1, 1], [1, 1, 1, 1], [2, null, null, null], [3, 1, 1, 1], [4, 1, "inf", 1],
         [60, 1, 1, 1]]});
        const runs = it.splitAtGaps(one.points, one.broken, 4);
        return [runs.map((run) => run.map(([at]) => at)), one.broken]"""
    assert tab.import_module(DATA, body) == [[[0, 1], [3], [60]], [2, 4]]


def test_many_series_become_a_range_and_its_ends(tab: Tab) -> None:
    body = """const each = Array.from({length: 64}, (_, chip) => it.parseSeries({
            key: `c${chip}`, name: `chip ${chip}`,
            points: [[0, chip, chip, chip], [10, chip, chip, chip]]}));
        return it.foldSeries(each, 10).map(({name, points}) => [name, points[0]])"""
    assert tab.import_module(DATA, body) == [
        ["range and mean of 64", [0, 0, 31.5, 63]],
        ["lowest: chip 0", [0, 0, 0, 0]],
        ["highest: chip 63", [0, 63, 63, 63]],
    ]


def test_live_points_stay_bounded_and_keep_their_range(tab: Tab) -> None:
    body = """const one = it.parseSeries({key: "a", name: "a", points: []});
        for (let at = 0; at < 20000; at += 1) it.appendPoints(one, [[at, at, at, at]]);
        const last = one.points.at(-1)[0];
        return [one.points.length <= it.POINTS_MAX, it.findExtent([one]), last >= 19998]"""
    assert tab.import_module(DATA, body) == [True, [0, 19999], True]


#: How many pairs of an axis's labels overlap.
COUNT_OVERLAPS = """() => {
    const texts = [...document.querySelectorAll(".chart-svg .chart-tick, .chart-svg .chart-date")];
    const boxes = texts.map((one) => one.getBoundingClientRect());
    const meet = (one, other) => one.left < other.right && other.left < one.right
        && one.top < other.bottom && other.top < one.bottom;
    const pairs = boxes.flatMap((one, at) => boxes.slice(at + 1).map((other) => [one, other]));
    return pairs.filter(([one, other]) => meet(one, other)).length;
}"""
#: How many nodes appear in a table of 1,000 rows, and how many parts of it another row changes.
COUNT_CHANGES = """async () => {
    const { createTable } = await import("/parts/table.js");
    const numbers = Array.from({ length: 1000 }, (_, at) => at);
    const rows = numbers.map((at) => ({ node: `gpt-${at}`, step: at, zone: "a" }));
    const columns = ["node", "step", "zone"].map((key) => ({ key, title: key }));
    const rowKey = (row) => row.node;
    const table = createTable({ caption: "nodes", columns, rows: [], rowKey });
    document.getElementById("main").replaceChildren(table.element);
    const watch = new MutationObserver(() => {});
    const everything = { attributes: true, characterData: true, childList: true, subtree: true };
    watch.observe(table.element, everything);
    const more = table.element.querySelector(".table-more");
    table.setRows(rows);
    while (!more.hidden) more.click();
    const first = watch.takeRecords().length;
    table.setRows(rows.map((row, place) => (place === 500 ? { ...row, step: -1 } : row)));
    return [first, watch.takeRecords().length];
}"""


def draw_chart(page: "Page", options: dict[str, Any]) -> None:
    """Put a chart alone into the page; `window.chart` is it."""
    page.evaluate(
        """async (options) => {
            const { createChart } = await import("/parts/chart.js");
            window.chart = createChart(options);
            const heading = document.createElement("h1");
            heading.textContent = "A chart";
            document.getElementById("main").replaceChildren(heading, window.chart.element);
        }""",
        options,
    )


def make_points(count: int) -> list[list[Any]]:
    return [[T + 10 * at, at - 1, at, at + 1] for at in range(count)]


def test_the_cursor_is_moved_and_read_by_keyboard(tab: Tab) -> None:
    page = tab.page
    draw_chart(
        page,
        {"title": "loss", "series": [{"key": "a", "name": "gpt-0", "points": make_points(61)}]},
    )
    plot = page.get_by_role("slider", name="loss: cursor")
    plot.press("Home")
    wait_until(
        lambda: plot.get_attribute("aria-valuetext") == "Mon 23 Nov 13:00:00: gpt-0 0 (−1 to 1)"
    )
    plot.press("ArrowRight")
    wait_until(
        lambda: plot.get_attribute("aria-valuetext") == "Mon 23 Nov 13:00:10: gpt-0 1 (0 to 2)"
    )
    plot.press("End")
    last = ["Mon 23 Nov 13:10:00", "gpt-0", "60 (59 to 61)"]
    wait_until(lambda: page.locator(".chart-readout").inner_text().split("\n") == last)
    plot.press("+")
    whole = page.get_by_role("button", name="whole range")
    whole.wait_for()
    wait_until(lambda: plot.get_attribute("aria-valuemin") == str(T + 300))
    plot.press("Escape")
    whole.wait_for(state="hidden")
    wait_until(lambda: plot.get_attribute("aria-valuemin") == str(T))


def test_dragging_zooms_and_new_points_do_not_move_the_view(tab: Tab) -> None:
    page = tab.page
    draw_chart(
        page,
        {"title": "loss", "series": [{"key": "a", "name": "gpt-0", "points": make_points(61)}]},
    )
    plot = page.get_by_role("slider")
    box = plot.bounding_box()
    assert box is not None
    page.mouse.move(box["x"] + box["width"] * 0.4, box["y"] + 50)
    page.mouse.down()
    page.mouse.move(box["x"] + box["width"] * 0.6, box["y"] + 50)
    page.mouse.up()
    page.get_by_role("button", name="whole range").wait_for()
    before = plot.get_attribute("aria-valuemax")
    page.evaluate(f"window.chart.append('a', [[{T + 610}, 99, 99, 99]])")
    page.get_by_role("button", name="whole range").click()
    page.locator(f'[role="slider"][aria-valuemax="{T + 610}"]').wait_for()
    assert before is not None and T + 200 < int(before) < T + 400


def test_the_legend_hides_a_series_and_the_table_lists_the_rest(tab: Tab) -> None:
    page = tab.page
    series = [{"key": key, "name": f"gpt-{key}", "points": make_points(5)} for key in "01"]
    draw_chart(page, {"title": "loss", "series": series})
    page.get_by_text("Values as a table").click()
    table = page.get_by_role("table")
    table.get_by_role("columnheader", name="gpt-1").wait_for()
    assert table.get_by_role("columnheader").all_inner_texts() == ["time", "gpt-0", "gpt-1"]
    page.get_by_role("button", name="gpt-0").press("Enter")
    table.get_by_role("columnheader", name="gpt-0").wait_for(state="hidden")
    wait_until(
        lambda: page.get_by_role("button", name="gpt-0").get_attribute("aria-pressed") == "false"
    )
    wait_until(lambda: table.get_by_role("row").count() == 6)


@pytest.mark.parametrize("colours", ["light", "dark"])
def test_axe_finds_nothing_in_charts(open_tab: OpenTab, colours: str) -> None:
    tab = open_tab("phone", colours)
    page = tab.open("#/quota")
    page.get_by_role("heading", name="Quota").wait_for()
    points = [*make_points(20), [T + 300, None, None, None]]
    series = [{"key": f"{at}", "name": f"gpt-{at}", "points": points} for at in range(8)]
    marks = [{"at": T + 20, "until": T + 60, "label": "preempted"}]
    draw_chart(page, {"title": "loss", "series": series, "marks": marks})
    page.get_by_text("Values as a table").click()
    page.get_by_role("slider").press("Home")
    page.get_by_role("button", name="gpt-3").click()
    page.get_by_role("table").wait_for()
    assert find_axe_problems(page) == []
    assert page.evaluate("document.documentElement.scrollWidth - innerWidth") <= 0


def test_broken_values_are_counted_and_a_log_scale_says_what_it_leaves_out(tab: Tab) -> None:
    page = tab.page
    points = [[T, 1, 1, 1], [T + 10, None, None, None], [T + 20, 0, 0, 0], [T + 30, 100, 100, 100]]
    draw_chart(page, {"title": "loss", "series": [{"key": "a", "name": "gpt-0", "points": points}]})
    note = page.locator(".chart-note")
    note.get_by_text(
        "gpt-0: 1 value is not a finite number (×), the latest at Mon 23 Nov 13:00:10."
    ).wait_for()
    page.get_by_role("button", name="log").click()
    note.get_by_text("A log scale cannot show values of 0 and below: gpt-0.").wait_for()
    labels = page.locator(".chart-tick").all_text_contents()
    assert {"1", "10", "100"} <= set(labels), labels


@pytest.mark.parametrize(
    "points",
    [
        [],
        [[T, 5, 5, 5]],
        [[T, 0, 0, 0], [T + 1, 0, 0, 0]],
        [[T, -1e300, 1e300, 1e300], [T + 1, -1e300, -1e300, 1e300]],
        [[T + 10, 1, 1, 1], [T, 2, 2, 2], [T + 10, 3, 3, 3]],
        [[T, 1e-300, 1e-300, 1e-300], [T + 1e9, 1, 1, 1]],
    ],
    ids=["none", "one", "flat", "huge", "disordered", "years"],
)
def test_odd_data_draws_a_sound_picture(tab: Tab, points: list[list[float]]) -> None:
    draw_chart(tab.page, {"title": "odd", "series": [{"key": "a", "name": "a", "points": points}]})
    tab.page.locator(".chart-empty" if not points else ".chart-line").first.wait_for(
        state="attached"
    )
    for log in (False, True):
        if log and points:
            tab.page.get_by_role("button", name="log").click()
        drawn = tab.page.evaluate(
            """() => [...document.querySelectorAll(".chart-svg *")]
                .flatMap((one) => [...one.attributes].map((it) => it.value)).join(" ")"""
        )
        assert "NaN" not in drawn and "Infinity" not in drawn


def test_labels_of_an_axis_do_not_overlap(tab: Tab) -> None:
    page = tab.page
    for wide in (300, 390, 800, 1440):
        page.set_viewport_size({"width": wide, "height": 800})
        for length in (30, 600, 7200, 90_000, 900_000, 40_000_000):
            points = [[T, 0.001, 0.001, 0.001], [T + length, 12_345.678, 12_345.678, 12_345.678]]
            draw_chart(
                page, {"title": "loss", "series": [{"key": "a", "name": "a", "points": points}]}
            )
            page.locator(".chart-line").wait_for(state="attached")
            overlaps = page.evaluate(COUNT_OVERLAPS)
            assert overlaps == 0, (wide, length)


def test_a_change_of_one_row_of_a_thousand_draws_no_other(tab: Tab) -> None:
    first, change = tab.page.evaluate(COUNT_CHANGES)
    assert tab.page.locator("tbody tr").count() == 1000
    assert first >= 1000
    assert 1 <= change <= 5
