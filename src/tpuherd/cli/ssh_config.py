"""`herd ssh-config`: names of hosts for `ssh` and whatever uses it."""

import sys
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import click

from tpuherd.cli.parsed_command import ParsedCommand, make_parsed_command

if TYPE_CHECKING:
    from tpuherd.commands.console import Console
    from tpuherd.commands.host_access import HostAccess

INSTALL, REMOVE, PRINT = "install", "remove", "print"


@click.command()
@click.option("--install", "what", flag_value=INSTALL, default=True, help="Add the names; default.")
@click.option("--remove", "what", flag_value=REMOVE, help="Remove the names of this project.")
@click.option("--print", "what", flag_value=PRINT, help="Print the configuration; change nothing.")
def ssh_config(what: str) -> ParsedCommand:
    """Give hosts names for ssh, scp, rsync, VS Code and all that reads ~/.ssh/config.

    `ssh gpt-0` is the first host of the slot gpt-0, `ssh gpt-0-w3` its fourth. herd finds a host
    when ssh connects, so the names hold when addresses change, and it adds those of new jobs by
    itself. Your ~/.ssh/config gets one line that includes herd's own file.
    """
    return make_parsed_command("herd ssh-config", partial(run_ssh_config, what))


def herd_program() -> tuple[str, ...]:
    """Return the words that start this herd from anywhere."""
    program = Path(sys.executable).parent / "herd"
    return (str(program),) if program.exists() else (sys.executable, "-m", "tpuherd.launcher")


async def run_ssh_config(what: str, console: "Console", home: "HostAccess") -> int:
    from tpuherd.commands import ssh_names

    if what == REMOVE:
        lines = ssh_names.remove_names(console)
    else:
        project = await ssh_names.describe_project(console, home, herd_program())
        if what == PRINT:
            await console.write(ssh_names.preview_config(project, console).encode())
            return 0
        lines = ssh_names.install_names(project, console)
    for line in lines:
        await console.print_text(line)
    return 0
