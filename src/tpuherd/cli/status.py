"""`herd status`: all that is known of one job."""

from functools import partial

import click

from tpuherd.cli.parsed_command import ParsedCommand, make_parsed_command


@click.command()
@click.argument("name")
@click.option("--json", "json_", is_flag=True, help="Print JSON.")
def status(name: str, json_: bool) -> ParsedCommand:
    """Show a job, or one slot of it: its nodes, its attempts and how they ended, its losses.

    NAME is a job (gpt) or a slot (gpt-0). Every second of a slot is counted once, from the wish on.
    """
    from tpuherd.cli.job_reports import run_status

    return make_parsed_command("herd status", partial(run_status, name, json_))
