"""`herd forward`: ports of a host as ports of this machine."""

import re
from contextlib import ExitStack
from functools import partial
from typing import TYPE_CHECKING, Any

import click

from tpuherd.cli.parsed_command import ParsedCommand, make_parsed_command

if TYPE_CHECKING:
    from tpuherd.commands.console import Console
    from tpuherd.commands.host_access import HostAccess

PORT_MAX = 65535
PAIR = re.compile(r"([0-9]{1,5})(?::([0-9]{1,5}))?")


class PortPair(click.ParamType[tuple[int, int]]):
    """8000 or 8000:9000, as the host's port and this machine's."""

    name = "port"

    def convert(self, value: Any, param: Any, ctx: Any) -> tuple[int, int]:
        found = PAIR.fullmatch(str(value))
        port = int(found[1]) if found else 0
        local = int(found[2] or port) if found else 0
        if not 0 < port <= PORT_MAX or local > PORT_MAX:
            self.fail(
                f"{value!r} is not a port: write PORT or PORT:LOCAL, each from 1 to {PORT_MAX},"
                " LOCAL also 0 for a free one"
            )
        return port, local


@click.command()
@click.argument("target")
@click.argument("ports", nargs=-1, required=True, type=PortPair(), metavar="PORT[:LOCAL]...")
def forward(target: str, ports: tuple[tuple[int, int], ...]) -> ParsedCommand:
    """Make ports of a host of TARGET, the first one, available on this machine until Ctrl+C.

    LOCAL is the port of this machine; without it the same number, 0 is a free one. Connections to
    127.0.0.1 go through SSH, so no firewall must be opened. A new connection goes to the node that
    TARGET has then: after a preemption, to the new one.
    """
    return make_parsed_command("herd forward", partial(run_forward, target, ports))


async def run_forward(
    target: str, ports: tuple[tuple[int, int], ...], console: "Console", home: "HostAccess"
) -> int:
    import asyncio

    from tpuherd.commands.command_types import label_hosts
    from tpuherd.commands.forward_port import LOOPBACK, FirstHost, PortForward

    async def tell(sentence: str) -> None:
        await console.print_notice(f"herd forward: {sentence}")
        await console.flush()

    place, reach = await home.open_remote(console)
    first = FirstHost(target=target, place=place, reach=reach)
    host = await first.connect()
    with ExitStack() as listening:
        for port, local in ports:
            forwarding = PortForward(
                title=f"port {port} of {target}",
                open_tunnel=partial(first.open_tunnel, port),
                tell=tell,
            )
            server = await forwarding.listen(local)
            listening.callback(server.close)
            chosen = server.sockets[0].getsockname()[1]
            await console.print_text(
                f"http://{LOOPBACK}:{chosen} is port {port} of {label_hosts([host])[host]}"
            )
        await console.flush()
        await asyncio.Event().wait()  # a signal cancels it
    return 0
