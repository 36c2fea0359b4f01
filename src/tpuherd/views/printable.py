"""Make foreign text safe to print: terminal escapes and direction marks have no effect.

Everything that `herd` shows passes through here. On a terminal colours may stay (`colours=True`);
every other control character is shown escaped: \\x1b, \\u202e.
"""

import codecs
import json
import re
from collections.abc import Mapping
from dataclasses import asdict, is_dataclass
from typing import Any

#: Control characters but tab and newline; marks that turn the direction of text; line separators.
UNSAFE = "\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069"
RAW = "\udc80-\udc9f"  #: bytes that are not text but act as controls on some terminals
HALF = "\ud800-\udc7f"  #: halves of characters, which nothing can print
COLOUR = r"\x1b\[[0-9;:]*m"
FOUND = re.compile(f"({COLOUR})|[{UNSAFE}{RAW}{HALF}]")
IN_JSON = re.compile(f"[{UNSAFE}\ud800-\udfff]")
IN_BYTES = re.compile(rb"[^\t\n\x20-\x7e]")
COLOURED = re.compile(COLOUR)
UNFINISHED = re.compile(r"\x1b(\[[0-9;:]{0,32})?\Z")  #: may become a color
PLAIN = ("\x1b[0m", "\x1b[m")


def show_controls(text: str, *, colours: bool = False, keep: str = "") -> str:
    """Show control characters as escapes, except for those in `keep`."""

    def visible(match: re.Match[str]) -> str:
        found = match[0]
        if (match[1] and colours) or found in keep:
            return found
        first = ord(found[0])
        if 0xDC80 <= first <= 0xDC9F:
            first -= 0xDC00
        code = f"\\x{first:02x}" if first < 0x100 else f"\\u{first:04x}"
        return code + found[1:]

    return FOUND.sub(visible, text)


def show_values(content: Any) -> Any:
    """Apply show_controls to every text in lists and mappings."""
    if isinstance(content, str):
        return show_controls(content)
    if isinstance(content, Mapping):
        return {show_values(name): show_values(value) for name, value in content.items()}
    if isinstance(content, list | tuple):
        return type(content)(map(show_values, content))
    return content


def show_lines(text: str, *, colours: bool = False) -> str:
    """Apply show_controls to whole lines; a color ends with its line."""
    text = show_controls(text, colours=colours)
    return "".join(map(end_colour, text.splitlines(keepends=True))) if "\x1b" in text else text


def show_bytes(piece: bytes, *, colours: bool = False) -> bytes:
    """Apply show_lines to the bytes of whole lines."""
    if not IN_BYTES.search(piece):
        return piece
    text = show_lines(piece.decode("utf-8", "surrogateescape"), colours=colours)
    return text.encode("utf-8", "surrogateescape")


def end_colour(line: str) -> str:
    """End the line with a reset if a color is on."""
    found = COLOURED.findall(line)
    if not found or found[-1] in PLAIN:
        return line
    end = "\n" if line.endswith("\n") else ""
    return f"{line.removesuffix(end)}{PLAIN[0]}{end}"


class PrintableStream:
    """Make output in pieces of any size safe to print; \\r may redraw a line."""

    def __init__(self, *, colours: bool) -> None:
        self._colours = colours
        self._decoder = codecs.getincrementaldecoder("utf-8")("surrogateescape")
        self._held = ""
        self._coloured = False

    def feed(self, piece: bytes, *, last: bool = False) -> bytes:
        """Return what can be shown now."""
        text = self._held + self._decoder.decode(piece, last)
        cut = None if last else UNFINISHED.search(text)
        self._held = text[cut.start() :] if cut else ""
        text = show_controls(text[: cut.start()] if cut else text, colours=self._colours, keep="\r")
        if found := COLOURED.findall(text):
            self._coloured = found[-1] not in PLAIN
        return text.encode("utf-8", "surrogateescape")

    def end_stream(self) -> bytes:
        """Return what is left, with a color reset if one is on."""
        rest = self.feed(b"", last=True)
        return rest + PLAIN[0].encode() if self._coloured else rest


def json_text(content: Any, *, indent: int | None = None) -> str:
    """JSON with control characters escaped; other non-ASCII letters are unchanged."""
    text = json.dumps(content, indent=indent, ensure_ascii=False, default=plain_value)
    return IN_JSON.sub(lambda match: f"\\u{ord(match[0]):04x}", text)


def plain_value(value: Any) -> Any:
    """A value as JSON can have it: a dataclass by its fields, anything else as text."""
    if is_dataclass(value) and not isinstance(value, type):
        return asdict(value)
    return str(value)
