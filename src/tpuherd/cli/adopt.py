"""`herd adopt`: takes over what a lost store, or somebody else, has left."""

from functools import partial

import click

from tpuherd.cli.parsed_command import ParsedCommand, make_parsed_command


@click.command()
@click.argument("owner", required=False)
@click.option("--json", "json_", is_flag=True, help="Print JSON.")
def adopt(owner: str | None, json_: bool) -> ParsedCommand:
    """Take over what bears our name, or that of another OWNER, and is nobody's wish.

    The job comes from what stands in the node's own metadata. From then on that owner's name
    counts as ours.
    """
    from tpuherd.cli.adopt_do import run_adopt

    return make_parsed_command("herd adopt", partial(run_adopt, owner, json_))
