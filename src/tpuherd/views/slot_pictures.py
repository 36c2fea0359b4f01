"""Timelines of slots on a terminal, with curves of the same time below them."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import isfinite

from tpuherd.accounting.goodput import (
    GoodputState,
    LossRecovery,
    SlotAccount,
    find_recoveries,
)
from tpuherd.model.samples import STEP, STEP_RATE
from tpuherd.views.format_text import format_goodput, format_share, format_span
from tpuherd.views.job_rows import goodput_values
from tpuherd.views.sparkline import SeriesValue, sparkline, spread_rates, spread_values
from tpuherd.views.text_width import cell_width, cut_text, pad_text, paint_text
from tpuherd.views.timeline_bar import (
    BAR_PARTS,
    OVER,
    bar_cells,
    draw_bar,
    fill_lines,
    legend_entries,
    mark_cells,
)

BARS_MAX = 16  #: timelines shown
CURVES_MAX = 4  #: of so many slots at most, curves and losses are shown
NAME_MAX = 24
FIGURE = 12  #: columns at the right, for the latest value, with two gaps
LEAST = 10  #: of a bar
HOLD_S, HOLD_CELLS = 60.0, 2  #: a pause between two values is shown if it is longer
RATE, CURVE_NAME = "steps/s", 10  #: columns of a curve's name
FAINT, CURVE_TINT = "2", "36"


@dataclass(frozen=True, kw_only=True, slots=True)
class Curve:
    """Values of a slot over time."""

    name: str
    points: tuple[tuple[float, float], ...]


@dataclass(frozen=True, kw_only=True, slots=True)
class TimeFrame:
    """Which time is shown, and in how many columns."""

    start: float
    end: float
    label: int  #: columns of the names at the left
    width: int  #: columns of the bars

    def fit_line(self, label: str, picture: str, figure: str = "") -> str:
        name = pad_text(cut_text(label, self.label), self.label)
        return f"{name}  {pad_text(picture, self.width)}  {figure}".rstrip()


def timeline_lines(
    accounts: Sequence[SlotAccount],
    curves: Mapping[str, Sequence[Curve]],
    *,
    colour: bool,
    width: int,
) -> Iterator[str]:
    """Yield a bar for each slot, its curves, the axis and the legend."""
    each = [account for account in accounts if account.spans]
    if not each:
        return
    frame = build_frame(each, width)
    for account in each[:BARS_MAX]:
        cells = bar_cells(account.spans, frame.start, frame.end, frame.width)
        yield frame.fit_line(
            account.slot,
            draw_bar(cells, colour=colour),
            format_goodput(goodput_values([account])),
        )
        if len(each) <= CURVES_MAX:
            yield from curve_lines(account, curves.get(account.slot, ()), frame, colour=colour)
    if len(each) > BARS_MAX:
        yield frame.fit_line("", f"and {len(each) - BARS_MAX} more slots")
    now = any(BAR_PARTS[account.state] is not OVER for account in each)
    yield paint_text(axis_text(frame, now=now), FAINT, colour=colour)
    entries = legend_entries(sum_seconds(each), colour=colour)
    margin = " " * (frame.label + 2)
    yield from (margin + line for line in fill_lines(entries, width - len(margin)))
    yield from (margin + line for line in loss_lines(each))


def build_frame(accounts: Sequence[SlotAccount], width: int) -> TimeFrame:
    longest = max(cell_width(account.slot) for account in accounts)
    label = min(NAME_MAX, max(longest, CURVE_NAME))
    return TimeFrame(
        start=min(account.start for account in accounts),
        end=max(account.end for account in accounts),
        label=label,
        width=max(LEAST, width - label - FIGURE),
    )


def axis_text(frame: TimeFrame, *, now: bool) -> str:
    """0 s … 20 h 05 m, now: the ends of the bars."""
    start, end = "0 s", format_span(frame.end - frame.start) + (", now" if now else "")
    return frame.fit_line("", start + end.rjust(frame.width - len(start)))


def curve_lines(
    account: SlotAccount, curves: Sequence[Curve], frame: TimeFrame, *, colour: bool
) -> Iterator[str]:
    """Yield the marks of losses, the step rate and the given curves."""
    losses = [recovery.at for recovery in find_recoveries(account)]
    if marks := mark_cells(losses, frame.start, frame.end, frame.width):
        yield frame.fit_line("", paint_text(marks, "1;31", colour=colour))
    rates = step_rates(account, frame)
    if any(rate is not None for rate in rates) and not any(
        curve.name == STEP_RATE for curve in curves
    ):
        yield draw_curve(RATE, rates, frame, colour=colour)
    for curve in (one for one in curves if one.name != STEP):
        hold_s = max(HOLD_S, HOLD_CELLS * (frame.end - frame.start) / frame.width)
        values = spread_values(curve.points, frame.start, frame.end, frame.width, hold_s=hold_s)
        name = RATE if curve.name == STEP_RATE else curve.name
        yield draw_curve(name, values, frame, colour=colour)


def step_rates(account: SlotAccount, frame: TimeFrame) -> list[SeriesValue]:
    """Return the rate of steps over time, of all attempts."""
    rates: list[SeriesValue] = [None] * frame.width
    for run in account.runs:
        found = spread_rates(run.points, frame.start, frame.end, frame.width)
        rates = [old if new is None else new for old, new in zip(rates, found, strict=True)]
    return rates


def draw_curve(name: str, values: Sequence[SeriesValue], frame: TimeFrame, *, colour: bool) -> str:
    last = next((value for value in reversed(values) if value is not None), None)
    figure = "" if last is None else f"{last:.4g}" if isfinite(last) else str(last)
    line = sparkline(values, base=0.0 if name == RATE else None)
    picture = paint_text(line, CURVE_TINT, colour=colour)
    return frame.fit_line(name.rjust(CURVE_NAME), picture, figure)


def sum_seconds(accounts: Sequence[SlotAccount]) -> dict[GoodputState, float]:
    seconds: dict[GoodputState, float] = {}
    for account in accounts:
        for state, time in account.seconds.items():
            seconds[state] = seconds.get(state, 0.0) + time
    return seconds


def loss_lines(accounts: Sequence[SlotAccount]) -> Iterator[str]:
    """▲ 3 losses took 34 m 10 s, 2.8 % of the time: 2 preempted, 1 failure; 40 steps done twice"""
    losses: list[LossRecovery] = [one for account in accounts for one in find_recoveries(account)]
    if not losses:
        return
    total = sum(account.wanted_s for account in accounts)
    gone = sum(one.until - one.at for one in losses)
    gone += sum(account.seconds.get(GoodputState.WASTED, 0.0) for account in accounts)
    verdicts = [str(one.verdict) for one in losses]
    kinds = ", ".join(f"{verdicts.count(kind)} {kind}" for kind in dict.fromkeys(verdicts))
    steps = sum(account.steps_lost for account in accounts)
    share = f", {format_share(gone / total)} of the time" if total else ""
    again = f"; {steps} steps done twice" if steps else ""
    if any(account.unreported_s for account in accounts):
        again += "; how much work is not known"
    many = f"{len(losses)} loss{'es' if len(losses) > 1 else ''}"
    yield f"▲ {many} took {format_span(gone)}{share}: {kinds}{again}"
