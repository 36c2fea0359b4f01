"""`herd keeper`: look at the process that holds the connections of commands, or end it."""

import json
from functools import partial
from typing import TYPE_CHECKING

import click

from tpuherd.cli.parsed_command import ParsedCommand, make_parsed_command
from tpuherd.exit_status import FAILED, UNREACHED

if TYPE_CHECKING:
    from tpuherd.commands.console import Console
    from tpuherd.commands.host_access import HostAccess

ABSENT = "no keeper runs; the next command on a host begins one"


@click.group()
def keeper() -> None:
    """Look at the process that holds the connections of commands, or end it."""


@keeper.command()
@click.option("--json", "json_", is_flag=True, help="Print JSON.")
def status(json_: bool) -> ParsedCommand:
    """Show how long it runs, for which places, and what is under way."""
    return make_parsed_command("herd keeper status", partial(run_daemon_status, json_))


@keeper.command()
@click.option("--now", is_flag=True, help="Although commands are under way: they go on on hosts.")
def stop(now: bool) -> ParsedCommand:
    """End it: its connections are closed, what runs on hosts goes on."""
    return make_parsed_command("herd keeper stop", partial(run_daemon_stop, now))


async def run_daemon_status(json_: bool, console: "Console", home: "HostAccess") -> int:
    """How it is."""
    standing = home.daemon_status()
    if standing is None:
        await console.print_notice(f"herd keeper status: {ABSENT}")
        return UNREACHED
    if json_:
        await console.write(json.dumps(standing, indent=2).encode() + b"\n")
        return 0
    text = f"pid {standing['pid']}, version {standing['version']}"
    for title, word in (("places", "holds connections to"), ("under_way", "does")):
        found = standing[title]
        assert isinstance(found, list)
        text += "".join(f"\n{word} {one}" for one in found)
    await console.print_text(text)
    return 0


async def run_daemon_stop(now: bool, console: "Console", home: "HostAccess") -> int:
    """End it."""
    if home.daemon_status() is None:
        await console.print_notice(f"herd keeper stop: {ABSENT}")
        return 0
    if home.stop_daemon(now=now):
        await console.write(b"the keeper ends\n")
        return 0
    await console.print_notice(
        "herd keeper stop: commands are under way; --now ends it all the same"
    )
    return FAILED
