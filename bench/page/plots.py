"""Which rows of the results become which plot."""

from collections.abc import Callable, Iterable, Sequence

from bench.page.chart import Dot, DotPanel, LinePanel, Series, draw_chart
from bench.page.results import BenchmarkRun, FigureRow, Spread, spread_of

OURS = "herd"
ENGINE = "engine against nodes: "


def rows_of(runs: Sequence[BenchmarkRun], *benchmarks: str) -> list[FigureRow]:
    return [row for run in runs if run.benchmark in benchmarks for row in run.rows]


def group_figures(rows: Iterable[FigureRow]) -> dict[str, list[FigureRow]]:
    """Group by figure, in the order of their first appearance."""
    found: dict[str, list[FigureRow]] = {}
    for row in rows:
        found.setdefault(row.figure, []).append(row)
    return found


def compare_goodput(runs: Sequence[BenchmarkRun]) -> list[LinePanel | DotPanel]:
    rows = [one for one in rows_of(runs, "policies") if one.unit == "share"]
    panels: list[LinePanel | DotPanel] = []
    for figure, found in group_figures(rows).items():
        if not any(one.peer for one in found):
            continue  # another policy of ours: only in the table
        dots = [Dot(name=OURS, value=spread_of(found[0].ours), is_ours=True)]
        dots += [
            Dot(name=one.peer, value=spread_of(one.theirs), is_ours=False)
            for one in found if one.peer
        ]  # fmt: skip
        dots.sort(key=lambda dot: (-dot.value.middle, dot.name))
        panels.append(DotPanel(title=figure, unit="share", dots=tuple(dots)))
    return panels


def compare_recovery(runs: Sequence[BenchmarkRun]) -> list[LinePanel | DotPanel]:
    rows = [one for one in rows_of(runs, "recovery") if one.unit == "s"]
    dots = tuple(
        Dot(name=one.figure.removeprefix("recovery, "), value=spread_of(one.ours), is_ours=True)
        for one in rows
    )
    return [DotPanel(title="recovery from a preemption", unit="s", dots=dots)] if dots else []


def line_panel(title: str, rows: Sequence[FigureRow], across: str) -> LinePanel | None:
    """Return ours and every peer against `at`, if there are at least two sizes."""
    lines: dict[str, dict[float, Spread]] = {OURS: {}}
    for row in rows:
        if row.at is not None:
            lines[OURS].setdefault(row.at, spread_of(row.ours))
            if row.peer:
                lines.setdefault(row.peer, {}).setdefault(row.at, spread_of(row.theirs))
    if len(lines[OURS]) < 2:
        return None
    series = [
        Series(name=name, points=tuple(sorted(points.items())), colour=number)
        for number, (name, points) in enumerate(lines.items())
        if len(points) > 1
    ]
    return LinePanel(title=title, unit=rows[0].unit, across=across, lines=tuple(series))


def line_panels(rows: Iterable[FigureRow], across: str, cut: str = "") -> list[LinePanel]:
    found = (
        line_panel(figure.removeprefix(cut), of, across)
        for figure, of in group_figures(rows).items()
    )
    return [one for one in found if one is not None]


def compare_fan_out(runs: Sequence[BenchmarkRun]) -> list[LinePanel]:
    figures = ("exec, warm", "exec, new connections")
    rows = [one for one in rows_of(runs, "exec", "hosts_1024") if one.figure in figures]
    return line_panels(rows, "hosts")


def compare_sync(runs: Sequence[BenchmarkRun]) -> list[LinePanel]:
    rows = [
        one for one in rows_of(runs, "sync")
        if one.figure.startswith("sync, ") and one.unit in ("s", "kB")
        and "processor" not in one.figure
    ]  # fmt: skip
    return line_panels(rows, "hosts")


def compare_sizes(runs: Sequence[BenchmarkRun]) -> list[LinePanel]:
    rows = [one for one in rows_of(runs, "size") if one.figure.startswith(ENGINE)]
    return line_panels(sorted(rows, key=lambda one: one.at or 0), "nodes", ENGINE)


Panels = Sequence[LinePanel | DotPanel]
PLOTS: dict[str, tuple[Callable[[Sequence[BenchmarkRun]], Panels], str]] = {
    "goodput": (compare_goodput, "Goodput of herd and of other tools, as a share of the bound"),
    "recovery": (compare_recovery, "Seconds of a recovery, by what herd starts ahead"),
    "fan-out": (compare_fan_out, "Seconds of a command on all hosts, against their number"),
    "sync": (compare_sync, "What a sync takes, against the number of hosts"),
    "engine": (compare_sizes, "What one engine takes, against the number of nodes"),
}


def draw_plots(runs: Sequence[BenchmarkRun]) -> dict[str, str]:
    """Return each plot that the results have values for, as SVG by its name."""
    found = {name: (choose(runs), label) for name, (choose, label) in PLOTS.items()}
    return {name: draw_chart(panels, label) for name, (panels, label) in found.items() if panels}
