"""`herd clean`: ends leftover processes on hosts and frees the chips."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

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


def summary_lines(answers: Mapping[str, Mapping[str, Any]]) -> list[str]:
    """Return what was done, a line for all hosts with the same result."""
    from tpuherd.targets import fold_names

    groups: dict[str, dict[str, list[int]]] = {}
    for host, answer in answers.items():
        for sentence, pid in host_sentences(answer) or [("nothing to clean", 0)]:
            groups.setdefault(sentence, {}).setdefault(host, []).append(pid)
    return [f"{fold_names(hosts)}: {said}{pid_suffix(hosts)}" for said, hosts in groups.items()]


def pid_suffix(hosts: Mapping[str, list[int]]) -> str:
    """Return the pids, if the line is about one host."""
    pids = [pid for each in hosts.values() for pid in each] if len(hosts) == 1 else []
    return f" (pid {', '.join(map(str, pids))})" if any(pids) else ""


def host_sentences(answer: Mapping[str, Any]) -> list[tuple[str, int]]:
    """Return what happened on one host, each sentence with its pid or 0."""
    from tpuherd.views.format_text import shorten_command

    said = [(f"ended {shorten_command(one['command'])}", one["pid"]) for one in answer["ended"]]
    said += [
        (f"could not end {shorten_command(one['command'])}", one["pid"]) for one in answer["left"]
    ]
    said += [(f"removed the stale lock {path}", 0) for path in answer["removed"]]
    return said + [(f"made {path} writable for all", 0) for path in answer["mended"]]
