"""`herd sweep status`, `best` and `plot` on a terminal.

Their text in files and pipes is in sweep_table.py and sweep_plot.py.
"""

from collections.abc import Iterator, Mapping, Sequence
from itertools import zip_longest
from typing import Any

from tpuherd.model.search import Search
from tpuherd.views.axes import Panel
from tpuherd.views.braille import BrailleCanvas
from tpuherd.views.column_table import Cell, Column, choose_columns, draw_table
from tpuherd.views.format_text import NOTHING, format_number, format_span, wrap_text
from tpuherd.views.phase_signs import phase_sign
from tpuherd.views.sparkline import sparkline
from tpuherd.views.sweep_plot import axis_line, build_panels
from tpuherd.views.sweep_table import (
    failure_lines,
    parameter_names,
    show_number,
    sweep_heading,
    unreported_line,
)
from tpuherd.views.text_width import cell_width, cut_text, pad_text, paint_text

BEST = "★"
#: The sign and color of each kind of dot in a plot; later ones cover earlier ones.
DOT_SIGNS: Mapping[str, tuple[str, str]] = {
    "pruned": ("·", "2"),
    "complete": ("●", "36"),
    "best": (BEST, "1;33"),
}
STAIR_TINT, FAINT, BOLD = "33", "2", "1"
CURVE = 12  #: columns for a trial's values
FIRST_PARAMETER = 4  #: the number of its column
BESIDE = 1000  #: these columns go first, before the parameters
WORD_LEAST = 8  #: to which words are cut; numbers are not
TOP_ROWS, ROWS = 10, 8  #: of the first panel and the others
TWO_FROM = 120  #: from this width on, two panels are side by side
PANEL_MAX = 100
GAP = 4


def sweep_screen(page: Mapping[str, Any], *, colour: bool, width: int) -> str:
    """`herd sweep status`"""
    trials = page["trials"]
    head = wrap_text(sweep_heading(page), width)
    if not trials:
        return f"{head}\nNo trial has been created yet, because no slot is ready."
    names = parameter_names(trials)
    columns = [
        Column(title="", gap=1),
        Column(title="TRIAL", right=True),
        Column(title="PHASE"),
        Column(title=(page["metric"] or "value").upper(), right=True),
        *(parameter_column(name, at, trials) for at, name in enumerate(names)),
        Column(title="STEP", right=True, drop=BESIDE),
        Column(title="CURVE", drop=BESIDE + 1),
        Column(title="SLOT", drop=BESIDE + 2),
        Column(title="AGE", right=True, drop=BESIDE + 3),
        Column(title="ATTEMPT", right=True, drop=BESIDE + 4),
    ]
    rows = [trial_cells(row, names, best=row["trial"] == page["best"]) for row in trials]
    lines = [*draw_table(columns, rows, width=width, colour=colour)]
    kept = choose_columns(columns, rows, width)
    if hidden := [name for at, name in enumerate(names, FIRST_PARAMETER) if at not in kept]:
        note = f"no room for {', '.join(hidden)}: a wider window or --csv shows all"
        lines += [
            paint_text(line, FAINT, colour=colour) for line in wrap_text(note, width).split("\n")
        ]
    parts = [head, "\n".join(lines)]
    parts += ["\n".join(wrap_text(line, width) for line in failure_lines(trials))]
    parts += [wrap_text(unreported_line(page), width)]
    return "\n\n".join(part for part in parts if part)


def parameter_column(name: str, at: int, trials: Sequence[Mapping[str, Any]]) -> Column:
    """The column of a parameter; the first one stays."""
    values = [row["params"].get(name) for row in trials]
    words = any(isinstance(value, str) for value in values)
    return Column(title=name.upper(), right=not words, least=WORD_LEAST if words else 0, drop=at)


def trial_cells(row: Mapping[str, Any], names: Sequence[str], *, best: bool) -> list[Cell]:
    sign = phase_sign(row["phase"])
    mark, tint = DOT_SIGNS["best"] if best else (sign.sign, sign.tint)
    value = "nan" if row["nan"] else show_number(row["value"])
    strong = BOLD if best else ""
    return [
        Cell(mark, tint),
        Cell(str(row["trial"]), strong),
        Cell(row["phase"], sign.tint),
        Cell(value, "31" if row["nan"] else strong),
        *(Cell(show_number(row["params"].get(name)), strong) for name in names),
        Cell(format_number(row["step"])),
        Cell(trial_curve(row["points"]), "36"),
        Cell(row["slot"] or NOTHING),
        Cell(format_span(row["seconds"])),
        Cell(format_number(row["attempts"] or None)),
    ]


def trial_curve(points: Sequence[Sequence[float]]) -> str:
    """The values of the metric over the steps."""
    values = [point[1] for point in points]
    if len(values) < 2:
        return ""
    picked = [values[at * len(values) // CURVE] for at in range(CURVE)]
    return sparkline(picked if len(values) > CURVE else values)


def best_screen(
    page: Mapping[str, Any], command: Sequence[str], row: Mapping[str, Any], *, colour: bool
) -> str:
    """`herd sweep best`"""
    value = f"{page['metric']} {show_number(row['value'])}"
    star = paint_text(BEST, DOT_SIGNS["best"][1], colour=colour)
    where = f"at step {format_number(row['step'])}, trial {row['trial']} of {len(page['trials'])}"
    wide = max(map(cell_width, row["params"]), default=0)
    lines = [f"{star} {paint_text(value, BOLD, colour=colour)} {where}, run {row['run_id']}"]
    lines += [f"  {pad_text(name, wide)}  {it}" for name, it in row["params"].items()]
    if curve := trial_curve(row["points"]):
        lines.append(f"  {paint_text(curve, '36', colour=colour)}")
    return "\n".join([*lines, *command])


def plot_screen(page: Mapping[str, Any], search: Search | None, *, colour: bool, width: int) -> str:
    """`herd sweep plot`"""
    panels = build_panels(page, search)
    head = wrap_text(sweep_heading(page), width)
    if not panels:
        return f"{head}\nNo trial has ended with a value yet."
    top = "\n".join(draw_panel(panels[0], min(PANEL_MAX, width), TOP_ROWS, colour=colour))
    many = 2 if width >= TWO_FROM else 1
    wide = min(PANEL_MAX, (width - GAP * (many - 1)) // many)
    parts = [head, top]
    for at in range(1, len(panels), many):
        drawn = [[*draw_panel(one, wide, ROWS, colour=colour)] for one in panels[at : at + many]]
        parts.append("\n".join(join_panels(drawn, wide)))
    signs = (f"{paint_text(sign, tint, colour=colour)} {kind}" for kind, (sign, tint) in
             DOT_SIGNS.items())  # fmt: skip
    return "\n\n".join([*parts, "  ".join(signs)])


def join_panels(panels: Sequence[Sequence[str]], wide: int) -> Iterator[str]:
    for row in zip_longest(*panels, fillvalue=""):
        yield (" " * GAP).join(pad_text(line, wide) for line in row).rstrip()


def draw_panel(panel: Panel, wide: int, rows: int, *, colour: bool) -> Iterator[str]:
    """One panel: its title, the axes, the line of best values, and a sign for each trial."""
    ticks = panel.y.tick_marks()
    margin = max((cell_width(label) for _, label in ticks), default=0)
    canvas = BrailleCanvas(columns=max(8, wide - margin - 2), rows=rows)
    canvas.draw_line(stair_corners(panel), STAIR_TINT)
    for dot in sorted(panel.dots, key=lambda one: list(DOT_SIGNS).index(one.kind)):
        canvas.put_sign(
            panel.x.position_of(dot.x), panel.y.position_of(dot.y), *DOT_SIGNS[dot.kind]
        )
    labels = {canvas.cell_of(0, place)[0]: label for place, label in ticks}
    yield " " * (margin + 2) + paint_text(
        cut_text(panel.title, canvas.columns), BOLD, colour=colour
    )
    for row, line in enumerate(canvas.draw_rows(colour=colour)):
        tick = "┤" if row in labels else "│"
        axis = f"{pad_text(labels.get(row, ''), margin, right=True)} {tick}"
        yield paint_text(axis, FAINT, colour=colour) + line
    marks = {canvas.cell_of(place, 0)[1] for place, _ in panel.x.tick_marks()}
    line = "".join("┴" if at in marks else "─" for at in range(canvas.columns))
    yield paint_text(f"{' ' * (margin + 1)}└{line}", FAINT, colour=colour)
    under = axis_line(panel.x, canvas.columns)
    yield paint_text(f"{' ' * (margin + 2)}{cut_text(under, canvas.columns)}", FAINT, colour=colour)


def stair_corners(panel: Panel) -> Iterator[tuple[float, float]]:
    """The line of best values goes across, then down or up."""
    before: float | None = None
    for x, y in panel.stair:
        place, height = panel.x.position_of(x), panel.y.position_of(y)
        if before is not None:
            yield place, before
        yield place, height
        before = height
