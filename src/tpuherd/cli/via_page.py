"""`herd ui` in a context with `via`: the page is served there, and its port is available here."""

from collections.abc import Sequence

import click

from tpuherd.cli.anywhere import add_global_options
from tpuherd.cli.ui import ui
from tpuherd.web.serve_page import listen

LOOPBACK = "127.0.0.1"


def tunnel_page(arguments: Sequence[str]) -> tuple[list[str], list[str]]:
    """Return the command line for the other machine, and what ssh needs here.

    Both ends have the same port, so that the address printed there is right here. The connection is
    one of its own: in a shared one the forwarded port would outlive the page.
    """
    at = arguments.index("ui")
    context = add_global_options(ui).make_context("herd ui", list(arguments[at + 1 :]), obj=None)
    host, port = context.params["host"], context.params["port"]
    words = [*arguments, "--no-browser"]
    if port is None:
        with listen(LOOPBACK, None) as listener:
            port = listener.getsockname()[1]
        words += ["--port", str(port)]
    there = f"[{host}]" if ":" in host else host
    click.echo(f"Open the address below in a browser of this machine (port {port}).", err=True)
    tunnel = ["-L", f"{LOOPBACK}:{port}:{there}:{port}", "-o", "ExitOnForwardFailure=yes"]
    return words, ["-S", "none", *tunnel]
