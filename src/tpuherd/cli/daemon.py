"""`herd engine daemon`: shows or stops the process that holds the SSH connections of commands."""

import json
from functools import partial
from typing import TYPE_CHECKING

import click

from tpuherd.cli.parsed_command import ParsedCommand, make_parsed_command
from tpuherd.exit_status import FAILED, UNREACHED

if TYPE_CHECKING:
    from tpuherd.commands.console import Console
    from tpuherd.commands.host_access import HostAccess

ABSENT = "no daemon runs; the next command on a host starts one"


@click.group()
def daemon() -> None:
    """Inspect or stop the process that connects to hosts.

    It holds the SSH connections of your commands: it starts with the first command on a host and
    ends after 10 idle minutes.
    """


@daemon.command()
@click.option("--json", "json_", is_flag=True, help="Print JSON.")
def status(json_: bool) -> ParsedCommand:
    """Show its pid, version, projects and running commands."""
    return make_parsed_command("herd engine daemon status", partial(run_daemon_status, json_))


@daemon.command()
@click.option("--now", is_flag=True, help="Even while commands run; on hosts they continue.")
def stop(now: bool) -> ParsedCommand:
    """Stop it and close its connections; commands on hosts continue."""
    return make_parsed_command("herd engine daemon stop", partial(run_daemon_stop, now))


async def run_daemon_status(json_: bool, console: "Console", home: "HostAccess") -> int:
    standing = home.daemon_status()
    if standing is None:
        await console.print_notice(f"herd engine daemon status: {ABSENT}")
        return UNREACHED
    if json_:
        await console.write(json.dumps(standing, indent=2).encode() + b"\n")
        return 0
    text = f"pid {standing['pid']}, version {standing['version']}"
    for title, word in (("places", "holds connections to"), ("under_way", "runs")):
        found = standing[title]
        assert isinstance(found, list)
        text += "".join(f"\n{word} {one}" for one in found)
    await console.print_text(text)
    return 0


async def run_daemon_stop(now: bool, console: "Console", home: "HostAccess") -> int:
    if home.daemon_status() is None:
        await console.print_notice(f"herd engine daemon stop: {ABSENT}")
        return 0
    if home.stop_daemon(now=now):
        await console.write(b"Stopped the daemon\n")
        return 0
    await console.print_notice(
        "herd engine daemon stop: commands are running; --now stops it anyway"
    )
    return FAILED
