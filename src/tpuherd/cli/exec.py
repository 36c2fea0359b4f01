"""`herd exec`: runs commands on hosts; lists, attaches to and stops them."""

import os
import re
import shlex
import stat
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from tpuherd.cli.anywhere import TargetCommand
from tpuherd.cli.ask_user import TerminalPrompter
from tpuherd.cli.formats import Duration
from tpuherd.cli.parsed_command import ParsedCommand, make_parsed_command
from tpuherd.commands.command_types import (
    ExecRequest,
    confirm_foreign_hosts,
    label_hosts,
    new_command_id,
    resolve_hosts,
)
from tpuherd.store.log_store import COMMAND, LogInfo, log_host

if TYPE_CHECKING:
    from tpuherd.commands.console import Console
    from tpuherd.commands.host_access import HostAccess

OUTPUTS = ("fold", "stream", "dir", "json")
FOR_SHELL = re.compile(r"[\s|&;<>()$`*?~]")  #: what one argument has only as a line for the shell
ASSIGNMENT = re.compile(r"([A-Za-z_]\w*)=(.*)", re.DOTALL)


@click.command(cls=TargetCommand)
@click.argument("target", required=False)
@click.argument("command", nargs=-1, type=click.UNPROCESSED)
@click.option("-c", "shell", metavar="TEXT", help="Run TEXT in your login shell.")
@click.option(
    "--output",
    type=click.Choice(OUTPUTS),
    metavar="HOW",
    help="fold (default): equal lines once; stream: all lines; dir: a file a host; json: lines.",
)
@click.option(
    "--into",
    type=click.Path(file_okay=False, path_type=Path),
    metavar="DIRECTORY",
    help="The folder of --output dir, which it implies.",
)
@click.option(
    "--timeout",
    "timeout_s",
    type=Duration(),
    help="Stop it after this long (30s, 5m); exit 124.",
)
@click.option("-t", "--tty", is_flag=True, help="Run with a terminal, on one host.")
@click.option(
    "-i/-n",
    "--stdin/--no-stdin",
    "stdin",
    default=None,
    help="Pass standard input; default: if no terminal.",
)
@click.option(
    "--env",
    "environment",
    is_flag=True,
    hidden=True,
    help="Fail where the job has no Python environment; else it is used where there is one.",
)
@click.option("--list", "listing", is_flag=True, help="List commands that run or have just ended.")
@click.option("--attach", metavar="ID", help="Show the output of a running command.")
@click.option("--kill", metavar="ID", help="Stop a command: TERM, then KILL after 10 s.")
@click.option("-y", "--yes", is_flag=True, help="Do not ask about nodes of other users.")
@click.option("--json", "json_", is_flag=True, help="Same as --output json.")
def exec_(target: str | None, command: tuple[str, ...], **said: Any) -> ParsedCommand:
    """Run a command on all hosts of TARGET.

    TARGET is a job, a slot, a node, a host, or several: gpt, gpt-[0-3], gpt/w0, gpt-[0-3]/w0,dev.
    It begins in the job's code, with its Python environment, where a host has these; else at home.
    One argument with spaces, such as 'ls | wc -l', is a line for your login shell. The exit status
    is the highest of all hosts; 255 if a host could not be reached. When the terminal closes, the
    command runs on: for 24 hours you can list it, attach or kill it.
    """
    said["output"] = "json" if said.pop("json_") else said["output"]
    if said["into"] is not None:
        if said["output"] not in (None, "dir"):
            raise click.UsageError(
                f"--into is for --output dir; --output {said['output']} writes no files"
            )
        said["output"] = "dir"
    kept = {word: said.pop(word) for word in ("listing", "attach", "kill")}
    if any(kept.values()):
        if command or said["shell"] or list(map(bool, kept.values())).count(True) > 1:
            raise click.UsageError(
                "--list, --attach and --kill take no command, and can't be combined"
            )
        return parse_kept_options(target, kept, said)
    if not target or bool(command) == (said["shell"] is not None):
        raise click.UsageError(
            "give a target and a command: herd exec TARGET -- COMMAND,"
            " or a line for the shell: herd exec TARGET 'ls -l | head'"
        )
    if said["shell"] is None and (line := shell_line(command)) is not None:
        said["shell"], command = line, ()
    tty = said.pop("tty")
    request = ExecRequest(target=target, argv=command, **said)
    if not tty:
        return make_parsed_command("herd exec", partial(run_exec, request), attentive=True)
    if request.output:
        raise click.UsageError("--tty can't be used with --output")
    from tpuherd.cli.terminal import run_terminal as converse

    return make_parsed_command("herd exec", partial(converse, request), attentive=True)


def shell_line(words: Sequence[str]) -> str | None:
    """Return what these words say as a line for the shell; None: a program and its arguments."""
    if len(words) == 1 and FOR_SHELL.search(words[0]):
        return words[0]
    matches = [ASSIGNMENT.fullmatch(word) for word in words]
    first = next((at for at, match in enumerate(matches) if match is None), 0)
    variables = [f"{one[1]}={shlex.quote(one[2])}" for one in matches[:first] if one]
    return " ".join((*variables, shlex.join(words[first:]))) if first else None


def parse_kept_options(
    target: str | None, kept: Mapping[str, Any], said: Mapping[str, Any]
) -> ParsedCommand:
    from tpuherd.cli import kept_commands

    if kept["listing"]:
        return make_parsed_command(
            "herd exec", partial(kept_commands.run_exec_list, target, said["output"] == "json")
        )
    if kept["kill"]:
        return make_parsed_command(
            "herd exec", partial(kept_commands.run_exec_kill, target, kept["kill"], said["yes"])
        )
    look = partial(kept_commands.run_exec_attach, target, kept["attach"], said)
    return make_parsed_command("herd exec", look, attentive=True)


async def run_exec(
    request: ExecRequest, console: "Console", home: "HostAccess", *, first: bool = False
) -> int:
    """Run it and return the exit status; `first`: only on the first host, as `herd ssh` does."""
    from tpuherd.commands.log_capture import LogCapture, open_log_store
    from tpuherd.commands.multi_host_run import CommandRequest, MultiHostRun
    from tpuherd.commands.output import create_printer
    from tpuherd.commands.run_controller import RunController
    from tpuherd.commands.stdin_fanout import StdinFanout

    place, reach = await home.open_remote(console)
    hosts = await resolve_hosts(request.target, place, reach)
    hosts = hosts[:1] if first else hosts
    await confirm_foreign_hosts(hosts, TerminalPrompter(console, "herd exec", yes=request.yes))
    names = label_hosts(hosts)
    id = new_command_id()
    about = LogInfo(
        id=id,
        kind=COMMAND,
        title=request.title,
        target=request.target,
        started=reach.clock.now(),
        places=tuple(map(log_host, hosts)),
    )
    stdin = needs_stdin(request, console, terminal=first)
    order = CommandRequest(
        id=id, verb="run", words=request.agent_arguments, stdin=stdin, in_code=request.in_code
    )
    into = request.into or Path(f"herd-{id}")
    shown = create_printer(console, list(names.values()), request.output, into, reach.clock)
    keeping = LogCapture(open_log_store(place), about, reach.clock)
    cast = MultiHostRun(order, names, reach.pool, shown, keeping, reach.clock)
    if stdin:
        cast.supply = StdinFanout(console, hosts)
    play = RunController(console, cast, shown, keeping, reach.clock)
    status = await play.run(request.timeout_s)
    if request.output == "dir" and console.said.loud >= 0:
        await console.print_notice(f"herd exec: output saved in {into}")
    return status


def needs_stdin(request: ExecRequest, console: "Console", *, terminal: bool = False) -> bool:
    """Whether to pass on standard input; by default unless it is a terminal or /dev/null."""
    if request.stdin is not None:
        return request.stdin
    if console.is_terminal(0):
        return terminal
    found = os.fstat(console.files[0])
    return not (stat.S_ISCHR(found.st_mode) and found.st_rdev == Path(os.devnull).stat().st_rdev)
