"""`herd ls`: all jobs, a line each."""

from functools import partial

import click

from tpuherd.cli.parsed_command import Errand, errand


@click.command()
@click.option("--json", "json_", is_flag=True, help="Print JSON.")
def ls(json_: bool) -> Errand:
    """Show all jobs: what they do, where, how much of their time was well spent, what they cost.

    READY counts the nodes that are there, of those that are wished.
    """
    from tpuherd.cli.job_reports import listed

    return errand("herd ls", partial(listed, json_))
