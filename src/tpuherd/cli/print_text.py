"""Prints text, escaped and wrapped, for commands without a Console."""

import os
import sys

import click

from tpuherd.views.format_text import wrap_text
from tpuherd.views.printable import show_lines


def print_text(text: str, *, err: bool = False) -> None:
    """Print to stdout or stderr; colors are dropped unless it is a terminal."""
    stream = sys.stderr if err else sys.stdout
    text = show_lines(text, colours=True)
    if stream.isatty():
        text = wrap_text(text, os.get_terminal_size(stream.fileno()).columns or 80)
    click.echo(text, err=err)
