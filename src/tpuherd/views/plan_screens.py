"""`herd engine plan` and `herd types --zones` on a terminal."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from tpuherd.targets import fold_names
from tpuherd.views.column_table import Cell, Column, draw_table
from tpuherd.views.format_text import NOTHING, format_span, wrap_text
from tpuherd.views.phase_signs import COMING, DONE, WARNING, WRONG, PhaseSign
from tpuherd.views.text_width import paint_text

BOLD, FAINT = "1", "2"
STATE_COLUMNS = (Column(title="SLOT", least=16), Column(title="STATE", least=20, wraps=True))
STEP_COLUMNS = (
    Column(title="", gap=1),
    Column(title="NODE", least=18),
    Column(title="STEP", least=18, wraps=True),
    Column(title="WHY", least=20, wraps=True),
)
ZONE_COLUMNS = (
    Column(title="", gap=1),
    Column(title="ZONE"),
    Column(title="TYPE"),
    Column(title="TIER", drop=1),
    Column(title="GRANTED", right=True),
    Column(title="WAIT", right=True),
    Column(title="LIFE", right=True),
    Column(title="LAST REFUSAL", least=22),
)


def plan_screen(
    states: Mapping[str, str],
    steps: Sequence[Sequence[str]],
    frozen: str,
    *,
    colour: bool,
    width: int,
) -> str:
    """`herd engine plan`: what each slot does, then + requests and - withdrawals."""
    parts = []
    if frozen:
        mark = paint_text(WARNING.sign, WARNING.tint, colour=colour)
        parts.append(wrap_text(f"{mark} Deletions are paused: {frozen}", width))
    if states:
        rows = [[Cell(names, BOLD), Cell(said)] for names, said in fold_states(states)]
        parts.append("\n".join(draw_table(STATE_COLUMNS, rows, width=width, colour=colour)))
    if steps:
        rows = [step_cells(*step) for step in steps]
        parts.append("\n".join(draw_table(STEP_COLUMNS, rows, width=width, colour=colour)))
    elif states:
        parts.append(paint_text("Nothing to do in the cloud now.", FAINT, colour=colour))
    return "\n\n".join(parts) or "No jobs. Start one with `herd run`."


def fold_states(states: Mapping[str, str]) -> Iterator[tuple[str, str]]:
    """Yield each sentence with all slots that it is true of."""
    same: dict[str, list[str]] = {}
    for slot, said in states.items():
        same.setdefault(said, []).append(slot)
    yield from ((fold_names(names), said) for said, names in same.items())


def step_cells(bid: str, what: str, why: str) -> list[Cell]:
    sign, tint = ("-", "31") if what.startswith("withdraw") else ("+", "32")
    return [Cell(sign, tint), Cell(bid, BOLD), Cell(what, tint), Cell(why)]


def capacity_screen(rows: Sequence[Mapping[str, Any]], *, colour: bool, width: int) -> str:
    """`herd types --zones`: GRANTED is out of all answers, WAIT and LIFE are medians."""
    if not rows:
        return "No node has been requested yet."
    cells = [zone_cells(row, zone_sign(row)) for row in rows]
    return "\n".join(draw_table(ZONE_COLUMNS, cells, width=width, colour=colour))


def zone_sign(row: Mapping[str, Any]) -> PhaseSign:
    if row["granted"]:
        return WARNING if row["refused"] else DONE
    return WRONG if row["refused"] else COMING


def zone_cells(row: Mapping[str, Any], sign: PhaseSign) -> list[Cell]:
    wait, life = (
        NOTHING if row[one] is None else format_span(row[one]) for one in ("wait_s", "life_s")
    )
    return [
        Cell(sign.sign, sign.tint),
        Cell(row["zone"], BOLD),
        Cell(row["type"]),
        Cell(row["tier"]),
        Cell(f"{row['granted']}/{row['granted'] + row['refused']}", sign.tint),
        Cell(wait),
        Cell(life),
        Cell(refusal_text(row), FAINT),
    ]


def refusal_text(row: Mapping[str, Any]) -> str:
    """stockout 10 s ago: the cloud's words"""
    if row["refused_s_ago"] is None:
        return NOTHING
    said = f": {row['message']}" if row["message"] else ""
    return f"{row['refusal']} {format_span(row['refused_s_ago'])} ago{said}"
