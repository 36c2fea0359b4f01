"""Foreign output can't control a terminal: escapes and direction marks are shown, colors end."""

import json
import re
import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tpuherd.views.printable import (
    COLOURED,
    PrintableStream,
    json_text,
    show_bytes,
    show_controls,
    show_lines,
)

HOSTILE = "".join(map(chr, [*range(0x20), *range(0x7F, 0xA0), 0x61C, 0x200E, 0x200F,
                            *range(0x202A, 0x202F), *range(0x2066, 0x206A)]))  # fmt: skip
ACTING = {letter for letter in HOSTILE if letter not in "\t\n"}


def acts(text: str) -> set[str]:
    """What of it a terminal would obey."""
    return set(text) & ACTING


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("\x1b]0;title\x07", "\\x1b]0;title\\x07"),
        ("\x1b[2Jgone", "\\x1b[2Jgone"),
        ("\x9b2J", "\\x9b2J"),
        ("user\u202etxt.exe", "user\\u202etxt.exe"),
        ("a\tb\nc", "a\tb\nc"),
        ("loss ≤ 1 → done, שלום", "loss ≤ 1 → done, שלום"),
        ("\x1b[31mred\x1b[0m", "\\x1b[31mred\\x1b[0m"),
    ],
)
def test_control_characters_are_shown_escaped(text: str, shown: str) -> None:
    assert show_controls(text) == shown


@given(st.text(st.sampled_from(HOSTILE + "[]0;123mHJ\\ aé→")))
def test_printable_output_never_controls_the_terminal(text: str) -> None:
    assert not acts(show_lines(text))
    assert not acts(COLOURED.sub("", show_lines(text, colours=True)))
    assert json.loads(json_text([text])) == [text]
    assert not acts(json_text([text]))


def test_every_control_and_direction_mark_is_known() -> None:
    risky = {
        chr(code)
        for code in range(0x110000)
        if unicodedata.category(chr(code)) == "Cc"
        or unicodedata.bidirectional(chr(code)) in
        ("LRE", "RLE", "LRO", "RLO", "PDF", "LRI", "RLI", "FSI", "PDI")
    }  # fmt: skip
    assert not acts(show_controls("".join(sorted(risky))))


def test_a_color_stays_on_a_terminal_and_ends_with_its_line() -> None:
    said = b"\x1b[1;31mred\nplain \x1b[32mgreen\x1b[0m\n"
    assert show_bytes(said, colours=True) == (b"\x1b[1;31mred\x1b[0m\nplain \x1b[32mgreen\x1b[0m\n")
    assert show_bytes(said) == rb"\x1b[1;31mred" + b"\n" + rb"plain \x1b[32mgreen\x1b[0m" + b"\n"


@given(st.lists(st.binary(max_size=12)), st.booleans())
def test_bytes_in_pieces_are_shown_as_in_one(pieces: list[bytes], colours: bool) -> None:
    parted, whole = PrintableStream(colours=colours), PrintableStream(colours=colours)
    said = b"".join([*map(parted.feed, pieces), parted.end_stream()])
    assert said == whole.feed(b"".join(pieces)) + whole.end_stream()
    text = re.sub(rb"\x1b\[[0-9;:]*m", b"", said) if colours else said
    assert not acts(text.decode("utf-8", "replace").replace("\r", ""))
    assert not re.search(rb"(?<![\x80-\xff])[\x80-\x9f]", said)


def test_an_escape_cut_in_two_is_recognized() -> None:
    shown = PrintableStream(colours=True)
    said = [shown.feed(piece) for piece in (b"a\x1b", b"[3", b"1mb\x1b", b"[2Jc\xe2\x80", b"\xaed")]
    assert said == [b"a", b"", b"\x1b[31mb", rb"\x1b[2Jc", rb"\u202ed"]
    assert shown.end_stream() == b"\x1b[0m"
