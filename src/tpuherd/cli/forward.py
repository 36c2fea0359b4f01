"""`herd forward`: a port of a host as a port of this machine."""

from functools import partial
from typing import TYPE_CHECKING

import click

from tpuherd.cli.parsed_command import ParsedCommand, make_parsed_command

if TYPE_CHECKING:
    from tpuherd.commands.console import Console
    from tpuherd.commands.host_access import HostAccess

PORT = click.IntRange(1, 65535)


@click.command()
@click.argument("target")
@click.argument("port", type=PORT)
@click.option(
    "--local",
    type=click.IntRange(0, 65535),
    metavar="PORT",
    help="The port of this machine; the default is the same, 0 is a free one.",
)
def forward(target: str, port: int, local: int | None) -> ParsedCommand:
    """Make PORT of a host of TARGET, the first one, available on this machine until Ctrl+C.

    Connections to 127.0.0.1 go through SSH, so no firewall must be opened. A new connection goes to
    the node that TARGET has then: after a preemption, to the new one.
    """
    work = partial(run_forward, target, port, port if local is None else local)
    return make_parsed_command("herd forward", work)


async def run_forward(
    target: str, port: int, local: int, console: "Console", home: "HostAccess"
) -> int:
    import asyncio

    from tpuherd.commands.command_types import label_hosts
    from tpuherd.commands.forward_port import LOOPBACK, PortForward

    async def tell(sentence: str) -> None:
        await console.print_notice(f"herd forward: {sentence}")
        await console.flush()

    place, reach = await home.open_remote(console)
    forwarding = PortForward(target=target, port=port, place=place, reach=reach, tell=tell)
    host = await forwarding.find_host()
    server = await forwarding.listen(local)
    try:
        chosen = server.sockets[0].getsockname()[1]
        await console.print_text(
            f"http://{LOOPBACK}:{chosen} is port {port} of {label_hosts([host])[host]}"
        )
        await console.flush()
        await asyncio.Event().wait()  # a signal cancels it
    finally:
        server.close()
    return 0
