"""`herd logs`: what was said on hosts, also on those that are gone."""

from functools import partial
from typing import Any

import click

from tpuherd.cli.formats import Moment
from tpuherd.cli.parsed_command import ParsedCommand, make_parsed_command


@click.command()
@click.argument("target", required=False)
@click.option("-f", "--follow", is_flag=True, help="Go on with what is said next.")
@click.option("--host", metavar="NAMES", help="Only these: w0, w[0-3], gpt-1/w0.")
@click.option("--attempt", metavar="N", help="Only this one: its number, or its id.")
@click.option("--since", type=Moment(), help="Only from then on: 10m, 12:30 or 2026-01-31T12:30.")
@click.option("--grep", metavar="REGEX", help="Only lines in which this is found.")
@click.option("--tail", type=click.IntRange(0), metavar="N", help="Only the last N lines of it.")
@click.option("--all", "all_", is_flag=True, help="Also of earlier jobs of this name.")
@click.option("--json", "json_", is_flag=True, help="A line of JSON for every line.")
def logs(target: str | None, **said: Any) -> ParsedCommand:
    """Show what was said on the hosts of TARGET, all attempts and commands.

    Of a job: since it was last submitted; --all shows what was before.
    It is kept on this machine while it is said, so it is there when the node is long gone: that
    of commands for two weeks. Each has an id, and a number from 1 on: those of a job's attempts
    are the attempts' own.
    """
    from tpuherd.cli.show_logs import run_logs
    from tpuherd.commands.find_logs import LogQuery

    if target is None and said["attempt"] is None:
        raise click.UsageError("say whose: herd logs TARGET, or --attempt ID")
    return make_parsed_command("herd logs", partial(run_logs, LogQuery(target=target, **said)))
