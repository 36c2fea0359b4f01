"""What terminals show: pictures of known accounts, and nothing that is wider than the window."""

import re
from dataclasses import replace
from math import inf, isfinite, nan
from random import Random

import pytest

from tests.unit.event_stories import struck
from tests.unit.screen_scenes import FOLDER, SCENES, build_view, draw_scenes, status_of
from tpuherd.accounting.goodput import GoodputState, StateSpan
from tpuherd.commands.terminal_facts import has_unicode
from tpuherd.history.event_kinds import EVENT_KINDS
from tpuherd.views.braille import BrailleCanvas
from tpuherd.views.column_table import Cell, Column, draw_table
from tpuherd.views.event_screen import EVENT_SIGNS
from tpuherd.views.job_rows import LEAVING, WORDS
from tpuherd.views.phase_signs import PHASE_SIGNS
from tpuherd.views.sparkline import sparkline, spread_rates, spread_values
from tpuherd.views.sweep_table import PHASES
from tpuherd.views.text_width import cell_width, cut_text, pad_text, to_ascii
from tpuherd.views.timeline_bar import (
    BAR_PARTS,
    OVER,
    bar_cells,
    draw_bar,
    legend_entries,
    mark_cells,
)

COLOUR = re.compile(r"\x1b\[[0-9;]*m")


@pytest.mark.parametrize("name", SCENES)
def test_scenes_are_as_recorded(name: str) -> None:
    """After a wanted change: `python -m tests.unit.screen_scenes`, then look at the difference."""
    recorded = (FOLDER / f"{name}.txt").read_text()
    assert "\n\n".join(draw_scenes(name)) + "\n" == recorded


@pytest.mark.parametrize("name", SCENES)
@pytest.mark.parametrize("width", [60, 80, 97, 120, 240])
def test_no_line_is_wider_than_the_window_and_colour_changes_only_colour(
    name: str, width: int
) -> None:
    plain, coloured = SCENES[name](False, width), SCENES[name](True, width)
    assert max(map(cell_width, plain.splitlines())) <= width
    assert COLOUR.sub("", coloured) == plain
    assert not re.search(r"[\x00-\x09\x0b-\x1f\x7f-\x9f\u202e]", plain)


@pytest.mark.parametrize("name", SCENES)
def test_ascii_has_the_same_widths(name: str) -> None:
    text = SCENES[name](False, 80).replace("漢字", "")
    assert to_ascii(text).isascii()
    assert [*map(len, to_ascii(text).splitlines())] == [*map(cell_width, text.splitlines())]


def test_what_is_wrong_comes_first() -> None:
    lines = SCENES["status"](False, 100).splitlines()
    assert lines[0].split()[:2] == ["gpt", "✗"]
    wrong = lines.index("✗ gpt-1 failing: attempt 1 failed (exit 1 on w2): it starts again in 30 s,"
                        " for the second time")  # fmt: skip
    assert wrong == lines.index("") + 1
    assert lines[wrong + 1].startswith("    cause: ")
    assert any(line == "    next: herd explain gpt-1" for line in lines)
    assert SCENES["ls"](False, 100).splitlines()[1].startswith("✗ gpt ")


def test_every_phase_and_sign_is_known() -> None:
    ends = {"complete", "pruned", "failed", "stopped"}
    assert set(PHASE_SIGNS) == {*WORDS.values(), LEAVING, "unhealthy", *PHASES.values(), *ends}
    assert set(EVENT_SIGNS) <= set(EVENT_KINDS)


def test_a_bar_shows_what_filled_most_of_each_cell() -> None:
    assert set(BAR_PARTS) == set(GoodputState)
    signs = [part.sign for part in dict.fromkeys(BAR_PARTS.values())]
    assert len(set(signs)) == len(signs) == len(set(map(to_ascii, signs))), signs
    story = struck()
    end = story.now
    story.get(50, 20, 30)
    story.launch(10, step=101, resumed=100)
    account = story.account()
    bar = draw_bar(bar_cells(account.spans, account.start, end, 52), colour=False)
    assert bar == f"▁▁▁{'▂' * 5}{'▄' * 7}▅{'█' * 25}{'▒' * 10}×"  # 208 s, 4 s each


@pytest.mark.parametrize("seed", range(40))
def test_a_bar_has_the_shares_of_its_spans(seed: int) -> None:
    chance = Random(seed)
    at, spans = 0.0, []
    for _ in range(chance.randrange(1, 30)):
        length = chance.choice((0.01, 1.0, 50.0)) * chance.random()
        spans.append(StateSpan(start=at, end=at + length, state=chance.choice([*GoodputState])))
        at += length
    width = chance.randrange(1, 4000)
    cells = bar_cells(spans, 0.0, at, width)
    assert len(cells) == width
    assert None not in cells
    for part in set(BAR_PARTS.values()):
        time = sum(one.end - one.start for one in spans if BAR_PARTS[one.state] is part)
        edges = 2 * sum(BAR_PARTS[one.state] is part for one in spans)
        assert abs(cells.count(part) - time / at * width) <= edges * 1.01


def test_bars_of_nothing() -> None:
    assert bar_cells([], 0, 10, 4) == [None] * 4
    assert bar_cells([StateSpan(start=5, end=5, state=GoodputState.DONE)], 5, 5, 3) == [None] * 3
    assert draw_bar([None, OVER, None], colour=True) == "   "
    assert (mark_cells([0, 9.99, 11], 0, 10, 5), mark_cells([], 0, 10, 5)) == ("▲   ▲", "")
    assert [*legend_entries({GoodputState.DONE: 5.0}, colour=False)] == []


@pytest.mark.parametrize(
    ("values", "line"),
    [
        ([], ""),
        ([None, None], "  "),
        ([1.0, 1.0], "▄▄"),
        ([0.0, 1.0, 2.0], "▁▅█"),
        ([nan, 1.0, inf, -inf, 3.0, None], "×▁××█ "),
        ([nan], "×"),
        ([-1e308, 1e308], "▁█"),
        ([0.0, 5e-324], "▄▄"),
    ],
)
def test_sparklines(values: list[float | None], line: str) -> None:
    assert sparkline(values) == line


def test_a_base_shows_how_far_values_are_from_it() -> None:
    assert (sparkline([9.0, 10.0], base=0.0), sparkline([-1.0, 1.0], base=0.0)) == ("██", "▁█")
    assert (sparkline([None, nan], base=0.0), sparkline([0.0], base=0.0)) == (" ×", "▄")


def test_values_are_spread_over_time() -> None:
    assert spread_values([(0, 1), (1, 3), (9, 5), (99, 7)], 0, 10, 2) == [2.0, 5.0]
    assert spread_values([(0, 1)], 0, 0, 2) == [None, None]
    held = [1.0, 1.0, 2.0, None, 3.0]
    assert spread_values([(0, 1), (5, 2), (9, 3)], 0, 10, 5, hold_s=5) == [1.0, 1.0, 2.0, 2.0, 3.0]
    assert spread_values([(0, 1), (4, 2), (9, 3)], 0, 10, 5, hold_s=4) == held
    (odd,) = spread_values([(0, inf), (1, -inf)], 0, 2, 1)
    assert odd is not None
    assert not isfinite(odd)
    assert spread_rates([(0, 0), (10, 20)], 0, 20, 4) == [2.0, 2.0, None, None]
    assert spread_rates([(5, 0), (5, 9), (15, 19)], 0, 20, 2) == [1.0, 1.0]
    assert spread_rates([], 0, 20, 2) == [None, None]


def test_columns_go_by_their_importance() -> None:
    columns = [Column(title="NAME", least=6), Column(title="KEPT", right=True),
               Column(title="MINOR", drop=2), Column(title="LESS", drop=1),
               Column(title="EMPTY")]  # fmt: skip
    rows = [[Cell("a-long-name"), Cell("1"), Cell("m"), Cell("l"), Cell("-")]]

    def draw(width: int) -> list[str]:
        return [*draw_table(columns, rows, width=width, colour=False)]

    assert draw(80) == ["NAME         KEPT  MINOR  LESS", "a-long-name     1  m      l"]
    assert draw(27) == ["NAME      KEPT  MINOR  LESS", "a-long-…     1  m      l"]
    assert draw(20)[0] == "NAME      KEPT  LESS"
    assert draw(12)[0] == "NAME    KEPT"
    assert all(cell_width(line) <= 8 for line in draw(8))


def test_wide_letters_count_twice() -> None:
    widths = {"漢字": 4, "é": 1, "e\u0301": 1, "\x1b[31mx\x1b[0m": 1, "": 0}
    assert {text: cell_width(text) for text in widths} == widths
    cuts = {("漢字漢字", 5): "漢字…", ("abc", 3): "abc", ("abcd", 3): "ab…", ("abc", 0): ""}
    assert {one: cut_text(*one) for one in cuts} == cuts
    assert (pad_text("漢", 4), pad_text("漢", 4, right=True)) == ("漢  ", "  漢")


def test_a_line_of_braille() -> None:
    canvas = BrailleCanvas(columns=2, rows=1)
    canvas.draw_line([(0, 0), (1, 1)], "33")
    assert [*canvas.draw_rows(colour=False)] == ["⡠⠊"]
    canvas.put_sign(0.9, 0.5, "★", "1")
    assert [*canvas.draw_rows(colour=True)] == ["\x1b[33m⡠\x1b[0m\x1b[1m★\x1b[0m"]
    assert to_ascii("⠁⡀⡇⠀") == "'.: "


@pytest.mark.parametrize(
    ("environment", "known"),
    [
        ({"LANG": "C.UTF-8"}, True),
        ({"LANG": "de_DE.utf8"}, True),
        ({"LANG": "en_US.ISO-8859-1"}, False),
        ({"LC_ALL": "C", "LANG": "C.UTF-8"}, False),
        ({"LC_CTYPE": "C.UTF-8", "LANG": "C"}, True),
        ({"LANG": "C.UTF-8", "TERM": "linux"}, False),
        ({}, False),
    ],
    ids=str,
)
def test_the_locale_decides_about_unicode(environment: dict[str, str], known: bool) -> None:
    assert has_unicode(environment) is known


def test_many_slots_are_short() -> None:
    view = build_view()
    names = [f"gpt-{at}" for at in range(200)]
    accounts = {name: replace(view.accounts["gpt-0"], slot=name) for name in names}
    many = replace(view, accounts=accounts, states={})
    text = status_of(many, names, colour=False, width=80)
    assert "and 184 more slots" in text
    assert "200 more slots: `herd status gpt-0` shows one in full" in text
    assert len(text.splitlines()) < 240
