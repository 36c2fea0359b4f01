"""A slot's time as a row of characters: what it waited for, when it worked, what it lost.

The signs differ without color: what leads to work climbs like a staircase, ▁▂▄▅▇█.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby

from tpuherd.accounting.goodput import GoodputState, StateSpan
from tpuherd.views.format_text import format_share
from tpuherd.views.text_width import cell_width, paint_text


@dataclass(frozen=True, kw_only=True, slots=True)
class BarPart:
    """States that look the same in a bar."""

    sign: str
    tint: str
    word: str


QUEUED = BarPart(sign="▁", tint="33", word="queued")
BOOTING = BarPart(sign="▂", tint="34", word="booting")
SETUP = BarPart(sign="▄", tint="34", word="setup")
STARTING = BarPart(sign="▅", tint="36", word="starting")
COMPILING = BarPart(sign="▇", tint="36", word="compiling")
TRAINING = BarPart(sign="█", tint="32", word="training")
UNREPORTED = BarPart(sign="▓", tint="32", word="no steps reported")
SAVING = BarPart(sign="▀", tint="36", word="saving")
LOST = BarPart(sign="▒", tint="31", word="lost work")
DOWN = BarPart(sign="×", tint="1;31", word="down")
STOPPING = BarPart(sign="▼", tint="35", word="stopping")
IDLE = BarPart(sign="─", tint="33", word="idle")
OVER = BarPart(sign=" ", tint="", word="over")
BAR_PARTS: Mapping[GoodputState, BarPart] = {
    GoodputState.QUEUE_FIRST: QUEUED,
    GoodputState.CAPACITY_WAIT: QUEUED,
    GoodputState.CONTROLLER_GAP: QUEUED,
    GoodputState.PROVISION: BOOTING,
    GoodputState.HOST_SETUP: SETUP,
    GoodputState.STARTING: STARTING,
    GoodputState.RESTORE: STARTING,
    GoodputState.COMPILE: COMPILING,
    GoodputState.PRODUCTIVE: TRAINING,
    GoodputState.UNREPORTED: UNREPORTED,
    GoodputState.SAVING: SAVING,
    GoodputState.WASTED: LOST,
    GoodputState.STOPPING: STOPPING,
    GoodputState.DETECT: DOWN,
    GoodputState.PROCESS_DOWN: DOWN,
    GoodputState.HUNG: DOWN,
    GoodputState.UNKNOWN: DOWN,
    GoodputState.IDLE: IDLE,
    GoodputState.STOPPED: OVER,
    GoodputState.DONE: OVER,
    GoodputState.GAVE_UP: OVER,
}
LEAST_SHARE = 0.0005  #: of the time; less would be shown as 0.0 %
LOSS = "▲"  #: below the moment of a loss


def bar_cells(
    spans: Iterable[StateSpan], start: float, end: float, width: int
) -> list[BarPart | None]:
    """Return what filled most of each cell's time; None where nothing is known."""
    shares: list[dict[BarPart, float]] = [{} for _ in range(width)]
    step = (end - start) / width if width > 0 and end > start else 0.0
    for span in spans if step else ():
        part = BAR_PARTS[span.state]
        first = max(0, int((span.start - start) / step))
        for at in range(first, min(width, int((span.end - start) / step) + 1)):
            left = start + at * step
            overlap = min(span.end, left + step) - max(span.start, left)
            if overlap > 0:
                shares[at][part] = shares[at].get(part, 0.0) + overlap
    return [max(share, key=share.__getitem__) if share else None for share in shares]


def draw_bar(cells: Sequence[BarPart | None], *, colour: bool) -> str:
    """Return the cells as text."""
    return "".join(
        paint_text(part.sign * len([*same]), part.tint, colour=colour)
        if part
        else " " * len([*same])
        for part, same in groupby(cells)
    )


def mark_cells(times: Iterable[float], start: float, end: float, width: int) -> str:
    """Return a line with a mark below each of these moments; "" if there are none."""
    marks = [" "] * width
    for at in times:
        if end > start and start <= at <= end:
            marks[min(width - 1, int((at - start) / (end - start) * width))] = LOSS
    return "".join(marks).rstrip()


def legend_entries(seconds: Mapping[GoodputState, float], *, colour: bool) -> Iterator[str]:
    """Yield the sign, the word and the share of time of each part that occurs."""
    total = sum(time for state, time in seconds.items() if BAR_PARTS[state] is not OVER)
    times: dict[BarPart, float] = {}
    for state, time in seconds.items():
        times[BAR_PARTS[state]] = times.get(BAR_PARTS[state], 0.0) + time
    for part in dict.fromkeys(BAR_PARTS.values()):
        share = times[part] / total if times.get(part) and part is not OVER else 0.0
        if share > LEAST_SHARE:
            sign = paint_text(part.sign, part.tint, colour=colour)
            yield f"{sign} {part.word} {format_share(share)}"


def fill_lines(entries: Iterable[str], width: int) -> Iterator[str]:
    """Put entries side by side, in as many lines as they need."""
    line = ""
    for entry in entries:
        if line and cell_width(line) + 2 + cell_width(entry) > width:
            yield line
            line = ""
        line = f"{line}  {entry}" if line else entry
    if line:
        yield line
