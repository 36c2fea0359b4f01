"""What `herd adopt` does: shows what was taken over."""

from tpuherd.cli.console import Console
from tpuherd.cli.desk import desk, say, say_json
from tpuherd.cli.errand import Home
from tpuherd.core.targets import fold
from tpuherd.desk.adopting import take_over


async def shown(owner: str | None, json_: bool, console: Console, home: Home) -> int:
    """Theirs, or our own that the store has lost."""
    async with desk(console, home, "herd adopt") as here:
        found = await take_over(owner, here)
    if json_:
        await say_json(console, found.as_json())
        return 0
    await say(console, f"{fold(found.bids)} adopted" if found.bids else "there is nothing to adopt")
    if found.unknown:
        left = fold(found.unknown)
        await console.tell(f"{left}: no job stands in their metadata; herd gc deletes them")
    return 0
