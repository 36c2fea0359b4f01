"""Puts the item of a map into shell text so that the shell never interprets it."""

import re
from enum import Enum

#: What changes the meaning of what follows: quotes, an escaped character, a comment, the item.
MARKS = re.compile(r"""\\.|'|"|(?:(?<=\s)|(?<=^)|(?<=[;&|()]))\#[^\n]*|\{\}""", re.DOTALL)


class Quotes(Enum):
    """The quotes around a place of shell text, with what stands for the item there."""

    NONE = '"$HERD_ITEM"'
    DOUBLE = "${HERD_ITEM}"
    SINGLE = "'\"$HERD_ITEM\"'"


QUOTES = {"'": Quotes.SINGLE, '"': Quotes.DOUBLE}


def insert_item(text: str) -> str:
    """Return the text with every {} replaced by the variable of the item; appended if none is."""
    inside, at, parts = Quotes.NONE, 0, []
    while found := MARKS.search(text, at):
        mark, end = found[0], found.end()
        parts.append(text[at : found.start()])
        if mark == "{}":
            parts.append(inside.value)
        elif inside is Quotes.SINGLE and mark != "'":
            end = found.start() + 1  # only ' means something in there
            parts.append(mark[0])
        elif inside is Quotes.DOUBLE and mark[0] == "#":
            end = found.start() + 1
            parts.append("#")
        else:
            parts.append(mark)
            if mark in QUOTES and inside in (Quotes.NONE, QUOTES[mark]):
                inside = QUOTES[mark] if inside is Quotes.NONE else Quotes.NONE
        at = end
    parts.append(text[at:])
    return "".join(parts) if "{}" in text else f"{text} {Quotes.NONE.value}"
