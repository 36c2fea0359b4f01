"""The text of `herd cost JOB`."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from tpuherd.accounting.goodput import MEANINGS, GoodputState, StateSpan
from tpuherd.views.format_text import (
    NOTHING,
    format_goodput,
    format_money,
    format_share,
    format_span,
    format_table,
)
from tpuherd.views.timeline_bar import (
    bar_cells,
    draw_bar,
    fill_lines,
    legend_entries,
    mark_cells,
)

Json = Mapping[str, Any]

BAR = 24  #: characters of the longest share
STRIP_MIN, STRIP_MAX = 20, 100  #: columns of a slot's timeline
NUMBERS = 11  #: columns beside it
LEAST_S = 0.05  #: shorter times are not shown
INCIDENTS = 10  #: latest losses shown


def job_cost_text(
    page: Json,
    *,
    show_time: Callable[[float], str] = str,
    colour: bool = False,
    width: int | None = None,
) -> str:
    """`herd cost JOB`"""
    parts = [
        "\n".join(heading_lines(page)),
        titled("where the time went", time_table(page, colour=colour, width=width)),
        titled("slots", "\n".join(strip_lines(page, colour=colour, width=width)))
        if page["slots"]
        else "",
        titled("losses", "\n".join(loss_lines(page, show_time, colour=colour, width=width)))
        if page["incidents"]
        else "",
    ]
    return "\n\n".join(part for part in parts if part)


def titled(title: str, text: str) -> str:
    return f"{title}\n{text}"


def heading_lines(page: Json) -> Iterator[str]:
    """What the job got out of its time and money."""
    removed = " (removed)" if page["removed"] else ""
    many = len(page["slots"])
    slots = f", {many} slots" if many > 1 else ""
    yield f"{page['job']}{removed}: {format_span(page['end'] - page['start'])} in all{slots}"
    if page["goodput"] is None:
        yield f"goodput {page['goodput_why'] or 'unknown: nothing has run yet'}"
        if page["scheduling"] is not None:
            yield f"scheduling {format_share(page['scheduling'])}: the share with a node"
    else:
        yield (
            f"goodput {format_share(page['goodput'])}"
            f" = scheduling {format_share(page['scheduling'])}"
            f" × runtime {format_share(page['runtime'])}"
        )
        if page["goodput_why"]:
            yield f"goodput {page['goodput_why']}"
    if page["program"] is not None:
        yield f"program {format_share(page['program'])}: a usual step compared with the mean"
    known = page["price_known"]
    spent = format_money(page["cost"], known=known)
    unknown = page["money"].get(GoodputState.UNREPORTED, 0.0)
    wasted = page["cost"] - unknown - page["money"].get(GoodputState.PRODUCTIVE, 0.0)
    parts = f"{format_money(wasted, known=known)} of it not for work that counts"
    if page["goodput_why"]:
        parts += f", {format_money(unknown, known=known)} unknown"
    yield f"cost {spent}, {parts}"
    if page["moved"]:
        yield f"{format_money(page['moved'])} of it for checkpoints to and from other regions"
    if not known:
        yield "The price of some node is unknown, so all costs are too low."
    if page["steps_lost"]:
        yield f"{page['steps_lost']} steps were done twice"


def time_table(page: Json, *, colour: bool, width: int | None) -> str:
    """Each state with its time, share, cost and a bar, the longest first."""
    total = sum(page["seconds"].values())
    rows = sorted(page["seconds"].items(), key=lambda item: -item[1])
    cells = [
        (
            MEANINGS[GoodputState(name)],
            format_span(seconds),
            format_share(seconds / total),
            format_money(page["money"].get(name, 0.0), known=page["price_known"]),
            "█" * round(BAR * seconds / total),
        )
        for name, seconds in rows
        if seconds > LEAST_S
    ]
    head = ("STATE", "TIME", "SHARE", "COST", "")
    return format_table([head, *cells], right=(1, 2, 3), colour=colour, width=width)


def strip_lines(page: Json, *, colour: bool, width: int | None) -> Iterator[str]:
    """A timeline for each slot, with the moments of its losses, and the legend."""
    longest = max(len(slot["slot"]) for slot in page["slots"])
    room = (width or STRIP_MAX) - longest - NUMBERS
    cells = max(STRIP_MIN, min(STRIP_MAX, room))
    start, end = page["start"], page["end"]
    for slot in page["slots"]:
        bar = draw_bar(bar_cells(read_spans(slot["spans"]), start, end, cells), colour=colour)
        share = format_goodput(slot).rjust(NUMBERS - 3)
        yield f"{slot['slot'].ljust(longest)} {share}  {bar}".rstrip()
        losses = [row["at"] for row in page["incidents"] if row["slot"] == slot["slot"]]
        if marks := mark_cells(losses, start, end, cells):
            yield f"{' ' * (longest + NUMBERS)}{marks}"
    seconds = {GoodputState(name): time for name, time in page["seconds"].items()}
    yield from fill_lines(legend_entries(seconds, colour=colour), width or STRIP_MAX)


def read_spans(rows: Sequence[Json]) -> list[StateSpan]:
    return [
        StateSpan(start=row["start"], end=row["end"], state=GoodputState(row["state"]))
        for row in rows
    ]


def loss_lines(
    page: Json, show_time: Callable[[float], str], *, colour: bool, width: int | None
) -> Iterator[str]:
    """How long recoveries took by part, and the latest losses."""
    parts = [row for row in page["parts"] if row["worst"] > LEAST_S]
    if parts:
        cells = [
            (
                row["part"],
                format_span(row["p50"]),
                format_span(row["p90"]),
                format_span(row["worst"]),
                format_span(row["total"]),
            )
            for row in parts
        ]
        head = ("PART", "P50", "P90", "WORST", "TOTAL")
        yield format_table([head, *cells], right=(1, 2, 3, 4), colour=colour, width=width)
    rows = page["incidents"][-INCIDENTS:]
    cells_ = [
        (
            show_time(row["at"]),
            row["slot"],
            row["verdict"],
            " → ".join(dict.fromkeys(filter(None, (row["from_zone"], row["to_zone"])))) or NOTHING,
            format_span(row["seconds"]) + ("" if row["finished"] else " so far"),
            NOTHING if row["steps_lost"] is None else str(row["steps_lost"]),
        )
        for row in rows
    ]
    head_ = ("WHEN", "SLOT", "LOSS", "WHERE", "RECOVERY", "STEPS LOST")
    more = len(page["incidents"]) - len(rows)
    yield ""
    yield format_table([head_, *cells_], right=(4, 5), colour=colour, width=width)
    if more:
        yield f"and {more} earlier ones: herd cost {page['job']} --json"
