"""`herd engine metrics`: jobs, nodes and hosts for Prometheus."""

from functools import partial
from importlib.resources import files
from pathlib import Path
from typing import TYPE_CHECKING

import click

from tpuherd.cli.parsed_command import ParsedCommand, make_parsed_command
from tpuherd.errors import InvalidInput

if TYPE_CHECKING:
    from tpuherd.commands.console import Console
    from tpuherd.commands.host_access import HostAccess

RULES = files("tpuherd.views") / "alert_rules.yml"


@click.command()
@click.option(
    "-o",
    "--output",
    metavar="FILE",
    help="Replace FILE at once, for the textfile collector of node_exporter.",
)
@click.option("--alerts", is_flag=True, help="Print alert rules for these metrics instead.")
def metrics(output: str | None, alerts: bool) -> ParsedCommand:
    """Print metrics of all jobs in Prometheus' text format."""
    return make_parsed_command("herd engine metrics", partial(run_metrics, output, alerts))


async def run_metrics(
    output: str | None, alerts: bool, console: "Console", home: "HostAccess"
) -> int:
    from tpuherd.cli.store_session import open_store_session
    from tpuherd.files import atomic_write
    from tpuherd.jobs.project_metrics import project_metrics

    if alerts:
        text = RULES.read_text(encoding="utf-8")
    else:
        async with open_store_session(console) as here:
            text = project_metrics(here.store, here.now)
    if output is None:
        await console.write(text.encode())
        return 0
    file = console.folder / Path(output).expanduser()
    try:
        atomic_write(file, text)
        file.chmod(0o644)  # another user's collector reads it
    except OSError as error:
        raise InvalidInput(f"{output} can't be written ({error.strerror})") from error
    return 0
