"""What the lower part of `herd top` says of the chosen row; pure."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import groupby
from math import isfinite

from tpuherd.accounting.goodput import GoodputState, StateSpan
from tpuherd.commands.log_pages import PageLine
from tpuherd.model.samples import STEP, STEP_RATE, Series
from tpuherd.top.row_cells import STYLES, Piece, show_line
from tpuherd.top.tree_rows import Json, TreeRow
from tpuherd.views.format_text import format_number, format_span, wrap_text
from tpuherd.views.sparkline import sparkline, spread_values
from tpuherd.views.text_width import cut_text, pad_text
from tpuherd.views.timeline_bar import BarPart, bar_cells

Line = Sequence[Piece]
SLOTS_MAX = 6  #: slots of a job whose time is drawn
SERIES_MAX = 4
NAME_WIDTH = 16
SPARK_WIDTH = 60


@dataclass(frozen=True, kw_only=True, slots=True)
class JobDetail:
    """What was read about one job."""

    page: Json
    series: Sequence[Series] = ()
    events: Sequence[Json] = ()


def explain_row(row: TreeRow, detail: JobDetail, now: float, width: int) -> list[Line]:
    """Say what the row does and why, where its time went, and what its script reports."""
    slots = [row.key[1]] if len(row.key) > 1 else list(detail.page["timeline"]["slots"])
    head = [(f"{row.target} ", "bold"), (show_line(row.phase), tint_of(row))]
    lines: list[Line] = [[*head, *step_pieces(detail.series, slots)]]
    if row.why:
        lines += [[(text, "")] for text in wrap_text(show_line(row.why), width).splitlines()]
    lines += timeline_lines(detail.page["timeline"], slots, width)
    lines += incident_lines(detail.page["incidents"], slots, now)
    lines += series_lines(detail.series, slots, width)
    lines.append(
        [
            (f"herd why {row.key[-1] if len(row.key) < 3 else row.key[1]}", "dim"),
            ("  ", ""),
            (f"herd status {row.key[0]}", "dim"),
        ]
    )
    return lines


def step_pieces(series: Sequence[Series], slots: Sequence[str]) -> list[Piece]:
    """The latest step that the script of one slot has reported."""
    steps = [one.points[-1].mean for one in series if one.name.name == STEP and one.points]
    if len(slots) != 1 or not steps or not isfinite(steps[0]):
        return []
    return [(f"  step {format_number(int(steps[0]))}", "bold")]


def tint_of(row: TreeRow) -> str:
    return STYLES.get(row.tint, "")


def timeline_lines(timeline: Json, slots: Sequence[str], width: int) -> list[Line]:
    """Draw where the time of some slots went, and explain the signs."""
    start, end = timeline["start"], timeline["end"]
    room = max(10, width - NAME_WIDTH - 1)
    lines: list[Line] = []
    used: dict[BarPart, None] = {}
    for slot in slots[:SLOTS_MAX]:
        spans = (
            StateSpan(start=since, end=until, state=GoodputState(state))
            for since, until, state in timeline["slots"].get(slot, ())
        )
        cells = bar_cells(spans, start, end, room)
        used.update(dict.fromkeys(part for part in cells if part is not None))
        lines.append(
            [(pad_text(cut_text(slot, NAME_WIDTH), NAME_WIDTH + 1), ""), *bar_pieces(cells)]
        )
    if len(slots) > SLOTS_MAX:
        lines.append(
            [(f"and {len(slots) - SLOTS_MAX} more slots: open the job to see them", "dim")]
        )
    legend: list[Piece] = [(" " * (NAME_WIDTH + 1), "")]
    for part in used:
        if part.sign.strip():
            legend += [(part.sign, STYLES.get(part.tint, "")), (f" {part.word}  ", "dim")]
    return [*lines, legend] if lines else []


def bar_pieces(cells: Iterable[BarPart | None]) -> list[Piece]:
    return [
        ((part.sign if part else " ") * len([*same]), STYLES.get(part.tint, "") if part else "")
        for part, same in groupby(cells)
    ]


def incident_lines(incidents: Sequence[Json], slots: Sequence[str], now: float) -> list[Line]:
    """The latest loss of these slots, in a line."""
    mine = [one for one in incidents if one["slot"] in slots]
    if not mine:
        return []
    last = max(mine, key=lambda one: float(one["at"]))
    lost = f", {last['steps_lost']} steps lost" if last["steps_lost"] else ""
    many = "1 loss" if len(mine) == 1 else f"{len(mine)} losses"
    text = (
        f"{many}; the last, {last['verdict']}, {format_span(max(0.0, now - last['at']))} ago,"
        f" took {format_span(last['seconds'])}{lost}"
    )
    return [[(text, "")]]


def series_lines(series: Sequence[Series], slots: Sequence[str], width: int) -> list[Line]:
    """A sparkline for each of the script's values, and its latest value."""
    lines: list[Line] = []
    room = min(SPARK_WIDTH, max(10, width - NAME_WIDTH - 14))
    mine = [
        one for one in series if one.name.slot in slots and one.points and one.name.name != STEP
    ]
    for one in mine[:SERIES_MAX]:
        points = [(point.at, point.mean) for point in one.points]
        cells = min(room, (len(points) + 1) // 2)  # a rest between two reports is no gap
        values = spread_values(points, points[0][0], points[-1][0], cells)
        name = "steps/s" if one.name.name == STEP_RATE else one.name.name
        last = points[-1][1]
        said = f"{last:.4g}" if isfinite(last) else str(last)
        lines.append([(pad_text(cut_text(show_line(name), NAME_WIDTH), NAME_WIDTH + 1), ""),
                      (sparkline(values), "cyan"), (f" {said}", "bold")])  # fmt: skip
    return lines


def event_lines(row: TreeRow, events: Sequence[Json], now: float) -> list[Line]:
    """The events of the row's job or slot, the newest last."""
    slot = row.key[1] if len(row.key) > 1 else ""
    return [
        [
            (f"{format_span(max(0.0, now - one['at'])):>9} ago  ", "dim"),
            (show_line(one["line"]), ""),
        ]
        for one in events
        if not slot or one["slot"] in ("", slot)
    ]


def log_lines(lines: Sequence[PageLine]) -> list[Line]:
    """Output of hosts, each line with its worker."""
    return [
        [
            (f"{one.slot}/w{one.worker} ", "dim"),
            (show_line(one.text), "red" if one.stream == "stderr" else ""),
        ]
        for one in lines
    ]
