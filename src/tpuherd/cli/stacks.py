"""`herd stacks`: shows where the processes of a job's attempts are."""

from functools import partial
from typing import TYPE_CHECKING

import click

from tpuherd.cli.parsed_command import ParsedCommand, make_parsed_command

if TYPE_CHECKING:
    from tpuherd.commands.console import Console
    from tpuherd.commands.host_access import HostAccess


@click.command()
@click.argument("target")
@click.option("--json", "json_", is_flag=True, help="Print JSON: a list, an object each process.")
def stacks(target: str, json_: bool) -> ParsedCommand:
    """Show the stacks of all threads of the attempts that run on TARGET, innermost call first.

    Equal stacks are shown once, those of the fewest hosts first: a host that hangs, or that the
    others wait for, stands out. The script runs on undisturbed. Python's frames come from py-spy
    where the host has it, else from the script itself if it uses tpuherd_host.train; of other
    programs you see what they wait for in the kernel.
    """
    return make_parsed_command("herd stacks", partial(run_stacks, target, json_))


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
