"""Starts VS Code or mosh for a host."""

import asyncio
from shutil import which
from typing import TYPE_CHECKING

from tpuherd.errors import InvalidInput
from tpuherd.exit_status import SIGNALLED

if TYPE_CHECKING:
    from tpuherd.commands.console import Console
    from tpuherd.commands.host_access import HostAccess
    from tpuherd.commands.open_program import LocalProgram


async def run_open_code(target: str, folder: str, console: "Console", home: "HostAccess") -> int:
    from tpuherd.commands import open_program
    from tpuherd.commands.forward_port import FirstHost
    from tpuherd.settings.folders import home_folder
    from tpuherd.ssh_config.user_file import UserConfig

    require_program(open_program.code_program("", ""), console)
    place, reach = await home.open_remote(console)
    host = await FirstHost(target=target, place=place, reach=reach).connect()
    user = UserConfig(home_folder(console.environ))
    name = open_program.find_installed_name(host, place, user)
    link = await reach.pool.get_link(host)
    place_there, warning = await open_program.find_folder(link, folder, host)
    if warning:
        await console.print_notice(f"herd open code: {warning}")
    await console.print_text(f"{place_there} of {name} in VS Code")
    await console.flush()
    return await run_program(open_program.code_program(name, place_there), console)


async def run_open_mosh(target: str, console: "Console", home: "HostAccess") -> int:
    from tpuherd.commands import open_program
    from tpuherd.commands.forward_port import FirstHost

    require_program(open_program.MOSH_CLIENT, console)
    place, reach = await home.open_remote(console)
    host = await FirstHost(target=target, place=place, reach=reach).connect()
    program = await open_program.prepare_mosh(host, place, reach)
    await console.flush()
    return await run_program(program, console)


def require_program(program: "LocalProgram", console: "Console") -> None:
    if which(program.argv[0], path=console.environ.get("PATH")) is None:
        raise InvalidInput(f"{program.argv[0]} is not installed here", hint=program.advice)


async def run_program(program: "LocalProgram", console: "Console") -> int:
    """Run it with the user's terminal; return its exit status."""
    process = await asyncio.create_subprocess_exec(*program.argv, env=dict(console.environ))
    status = await process.wait()
    return status if status >= 0 else SIGNALLED - status
