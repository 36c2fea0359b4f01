"""`herd set`: change fields of a job that is there."""

from functools import partial

import click

from tpuherd.cli.parsed_command import ParsedCommand, make_parsed_command


@click.command("set")
@click.argument("name")
@click.argument("words", nargs=-1, required=True, metavar="FIELD=VALUE…")
@click.option("-y", "--yes", is_flag=True, help="Ask nothing.")
@click.option("--json", "json_", is_flag=True, help="Print JSON.")
def set_(name: str, words: tuple[str, ...], yes: bool, json_: bool) -> ParsedCommand:
    """Change fields of a job; nothing behind = takes one back.

    What it takes, another node, another attempt or neither, is said before it is done.

    \b
    herd set gpt retry.failures=10 env.LR=0.1        herd set gpt max_cost=
    """
    from tpuherd.cli.set_do import SetOptions, run_set

    setting = SetOptions(name=name, words=words, yes=yes, json_=json_)
    return make_parsed_command("herd set", partial(run_set, setting, "herd set"))
