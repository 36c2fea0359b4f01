"""`herd smi`: shows what every chip of every host does."""

from contextlib import aclosing
from functools import partial
from typing import TYPE_CHECKING

import click

from tpuherd.cli.parsed_command import ParsedCommand, make_parsed_command

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tpuherd.commands.console import Console
    from tpuherd.commands.host_access import HostAccess
    from tpuherd.model.chip_readings import HostReading

HOME, REST_OF_LINE, REST_OF_SCREEN = "\x1b[H", "\x1b[K", "\x1b[J"
CLEAR = b"\x1b[2J"
NO_NODES = "Your jobs have no nodes now; `herd smi NODE` shows any other node"


@click.command()
@click.argument("target", required=False)
@click.option(
    "-l", "every_s", type=click.FloatRange(min=0.2, max=86400), metavar="SECONDS",
    help="Repeat so often until Ctrl+C; on a terminal in place.",
)  # fmt: skip
@click.option("--json", "json_", is_flag=True, help="Print JSON: a list, an object for each chip.")
@click.option("--csv", "csv_", is_flag=True, help="Print CSV: a row for each chip.")
def smi(target: str | None, every_s: float | None, json_: bool, csv_: bool) -> ParsedCommand:
    """Show each chip of TARGET: HBM, duty cycle, bandwidth, idle time, and the process that has it.

    Without TARGET: of all nodes of your jobs. libtpu tells the values while a program uses the
    chips; nothing is installed on the hosts. A value that is not known is a -, and NOTE says why.
    """
    if json_ and csv_:
        raise click.UsageError("choose one of --json and --csv")
    form = "json" if json_ else "csv" if csv_ else "table"
    return make_parsed_command("herd smi", partial(run_smi, target, every_s, form))


async def run_smi(
    target: str | None, every_s: float | None, form: str, console: "Console", home: "HostAccess"
) -> int:
    from tpuherd.commands.read_chips import list_hosts, read_hosts, repeat_readings

    place, reach = await home.open_remote(console)
    if every_s is None:
        readings = await read_hosts(await list_hosts(target, place, reach), reach)
        await print_readings(readings, reach.clock.now(), form, console)
        return reading_status(readings)
    first = True
    in_place = form == "table" and console.is_terminal(1)
    if in_place:
        await console.write(CLEAR)
    async with aclosing(repeat_readings(target, place, reach, every_s)) as frames:
        async for readings in frames:
            if in_place:
                await draw_readings(readings, reach.clock.now(), console)
            else:
                await print_readings(readings, reach.clock.now(), form, console, again=not first)
            await console.flush()
            first = False
    return 0


async def print_readings(
    readings: "Sequence[HostReading]", now: float, form: str, console: "Console", *,
    again: bool | None = None,
) -> None:  # fmt: skip
    """Print a reading; `again`: of a repeated command, whether it is a later one."""
    from tpuherd.cli.formats import clock_text
    from tpuherd.views.printable import json_text
    from tpuherd.views.smi_table import csv_text, list_chip_objects, smi_text

    if form == "json":  # repeated: a list on each line
        indent = 2 if again is None else None
        text = json_text(list_chip_objects(readings, now), indent=indent) + "\n"
        await console.write(text.encode(errors="replace"))
    elif form == "csv":
        await console.write(csv_text(readings, now, heading=not again).encode(errors="replace"))
    elif not readings:
        await console.print_notice(NO_NODES)
    else:
        head = "" if again is None else f"{clock_text(now)}\n"
        gap = "\n" if again else ""
        await console.print_text(f"{gap}{head}{smi_text(readings, now, console.line_width(1))}")


async def draw_readings(readings: "Sequence[HostReading]", now: float, console: "Console") -> None:
    """Draw a reading over the last one."""
    from tpuherd.cli.formats import clock_text
    from tpuherd.views.printable import show_lines
    from tpuherd.views.smi_table import fit_screen, smi_text

    rows, width = console.terminal_size()
    tables = smi_text(readings, now, width, top=True) if readings else NO_NODES
    head = f"{clock_text(now)}  Ctrl+C ends this"
    lines = fit_screen(show_lines(f"{head}\n\n{tables}"), rows=rows, width=width)
    frame = "".join(f"{line}{REST_OF_LINE}\r\n" for line in lines)
    await console.write(f"{HOME}{frame}{REST_OF_SCREEN}".encode(errors="replace"))


def reading_status(readings: "Sequence[HostReading]") -> int:
    """Return the exit status for the hosts that did not answer."""
    from tpuherd.exit_status import PARTLY, UNREACHED

    lost = sum(one.machine is None for one in readings)
    return 0 if not lost else UNREACHED if lost == len(readings) else PARTLY
