"""The table of all policies on all traces, for 80 columns or 240, and its rows as JSON."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from tpuherd.views.column_table import Cell, Column, draw_table
from tpuherd.views.format_text import NOTHING
from tpuherd_lab.constants import Constants, constant_lines
from tpuherd_lab.policy_run import BUCKETS
from tpuherd_lab.statistics import Estimate, Quantiles, ResultRow

OURS = "tpuherd"
BOLD = "1"
BUCKET_TITLES = {
    "queue_first": "queue",
    "capacity_wait": "no cap.",
    "controller_gap": "gap",
    "host_setup": "set-up",
    "restart": "start",
    "save": "saves",
    "wasted": "redone",
    "process_down": "down",
    "hung": "hung",
}


@dataclass(frozen=True, slots=True)
class Figure:
    """A column: its title, when it goes for want of room, and its text in a row."""

    title: str
    drop: int
    show: Callable[[ResultRow], str]
    right: bool = True


def percent(share: float) -> str:
    return f"{100 * share:.1f}%"


def percent_range(estimate: Estimate) -> str:
    return f"{100 * estimate.low:.1f}–{100 * estimate.high:.1f}"


def span_text(quantiles: Quantiles | None) -> str:
    if quantiles is None:
        return NOTHING
    return f"{quantiles.p50:.0f}/{quantiles.p95:.0f}/{quantiles.p99:.0f}"


def count_text(number: float) -> str:
    return f"{number / 1000:.1f}k" if number >= 1000 else f"{number:.0f}"


def bucket_figure(bucket: str) -> Figure:
    return Figure(BUCKET_TITLES[bucket], 6, lambda row: percent_or_nothing(row.badput[bucket]))


def percent_or_nothing(share: float) -> str:
    """Return `-` for 0: a column of nothing else is not shown."""
    return percent(share) if share else NOTHING


def count_or_nothing(number: float) -> str:
    return count_text(number) if number else NOTHING


def method_text(row: ResultRow) -> str:
    """Return the calls a day of each method, the most frequent first."""
    ordered = sorted(row.calls_per_day.items(), key=lambda item: -item[1])
    return " ".join(f"{name.rpartition('.')[2]} {count_text(many)}" for name, many in ordered)


FIGURES = (
    Figure("traces", 0, lambda row: row.traces, right=False),
    Figure("policy", 0, lambda row: row.policy, right=False),
    Figure("of bound", 0, lambda row: percent(row.ratio.mean)),
    Figure("95 %", 3, lambda row: percent_range(row.ratio)),
    Figure("own bound", 2, lambda row: percent(row.own_ratio.mean)),
    Figure("goodput", 0, lambda row: percent(row.goodput.mean)),
    Figure("recovery s", 1, lambda row: span_text(row.recovery_s)),
    Figure("avoidable", 4, lambda row: percent(row.controller_badput)),
    Figure("detect s", 6, lambda row: span_text(row.detect_s)),
    Figure("replace s", 9, lambda row: span_text(row.replace_s)),
    Figure("first step s", 10, lambda row: span_text(row.first_step_s)),
    *(bucket_figure(bucket) for bucket in BUCKETS),
    Figure("billed", 3, lambda row: f"{row.billed_per_productive:.2f}"),
    Figure("$/day", 5, lambda row: f"{row.dollars_per_day:,.0f}"),
    Figure("hops/day", 7, lambda row: f"{row.hops_per_day:.1f}" if row.hops_per_day else NOTHING),
    Figure("hedges", 5, lambda row: percent_or_nothing(row.hedge_waste)),
    Figure("calls/day", 5, lambda row: count_text(sum(row.calls_per_day.values()))),
    Figure("/min", 7, lambda row: str(row.peak_calls_per_minute)),
    Figure("slices", 7, lambda row: NOTHING if row.peak_nodes == 1 else str(row.peak_nodes)),
    Figure("leaked s", 4, lambda row: count_or_nothing(row.leaked_s)),
    Figure("orphans", 4, lambda row: count_or_nothing(row.orphans)),
    Figure("by method", 11, method_text, right=False),
    Figure("digest", 8, lambda row: row.digest[:8], right=False),
)
LEGEND = (
    "of bound: goodput of what an omniscient reaches with all zones (own bound: with the zones that"
    " the policy may use); recovery: from a loss to the next step, less the time without capacity,"
    " p50/p95/p99; avoidable: lost although there was capacity; billed: slice-hours for each"
    " productive one; calls of a slice, and the most in a minute."
)


def draw_results(rows: Sequence[ResultRow], *, width: int, colour: bool) -> Iterator[str]:
    """Yield the lines of the table: sets in their order, in each the best policy first."""
    columns = [
        Column(title=figure.title, right=figure.right, drop=figure.drop) for figure in FIGURES
    ]
    yield from draw_table(columns, table_cells(rows), width=width, colour=colour)


def table_cells(rows: Sequence[ResultRow]) -> list[list[Cell]]:
    cells, last = [], ""
    for row in sort_rows(rows):
        texts = [figure.show(row) for figure in FIGURES]
        if row.traces == last:
            texts[0] = ""
        last = row.traces
        tint = BOLD if row.policy == OURS else ""
        cells.append([Cell(text, tint) for text in texts])
    return cells


def sort_rows(rows: Sequence[ResultRow]) -> list[ResultRow]:
    order = list(dict.fromkeys(row.traces for row in rows))
    return sorted(rows, key=lambda row: (order.index(row.traces), -row.ratio.mean, row.policy))


def draw_constants(ours: Constants, theirs: Constants, *, width: int) -> Iterator[str]:
    """Yield what is assumed, in as many columns as there is room for."""
    parts = [f"{title} {value}" for title, value in constant_lines(ours, theirs)]
    line = ""
    for part in parts:
        if line and len(line) + 2 + len(part) > width:
            yield line + ";"
            line = ""
        line = f"{line}; {part}" if line else part
    if line:
        yield line


def result_json(row: ResultRow) -> dict[str, Any]:
    """Return a row for programs: `ratio` is of `bound`, both for all zones."""
    rest = asdict(row)
    ratio, goodput, own = rest.pop("ratio"), rest.pop("goodput"), rest.pop("own_ratio")
    return {
        "policy": rest.pop("policy"),
        "traces": rest.pop("traces"),
        "ratio": ratio["mean"],
        "ratio_interval": [ratio["low"], ratio["high"]],
        "bound": rest.pop("bound"),
        "goodput": goodput["mean"],
        "goodput_interval": [goodput["low"], goodput["high"]],
        "own_ratio": own["mean"],
        **rest,
    }
