"""`herd stop`: a job ends for now."""

from functools import partial

import click

from tpuherd.cli.parsed_command import ParsedCommand, make_parsed_command


@click.command()
@click.argument("names", nargs=-1, required=True)
@click.option("--json", "json_", is_flag=True, help="Print JSON.")
def stop(names: tuple[str, ...], json_: bool) -> ParsedCommand:
    """Stop jobs and give their nodes back, but keep the wish.

    The command is asked to end and has its grace; `herd resume` goes on from its last checkpoint,
    on new nodes.
    """
    from tpuherd.cli.stop_do import run_stop

    return make_parsed_command("herd stop", partial(run_stop, names, json_))
