"""`herd holders`: who has the chips."""

import json
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

import click

from tpuherd.cli.formats import clock
from tpuherd.cli.parsed_command import Errand, errand
from tpuherd.commands.console import Console
from tpuherd.commands.host_access import Home


@click.command()
@click.argument("target")
@click.option("--json", "json_", is_flag=True, help="Print JSON.")
def holders(target: str, json_: bool) -> Errand:
    """Show which processes have the chips of TARGET.

    Those that have /dev/accel* or /dev/vfio/* open, or hold libtpu's lock: pid, user, since when.
    """
    return errand("herd holders", partial(show, target, json_))


async def show(target: str, json_: bool, console: Console, home: Home) -> int:
    """Ask every host."""
    from tpuherd.commands.ask_hosts import ask
    from tpuherd.ports import Verb

    answers, status = await ask(target, Verb(name="holders"), console, home)
    if json_:
        await console.say(json.dumps(answers, indent=2).encode() + b"\n")
    else:
        await console.show("\n".join(lines(answers, console.width(1))))
    return status


def lines(answers: Mapping[str, Mapping[str, Any]], width: int | None = None) -> list[str]:
    """A line for each device and who has it; hosts whose chips nobody has stand together."""
    from tpuherd.targets import fold
    from tpuherd.views.format_text import lined

    rows = [row(host, one) for host, answer in answers.items() for one in answer["holders"]]
    free = [host for host, answer in answers.items() if not answer["holders"]]
    head = ("HOST", "DEVICE", "PID", "USER", "SINCE", "COMMAND")
    text = [lined([head, *rows], width=width)] if rows else []
    return [*text, f"{fold(free)}: nobody has the chips"] if free else text


def row(host: str, one: Mapping[str, Any]) -> Sequence[str]:
    """One holder."""
    since = clock(float(one["since"])) if one.get("since") else "?"
    from tpuherd.views.format_text import command

    work = f"  ({one['work']} of ours)" if one.get("ours") else ""
    pid = "?" if one.get("pid") is None else str(one["pid"])
    return (
        host, str(one["device"]), pid, str(one.get("user") or "?"), since,
        f"{command(str(one.get('command') or '?'))}{work}",
    )  # fmt: skip
