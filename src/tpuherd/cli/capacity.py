"""`herd capacity`: what was learnt about zones."""

from functools import partial

import click

from tpuherd.cli.parsed_command import ParsedCommand, make_parsed_command


@click.command()
@click.option("--json", "json_", is_flag=True, help="Print JSON.")
def capacity(json_: bool) -> ParsedCommand:
    """Show how each zone has answered: refusals, grants, time until READY, life until a loss."""
    from tpuherd.cli.job_reports import run_capacity

    return make_parsed_command("herd capacity", partial(run_capacity, json_))
