"""`herd scale`: changes the number of copies of a job."""

from functools import partial

import click

from tpuherd.cli.parsed_command import ParsedCommand, make_parsed_command


@click.command()
@click.argument("name")
@click.argument("copies", type=click.IntRange(1))
@click.option("-y", "--yes", is_flag=True, help="Do not ask for confirmation.")
@click.option("--json", "json_", is_flag=True, help="Print JSON.")
def scale(name: str, copies: int, yes: bool, json_: bool) -> ParsedCommand:
    """Change the number of copies of a job to COPIES.

    Existing copies keep running. If there are too many, the last ones are removed, after a
    question.
    """
    from tpuherd.cli.set_ import SetOptions, run_set

    setting = SetOptions(name=name, words=(f"copies={copies}",), yes=yes, json_=json_)
    return make_parsed_command("herd scale", partial(run_set, setting, "herd scale"))
