"""What `herd gc` does: shows what is left, and what is being deleted."""

from collections.abc import Mapping

from tpuherd.cli.job_session import desk, dollars, say, say_json
from tpuherd.commands.console import Console
from tpuherd.commands.host_access import Home
from tpuherd.exit_status import ABORTED
from tpuherd.jobs.cloud_inventory import described, per_hour
from tpuherd.jobs.orphans import collect
from tpuherd.model.observed import Sight
from tpuherd.views.format_text import lined


async def collected(
    names: tuple[str, ...], yes: bool, json_: bool, console: Console, home: Home
) -> int:
    """Look, carry out, show; delete what is named."""
    async with desk(console, home, "herd gc", yes=yes, begins=False) as here:
        found = await collect(names, here)
    if found is None:
        return ABORTED
    if json_:
        await say_json(console, found.as_json())
        return 0
    for bid in found.withdrawn:
        await say(console, f"{bid} is being deleted")
    if found.strays:
        await say(console, strays_table(found.strays, console.width(1)))
    elif not found.withdrawn:
        await say(console, f"nothing is left over in {found.zones} zones")
    if found.silent:
        await console.tell(f"no answer from {', '.join(found.silent)}")
    return 0


def strays_table(strays: Mapping[str, Sight], width: int | None = None) -> str:
    """With what they cost, and the one command for each."""
    rows = [("NAME", "ZONE", "STATE", "PER HOUR", "DELETE IT BY")]
    for bid, sight in strays.items():
        price = dollars(per_hour(sight))
        rows.append((bid, sight.zone, described(sight), price, f"herd gc {bid}"))
    return lined(rows, width=width) + "\nherd adopt takes over those whose job is known"
