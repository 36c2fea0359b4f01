"""One picture of how near each policy comes to the bound: for the terminal, and as SVG for docs."""

import math
from collections.abc import Iterator, Sequence
from itertools import groupby

from tpuherd.views.braille import DOWN, BrailleCanvas
from tpuherd.views.format_text import DIM
from tpuherd.views.text_width import cell_width, pad_text, paint_text
from tpuherd_lab.results_table import OURS, percent, sort_rows
from tpuherd_lab.statistics import ResultRow

TINT = "32"
#: The axis begins at a multiple of this share, below the least value.
AXIS_STEP = 0.1
ROW_PX, LABEL_PX, PLOT_PX, VALUE_PX, TITLE_PX = 18, 150, 420, 60, 30
DARK, LIGHT, FAINT = "#1a7f37", "#57606a", "#d0d7de"


def axis_start(rows: Sequence[ResultRow]) -> float:
    least = min(row.ratio.low for row in rows)
    return max(0.0, math.floor(least / AXIS_STEP + 1e-9) * AXIS_STEP)


def plot_lines(rows: Sequence[ResultRow], *, width: int, colour: bool) -> Iterator[str]:
    """Yield a line for each policy: a bar to its ratio, and the interval as a thin line."""
    label = max(cell_width(row.policy) for row in rows)
    inside = max(10, width - label - 10)
    for name, group in groupby(sort_rows(rows), key=lambda row: row.traces):
        chosen = list(group)
        yield ""
        yield paint_text(f"{name}: share of the bound", "1", colour=colour)
        canvas = draw_canvas(chosen, inside)
        for row, line in zip(chosen, canvas.draw_rows(colour=colour), strict=True):
            value = pad_text(percent(row.ratio.mean), 6, right=True)
            yield f"{pad_text(row.policy, label)}  {value}  {line}".rstrip()
        ends = pad_text("0%", inside - 4) + "100%"
        yield paint_text(" " * (label + 10) + ends, str(DIM), colour=colour)


def draw_canvas(rows: Sequence[ResultRow], columns: int) -> BrailleCanvas:
    canvas = BrailleCanvas(columns, len(rows))
    dots = columns * 2 - 1

    def place(share: float) -> int:
        return round(min(1.0, max(0.0, share)) * dots)

    for number, row in enumerate(rows):
        tint = TINT if row.policy.startswith(OURS) else ""
        for x in range(place(row.ratio.mean) + 1):
            canvas.put_dot(x, number * DOWN + 1, tint)
            canvas.put_dot(x, number * DOWN + 2, tint)
        for x in range(place(row.ratio.low), place(row.ratio.high) + 1):
            canvas.put_dot(x, number * DOWN, tint)
    return canvas


def plot_svg(rows: Sequence[ResultRow]) -> str:
    """Return the picture as SVG: a dot for each policy, its interval as a line."""
    start, y = axis_start(rows), 10.0
    parts: list[str] = []
    for name, group in groupby(sort_rows(rows), key=lambda row: row.traces):
        chosen = list(group)
        parts.append(text_mark(name, x=10, y=y + 14, colour="#24292f", anchor="start", bold=True))
        parts += axis_marks(start, top=y + TITLE_PX - 8, bottom=y + TITLE_PX + ROW_PX * len(chosen))
        for number, row in enumerate(chosen):
            parts += row_marks(row, start, y + TITLE_PX + ROW_PX * (number + 0.5))
        y += TITLE_PX + ROW_PX * len(chosen) + 26
    wide = LABEL_PX + PLOT_PX + VALUE_PX
    head = (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {wide} {y:g}" width="{wide}"'
        f' height="{y:g}" font-family="sans-serif" font-size="12" role="img"'
        ' aria-label="Share of the omniscient bound that each policy reaches">'
    )
    return "\n".join((head, '<rect width="100%" height="100%" fill="white"/>', *parts, "</svg>\n"))


def axis_marks(start: float, *, top: float, bottom: float) -> Iterator[str]:
    steps = round((1 - start) / AXIS_STEP)
    for number in range(steps + 1):
        share = start + number * AXIS_STEP
        x = plot_x(share, start)
        yield f'<path d="M{x:g} {top:g}V{bottom:g}" stroke="{FAINT}"/>'
        yield text_mark(f"{100 * share:.0f}%", x=x, y=bottom + 14, colour=LIGHT, anchor="middle")


def row_marks(row: ResultRow, start: float, y: float) -> Iterator[str]:
    colour = DARK if row.policy.startswith(OURS) else LIGHT
    low, mean, high = (
        plot_x(share, start) for share in (row.ratio.low, row.ratio.mean, row.ratio.high)
    )
    yield text_mark(row.policy, x=LABEL_PX - 10, y=y + 4, colour=colour, anchor="end")
    yield f'<path d="M{low:.1f} {y:g}H{high:.1f}" stroke="{colour}" stroke-width="2"/>'
    yield f'<circle cx="{mean:.1f}" cy="{y:g}" r="4" fill="{colour}"/>'
    x = LABEL_PX + PLOT_PX + 10
    yield text_mark(percent(row.ratio.mean), x=x, y=y + 4, colour=colour, anchor="start")


def plot_x(share: float, start: float) -> float:
    return LABEL_PX + PLOT_PX * min(1.0, max(0.0, (share - start) / (1 - start)))


def text_mark(
    text: str, *, x: float, y: float, colour: str, anchor: str, bold: bool = False
) -> str:
    weight = ' font-weight="bold"' if bold else ""
    escaped = text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
    return (
        f'<text x="{x:g}" y="{y:g}" fill="{colour}" text-anchor="{anchor}"{weight}>{escaped}</text>'
    )
