"""`herd resume`: a job that was stopped goes on."""

from functools import partial

import click

from tpuherd.cli.parsed_command import ParsedCommand, make_parsed_command


@click.command()
@click.argument("names", nargs=-1, required=True)
@click.option("--json", "json_", is_flag=True, help="Print JSON.")
def resume(names: tuple[str, ...], json_: bool) -> ParsedCommand:
    """Let jobs go on that were stopped, or that gave up.

    What was used of their retries is forgiven; the RUN_ID stays the same.
    """
    from tpuherd.cli.stop_do import run_resume

    return make_parsed_command("herd resume", partial(run_resume, names, json_))
