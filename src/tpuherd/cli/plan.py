"""`herd engine plan`: shows what the planner would do now, in its own sentences."""

from functools import partial
from typing import TYPE_CHECKING

import click

from tpuherd.cli.parsed_command import ParsedCommand, make_parsed_command
from tpuherd.views.format_text import format_table
from tpuherd.views.printable import show_values

if TYPE_CHECKING:
    from tpuherd.commands.console import Console
    from tpuherd.commands.host_access import HostAccess
    from tpuherd.results import PlanStep


@click.command()
@click.argument("name", required=False)
@click.option("--json", "json_", is_flag=True, help="Print JSON.")
def plan(name: str | None, json_: bool) -> ParsedCommand:
    """Show each slot, and what the engine would do for it now.

    It surveys the cloud once and changes nothing.
    """
    return make_parsed_command("herd engine plan", partial(run_plan, name, json_))


async def run_plan(name: str | None, json_: bool, console: "Console", home: "HostAccess") -> int:
    from tpuherd.cli.job_session import open_job_session, print_json, print_lines
    from tpuherd.jobs.preview_plan import preview_plan

    async with open_job_session(console, home, "herd engine plan") as here:
        found = await preview_plan(name, here)
    if json_:
        await print_json(console, found)
        return 0
    style = console.screen_style
    if style is not None:
        from tpuherd.views.plan_screens import plan_screen

        rows = [step_row(step) for step in found.steps]
        told = show_values((dict(found.states), rows, found.frozen))
        await console.print_text(plan_screen(*told, **style), coloured=True)
        return 0
    if found.frozen:
        await print_lines(console, f"Deletions are paused: {found.frozen}")
    lines = [(slot, "", sentence) for slot, sentence in found.states.items()]
    lines += [step_row(step) for step in found.steps]
    await print_lines(
        console, format_table(lines) if lines else "No jobs. Start one with `herd run`."
    )
    return 0


def step_row(step: "PlanStep") -> tuple[str, str, str]:
    what = f"ask for {step.type} in" if step.do == "ask" else "withdraw from"
    return step.bid, f"{what} {step.zone}", step.why
