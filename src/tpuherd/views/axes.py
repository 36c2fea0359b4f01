"""The axes of a plot: positions from 0 to 1, and the tick labels."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from math import ceil, floor, log10

Value = float | int | str | bool
ORDERS = 100.0  #: from this ratio on, a metric has a logarithmic axis
TICKS = 5
ROOM = 0.04  #: at both ends of an axis


@dataclass(frozen=True, kw_only=True, slots=True)
class Axis:
    """An axis of numbers from low to high, or of names side by side."""

    low: float = 0.0
    high: float = 1.0
    log: bool = False
    whole: bool = False  #: only whole numbers
    names: tuple[str, ...] = ()

    def position_of(self, value: Value) -> float:
        """The position of a value, from 0 to 1."""
        if self.names:
            return (self.names.index(str(value)) + 0.5) / len(self.names)
        low, high, at = (self.scale_value(float(one)) for one in (self.low, self.high, value))
        return ROOM + (1 - 2 * ROOM) * (0.5 if high == low else (at - low) / (high - low))

    def scale_value(self, value: float) -> float:
        return log10(value) if self.log else value

    def tick_marks(self) -> list[tuple[float, str]]:
        """The positions of the ticks, with their labels."""
        if self.names:
            return [(self.position_of(name), name) for name in self.names]
        found = (decade_ticks if self.log else linear_ticks)(self.low, self.high, whole=self.whole)
        return [(self.position_of(one), f"{one:.4g}") for one in found]


def linear_ticks(low: float, high: float, *, whole: bool = False) -> list[float]:
    """Round numbers between two values."""
    if low == high:
        return [low]
    raw = max((high - low) / TICKS, 1.0 if whole else 0.0)
    power = 10.0 ** floor(log10(raw))
    step = next(power * one for one in (1, 2, 5, 10) if power * one >= raw)
    first = ceil(low / step - 1e-9)
    return [float(f"{at * step:.10g}") for at in range(first, floor(high / step + 1e-9) + 1)]


def decade_ticks(low: float, high: float, *, whole: bool = False) -> list[float]:
    """Powers of ten between two values; if too few, round numbers."""
    first, last = ceil(log10(low) - 1e-9), floor(log10(high) + 1e-9)
    if last - first < 1:
        return linear_ticks(low, high, whole=whole)
    stride = ceil((last - first + 1) / (TICKS + 1))
    return [10.0**at for at in range(first, last + 1, stride)]


def build_axis(values: Iterable[Value], *, log: bool | None = None) -> Axis:
    """Build an axis for these values; if `log` is None, their range decides."""
    known = list(dict.fromkeys(values))
    numbers = [float(one) for one in known if isinstance(one, int | float)]
    if len(numbers) < len(known) or any(isinstance(one, bool) for one in known):
        return Axis(names=tuple(sorted(map(str, known))))
    low, high = min(numbers, default=0.0), max(numbers, default=1.0)
    wide = low > 0 and high / low > ORDERS
    whole = all(isinstance(one, int) for one in known)
    return Axis(low=low, high=high, whole=whole, log=low > 0 and (wide if log is None else log))


@dataclass(frozen=True, kw_only=True, slots=True)
class Dot:
    x: Value
    y: float
    kind: str  #: complete, pruned, best


@dataclass(frozen=True, kw_only=True, slots=True)
class Panel:
    """One panel: dots, and possibly a line of the best value so far."""

    title: str
    x: Axis
    y: Axis
    dots: Sequence[Dot]
    stair: Sequence[tuple[float, float]] = ()
