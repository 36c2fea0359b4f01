"""`herd down`: drop jobs, and everything they have."""

from functools import partial

import click

from tpuherd.cli.errand import Errand, errand


@click.command()
@click.argument("names", nargs=-1)
@click.option("--all", "all_", is_flag=True, help="Every job, and whatever else bears our name.")
@click.option("-y", "--yes", is_flag=True, help="Ask nothing.")
@click.option("--wait/--no-wait", default=True, help="Come back when nothing is left, or at once.")
@click.option("--json", "json_", is_flag=True, help="Print JSON.")
def down(names: tuple[str, ...], all_: bool, yes: bool, wait: bool, json_: bool) -> Errand:
    """Drop jobs: their commands end, their nodes and requests go, the wish is forgotten.

    What is lost is said before. It is over when the cloud lists nothing of them any more.
    """
    from tpuherd.cli.down_do import Asked, dropped

    if bool(names) == all_:
        raise click.UsageError("say which: herd down NAME…, or --all")
    asked = Asked(names=names, yes=yes, waits=wait, json_=json_)
    return errand("herd down", partial(dropped, asked))
