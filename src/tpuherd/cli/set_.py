"""`herd set`: change fields of a job that is there."""

from functools import partial

import click

from tpuherd.cli.parsed_command import Errand, errand


@click.command("set")
@click.argument("name")
@click.argument("words", nargs=-1, required=True, metavar="FIELD=VALUE…")
@click.option("-y", "--yes", is_flag=True, help="Ask nothing.")
@click.option("--json", "json_", is_flag=True, help="Print JSON.")
def set_(name: str, words: tuple[str, ...], yes: bool, json_: bool) -> Errand:
    """Change fields of a job; nothing behind = takes one back.

    What it takes, another node, another attempt or neither, is said before it is done.

    \b
    herd set gpt retry.failures=10 env.LR=0.1        herd set gpt max_cost=
    """
    from tpuherd.cli.set_do import Setting, change

    setting = Setting(name=name, words=words, yes=yes, json_=json_)
    return errand("herd set", partial(change, setting, "herd set"))
