"""What `herd plan` does: shows what would be done."""

from tpuherd.cli.console import Console
from tpuherd.cli.desk import desk, say, say_json
from tpuherd.cli.errand import Home
from tpuherd.core.model import Step
from tpuherd.core.view_text import lined
from tpuherd.desk.planning import as_json, planned


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
