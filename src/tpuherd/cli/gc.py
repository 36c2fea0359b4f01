"""`herd gc`: what bears our name and is nobody's wish."""

from functools import partial

import click

from tpuherd.cli.parsed_command import ParsedCommand, make_parsed_command


@click.command()
@click.argument("names", nargs=-1)
@click.option("-y", "--yes", is_flag=True, help="Ask nothing.")
@click.option("--json", "json_", is_flag=True, help="Print JSON.")
def gc(names: tuple[str, ...], yes: bool, json_: bool) -> ParsedCommand:
    """Show what bears our name in any zone and is nobody's wish, with what it costs.

    Nothing is deleted that is not recorded as withdrawn, or named here: herd gc NAME. What was
    withdrawn and is still there is withdrawn again.
    """
    from tpuherd.cli.gc_do import run_gc

    return make_parsed_command("herd gc", partial(run_gc, names, yes, json_))
