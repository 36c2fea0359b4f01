"""Charts as SVG, for light and dark pages: lines against a size, and dots with their range."""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from bench.page.results import Spread

WIDE, HIGH = 450, 300  #: of a panel with lines
LEFT, RIGHT, TOP, BOTTOM = 56, 156, 34, 42
NAME_PX, VALUE_PX, ROW_PX = 270, 70, 20  #: of a panel with dots
DOTS_WIDE = 760
#: Ours first; then peers, told apart by eyes that see few colours, too.
LIGHT = ("#1a7f37", "#0072b2", "#b3510a", "#7b4fa3", "#8a6d00", "#57606a", "#b02a6b", "#00756b")
DARK = ("#3fb950", "#56b4e9", "#f0883e", "#bc8cff", "#e3b341", "#9aa4ae", "#f778ba", "#39d0c3")


@dataclass(frozen=True, kw_only=True, slots=True)
class Series:
    """A line: for each size the values, and which colour."""

    name: str
    points: tuple[tuple[float, Spread], ...]
    colour: int


@dataclass(frozen=True, kw_only=True, slots=True)
class LinePanel:
    """Lines against a size, both on logarithmic axes."""

    title: str
    unit: str
    across: str
    lines: tuple[Series, ...]


@dataclass(frozen=True, kw_only=True, slots=True)
class Dot:
    name: str
    value: Spread
    is_ours: bool


@dataclass(frozen=True, kw_only=True, slots=True)
class DotPanel:
    """A row for each name: a dot at its middle value, and a line from its least to its greatest."""

    title: str
    unit: str
    dots: tuple[Dot, ...]


def draw_chart(panels: Sequence[LinePanel | DotPanel], label: str) -> str:
    """Return the whole picture; the same panels give the same bytes."""
    parts: list[str] = []
    y, wide = 0.0, 0.0
    lines = [one for one in panels if isinstance(one, LinePanel)]
    for number, panel in enumerate(lines):
        column, row = number % 2, number // 2
        inside = "\n".join(draw_lines(panel))
        parts.append(f'<g transform="translate({column * WIDE} {row * HIGH})">\n{inside}\n</g>')
        wide, y = max(wide, (column + 1) * WIDE), (row + 1) * HIGH
    for dots in (one for one in panels if isinstance(one, DotPanel)):
        inside = "\n".join(draw_dots(dots))
        parts.append(f'<g transform="translate(0 {y:g})">\n{inside}\n</g>')
        wide, y = max(wide, DOTS_WIDE), y + TOP + BOTTOM + ROW_PX * len(dots.dots)
    head = (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {wide:g} {y:g}" width="{wide:g}"'
        f' height="{y:g}" font-family="sans-serif" font-size="12" role="img"'
        f' aria-label="{escape_text(label)}">'
    )
    ground = '<rect class="ground" width="100%" height="100%"/>'
    return "\n".join((head, style_element(), ground, *parts, "</svg>\n"))


def style_element() -> str:
    def rules(colours: Sequence[str], words: tuple[str, str, str, str]) -> str:
        ground, title, faint, text = words
        lines = "".join(
            f".l{n}{{stroke:{colour}}}.t{n}{{fill:{colour}}}" for n, colour in enumerate(colours)
        )
        return (
            f".ground{{fill:{ground}}}.title{{fill:{title};font-weight:bold}}"
            f".grid{{stroke:{faint}}}.axis{{fill:{text}}}{lines}"
        )

    light = rules(LIGHT, ("#ffffff", "#24292f", "#d8dee4", "#57606a"))
    dark = rules(DARK, ("#0d1117", "#e6edf3", "#30363d", "#9aa4ae"))
    return f"<style>{light}@media (prefers-color-scheme:dark){{{dark}}}</style>"


def escape_text(text: str) -> str:
    for mark, name in (("&", "&amp;"), ("<", "&lt;"), (">", "&gt;"), ('"', "&quot;")):
        text = text.replace(mark, name)
    return text


def text_element(text: str, x: float, y: float, kind: str, anchor: str = "start") -> str:
    return (
        f'<text class="{kind}" x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}">'
        f"{escape_text(text)}</text>"
    )


def short_number(value: float) -> str:
    """Return three digits at most, and thousands with a comma."""
    if value == 0 or not 0.001 <= abs(value) < 1e6:
        return f"{value:.3g}"
    digits = max(0, 2 - math.floor(math.log10(abs(value))))
    text = f"{value:,.{digits}f}"
    return text.rstrip("0").rstrip(".") if "." in text else text


# ---- lines ---------------------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True, slots=True)
class Scale:
    """Where a value is on an axis: logarithmic, unless there is a zero or less."""

    low: float
    high: float
    start: float
    end: float
    is_log: bool

    def place(self, value: float) -> float:
        low, high, at = self.low, self.high, min(max(value, self.low), self.high)
        if self.is_log:
            low, high, at = math.log(low), math.log(high), math.log(at)
        return self.start + (self.end - self.start) * (at - low) / ((high - low) or 1.0)


def scale_for(values: Sequence[float], start: float, end: float) -> Scale:
    low, high = min(values), max(values)
    if low <= 0:
        bottom = min(0.0, low)
        return Scale(low=bottom, high=high or 1.0, start=start, end=end, is_log=False)
    if high < 3 * low:  # two ticks at least
        low, high = low / 2, high * 2
    return Scale(low=low / 1.1, high=high * 1.1, start=start, end=end, is_log=True)


def choose_ticks(scale: Scale, most: int = 7) -> list[float]:
    """Return round values on an axis: 1, 2, 5, 10 …, or only powers of ten, or equal steps."""
    if not scale.is_log:
        step = 10.0 ** math.floor(math.log10((scale.high - scale.low) or 1.0))
        while (scale.high - scale.low) / step < 3:
            step /= 2
        first = math.ceil(scale.low / step)
        return [n * step for n in range(first, math.floor(scale.high / step) + 1)]
    powers = range(math.floor(math.log10(scale.low)), math.ceil(math.log10(scale.high)) + 1)
    for digits in ((1, 2, 5), (1, 3), (1,)):
        ticks = [digit * 10.0**power for power in powers for digit in digits]
        ticks = [one for one in ticks if scale.low <= one <= scale.high]
        if len(ticks) <= most:
            break
    return ticks


def draw_lines(panel: LinePanel) -> Iterator[str]:
    sizes = sorted({size for line in panel.lines for size, _ in line.points})
    values = [v for line in panel.lines for _, one in line.points for v in (one.least, one.most)]
    x = scale_for(sizes, LEFT + 8, WIDE - RIGHT)
    y = scale_for(values, HIGH - BOTTOM, TOP)
    yield text_element(f"{panel.title}, {panel.unit}", 10, 18, "title")
    for tick in choose_ticks(y):
        at = y.place(tick)
        yield f'<path class="grid" d="M{LEFT} {at:.1f}H{WIDE - RIGHT + 6}"/>'
        yield text_element(short_number(tick), LEFT - 5, at + 4, "axis", "end")
    last = -100.0
    for size in sizes:
        if x.place(size) - last >= 30:
            last = x.place(size)
            yield text_element(short_number(size), last, HIGH - BOTTOM + 17, "axis", "middle")
    middle = (LEFT + WIDE - RIGHT) / 2
    yield text_element(panel.across, middle, HIGH - BOTTOM + 33, "axis", "middle")
    for line in reversed(panel.lines):  # ours last, above the others
        yield from draw_line(line, x, y)
    ends = [(y.place(line.points[-1][1].middle), line) for line in panel.lines]
    for at, line in spread_labels(ends, TOP + 4, HIGH - BOTTOM):
        yield text_element(line.name, WIDE - RIGHT + 9, at + 4, f"t{line.colour % len(LIGHT)}")


def draw_line(line: Series, x: Scale, y: Scale) -> Iterator[str]:
    colour = line.colour % len(LIGHT)
    spots = [(x.place(size), one) for size, one in line.points]
    path = "L".join(f"{at:.1f} {y.place(one.middle):.1f}" for at, one in spots)
    wide = 2.5 if line.colour == 0 else 1.5
    yield f'<path class="l{colour}" d="M{path}" fill="none" stroke-width="{wide}"/>'
    for at, one in spots:
        low, high = y.place(one.least), y.place(one.most)
        yield f'<path class="l{colour}" d="M{at:.1f} {low:.1f}V{high:.1f}"/>'
        yield f'<circle class="t{colour}" cx="{at:.1f}" cy="{y.place(one.middle):.1f}" r="3"/>'


def spread_labels(
    ends: Sequence[tuple[float, Series]], top: float, bottom: float
) -> list[tuple[float, Series]]:
    """Move labels at the ends of lines apart, so that none covers another."""
    apart, placed = 14.0, list[tuple[float, Series]]()
    for at, line in sorted(ends, key=lambda end: end[0]):
        above = placed[-1][0] + apart if placed else top
        placed.append((max(at, above), line))
    lowest = bottom
    for number in reversed(range(len(placed))):
        at, line = placed[number]
        placed[number] = (min(at, lowest), line)
        lowest = placed[number][0] - apart
    return placed


# ---- dots ----------------------------------------------------------------------------------------


def draw_dots(panel: DotPanel) -> Iterator[str]:
    values = [v for one in panel.dots for v in (one.value.least, one.value.most)]
    whole = [1.0] if panel.unit == "share" else []
    found = Scale(
        low=min(0.0, *values), high=max([*values, *whole]), start=NAME_PX, end=DOTS_WIDE - VALUE_PX,
        is_log=False,
    )  # fmt: skip
    scale = replace(found, high=found.high or 1.0)
    bottom = TOP + ROW_PX * len(panel.dots)
    yield text_element(f"{panel.title}, {panel.unit}", 10, 18, "title")
    for tick in choose_ticks(scale):
        at = scale.place(tick)
        yield f'<path class="grid" d="M{at:.1f} {TOP - 6}V{bottom}"/>'
        yield text_element(short_number(tick), at, bottom + 15, "axis", "middle")
    for number, dot in enumerate(panel.dots):
        y, colour = TOP + ROW_PX * (number + 0.5), 0 if dot.is_ours else 5
        low, middle, high = (
            scale.place(value) for value in (dot.value.least, dot.value.middle, dot.value.most)
        )
        yield text_element(dot.name, NAME_PX - 12, y + 4, f"t{colour}", "end")
        yield f'<path class="l{colour}" stroke-width="2" d="M{low:.1f} {y:g}H{high:.1f}"/>'
        yield f'<circle class="t{colour}" cx="{middle:.1f}" cy="{y:g}" r="4"/>'
        value = short_number(dot.value.middle)
        yield text_element(value, DOTS_WIDE - VALUE_PX + 12, y + 4, f"t{colour}")
