"""`herd ssh`: opens a terminal on a host that survives a lost connection."""

import sys
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import click

from tpuherd.cli.anywhere import TargetCommand
from tpuherd.cli.parsed_command import ParsedCommand, make_parsed_command
from tpuherd.commands.command_types import ExecRequest

if TYPE_CHECKING:
    from tpuherd.commands.console import Console
    from tpuherd.commands.host_access import HostAccess

CHANGES = INSTALL, REMOVE, PRINT = "install", "remove", "print"  #: to the names of hosts for ssh
#: A login shell. Its files may replace PATH: with an environment, sh reads them, then it follows.
LOGIN = """\
[ -n "$VIRTUAL_ENV" ] && exec sh -lc 'PATH="$VIRTUAL_ENV/bin:$PATH" exec "${SHELL:-sh}"'
exec "${SHELL:-/bin/sh}" -l
"""


@click.command(cls=TargetCommand)
@click.argument("target", required=False)
@click.argument("command", nargs=-1, type=click.UNPROCESSED)
@click.option("-t", "--tty", is_flag=True, help="Run COMMAND with a terminal.")
@click.option("-y", "--yes", is_flag=True, help="Include nodes of other herd users without asking.")
@click.option(
    "--config", type=click.Choice(CHANGES), is_flag=False, flag_value=INSTALL,
    help="Give all hosts names for ssh; or remove these names, or print the configuration.",
)  # fmt: skip
def ssh(
    target: str | None, command: tuple[str, ...], tty: bool, yes: bool, config: str | None
) -> ParsedCommand:
    """Open a terminal on a host of TARGET, the first one if there are several.

    It begins in the job's code, with its Python environment, where the host has these. The shell
    runs under the host's agent: after a lost connection it continues where it was, and
    when you leave by Enter ~ . or close the window, you can attach to it again (`herd exec
    --list`). COMMAND runs instead of the shell, without a terminal unless you give -t; a single
    word is a line for the shell. TARGET may be omitted if there is only one job.

    --config gives hosts names for ssh, scp, rsync, VS Code and all that reads ~/.ssh/config: `ssh
    gpt-0` is the first host of the slot gpt-0, `ssh gpt-0-w3` its fourth. herd finds a host when
    ssh connects, so the names hold when addresses change, and it adds those of new jobs by itself.
    Your ~/.ssh/config gets one line that includes herd's own file.
    """
    if config is not None:
        if target is not None or tty:
            raise click.UsageError("--config takes no TARGET: it names the hosts of all jobs")
        return make_parsed_command("herd ssh", partial(run_ssh_config, config))
    line = command[0] if len(command) == 1 else None
    words = command or ("sh", "-c", LOGIN)
    request = ExecRequest(target=target or "", argv=words, shell=line, yes=yes)
    if command and not tty:
        from tpuherd.cli.exec import run_exec as run_plain

        return make_parsed_command(
            "herd ssh", partial(run_plain, request, first=True), attentive=True
        )
    return make_parsed_command("herd ssh", partial(run_session, request), attentive=True)


async def run_session(request: ExecRequest, console: "Console", home: "HostAccess") -> int:
    """Open a terminal on the first host of the target, or of the only job there is."""
    from tpuherd.cli.store_session import choose_job
    from tpuherd.cli.terminal import run_terminal

    target = await choose_job(request.target or None, "herd ssh", console)
    return await run_terminal(replace(request, target=target), console, home, first=True)


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
