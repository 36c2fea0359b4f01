"""`herd open`: a host in VS Code, mosh or tmux; a notebook server or TensorBoard in the browser."""

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any

import click

from tpuherd.cli.parsed_command import ParsedCommand, make_parsed_command
from tpuherd.commands.command_types import ExecRequest
from tpuherd.errors import InvalidInput

if TYPE_CHECKING:
    from tpuherd.commands.console import Console
    from tpuherd.commands.host_access import HostAccess

Function = Callable[..., Any]
#: tmux starts in the job's code, or else at home. $1 is the session.
TMUX = """\
command -v tmux > /dev/null || {
    echo "tmux is not installed here; get it with: sudo apt-get install -y tmux" >&2; exit 127; }
exec tmux new-session -A -s "$1"
"""


@click.group("open")
def open_() -> None:
    """Open a host in an editor or terminal, or a server of it in the browser."""


def server_options(function: Function) -> Function:
    """Add the options of servers."""
    for option in (
        click.option("--stop", is_flag=True, help="Stop the server on the host."),
        click.option("--no-browser", is_flag=True, help="Print the address only."),
        click.option(
            "--port",
            type=click.IntRange(1, 65535),
            metavar="PORT",
            help="The port of this machine; the default is the usual one, or a free one.",
        ),
        click.option("-y", "--yes", is_flag=True, help="Also on a node of another herd user."),
    ):
        function = option(function)
    return function


@open_.command()
@click.argument("target")
@click.argument("folder", default="")
@server_options
def jupyter(target: str, folder: str, **said: Any) -> ParsedCommand:
    """Open a notebook server on the first host of TARGET.

    It shows FOLDER of the job's code; default: the code, or else the home folder. The server uses
    the job's Python environment, listens on the host itself only and asks for a token. It is
    started again on the next node after a preemption, with the same address here. Ctrl+C ends it if
    this command started it; if you close the window, it keeps running, and the next `herd open`
    finds it.
    """
    return make_server_command("jupyter", target, folder, said)


@open_.command()
@click.argument("target")
@click.argument("folder", default="")
@server_options
def tensorboard(target: str, folder: str, **said: Any) -> ParsedCommand:
    """Open TensorBoard on the first host of TARGET.

    It shows FOLDER of the job's code, or gs://BUCKET/…; default: the code, or else the home folder.
    Other users of the host could reach it, too: TensorBoard has no token. Otherwise it is like
    `herd open jupyter`.
    """
    return make_server_command("tensorboard", target, folder, said)


def make_server_command(program: str, target: str, folder: str, said: Any) -> ParsedCommand:
    from tpuherd.cli.open_servers import ServerOptions, run_open_server

    options = ServerOptions(program=program, target=target, folder=folder, **said)
    work = partial(run_open_server, options)
    return make_parsed_command(f"herd open {program}", work, attentive=True)


@open_.command()
@click.argument("target")
@click.argument("folder", default="")
def code(target: str, folder: str) -> ParsedCommand:
    """Open FOLDER of the first host of TARGET in VS Code.

    It is a folder of the job's code; default: the code, or else the home folder. It needs VS Code's
    extension Remote - SSH, and `herd ssh --config`, so that VS Code finds the host and follows it
    to the next node.
    """
    from tpuherd.cli.open_programs import run_open_code

    return make_parsed_command("herd open code", partial(run_open_code, target, folder))


@open_.command()
@click.argument("target")
def mosh(target: str) -> ParsedCommand:
    """Open a terminal on the first host of TARGET with mosh.

    It hides slow connections. It needs mosh here and on the host, an external address, and a
    firewall rule for UDP ports 60000-61000 from your address. `herd ssh` needs none of these, and
    its sessions survive, too.
    """
    from tpuherd.cli.open_programs import run_open_mosh

    return make_parsed_command("herd open mosh", partial(run_open_mosh, target), attentive=True)


@open_.command()
@click.argument("target")
@click.option("--session", default="herd", metavar="NAME", help="The session; default: herd.")
@click.option("-y", "--yes", is_flag=True, help="Also on a node of another herd user.")
def tmux(target: str, session: str, yes: bool) -> ParsedCommand:
    """Open a tmux session on the first host of TARGET.

    The session is created if it does not exist.
    """
    request = ExecRequest(target=target, argv=("sh", "-c", TMUX, "sh", session), yes=yes)
    return make_parsed_command("herd open tmux", partial(run_open_tmux, request), attentive=True)


async def run_open_tmux(request: ExecRequest, console: "Console", home: "HostAccess") -> int:
    from tpuherd.cli.terminal import run_terminal

    if not (console.is_terminal(0) and console.is_terminal(1)):
        raise InvalidInput("tmux needs a terminal")
    return await run_terminal(request, console, home, first=True)
