"""`herd events`: everything that happened, and why."""

from functools import partial

import click

from tpuherd.cli.formats import Moment
from tpuherd.cli.parsed_command import ParsedCommand, make_parsed_command


@click.command()
@click.argument("name", required=False)
@click.option("-f", "--follow", is_flag=True, help="Go on with what happens next.")
@click.option("--since", type=Moment(), help="Only from then on: 10m, 12:30 or 2026-01-31T12:30.")
@click.option("--all", "all_", is_flag=True, help="Also of earlier jobs of this name.")
@click.option("--json", "json_", is_flag=True, help="A line of JSON for every event.")
def events(
    name: str | None, follow: bool, since: float | None, all_: bool, json_: bool
) -> ParsedCommand:
    """Show what happened to a job (gpt), a slot (gpt-0) or to all, each with its why.

    The last 200, unless --since says from when on; of a job since it was last submitted.
    """
    from tpuherd.cli.events_do import EventsOptions, run_events

    asked = EventsOptions(name=name, follow=follow, since=since, all_=all_, json_=json_)
    return make_parsed_command("herd events", partial(run_events, asked))
