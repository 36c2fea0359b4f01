"""Prints text for people where a command has no console of its own: safe, and wrapped at words."""

import os
import sys

import click

from tpuherd.views.format_text import wrap_text
from tpuherd.views.printable import show_lines


def print_text(text: str, *, err: bool = False) -> None:
    """A line or more on stdout or stderr; colours are dropped where there is no terminal."""
    stream = sys.stderr if err else sys.stdout
    text = show_lines(text, colours=True)
    if stream.isatty():
        text = wrap_text(text, os.get_terminal_size(stream.fileno()).columns or 80)
    click.echo(text, err=err)
