"""What `herd down` does: says what is lost, drops it, and waits until nothing is left."""

from collections.abc import Sequence
from dataclasses import dataclass

from tpuherd.cli.console import Console
from tpuherd.cli.desk import desk, say, say_json
from tpuherd.cli.errand import ABORTED, Home
from tpuherd.core.targets import fold
from tpuherd.desk import engines
from tpuherd.desk.desk import Desk
from tpuherd.desk.dropping import doomed, drop, watched
from tpuherd.desk.surveyed import Seen, look

NAME = "herd down"
TELL_S = 20.0


@dataclass(frozen=True, kw_only=True, slots=True)
class Asked:
    """What is wanted."""

    names: tuple[str, ...]  #: none: all
    yes: bool
    waits: bool
    json_: bool


async def dropped(asked: Asked, console: Console, home: Home) -> int:
    """Ask, record, wait."""
    with desk(console, home, NAME, yes=asked.yes) as here:
        seen = await look(here)
        found = doomed(asked.names, seen, here)
        if found.jobs:
            details = "\n".join(f"  {line}" for line in found.losses)
            if not await here.talk.agree(found.question, details):
                return ABORTED
            await drop(found, seen, here)
            engines.ensure(here.place, console.environ)
        proof = await gone(found.jobs, here, console) if asked.waits else None
    await told(asked, found.jobs, proof, console)
    return 0


async def gone(jobs: Sequence[str], here: Desk, console: Console) -> Seen:
    """Look until nothing of them is listed, in zones that all answered."""
    told_at = here.clock.now()
    async for what, seen in watched(jobs, here):
        if not what:
            return seen
        if here.clock.now() - told_at >= TELL_S and console.said.loud >= 0:
            await here.talk.tell(what)
            told_at = here.clock.now()
        engines.ensure(here.place, console.environ)
    raise AssertionError("it looks until it is so")


async def told(asked: Asked, jobs: Sequence[str], proof: Seen | None, console: Console) -> None:
    """What is proved."""
    if asked.json_:
        zones = None if proof is None else sorted(proof.survey.zones)
        await say_json(console, {"down": list(jobs), "gone": proof is not None, "zones": zones})
    elif not jobs:
        await say(console, "there is nothing to take down")
    elif proof is None:
        await say(console, f"{fold(jobs)}: dropped; the engine gives back what is there")
    else:
        many = len(proof.survey.zones)
        await say(console, f"{fold(jobs)}: nothing is left; {many} zones were listed")
