"""Turns a row of the tree into pieces of styled text that fill exactly one line; pure."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from tpuherd.top.tree_rows import TreeRow
from tpuherd.views.format_text import format_bytes, format_money, format_number
from tpuherd.views.printable import show_controls
from tpuherd.views.text_width import cell_width, cut_text, pad_text

Piece = tuple[str, str]  #: text and its style, in rich's words


@dataclass(frozen=True, kw_only=True, slots=True)
class TreeColumn:
    title: str
    width: int
    least: int  #: screens narrower than this do not have the column
    right: bool = False


#: From left to right; WHY takes what is left.
COLUMNS = (
    TreeColumn(title="NAME", width=32, least=0),
    TreeColumn(title="PHASE", width=22, least=0),
    TreeColumn(title="WHERE", width=40, least=150),
    TreeColumn(title="STEP", width=8, least=60, right=True),
    TreeColumn(title="DUTY", width=11, least=70, right=True),
    TreeColumn(title="HBM", width=17, least=120, right=True),
    TreeColumn(title="CPU", width=5, least=140, right=True),
    TreeColumn(title="GOODPUT", width=8, least=130, right=True),
    TreeColumn(title="$/H", width=7, least=100, right=True),
)
GAP = "  "
METER = 6  #: characters of a meter
EIGHTHS = " ▏▎▍▌▋▊▉█"
#: ANSI codes of phase_signs.py as styles.
STYLES = {
    "1;31": "bold red",
    "1;33": "bold yellow",
    "33": "yellow",
    "32": "green",
    "2": "dim",
    "": "",
}


def visible_columns(rows: Sequence[TreeRow], width: int) -> Sequence[TreeColumn]:
    """Return the columns that have something to show and fit, as wide as they must be."""
    found = []
    for column in COLUMNS:
        needed = max((cell_width(cell_of(row, column)[0]) for row in rows), default=0)
        if column.least == 0 or (needed and column.least <= width):
            found.append(replace(column, width=max(len(column.title), min(column.width, needed))))
    return found


def head_text(columns: Sequence[TreeColumn], width: int) -> str:
    """The titles of the columns."""
    parts = [pad_text(column.title, column.width, right=column.right) for column in columns]
    return pad_text(cut_text(GAP.join((*parts, "WHY")), width), width)


def row_pieces(row: TreeRow, columns: Sequence[TreeColumn], width: int) -> list[Piece]:
    """Return the pieces of one line of this width."""
    pieces: list[Piece] = []
    left = width
    for column in columns:
        text, style = cell_of(row, column)
        text = cut_text(text, min(column.width, left))
        pieces.append((pad_text(text, min(column.width, left), right=column.right), style))
        left -= min(column.width, left)
        pieces.append((GAP[:left], ""))
        left -= len(GAP[:left])
    pieces.append((pad_text(cut_text(show_line(row.why), left), left), "dim"))
    return pieces


def cell_of(row: TreeRow, column: TreeColumn) -> Piece:
    """The text of one column, and its style."""
    if column.title == "NAME":
        mark = "▾ " if row.is_open else "▸ " if row.opens else "  "
        sign = f"{row.sign} " if row.sign.strip() else ""
        name = "  " * (len(row.key) - 1) + mark + sign + show_line(row.name)
        return name, STYLES.get(row.tint, "") if row.kind in ("job", "slot") else ""
    if column.title == "DUTY":
        return (
            (f"{draw_meter(row.duty)} {row.duty:3.0f}%", "") if row.duty is not None else ("", "")
        )
    texts = {
        "PHASE": show_line(row.phase),
        "WHERE": show_line(row.where),
        "STEP": "" if row.step is None else format_number(row.step),
        "HBM": memory_text(row.memory),
        "CPU": "" if row.processor is None else f"{row.processor:.0f}%",
        "GOODPUT": row.goodput,
        "$/H": format_money(row.per_hour) if row.per_hour else "",
    }
    style = STYLES.get(row.tint, "") if column.title == "PHASE" else ""
    return texts[column.title], style


def show_line(text: str) -> str:
    """A text from outside in one line, with escapes made visible."""
    return show_controls(" ".join(text.split()))


def memory_text(memory: tuple[float, float] | None) -> str:
    if memory is None:
        return ""
    return f"{format_bytes(int(memory[0]))}/{format_bytes(int(memory[1]))}"


def draw_meter(percent: float, width: int = METER) -> str:
    """A bar that is full at 100."""
    eighths = round(max(0.0, min(100.0, percent)) / 100 * width * 8)
    full, rest = divmod(eighths, 8)
    bar = "█" * full + (EIGHTHS[rest] if rest else "")
    return bar.ljust(width, "·")
