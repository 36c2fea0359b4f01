"""`herd clean`: ends leftover processes on hosts and frees the chips."""

import json
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

import click

from tpuherd.cli.formats import Duration
from tpuherd.cli.parsed_command import ParsedCommand, make_parsed_command
from tpuherd.exit_status import FAILED

if TYPE_CHECKING:
    from tpuherd.commands.console import Console
    from tpuherd.commands.host_access import HostAccess

PATIENCE_S = 60.0  #: beyond the grace


@dataclass(frozen=True, kw_only=True, slots=True)
class CleanOptions:
    all: bool
    grace_s: float
    yes: bool
    json_: bool


@click.command()
@click.argument("target")
@click.option(
    "--all",
    "all_",
    is_flag=True,
    help="Also end running commands and every process that uses the chips.",
)
@click.option(
    "--grace", "grace_s", type=Duration(), default="10s", show_default=True,
    help="Time between TERM and KILL.",
)  # fmt: skip
@click.option("-y", "--yes", is_flag=True, help="Include nodes of other herd users without asking.")
@click.option("--json", "json_", is_flag=True, help="Print JSON.")
def clean(target: str, all_: bool, grace_s: float, yes: bool, json_: bool) -> ParsedCommand:
    """End leftover processes on TARGET, and remove stale locks of libtpu.

    By default, it ends only what earlier commands and attempts of herd left behind; with --all,
    everything that herd started and every process that uses the chips.
    """
    how = CleanOptions(all=all_, grace_s=grace_s, yes=yes, json_=json_)
    return make_parsed_command("herd clean", partial(run_clean, target, how))


async def run_clean(target: str, how: CleanOptions, console: "Console", home: "HostAccess") -> int:
    from tpuherd.cli.ask_user import TerminalPrompter
    from tpuherd.commands.ask_hosts import ask_hosts
    from tpuherd.ports import RpcRequest
    from tpuherd.views.clean_report import summary_lines

    verb = RpcRequest(name="clean", arguments={"all": how.all, "grace_s": how.grace_s})
    prompter = TerminalPrompter(console, "herd clean", yes=how.yes)
    seconds = how.grace_s + PATIENCE_S
    answers, status = await ask_hosts(
        target, verb, console, home, seconds=seconds, prompter=prompter
    )
    if how.json_:
        await console.write(json.dumps(answers, indent=2).encode() + b"\n")
    else:
        await console.print_text("\n".join(summary_lines(answers)))
    return status or (FAILED if any(answer["left"] for answer in answers.values()) else 0)
