"""`herd scale`: more copies of a job, or fewer."""

from functools import partial

import click

from tpuherd.cli.parsed_command import ParsedCommand, make_parsed_command


@click.command()
@click.argument("name")
@click.argument("copies", type=click.IntRange(1))
@click.option("-y", "--yes", is_flag=True, help="Ask nothing.")
@click.option("--json", "json_", is_flag=True, help="Print JSON.")
def scale(name: str, copies: int, yes: bool, json_: bool) -> ParsedCommand:
    """Have so many COPIES of a job.

    Those that are there go on as they are; with fewer the last ones go, and you are asked.
    """
    from tpuherd.cli.set_ import SetOptions, run_set

    setting = SetOptions(name=name, words=(f"copies={copies}",), yes=yes, json_=json_)
    return make_parsed_command("herd scale", partial(run_set, setting, "herd scale"))
