"""`herd down`: drop jobs, and everything they have."""

from functools import partial

import click

from tpuherd.cli.formats import Duration
from tpuherd.cli.parsed_command import ParsedCommand, make_parsed_command


@click.command()
@click.argument("names", nargs=-1)
@click.option("--all", "all_", is_flag=True, help="Every job, and whatever else bears our name.")
@click.option("-y", "--yes", is_flag=True, help="Ask nothing.")
@click.option("--wait/--no-wait", default=True, help="Come back when nothing is left, or at once.")
@click.option(
    "--timeout", "timeout_s", type=Duration(), help="Wait no longer than this (5m, 2h); exit 124."
)
@click.option("--json", "json_", is_flag=True, help="Print JSON.")
def down(
    names: tuple[str, ...],
    all_: bool,
    yes: bool,
    wait: bool,
    timeout_s: float | None,
    json_: bool,
) -> ParsedCommand:
    """Drop jobs: their commands end, their nodes and requests go, the wish is forgotten.

    What is lost is said before. It is over when the cloud lists nothing of them any more; until
    then it says each minute what it waits for, and why. A command that runs gets TERM, its grace
    and KILL; two minutes later at most its node is given back, whatever its host says.
    """
    from tpuherd.cli.down_do import DownOptions, run_down

    if bool(names) == all_:
        raise click.UsageError("say which: herd down NAME…, or --all")
    if timeout_s is not None and not wait:
        raise click.UsageError("--timeout says how long to wait: leave out --no-wait")
    asked = DownOptions(names=names, yes=yes, waits=wait, json_=json_, timeout_s=timeout_s)
    return make_parsed_command("herd down", partial(run_down, asked))
