"""Plot a sweep: its best value over the trials, and each parameter against the metric.

As SVG for people and papers, and as characters for a terminal.
"""

from collections.abc import Iterator, Mapping, Sequence
from html import escape
from typing import Any

from tpuherd.model.search import Search
from tpuherd.views.axes import Axis, Dot, Panel, build_axis
from tpuherd.views.sweep_table import parameter_names, show_number, sweep_heading

WIDE, HIGH = 900, 260  #: of the top panel
COLUMNS, GAP = 3, 24
SMALL = 240  #: height of the panels below
LEFT, RIGHT, TOP, BOTTOM = 58, 12, 28, 24  #: margins of a panel
LETTER = 6.5  #: width of a letter
TINTS = {"complete": "#2b6cb0", "pruned": "#a0aec0", "best": "#dd6b20"}
RADIUS = {"complete": 3.5, "pruned": 3.0, "best": 5.5}
INK, FAINT = "#2d3748", "#e2e8f0"
MARKS = {"pruned": "·", "complete": "o", "best": "@"}  #: later ones cover earlier ones
STAIR = "-"
ROWS, LEAST = 8, 24  #: of a sketch


def build_panels(page: Mapping[str, Any], search: Search | None) -> list[Panel]:
    """All panels of a sweep, the history first; none if no trial has ended with a value."""
    rows = [row for row in page["trials"] if row["value"] is not None and row["phase"] in MARKS]
    if not rows:
        return []
    metric, y = page["metric"], build_axis([row["value"] for row in rows])
    kinds = {row["trial"]: "best" if row["trial"] == page["best"] else row["phase"] for row in rows}
    dots = [Dot(x=row["trial"], y=row["value"], kind=kinds[row["trial"]]) for row in rows]
    x = build_axis([0, *(row["trial"] for row in rows)], log=False)
    found = [Panel(title=f"{metric} by trial", x=x, y=y, dots=dots, stair=best_so_far(page, rows))]
    for name in parameter_names(rows):
        mine = [row for row in rows if name in row["params"]]
        parameter = search.parameters.get(name) if search else None
        dots = [Dot(x=row["params"][name], y=row["value"], kind=kinds[row["trial"]])
                for row in mine]  # fmt: skip
        x = build_axis([dot.x for dot in dots], log=parameter.log if parameter else None)
        found.append(Panel(title=f"{metric} by {name}", x=x, y=y, dots=dots))
    return found


def best_so_far(
    page: Mapping[str, Any], rows: Sequence[Mapping[str, Any]]
) -> list[tuple[float, float]]:
    """The best value of complete trials so far, at each trial number where it changes."""
    better = max if page["goal"] == "maximize" else min
    points: list[tuple[float, float]] = []
    for row in rows:
        if row["phase"] != "complete":
            continue
        value = better(row["value"], points[-1][1]) if points else row["value"]
        if not points or value != points[-1][1]:
            points.append((row["trial"], value))
    return [*points, (rows[-1]["trial"], points[-1][1])] if points else []


def draw_svg(page: Mapping[str, Any], search: Search | None) -> str:
    """Return the plot as an SVG document."""
    found = build_panels(page, search)
    small = (WIDE - (COLUMNS - 1) * GAP) / COLUMNS
    lines = -(-(len(found) - 1) // COLUMNS) if found else 0
    height = 40 + HIGH + lines * (SMALL + GAP) + GAP
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{WIDE + 2 * GAP}" height="{height}"'
        f' font-family="sans-serif" font-size="11" fill="{INK}">',
        f'<rect width="{WIDE + 2 * GAP}" height="{height}" fill="white"/>',
        svg_text(GAP, 26, sweep_heading(page), size=14),
        *draw_legend(),
    ]
    for number, panel in enumerate(found):
        row, column = divmod(number - 1, COLUMNS)
        left = GAP + (column * (small + GAP) if number else 0)
        top = 40 + (HIGH + GAP + row * (SMALL + GAP) if number else 0)
        parts.append(f'<g transform="translate({left:.1f} {top:.1f})">')
        parts += draw_panel(panel, small if number else WIDE, SMALL if number else HIGH)
        parts.append("</g>")
    return "\n".join([*parts, "</svg>", ""])


def draw_legend() -> Iterator[str]:
    """The legend, at the top right."""
    for number, kind in enumerate(MARKS):
        x = WIDE - 210 + 80 * number
        yield f'<circle cx="{x}" cy="54" r="{RADIUS[kind]}" fill="{TINTS[kind]}"/>'
        yield svg_text(x + 9, 58, kind)


def draw_panel(panel: Panel, width: float, height: float) -> Iterator[str]:
    """One panel: frame, numbers, the line of best values, and dots."""
    wide, high = width - LEFT - RIGHT, height - TOP - BOTTOM

    def across(value: Any) -> float:
        return LEFT + wide * panel.x.position_of(value)

    def down(value: float) -> float:
        return TOP + high * (1 - panel.y.position_of(value))

    yield svg_text(LEFT, TOP - 10, panel.title, size=12)
    for place, label in panel.y.tick_marks():
        y = TOP + high * (1 - place)
        yield f'<path d="M{LEFT} {y:.1f}h{wide:.1f}" stroke="{FAINT}"/>'
        yield svg_text(LEFT - 6, y + 4, label, anchor="end")
    ticks = panel.x.tick_marks()
    room = int(wide / max(1, len(ticks)) / LETTER)
    for place, label in ticks:
        x = LEFT + wide * place
        yield f'<path d="M{x:.1f} {TOP + high:.1f}v4" stroke="{INK}"/>'
        yield svg_text(x, TOP + high + 17, cut_label(label, room), anchor="middle")
    yield f'<path d="M{LEFT} {TOP}v{high:.1f}h{wide:.1f}" stroke="{INK}" fill="none"/>'
    if panel.stair:
        path = f"M{across(panel.stair[0][0]):.1f} {down(panel.stair[0][1]):.1f}"
        path += "".join(f"H{across(x):.1f}V{down(y):.1f}" for x, y in panel.stair[1:])
        yield f'<path d="{path}" stroke="{TINTS["best"]}" stroke-width="2" fill="none"/>'
    for dot in sorted(panel.dots, key=lambda one: list(MARKS).index(one.kind)):
        yield (
            f'<circle cx="{across(dot.x):.1f}" cy="{down(dot.y):.1f}" r="{RADIUS[dot.kind]}"'
            f' fill="{TINTS[dot.kind]}" fill-opacity="0.8"><title>{dot.kind}: {show_number(dot.y)}'
            f" at {escape(show_number(dot.x))}</title></circle>"
        )


def svg_text(x: float, y: float, words: str, *, size: int = 11, anchor: str = "start") -> str:
    return (
        f'<text x="{x:.1f}" y="{y:.1f}" font-size="{size}" text-anchor="{anchor}">'
        f"{escape(words)}</text>"
    )


def cut_label(label: str, room: int) -> str:
    """Cut a text to the available width."""
    return label if len(label) <= room else f"{label[: max(1, room - 1)]}…"


def draw_sketch(page: Mapping[str, Any], search: Search | None, columns: int) -> str:
    """Draw the panels for a terminal of this width."""
    found = build_panels(page, search)
    if not found:
        return f"{sweep_heading(page)}\nNo trial has ended with a value yet."
    labels = [label for _, label in found[0].y.tick_marks()]
    margin = max(len(label) for label in labels) + 1
    width = max(LEAST, min(100, columns) - margin - 1)
    legend = f"{MARKS['complete']} complete  {MARKS['pruned']} pruned  {MARKS['best']} best"
    parts = [sweep_heading(page), *("\n".join(sketch_panel(one, width, margin)) for one in found)]
    return "\n\n".join([*parts, legend])


def sketch_panel(panel: Panel, width: int, margin: int) -> Iterator[str]:
    """One panel in text."""
    grid = [[" "] * width for _ in range(ROWS)]

    def cell(x: Any, y: float) -> tuple[int, int]:
        down = int((1 - panel.y.position_of(y)) * ROWS)
        return min(ROWS - 1, down), min(width - 1, int(panel.x.position_of(x) * width))

    for (x, y), (further, _) in zip(panel.stair, panel.stair[1:], strict=False):
        row, first = cell(x, y)
        for column in range(first, cell(further, y)[1] + 1):
            grid[row][column] = STAIR
    for dot in sorted(panel.dots, key=lambda one: list(MARKS).index(one.kind)):
        row, column = cell(dot.x, dot.y)
        grid[row][column] = MARKS[dot.kind]
    beside = {
        min(ROWS - 1, int((1 - place) * ROWS)): label for place, label in panel.y.tick_marks()
    }
    yield " " * (margin + 1) + panel.title
    for number, row_ in enumerate(grid):
        yield f"{beside.get(number, ''):>{margin}}|{''.join(row_)}".rstrip()
    yield " " * margin + "+" + "-" * width
    yield " " * (margin + 1) + axis_line(panel.x, width)


def axis_line(x: Axis, width: int) -> str:
    """The labels below a sketch, without those that would overlap."""
    line = ""
    for place, label in x.tick_marks():
        start = max(0, min(width - len(label), int(place * width) - len(label) // 2))
        if not line or start > len(line):
            line = line.ljust(start) + label
    return line
