"""`herd keeper`: look at the process that holds the connections of commands, or end it."""

import json
from functools import partial

import click

from tpuherd.cli.parsed_command import Errand, errand
from tpuherd.commands.console import Console
from tpuherd.commands.host_access import Home
from tpuherd.exit_status import FAILED, UNREACHED

ABSENT = "no keeper runs; the next command on a host begins one"


@click.group()
def keeper() -> None:
    """Look at the process that holds the connections of commands, or end it."""


@keeper.command()
@click.option("--json", "json_", is_flag=True, help="Print JSON.")
def status(json_: bool) -> Errand:
    """Show how long it runs, for which places, and what is under way."""
    return errand("herd keeper status", partial(show, json_))


@keeper.command()
@click.option("--now", is_flag=True, help="Although commands are under way: they go on on hosts.")
def stop(now: bool) -> Errand:
    """End it: its connections are closed, what runs on hosts goes on."""
    return errand("herd keeper stop", partial(leave, now))


async def show(json_: bool, console: Console, home: Home) -> int:
    """How it is."""
    standing = home.standing()
    if standing is None:
        await console.tell(f"herd keeper status: {ABSENT}")
        return UNREACHED
    if json_:
        await console.say(json.dumps(standing, indent=2).encode() + b"\n")
        return 0
    text = f"pid {standing['pid']}, version {standing['version']}"
    for title, word in (("places", "holds connections to"), ("under_way", "does")):
        found = standing[title]
        assert isinstance(found, list)
        text += "".join(f"\n{word} {one}" for one in found)
    await console.show(text)
    return 0


async def leave(now: bool, console: Console, home: Home) -> int:
    """End it."""
    if home.standing() is None:
        await console.tell(f"herd keeper stop: {ABSENT}")
        return 0
    if home.leave(now=now):
        await console.say(b"the keeper ends\n")
        return 0
    await console.tell("herd keeper stop: commands are under way; --now ends it all the same")
    return FAILED
