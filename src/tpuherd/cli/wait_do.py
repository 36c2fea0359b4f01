"""What `herd wait` does."""

from tpuherd.cli.console import Console
from tpuherd.cli.errand import TIMED_OUT, Home
from tpuherd.cli.reading import Reading, reading
from tpuherd.desk.books import go_on, ledger
from tpuherd.desk.desk import no_job
from tpuherd.desk.reading import ending
from tpuherd.ports import NotFound

LOOK_S = 0.2


async def waited(
    job: str, timeout_s: float | None, json_: bool, console: Console, home: Home
) -> int:
    """Until it has ended, or for so long."""
    with reading(console) as here:
        wishes = here.store.wishes()
        if job not in wishes:
            raise NotFound(no_job(job, wishes))
    # Who has read lets an engine begin: only with one is there something to wait for.
    with reading(console) as here:
        status, why = await ended(job, timeout_s, here)
        if json_:
            await here.show({"job": job, "status": status, "why": why}, "", json_=True)
        else:
            await console.tell(f"herd wait: {why}")
    return status


async def ended(job: str, timeout_s: float | None, here: Reading) -> tuple[int, str]:
    """The status, and why."""
    begun, version, kept = here.now, -1, ledger(here.store)
    while True:
        before, version = version, here.store.version()
        go_on(kept, here.store)
        found = ending(here.store, here.now, job, kept) if version != before else None
        if found is not None:
            return found
        if timeout_s is not None and here.now - begun >= timeout_s:
            return TIMED_OUT, f"{job} goes on"
        await here.clock.sleep(LOOK_S)
