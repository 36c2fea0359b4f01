"""`herd ls`: all jobs, a line each."""

from functools import partial

import click

from tpuherd.cli.parsed_command import ParsedCommand, make_parsed_command


@click.command()
@click.option("--json", "json_", is_flag=True, help="Print JSON.")
def ls(json_: bool) -> ParsedCommand:
    """Show all jobs: what they do, where, how much of their time was well spent, what they cost.

    READY counts the nodes that are there, of those that are wished.
    """
    from tpuherd.cli.job_reports import run_ls

    return make_parsed_command("herd ls", partial(run_ls, json_))
