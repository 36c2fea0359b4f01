"""What `herd adopt` does: shows what was taken over."""

from tpuherd.cli.job_session import desk, say, say_json
from tpuherd.commands.console import Console
from tpuherd.commands.host_access import Home
from tpuherd.jobs.adopt_resources import take_over
from tpuherd.targets import fold


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
