"""`herd ssh-proxy`, for ssh's ProxyCommand: prints the way to a host, which the launcher takes."""

from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import click

from tpuherd.cli.parsed_command import ParsedCommand, make_parsed_command

if TYPE_CHECKING:
    from tpuherd.commands.console import Console
    from tpuherd.commands.host_access import HostAccess
    from tpuherd.commands.ssh_route import SshRequest


@click.command()
@click.argument("file", type=click.Path(path_type=Path))
@click.argument("name")
@click.argument("login")
@click.option("--carry", is_flag=True, help="Carry the bytes, too.")
def ssh_proxy(file: Path, name: str, login: str, carry: bool) -> ParsedCommand:
    """Connect ssh to the host NAME of the project in FILE; `herd ssh --config` writes this."""
    from tpuherd.commands.ssh_route import SshRequest

    request = SshRequest(name=name, suffix=file.stem, login=login)
    return make_parsed_command("herd ssh-proxy", partial(run_ssh_proxy, request, carry))


async def run_ssh_proxy(
    request: "SshRequest", carry: bool, console: "Console", home: "HostAccess"
) -> int:
    from tpuherd.commands.ssh_route import carry_ssh, find_ssh_route
    from tpuherd.ssh_config.ssh_projects import ssh_files

    place, reach = await home.open_remote(console)
    if carry:
        await carry_ssh(request, console, place, reach)
        return 0
    files = ssh_files(place.folders.config)
    for word in await find_ssh_route(request, files, place, reach):
        await console.write(f"{word}\n".encode())
    return 0
