"""`herd wait`: until jobs have ended."""

from functools import partial

import click

from tpuherd.cli.formats import Duration
from tpuherd.cli.parsed_command import ParsedCommand, make_parsed_command


@click.command()
@click.argument("names", nargs=-1, required=True)
@click.option(
    "--timeout", "timeout_s", type=Duration(), help="Wait no longer than this (5m, 2h); exit 124."
)
@click.option("--json", "json_", is_flag=True, help="Print JSON at the end.")
def wait(names: tuple[str, ...], timeout_s: float | None, json_: bool) -> ParsedCommand:
    """Wait until jobs have ended, or the nodes of `herd up` are ready.

    Patterns are allowed: herd wait 'gpt-*'. The exit status is 0 if all of it succeeded; that of
    the command if it failed for good; and 5 if the job was given up for another reason, stopped or
    dropped. Of several jobs it is the greatest.
    """
    from tpuherd.cli.wait_do import run_wait

    return make_parsed_command("herd wait", partial(run_wait, names, timeout_s, json_))
