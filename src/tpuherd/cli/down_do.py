"""What `herd down` does: says what is lost, drops it, and waits until nothing is left."""

from collections.abc import Sequence
from dataclasses import dataclass

from tpuherd.cli.job_session import desk, say, say_json
from tpuherd.commands.console import Console
from tpuherd.commands.host_access import Home
from tpuherd.exit_status import ABORTED, TIMED_OUT
from tpuherd.jobs import engine_control
from tpuherd.jobs.cloud_inventory import Seen, look
from tpuherd.jobs.open_project import Desk
from tpuherd.jobs.remove import doomed, drop, watched
from tpuherd.targets import fold

NAME = "herd down"
FIRST_S, TELL_S = 20.0, 60.0  #: what is waited for is said after so long, then so often


@dataclass(frozen=True, kw_only=True, slots=True)
class Asked:
    """What is wanted."""

    names: tuple[str, ...]  #: none: all
    yes: bool
    waits: bool
    json_: bool
    timeout_s: float | None = None


async def dropped(asked: Asked, console: Console, home: Home) -> int:
    """Ask, record, wait."""
    async with desk(console, home, NAME, yes=asked.yes) as here:
        seen = await look(here)
        found = doomed(asked.names, seen, here)
        if found.jobs:
            details = "\n".join(f"  {line}" for line in found.losses)
            if not await here.talk.agree(found.question, details):
                return ABORTED
            await drop(found, seen, here)
            engine_control.ensure(here.place, console.environ)
        end = Ending()
        if asked.waits:
            end = await wait_until_gone(found.jobs, asked.timeout_s, here, console)
    await told(asked, found.jobs, end, console)
    return TIMED_OUT if end.waits_for else 0


@dataclass(frozen=True, kw_only=True, slots=True)
class Ending:
    """How the waiting ended: with a proof, with what was waited for in vain, or not begun."""

    proof: Seen | None = None
    waits_for: str = ""


async def wait_until_gone(
    jobs: Sequence[str], timeout_s: float | None, here: Desk, console: Console
) -> Ending:
    """Look until nothing of them is listed, in zones that all answered, or for so long."""
    begun, due = here.clock.now(), here.clock.now() + FIRST_S
    async for what, seen in watched(jobs, here):
        if not what:
            return Ending(proof=seen)
        now = here.clock.now()
        if timeout_s is not None and now >= begun + timeout_s:
            return Ending(waits_for=what)
        if now >= due and console.said.loud >= 0:
            await here.talk.tell(what)
            due = now + TELL_S
        engine_control.ensure(here.place, console.environ)
    raise AssertionError("it looks until it is so")


async def told(asked: Asked, jobs: Sequence[str], end: Ending, console: Console) -> None:
    """What is proved."""
    proof = end.proof
    if asked.json_:
        zones = None if proof is None else sorted(proof.survey.zones)
        content = {"down": list(jobs), "gone": proof is not None, "zones": zones}
        await say_json(console, {**content, "waits_for": end.waits_for})
    elif not jobs:
        await say(console, "there is nothing to take down")
    elif end.waits_for:
        sentence = f"{NAME}: {end.waits_for}; the engine goes on, and `herd down` waits again"
        await console.tell(sentence)
    elif proof is None:
        await say(console, f"{fold(jobs)}: dropped; the engine gives back what is there")
    else:
        many = len(proof.survey.zones)
        await say(console, f"{fold(jobs)}: nothing is left; {many} zones were listed")
