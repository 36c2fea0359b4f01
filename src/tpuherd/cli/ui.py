"""`herd ui`: serves the web page of jobs, nodes and costs on this machine."""

from functools import partial
from typing import TYPE_CHECKING

import click

from tpuherd.cli.parsed_command import ParsedCommand, make_parsed_command

if TYPE_CHECKING:
    from tpuherd.commands.console import Console
    from tpuherd.commands.host_access import HostAccess

LOOPBACK = "127.0.0.1"
OPEN_TO_OTHERS = (
    "herd ui: {host} can be reached from other machines, and the traffic is not encrypted: whoever"
    " reads it has the token and can change your jobs; `ssh -L {port}:127.0.0.1:{port}` is safe"
)


@click.command()
@click.option(
    "--port",
    type=click.IntRange(1, 65535),
    help="The port; default: 4373, or the next free one.",
)
@click.option(
    "--host",
    metavar="ADDRESS",
    default=LOOPBACK,
    help="Listen on this address instead of loopback: other machines can reach it then.",
)
@click.option("--no-browser", is_flag=True, help="Only print the address.")
def ui(port: int | None, host: str, no_browser: bool) -> ParsedCommand:
    """Open a web page of your jobs, nodes, logs and costs, live, until Ctrl+C.

    It is served on this machine only, and only to who has its address, which contains a token.
    In a simulated world it shows the world's weather, too.
    """
    return make_parsed_command("herd ui", partial(run_ui, port, host, no_browser))


async def run_ui(
    port: int | None, host: str, no_browser: bool, console: "Console", home: "HostAccess"
) -> int:
    from tpuherd.cli.open_browser import open_browser
    from tpuherd.cli.store_session import open_store_session
    from tpuherd.cli.ui_context import page_context
    from tpuherd.web.access_token import kept_token
    from tpuherd.web.serve_page import access_rules, listen, serve_page

    async with open_store_session(console):
        pass  # starts an engine if one is needed; refuses what can't be read
    context = page_context(console)
    token = kept_token(context.scope.folders.state)
    with listen(host, port) as listener:
        rules = access_rules(token, host, listener)
        if rules.any_address:
            name = address_name(host)
            await console.print_notice(OPEN_TO_OTHERS.format(host=name, port=rules.port))
        address = f"http://{address_name(host)}:{rules.port}/?token={token}"

        async def announce() -> None:
            await console.print_text(f"Serving {address} until Ctrl+C")
            await console.flush()
            if not no_browser and console.is_terminal(1):
                await open_browser(address)

        await serve_page(context, rules, listener, announce)
    return 0


def address_name(host: str) -> str:
    """The host of an address that a browser can open."""
    import ipaddress
    import socket

    try:
        found = ipaddress.ip_address(host)
    except ValueError:
        return host
    if found.is_unspecified:
        return socket.gethostname()
    return f"[{host}]" if found.version == 6 else host
