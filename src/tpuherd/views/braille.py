"""A canvas of dots for a terminal: each character of braille has two by four of them."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from itertools import groupby, pairwise

from tpuherd.views.text_width import paint_text

ACROSS, DOWN = 2, 4  #: dots in a character
BLANK = 0x2800
#: The bit of each dot, by row and column.
BITS = ((0x01, 0x08), (0x02, 0x10), (0x04, 0x20), (0x40, 0x80))


@dataclass(slots=True)
class BrailleCanvas:
    """Dots and signs in cells of a terminal; a later sign hides what is below it."""

    columns: int
    rows: int
    dots: dict[tuple[int, int], int] = field(default_factory=dict)  #: by row and column
    tints: dict[tuple[int, int], str] = field(default_factory=dict)
    signs: dict[tuple[int, int], str] = field(default_factory=dict)

    def cell_of(self, x: float, y: float) -> tuple[int, int]:
        """The row and column of a place; x and y are from 0 to 1, y from the bottom."""
        return (
            min(self.rows - 1, max(0, int((1 - y) * self.rows))),
            min(self.columns - 1, max(0, int(x * self.columns))),
        )

    def put_sign(self, x: float, y: float, sign: str, tint: str) -> None:
        self.signs[self.cell_of(x, y)] = sign
        self.tints[self.cell_of(x, y)] = tint

    def draw_line(self, points: Iterable[tuple[float, float]], tint: str) -> None:
        """Join these places by straight lines."""
        wide, high = self.columns * ACROSS - 1, self.rows * DOWN - 1
        places = [(x * wide, (1 - y) * high) for x, y in points]
        for (left, top), (right, low) in pairwise(places):
            steps = max(1, round(max(abs(right - left), abs(low - top))))
            for step in range(steps + 1):
                x = left + (right - left) * step / steps
                self.put_dot(round(x), round(top + (low - top) * step / steps), tint)

    def put_dot(self, x: int, y: int, tint: str) -> None:
        if 0 <= x < self.columns * ACROSS and 0 <= y < self.rows * DOWN:
            cell = (y // DOWN, x // ACROSS)
            self.dots[cell] = self.dots.get(cell, 0) | BITS[y % DOWN][x % ACROSS]
            self.tints.setdefault(cell, tint)

    def draw_rows(self, *, colour: bool) -> Iterator[str]:
        for row in range(self.rows):
            tints = [self.tints.get((row, at), "") for at in range(self.columns)]
            line, at = "", 0
            for tint, run in groupby(tints):
                end = at + len([*run])
                signs = "".join(self.cell_sign(row, column) for column in range(at, end))
                line += paint_text(signs, tint, colour=colour)
                at = end
            yield line.rstrip()

    def cell_sign(self, row: int, column: int) -> str:
        dots = self.dots.get((row, column), 0)
        return self.signs.get((row, column)) or (chr(BLANK + dots) if dots else " ")
