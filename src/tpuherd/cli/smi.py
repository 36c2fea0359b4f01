"""`herd smi`: shows what every chip of every host does."""

import json
from collections.abc import Mapping, Sequence
from contextlib import aclosing
from functools import partial
from typing import TYPE_CHECKING, Any

import click

from tpuherd.cli.formats import clock_text
from tpuherd.cli.parsed_command import ParsedCommand, make_parsed_command

if TYPE_CHECKING:
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
@click.option("--processes", is_flag=True, help="Show which processes use the chips of TARGET.")
def smi(
    target: str | None, every_s: float | None, json_: bool, csv_: bool, processes: bool
) -> ParsedCommand:
    """Show each chip of TARGET: HBM, duty cycle, bandwidth, idle time, and the process that has it.

    Without TARGET: of all nodes of your jobs. libtpu tells the values while a program uses the
    chips; nothing is installed on the hosts. A value that is not known is a -, and NOTE says why.
    --processes lists each process that has a chip's device open or holds libtpu's lock: pid, user
    and since when.
    """
    if processes:
        if target is None or csv_ or every_s is not None:
            raise click.UsageError("--processes takes a TARGET, and of the options only --json")
        return make_parsed_command("herd smi", partial(run_chips, target, json_))
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


async def run_chips(target: str, json_: bool, console: "Console", home: "HostAccess") -> int:
    from tpuherd.commands.ask_hosts import ask_hosts
    from tpuherd.commands.chip_use import plain_chip_use
    from tpuherd.ports import RpcRequest

    said, status = await ask_hosts(target, RpcRequest(name="holders"), console, home)
    answers = {host: plain_chip_use(answer) for host, answer in said.items()}
    if json_:
        await console.write(json.dumps(answers, indent=2).encode() + b"\n")
    else:
        await console.print_text("\n".join(chip_lines(answers, console.line_width(1))))
    return status


def chip_lines(answers: Mapping[str, Mapping[str, Any]], width: int | None = None) -> list[str]:
    """Return a line for each use of a device, and one for all hosts whose chips are free."""
    from tpuherd.targets import fold_names
    from tpuherd.views.format_text import format_table

    rows = [chip_row(host, one) for host, answer in answers.items() for one in answer["holders"]]
    free = [host for host, answer in answers.items() if not answer["holders"]]
    head = ("HOST", "DEVICE", "PID", "USER", "SINCE", "COMMAND")
    text = [format_table([head, *rows], width=width)] if rows else []
    return [*text, f"{fold_names(free)}: the chips are free"] if free else text


def chip_row(host: str, one: Mapping[str, Any]) -> Sequence[str]:
    from tpuherd.views.format_text import shorten_command

    since = clock_text(float(one["since"])) if one.get("since") else "?"
    work = f"  ({one['work']} of herd)" if one.get("ours") else ""
    pid = "?" if one.get("pid") is None else str(one["pid"])
    return (
        host, str(one["device"]), pid, str(one.get("user") or "?"), since,
        f"{shorten_command(str(one.get('command') or '?'))}{work}",
    )  # fmt: skip
