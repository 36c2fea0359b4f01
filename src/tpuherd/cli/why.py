"""`herd why`: what a job waits for."""

from functools import partial

import click

from tpuherd.cli.parsed_command import ParsedCommand, make_parsed_command


@click.command()
@click.argument("name")
@click.option("--json", "json_", is_flag=True, help="Print JSON.")
def why(name: str, json_: bool) -> ParsedCommand:
    """Say what each slot of a job does or waits for, in a sentence, and what happened last.

    NAME is a job (gpt) or a slot (gpt-0).
    """
    from tpuherd.cli.job_reports import run_why

    return make_parsed_command("herd why", partial(run_why, name, json_))
