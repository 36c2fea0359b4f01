"""`herd chips`: shows which processes use the chips."""

import json
from collections.abc import Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

import click

from tpuherd.cli.formats import clock_text
from tpuherd.cli.parsed_command import ParsedCommand, make_parsed_command

if TYPE_CHECKING:
    from tpuherd.commands.console import Console
    from tpuherd.commands.host_access import HostAccess


@click.command()
@click.argument("target")
@click.option("--json", "json_", is_flag=True, help="Print JSON.")
def chips(target: str, json_: bool) -> ParsedCommand:
    """Show which processes use the TPU chips of TARGET: pid, user and since when.

    It lists every process that has /dev/accel* or /dev/vfio/* open or holds libtpu's lock.
    """
    return make_parsed_command("herd chips", partial(run_chips, target, json_))


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
    since = clock_text(float(one["since"])) if one.get("since") else "?"
    from tpuherd.views.format_text import shorten_command

    work = f"  ({one['work']} of herd)" if one.get("ours") else ""
    pid = "?" if one.get("pid") is None else str(one["pid"])
    return (
        host, str(one["device"]), pid, str(one.get("user") or "?"), since,
        f"{shorten_command(str(one.get('command') or '?'))}{work}",
    )  # fmt: skip
