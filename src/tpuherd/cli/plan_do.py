"""What `herd plan` does: shows what would be done."""

from tpuherd.cli.job_session import open_job_session, print_json, print_lines
from tpuherd.commands.console import Console
from tpuherd.commands.host_access import HostAccess
from tpuherd.jobs.preview_plan import preview_plan, step_as_json
from tpuherd.model.slots_and_plan import PlannedStep
from tpuherd.views.format_text import format_table


async def run_plan(name: str | None, json_: bool, console: Console, home: HostAccess) -> int:
    """A line for each slot and for each step."""
    async with open_job_session(console, home, "herd plan") as here:
        found = await preview_plan(name, here)
    if json_:
        await print_json(console, found.as_json())
        return 0
    if found.frozen:
        await print_lines(console, f"nothing is deleted now: {found.frozen}")
    lines = [(slot, "", sentence) for slot, sentence in found.states.items()]
    lines += [step_row(step) for step in found.steps]
    await print_lines(console, format_table(lines) if lines else "nothing is wished")
    return 0


def step_row(step: PlannedStep) -> tuple[str, str, str]:
    """The step for people."""
    told = step_as_json(step)
    what = f"ask for {told['type']} in" if told["do"] == "ask" else "withdraw from"
    return told["bid"], f"{what} {told['zone']}", told["why"]
