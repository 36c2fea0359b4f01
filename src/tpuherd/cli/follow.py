"""`herd run --follow`: what happens to a job and what it says, until it ends."""

import asyncio
import signal

from tpuherd.cli.job_session import desk
from tpuherd.cli.logs_fold import FoldedPage
from tpuherd.cli.show_logs import shelf_folder
from tpuherd.clock import WallClock
from tpuherd.commands.console import Console
from tpuherd.commands.find_logs import Look, found
from tpuherd.commands.host_access import Home
from tpuherd.exit_status import SIGNALLED
from tpuherd.jobs.job_queries import ending, scene
from tpuherd.jobs.ledger_cache import go_on, ledger
from tpuherd.jobs.open_project import Desk
from tpuherd.store.log_store import Shelf

LOOK_S = 0.3
LAST_WORDS_S = 3.0  #: so long the log may take to come in when all is over
DETACHING = (signal.SIGINT, signal.SIGHUP)


async def follow(job: str, console: Console, home: Home) -> int:
    """The job's own exit status; Ctrl+C only stops looking."""
    async with desk(console, home, "herd run") as here:
        told = asyncio.ensure_future(happens(job, here, console))
        log = Look(target=job)
        logs = asyncio.ensure_future(writes(log, here.wish(job).changed_at, console))
        ends = asyncio.ensure_future(asked_to_end(console))
        try:
            await asyncio.wait((told, ends), return_when=asyncio.FIRST_COMPLETED)
            if not told.done():
                number = ends.result()
                await console.tell(f"herd run: {job} goes on; herd logs {job} -f shows it again")
                return 0 if number in DETACHING else SIGNALLED + number
            await asyncio.wait((logs,), timeout=LAST_WORDS_S)
            return told.result()
        finally:
            for task in (told, logs, ends):
                task.cancel()
            await asyncio.gather(told, logs, ends, return_exceptions=True)


async def writes(look: Look, since: float, console: Console) -> None:
    """Print what the job's hosts write from then on, until this is cancelled."""
    clock, shelf = WallClock(), Shelf(shelf_folder(console))
    page = FoldedPage(shelf, console, clock, since=since)
    try:
        while True:
            await page.put(found(look, shelf))
            await console.flush()
            await clock.sleep(LOOK_S)
    finally:
        await page.close()


async def happens(job: str, here: Desk, console: Console) -> int:
    """Say why what is done is done; its exit status when it has ended."""
    seen = max(
        (number for number, _ in here.store.events(job=job, limit=1, newest=True)), default=0
    )
    kept = ledger(here.store)
    while True:
        for number, event in here.store.events(after=seen, job=job):
            seen = number
            why = event.facts.get("why")
            if why:
                await console.tell(f"{event.slot or job}: {why}")
        go_on(kept, here.store)
        ended = ending(scene(here.store, here.clock.now(), kept), job)
        if ended is not None:
            return ended[0]
        await here.clock.sleep(LOOK_S)


async def asked_to_end(console: Console) -> int:
    """The first signal that is meant to end us."""
    while True:
        number = await console.signals.get()
        if number in (*DETACHING, signal.SIGTERM):
            return number
