"""`herd profile`: takes a trace of a running job, and opens it."""

from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import click

from tpuherd.cli.parsed_command import ParsedCommand, make_parsed_command

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tpuherd.commands.console import Console
    from tpuherd.commands.host_access import HostAccess
    from tpuherd.commands.take_profile import HostTrace
    from tpuherd.remote.fanout import FanoutResult

SECONDS = 5.0
VIEWERS = ("xprof", "tensorboard")  #: the second needs the first as its plugin


@dataclass(frozen=True, kw_only=True, slots=True)
class ProfileOptions:
    """What the user said."""

    target: str
    seconds: float
    output: Path | None
    no_open: bool
    json_: bool
    yes: bool


@click.command()
@click.argument("target")
@click.option(
    "--seconds", type=click.FloatRange(min=0.1, max=120), default=SECONDS, metavar="N",
    help="How long to trace; default: 5. A few steps suffice, and traces are large.",
)  # fmt: skip
@click.option(
    "--output", type=click.Path(path_type=Path, file_okay=False), metavar="DIRECTORY",
    help="Where to put the trace; default: profile-TARGET. Earlier traces there stay.",
)  # fmt: skip
@click.option("--stacks", is_flag=True, help="Show where its processes are now; take no trace.")
@click.option("--no-open", is_flag=True, help="Do not start TensorBoard.")
@click.option("--json", "json_", is_flag=True, help="Print JSON; TensorBoard is not started.")
@click.option("-y", "--yes", is_flag=True, help="Also on nodes of other herd users.")
def profile(
    target: str, json_: bool, stacks: bool, **said: "float | Path | bool | None"
) -> ParsedCommand:
    """Trace the script that runs on TARGET, on all of its hosts at once, and open the trace.

    The trace shows each operation on the chips and what the host does meanwhile. JAX's own profiler
    takes it, so the job must have `profiler: true`, and its script must use tpuherd_host.train. You
    see how much slower steps were while it traced.

    --stacks shows the stacks of all threads of the attempts instead, innermost call first. Equal
    ones are shown once, those of the fewest hosts first: a host that hangs stands out. Python's
    frames come from py-spy where the host has it, else from a script that uses tpuherd_host.train.
    """
    if stacks:
        if said["output"] is not None or said["no_open"]:
            raise click.UsageError("--stacks takes no trace: of the options it takes only --json")
        return make_parsed_command("herd profile", partial(run_stacks, target, json_))
    options = ProfileOptions(target=target, json_=json_, **said)  # type: ignore[arg-type]
    return make_parsed_command("herd profile", partial(run_profile, options))


async def run_profile(options: ProfileOptions, console: "Console", home: "HostAccess") -> int:
    from datetime import UTC, datetime

    from tpuherd.cli.ask_user import TerminalPrompter
    from tpuherd.commands.ask_hosts import report_unreached
    from tpuherd.commands.command_types import confirm_foreign_hosts, resolve_hosts
    from tpuherd.commands.take_profile import ProfileOrder, take_profile
    from tpuherd.views.printable import json_text
    from tpuherd.views.profile_lines import profile_lines, profile_object

    place, reach = await home.open_remote(console)
    hosts = await resolve_hosts(options.target, place, reach)
    prompter = TerminalPrompter(console, "herd profile", yes=options.yes)
    await confirm_foreign_hosts(hosts, prompter)
    into = console.folder / (options.output or default_folder(options.target))
    session = f"{datetime.fromtimestamp(reach.clock.now(), UTC):%Y_%m_%d_%H_%M_%S}"
    order = ProfileOrder(seconds=options.seconds, session=session, into=into)
    results = await take_profile(hosts, order, reach)
    traces = [done.value for done in results if done.value is not None]
    if not traces:
        raise_if_refused(results)
    if options.json_:
        content = json_text(profile_object(traces, str(into)), indent=2)
        await console.write(f"{content}\n".encode(errors="replace"))
    elif traces:
        await console.print_text("\n".join(profile_lines(traces, options.seconds, str(into))))
    status = await report_unreached(results, console)
    if traces and not options.json_:
        await console.flush()
        await open_trace(into, options, console)
    return status


def raise_if_refused(results: "Sequence[FanoutResult[HostTrace]]") -> None:
    """Raise the error that all hosts have, unless they were not reached."""
    from tpuherd.errors import NotReached

    errors = {done.error.sentence: done.error for done in results if done.error is not None}
    if len(errors) == 1 and not any(isinstance(one, NotReached) for one in errors.values()):
        raise next(iter(errors.values()))


def default_folder(target: str) -> str:
    """profile-gpt-w0: without characters that shells and file systems treat in their own way."""
    kept = "".join(one if one.isalnum() or one in "._-" else "-" for one in target)
    return f"profile-{kept.strip('-')}"


async def open_trace(folder: Path, options: ProfileOptions, console: "Console") -> None:
    """Show the trace in the browser until Ctrl+C, or say how to."""
    from shutil import which

    from tpuherd.cli.open_programs import run_program
    from tpuherd.commands.open_program import LocalProgram

    path = console.environ.get("PATH")
    installed = [one for one in VIEWERS if which(one, path=path)]
    program = installed[0] if installed else VIEWERS[0]
    if options.no_open or not console.is_terminal(1) or not installed:
        missing = "" if installed else " (get it with: pip install xprof)"
        await console.print_text(f"look at it with: {program} --logdir {folder}{missing}")
        return
    await run_program(LocalProgram(argv=(program, "--logdir", str(folder)), advice=""), console)


async def run_stacks(target: str, json_: bool, console: "Console", home: "HostAccess") -> int:
    from tpuherd.commands.ask_hosts import report_unreached
    from tpuherd.commands.dump_stacks import dump_stacks
    from tpuherd.views.printable import json_text
    from tpuherd.views.stack_groups import list_stack_objects, stack_text

    place, reach = await home.open_remote(console)
    dumps, results = await dump_stacks(target, place, reach)
    if json_:
        text = json_text(list_stack_objects(dumps), indent=2) + "\n"
        await console.write(text.encode(errors="replace"))
    elif dumps:
        await console.print_text(stack_text(dumps))
    return await report_unreached(results, console)
