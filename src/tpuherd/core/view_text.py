"""How times, money and tables are written for people."""

from collections.abc import Mapping, Sequence

#: Words that stand out on a terminal, and their colours.
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
    "failure": 31,
    "failed": 31,
    "node fault": 31,
    "stalled": 31,
}
DIM = 2
NOTHING = "-"
COMMAND_MAX = 120  #: of a command's letters, in a line
UNITS = ((86400, "d", 3600, "h"), (3600, "h", 60, "m"), (60, "m", 1, "s"))


def span(seconds: float) -> str:
    """42 s, 3 m 20 s, 2 h 05 m, 3 d 04 h."""
    whole = round(seconds)
    for big, word, small, below in UNITS:
        if whole >= big:
            return f"{whole // big} {word} {whole % big // small:02d} {below}"
    return f"{seconds:.1f} s" if 0 < seconds < 10 else f"{whole} s"


def money(dollars: float, *, known: bool = True) -> str:
    """$1,234.50; with a + where some price is not known."""
    if not known and not dollars:
        return NOTHING
    return f"${dollars:,.2f}{'' if known else '+'}"


def share(part: float | None) -> str:
    """93.1 %"""
    return NOTHING if part is None else f"{100 * part:.1f} %"


def number(it: int | None) -> str:
    """1200"""
    return NOTHING if it is None else str(it)


def command(text: str) -> str:
    """A process's command on one line."""
    plain = " ".join(text.split())
    return plain if len(plain) <= COMMAND_MAX else f"{plain[: COMMAND_MAX - 1]}…"


def lined(rows: Sequence[Sequence[str]], *, right: Sequence[int] = (), colour: bool = False) -> str:
    """A table: its first row is its head, those columns are flush right."""
    widths = [max(len(row[at]) for row in rows) for at in range(len(rows[0]))]
    lines = []
    for number, row in enumerate(rows):
        cells = [
            tinted(cell, cell.rjust(width) if at in right else cell.ljust(width), colour=colour)
            for at, (cell, width) in enumerate(zip(row, widths, strict=True))
        ]
        line = "  ".join(cells).rstrip()
        lines.append(f"\x1b[{DIM}m{line}\x1b[0m" if colour and not number else line)
    return "\n".join(lines)


def tinted(word: str, text: str, *, colour: bool) -> str:
    """In its colour, if it has one."""
    if not colour or word not in TINTS:
        return text
    return f"\x1b[{TINTS[word]}m{text}\x1b[0m"
