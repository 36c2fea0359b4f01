"""`herd scale`: more copies of a job, or fewer."""

from functools import partial

import click

from tpuherd.cli.parsed_command import Errand, errand


@click.command()
@click.argument("name")
@click.argument("copies", type=click.IntRange(1))
@click.option("-y", "--yes", is_flag=True, help="Ask nothing.")
@click.option("--json", "json_", is_flag=True, help="Print JSON.")
def scale(name: str, copies: int, yes: bool, json_: bool) -> Errand:
    """Have so many COPIES of a job.

    Those that are there go on as they are; with fewer the last ones go, and you are asked.
    """
    from tpuherd.cli.set_do import Setting, change

    setting = Setting(name=name, words=(f"copies={copies}",), yes=yes, json_=json_)
    return errand("herd scale", partial(change, setting, "herd scale"))
