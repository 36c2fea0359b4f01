"""How many columns of a terminal a text takes, and texts made to fit."""

import re
import unicodedata
from functools import lru_cache

COLOUR = re.compile(r"\x1b\[[0-9;:]*m")  #: has no width
ELLIPSIS = "…"
#: What a terminal shows that has no Unicode: one character for each, so that widths stay.
ASCII_SIGNS = str.maketrans(
    "▁▂▃▄▅▆▇█▓▀▒×▼▲✗✓●○–·…→─│┤┴┼└┬★",
    "_.:-=+*#%'x!v^X+*o-.~>~||++++@",
)  # fmt: skip
BRAILLE = range(0x2800, 0x2900)
UPPER_DOTS = 0b00011011  #: of a character of braille


def cell_width(text: str) -> int:
    """Return the number of columns; colors have none, wide letters two."""
    if text.isascii() and "\x1b" not in text:
        return len(text)
    return sum(map(letter_width, COLOUR.sub("", text)))


@lru_cache(maxsize=4096)
def letter_width(letter: str) -> int:
    if unicodedata.category(letter) in {"Mn", "Me", "Cf"}:
        return 0
    return 2 if unicodedata.east_asian_width(letter) in {"W", "F"} else 1


def cut_text(text: str, width: int) -> str:
    """Cut a text without colors to this many columns; an ellipsis shows the cut."""
    if cell_width(text) <= width:
        return text
    kept, taken = "", 0
    for letter in text:
        taken += letter_width(letter)
        if taken > width - 1:
            break
        kept += letter
    return f"{kept.rstrip()}{ELLIPSIS}" if width > 0 else ""


def pad_text(text: str, width: int, *, right: bool = False) -> str:
    """Fill a text with spaces, before it if `right`."""
    room = " " * (width - cell_width(text))
    return room + text if right else text + room


def paint_text(text: str, tint: str, *, colour: bool) -> str:
    """Give a text the color of an SGR code such as 31 or 1;33; "" has none."""
    return f"\x1b[{tint}m{text}\x1b[0m" if colour and tint and text else text


def to_ascii(text: str) -> str:
    """Replace our signs, blocks and braille by ASCII; other letters stay."""
    if text.isascii():
        return text
    return re.sub(r"[\u2800-\u28ff]", ascii_dots, text.translate(ASCII_SIGNS))


def ascii_dots(found: re.Match[str]) -> str:
    dots = ord(found[0]) - BRAILLE.start
    upper, lower = dots & UPPER_DOTS, dots & ~UPPER_DOTS
    return ":" if upper and lower else "'" if upper else "." if lower else " "
