"""What `herd stop` and `herd resume` do: another goal, the same wish."""

from collections.abc import Callable

from tpuherd.cli.job_session import open_job_session, print_json, print_lines
from tpuherd.commands.console import Console
from tpuherd.commands.host_access import HostAccess
from tpuherd.jobs import submit
from tpuherd.jobs.open_project import Session
from tpuherd.model.stored_job import StoredJob


async def run_stop(names: tuple[str, ...], json_: bool, console: Console, home: HostAccess) -> int:
    """Their nodes go."""
    async with open_job_session(console, home, "herd stop") as here:
        made = change_goals(names, submit.stop_job, here)
    await print_changes(made, ("is stopped", "is stopped already"), json_, console)
    return 0


async def run_resume(
    names: tuple[str, ...], json_: bool, console: Console, home: HostAccess
) -> int:
    """They are filled again."""
    async with open_job_session(console, home, "herd resume") as here:
        made = change_goals(names, submit.resume_job, here)
    await print_changes(made, ("goes on", "goes on as it is"), json_, console)
    return 0


def change_goals(
    names: tuple[str, ...], turn: Callable[[StoredJob, Session], bool], here: Session
) -> dict[str, bool]:
    """Each, and whether it was turned; none where one is not there."""
    wishes = [here.get_job(name) for name in dict.fromkeys(names)]
    return {wish.job: turn(wish, here) for wish in wishes}


async def print_changes(
    made: dict[str, bool], words: tuple[str, str], json_: bool, console: Console
) -> None:
    """What became of each."""
    if json_:
        await print_json(console, [{"job": job, "changed": did} for job, did in made.items()])
        return
    for job, did in made.items():
        await print_lines(console, f"{job} {words[0] if did else words[1]}")
