"""Writes a command line that every login shell understands: sh, bash, zsh, fish and csh."""

import re


def quote_for_any_shell(text: str) -> str:
    """Quote text on one line; `printf %b` of sh gives it back.

    csh refuses line breaks in quotes and expands `!` there, fish has escapes in single quotes.
    """
    plain = re.sub(r"[^ -~]|['\\!]", lambda found: escape_bytes(found[0]), text)
    return f"'{plain}'"


def escape_bytes(letter: str) -> str:
    return "".join(f"\\0{byte:03o}" for byte in letter.encode())


def any_shell_line(script: str, *words: str) -> str:
    """Return the line by which a login shell becomes sh, with this script; $2 and so on are the
    words, as `printf %b` reads them."""
    quoted = map(quote_for_any_shell, (script, *words))
    return " ".join(["exec sh -c", """'eval "$(printf %b "$1")"'""", "tpuherd", *quoted])
