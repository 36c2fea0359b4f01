"""Prints text, escaped and wrapped, for commands without a Console."""

import os
import sys

import click

from tpuherd.commands.terminal_facts import has_unicode
from tpuherd.views.format_text import wrap_text
from tpuherd.views.printable import show_lines
from tpuherd.views.text_width import to_ascii


def print_text(text: str, *, err: bool = False, hang: int | None = None) -> None:
    """Print to stdout or stderr; colors are dropped unless it is a terminal.

    Long lines are wrapped and continue indented by `hang`.
    """
    stream = sys.stderr if err else sys.stdout
    text = show_lines(text, colours=True)
    if stream.isatty():
        from tpuherd.settings.project_access import process_environment

        text = text if has_unicode(process_environment()) else to_ascii(text)
        text = wrap_text(text, os.get_terminal_size(stream.fileno()).columns or 80, hang)
    click.echo(text.encode(errors="replace").decode(), err=err)
