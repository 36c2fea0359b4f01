"""Tables that fit a terminal: what matters least shrinks or goes first."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from tpuherd.views.format_text import DIM, NOTHING, wrap_text
from tpuherd.views.text_width import cell_width, cut_text, pad_text, paint_text

GAP = 2


@dataclass(frozen=True, kw_only=True, slots=True)
class Column:
    title: str
    right: bool = False  #: flush right
    drop: int = 0  #: when there is no room, the column with the highest goes first; 0: it stays
    least: int = 0  #: the width to which its texts may be cut; 0: they are not
    wraps: bool = False  #: its texts go on in the next line instead of being cut
    gap: int = GAP  #: spaces behind it


@dataclass(frozen=True, slots=True)
class Cell:
    text: str
    tint: str = ""


def draw_table(
    columns: Sequence[Column], rows: Sequence[Sequence[Cell]], *, width: int, colour: bool
) -> Iterator[str]:
    """Yield the lines of a table: the heading, then the rows."""
    kept = choose_columns(columns, rows, width)
    widths = shrink_widths(columns, kept, natural_widths(columns, rows), width)
    titles = [Cell(columns[at].title, str(DIM)) for at in kept]
    for row in [titles, *([row[at] for at in kept] for row in rows)]:
        yield from draw_row([columns[at] for at in kept], row, widths, colour=colour)


def choose_columns(
    columns: Sequence[Column], rows: Sequence[Sequence[Cell]], width: int
) -> list[int]:
    """Return the numbers of the columns that have a value and for which there is room."""
    natural = natural_widths(columns, rows)
    kept = [
        at for at in range(len(columns)) if any(row[at].text not in ("", NOTHING) for row in rows)
    ]
    while total_width(columns, kept, [least_width(columns, natural, at) for at in kept]) > width:
        if not (optional := [at for at in kept if columns[at].drop]):
            break
        kept.remove(max(optional, key=lambda at: (columns[at].drop, at)))
    return kept


def natural_widths(columns: Sequence[Column], rows: Sequence[Sequence[Cell]]) -> list[int]:
    return [
        max(map(cell_width, (column.title, *(row[at].text for row in rows))))
        for at, column in enumerate(columns)
    ]


def least_width(columns: Sequence[Column], natural: Sequence[int], at: int) -> int:
    column = columns[at]
    if not column.least:
        return natural[at]
    return min(natural[at], max(column.least, cell_width(column.title)))


def total_width(columns: Sequence[Column], kept: Sequence[int], widths: Sequence[int]) -> int:
    return sum(widths) + sum(columns[at].gap for at in kept[:-1])


def shrink_widths(
    columns: Sequence[Column], kept: Sequence[int], natural: Sequence[int], width: int
) -> list[int]:
    """Take from the widest column that may shrink, at last from any."""
    widths = [natural[at] for at in kept]
    for floors in ([least_width(columns, natural, at) for at in kept], [1] * len(kept)):
        while total_width(columns, kept, widths) > width:
            able = [one for one, floor in enumerate(floors) if widths[one] > floor]
            if not able:
                break
            widths[max(able, key=widths.__getitem__)] -= 1
    return widths


def draw_row(
    columns: Sequence[Column], row: Sequence[Cell], widths: Sequence[int], *, colour: bool
) -> Iterator[str]:
    parts = [
        [cut_text(line.strip(), most) for line in wrap_text(cell.text, most).split("\n")]
        if column.wraps
        else [cut_text(cell.text, most)]
        for column, cell, most in zip(columns, row, widths, strict=True)
    ]
    for depth in range(max(map(len, parts), default=0)):
        line = ""
        for column, cell, part, most in zip(columns, row, parts, widths, strict=True):
            text = paint_text(part[depth] if depth < len(part) else "", cell.tint, colour=colour)
            line += pad_text(text, most, right=column.right) + " " * column.gap
        yield line.rstrip()
