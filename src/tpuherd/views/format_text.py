"""Format times, money and tables for people."""

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from tpuherd.views.text_width import COLOUR, cell_width, pad_text, paint_text

#: Words that are colored on a terminal.
TINTS: Mapping[str, int] = {
    "running": 32,
    "done": 32,
    "complete": 32,
    "success": 32,
    "idle": 32,
    "queued": 33,
    "waiting": 33,
    "booting": 33,
    "recovering": 33,
    "preempted": 33,
    "failing": 31,
    "gave up": 31,
    "unhealthy": 31,
    "failure": 31,
    "failed": 31,
    "node fault": 31,
    "stalled": 31,
}
DIM = 2
NOTHING = "-"
COMMAND_MAX = 120  #: characters of a command that are shown
UNITS = ((86400, "d", 3600, "h"), (3600, "h", 60, "m"), (60, "m", 1, "s"))


def format_span(seconds: float) -> str:
    """42 s, 3 m 20 s, 2 h 05 m, 3 d 04 h."""
    whole = round(seconds)
    for big, word, small, below in UNITS:
        if whole >= big:
            return f"{whole // big} {word} {whole % big // small:02d} {below}"
    return f"{seconds:.1f} s" if 0 < seconds < 10 else f"{whole} s"


def format_money(dollars: float, *, known: bool = True) -> str:
    """$1,234.50; with a + if some price is not known."""
    if not known and not dollars:
        return NOTHING
    return f"${dollars:,.2f}{'' if known else '+'}"


def format_bytes(many: int) -> str:
    """12 B, 3.4 kB, 5.6 MB"""
    for unit, length in (("GB", 10**9), ("MB", 10**6), ("kB", 10**3)):
        if many >= length:
            return f"{many / length:.3g} {unit}"
    return f"{many} B"


def format_share(part: float | None) -> str:
    """93.1 %"""
    return NOTHING if part is None else f"{100 * part:.1f} %"


def format_goodput(row: Mapping[str, Any]) -> str:
    """The share of a job or slot, or "unknown" if it ran and nothing tells what it achieved."""
    share = row["goodput"]
    return "unknown" if share is None and row["goodput_why"] else format_share(share)


def format_number(it: int | None) -> str:
    """1200"""
    return NOTHING if it is None else str(it)


def count_slices(slices: int) -> str:
    """2 slices of: before the type of a multislice job."""
    return f"{slices} slices of " if slices > 1 else ""


def shorten_command(text: str) -> str:
    """A process's command on one line."""
    plain = " ".join(text.split())
    return plain if len(plain) <= COMMAND_MAX else f"{plain[: COMMAND_MAX - 1]}…"


def format_table(
    rows: Sequence[Sequence[str]],
    *,
    right: Sequence[int] = (),
    colour: bool = False,
    width: int | None = None,
) -> str:
    """A table whose first row is its heading; the columns `right` are flush right.

    One that is wider than `width` has cells of several lines; if no word may be cut for it, each
    row becomes a paragraph.
    """
    widths = fit_columns(rows, width)
    if widths is None:
        return "\n".join(list_fields(rows))
    lines = []
    for number, row in enumerate(rows):
        parts = [wrap_text(cell, most).split("\n") for cell, most in zip(row, widths, strict=True)]
        for depth in range(max(map(len, parts))):
            cells = []
            for at, (cell, most) in enumerate(zip(row, widths, strict=True)):
                text = parts[at][depth].strip() if depth < len(parts[at]) else ""
                flush = pad_text(text, most, right=at in right)
                cells.append(colour_word(cell, flush, colour=colour))
            line = "  ".join(cells).rstrip()
            lines.append(f"\x1b[{DIM}m{line}\x1b[0m" if colour and not number else line)
    return "\n".join(lines)


def fit_columns(rows: Sequence[Sequence[str]], width: int | None) -> list[int] | None:
    """The width of each column; None if the longest words together exceed `width`."""
    columns = range(len(rows[0]))
    widths = [max(cell_width(row[at]) for row in rows) for at in columns]
    gaps = 2 * (len(widths) - 1)
    if width is None:
        return widths
    least = [max(cell_width(word) for row in rows for word in row[at].split(" ")) for at in columns]
    if sum(least) + gaps > width:
        return None if sum(widths) + gaps > width else widths
    while sum(widths) + gaps > width:  # shrink the widest
        at = max((one for one in columns if widths[one] > least[one]), key=widths.__getitem__)
        widths[at] -= 1
    return widths


def list_fields(rows: Sequence[Sequence[str]]) -> Iterator[str]:
    """Each row as a paragraph: its first cell, then the others with their headings."""
    head = rows[0]
    most = max(map(len, head[1:]), default=0)
    for row in rows[1:]:
        yield row[0]
        yield from (
            f"  {name.ljust(most)}  {it}" for name, it in zip(head[1:], row[1:], strict=True)
        )


#: What stays on one line: a word, or a number with its unit.
WORD = re.compile(r" *(?:\d[\d.]* (?:[dhms](?!\w)|%)|[^ ]+)")


def wrap_text(text: str, width: int, hang: int | None = None) -> str:
    """Lines of at most `width` where words allow it.

    Continuation lines are indented by `hang`, or by two more than their line.
    """
    return "\n".join(part for line in text.split("\n") for part in wrap_line(line, width, hang))


def wrap_line(line: str, width: int, hang: int | None = None) -> Iterator[str]:
    """Split a line between words."""
    if cell_width(line) <= width:
        yield line
        return
    plain = COLOUR.sub("", line)
    indent = " " * (len(plain) - len(plain.lstrip(" ")) + 2 if hang is None else hang)
    part, taken = "", 0
    for word in WORD.findall(line):
        room = cell_width(word)
        if part.strip() and taken + room > width:
            yield part
            word = indent + word.lstrip(" ")
            part, taken, room = "", 0, cell_width(word)
        part, taken = part + word, taken + room
    yield part


def colour_word(word: str, text: str, *, colour: bool) -> str:
    """Add the color of a word, if it has one."""
    if not colour or word not in TINTS:
        return text
    return paint_text(text, str(TINTS[word]), colour=True)
