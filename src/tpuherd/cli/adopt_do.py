"""What `herd adopt` does: shows what was taken over."""

from tpuherd.cli.job_session import open_job_session, print_json, print_lines
from tpuherd.commands.console import Console
from tpuherd.commands.host_access import HostAccess
from tpuherd.jobs.adopt_resources import adopt_resources
from tpuherd.targets import fold_names


async def run_adopt(owner: str | None, json_: bool, console: Console, home: HostAccess) -> int:
    """Theirs, or our own that the store has lost."""
    async with open_job_session(console, home, "herd adopt") as here:
        found = await adopt_resources(owner, here)
    if json_:
        await print_json(console, found.as_json())
        return 0
    await print_lines(
        console, f"{fold_names(found.bids)} adopted" if found.bids else "there is nothing to adopt"
    )
    if found.unknown:
        left = fold_names(found.unknown)
        await console.print_notice(f"{left}: no job stands in their metadata; herd gc deletes them")
    return 0
