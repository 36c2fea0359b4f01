"""What `herd stop` and `herd resume` do: another goal, the same wish."""

from collections.abc import Callable

from tpuherd.cli.job_session import desk, say, say_json
from tpuherd.commands.console import Console
from tpuherd.commands.host_access import Home
from tpuherd.jobs import submit
from tpuherd.jobs.open_project import Desk
from tpuherd.model.stored_job import Wish


async def stopped(names: tuple[str, ...], json_: bool, console: Console, home: Home) -> int:
    """Their nodes go."""
    async with desk(console, home, "herd stop") as here:
        made = turned(names, submit.stopped, here)
    await told(made, ("is stopped", "is stopped already"), json_, console)
    return 0


async def resumed(names: tuple[str, ...], json_: bool, console: Console, home: Home) -> int:
    """They are filled again."""
    async with desk(console, home, "herd resume") as here:
        made = turned(names, submit.resumed, here)
    await told(made, ("goes on", "goes on as it is"), json_, console)
    return 0


def turned(
    names: tuple[str, ...], turn: Callable[[Wish, Desk], bool], here: Desk
) -> dict[str, bool]:
    """Each, and whether it was turned; none where one is not there."""
    wishes = [here.wish(name) for name in dict.fromkeys(names)]
    return {wish.job: turn(wish, here) for wish in wishes}


async def told(
    made: dict[str, bool], words: tuple[str, str], json_: bool, console: Console
) -> None:
    """What became of each."""
    if json_:
        await say_json(console, [{"job": job, "changed": did} for job, did in made.items()])
        return
    for job, did in made.items():
        await say(console, f"{job} {words[0] if did else words[1]}")
