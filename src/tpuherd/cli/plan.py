"""`herd plan`: what is to be done now, in the judgement's own sentences."""

from functools import partial

import click

from tpuherd.cli.parsed_command import ParsedCommand, make_parsed_command


@click.command()
@click.argument("name", required=False)
@click.option("--json", "json_", is_flag=True, help="Print JSON.")
def plan(name: str | None, json_: bool) -> ParsedCommand:
    """Show how it stands with each slot, and what would be done in the cloud now.

    It looks at the cloud once and does nothing.
    """
    from tpuherd.cli.plan_do import run_plan

    return make_parsed_command("herd plan", partial(run_plan, name, json_))
