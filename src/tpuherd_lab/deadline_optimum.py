"""What a task with a deadline costs at least, for somebody who knows all of the window before.

A price is put on each second of work (a Lagrange multiplier), and the best way through the window
at that price is found by dynamic programming. Every such price gives a lower bound of the cost; the
best of them is searched. Where nothing in the window changes, changing nodes is never better than
at its begin or its end, so the program steps from change to change instead of from tick to tick.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise

from tpuherd_lab.deadline_runs import FIRM_NODE, HOUR_S, NO_NODE, DeadlineTask, DeadlineWindow

STEPS_MAX = 60
CLOSE = 1e-6  #: dollars


@dataclass(frozen=True, kw_only=True, slots=True)
class DeadlineBound:
    """The cheapest way is not below `dollars`, and not above `reached`."""

    dollars: float
    reached: float


@dataclass(frozen=True, slots=True)
class Way:
    """The best way so far that ends on a node: by value, then what it cost and did."""

    value: float
    dollars: float
    work_s: float


def bound_deadline_cost(window: DeadlineWindow, task: DeadlineTask) -> DeadlineBound:
    """On-demand alone always makes it: the deadline must leave time for that."""
    spans = tuple(steady_spans(window, int(task.deadline_s // window.tick_s)))
    firm = task.firm_price / HOUR_S
    low = Way(0.0, 0.0, 0.0)
    high = Way(0.0, (task.work_s + task.start_s) * firm, task.work_s)
    best, reached = 0.0, high.dollars
    for _ in range(STEPS_MAX):
        price = (high.dollars - low.dollars) / (high.work_s - low.work_s)
        found = best_way(spans, task, price)
        bound = price * task.work_s - found.value
        best = max(best, bound)
        line = low.dollars + price * (task.work_s - low.work_s)
        if line - bound < CLOSE:
            break
        if found.work_s >= task.work_s:
            high, reached = found, min(reached, found.dollars)
        else:
            low = found
    return DeadlineBound(dollars=best, reached=reached)


def steady_spans(window: DeadlineWindow, ticks: int) -> Iterator[tuple[float, tuple[int, ...]]]:
    """Seconds in which nothing changes, with the zones that have spot in them."""
    short = max(map(len, window.zones), default=0)
    changes = {0, ticks, min(short, ticks)}
    for has in window.zones:
        length = min(ticks, len(has))
        changes |= {tick for tick in range(1, length) if has[tick] != has[tick - 1]}
        changes.add(length)
    for start, end in pairwise(sorted(changes)):
        there = [zone for zone, has in enumerate(window.zones) if start < len(has) and has[start]]
        yield (end - start) * window.tick_s, tuple(there)


def best_way(
    spans: tuple[tuple[float, tuple[int, ...]], ...], task: DeadlineTask, price: float
) -> Way:
    """The way with the greatest value: `price` for each second of work, less its cost."""
    costs = {FIRM_NODE: task.firm_price / HOUR_S}
    ways: dict[int, Way] = {}
    best = Way(0.0, 0.0, 0.0)
    for length_s, zones in spans:
        fresh = {NO_NODE: best}
        begun = Way(best.value - price * task.start_s, best.dollars, best.work_s - task.start_s)
        for node in (FIRM_NODE, *zones):
            kept = ways.get(node)
            way = begun if kept is None or kept.value < begun.value else kept
            dollars = costs.get(node, task.spot_price / HOUR_S) * length_s
            fresh[node] = Way(
                way.value + price * length_s - dollars, way.dollars + dollars, way.work_s + length_s
            )
        ways = fresh
        best = max(ways.values(), key=lambda way: (way.value, way.work_s))
    return best
