"""What `herd plan` does: shows what would be done."""

from tpuherd.cli.job_session import desk, say, say_json
from tpuherd.commands.console import Console
from tpuherd.commands.host_access import Home
from tpuherd.jobs.preview_plan import as_json, planned
from tpuherd.model.slots_and_plan import Step
from tpuherd.views.format_text import lined


async def shown(name: str | None, json_: bool, console: Console, home: Home) -> int:
    """A line for each slot and for each step."""
    async with desk(console, home, "herd plan") as here:
        found = await planned(name, here)
    if json_:
        await say_json(console, found.as_json())
        return 0
    if found.frozen:
        await say(console, f"nothing is deleted now: {found.frozen}")
    lines = [(slot, "", sentence) for slot, sentence in found.states.items()]
    lines += [row(step) for step in found.steps]
    await say(console, lined(lines) if lines else "nothing is wished")
    return 0


def row(step: Step) -> tuple[str, str, str]:
    """The step for people."""
    told = as_json(step)
    what = f"ask for {told['type']} in" if told["do"] == "ask" else "withdraw from"
    return told["bid"], f"{what} {told['zone']}", told["why"]
