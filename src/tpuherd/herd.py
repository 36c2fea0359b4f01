"""Jobs from Python, as `herd` on the command line does them: plain calls, or coroutines.

herd = tpuherd.Herd()                              # the cloud that the command line means
herd.run(tpuherd.Job.load("job.yaml"), yes=True)   # "made"; comes back at once
herd.wait("gpt")                                   # its exit status
herd.down("gpt", yes=True)                         # when nothing is left

herd = tpuherd.AsyncHerd(world="./world")          # the same as coroutines
await herd.run(tpuherd.Job(name="gpt", accelerator="v4-8", run="hostname"))
"""

import asyncio
from collections.abc import AsyncIterator, Coroutine, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from tpuherd import app, meant
from tpuherd.clock import WallClock
from tpuherd.core.model import Event, Goal
from tpuherd.core.spec_yaml import Page
from tpuherd.desk import engines, reading, wishing
from tpuherd.desk.adopting import take_over
from tpuherd.desk.collecting import collect
from tpuherd.desk.desk import Desk
from tpuherd.desk.dropping import doomed, drop, watched
from tpuherd.desk.planning import planned
from tpuherd.desk.surveyed import look
from tpuherd.job import Job, mistaken
from tpuherd.ports import NotReached, Unfit
from tpuherd.store.database import Database

if TYPE_CHECKING:
    from tpuherd.cloud.client import Cloud

T = TypeVar("T")
SURE = "yes=True says so"


class Caller:
    """The program that calls: it said before what it agrees to."""

    def __init__(self, environ: Mapping[str, str], *, yes: bool) -> None:
        self.environ = environ
        self.yes = yes

    async def tell(self, sentence: str) -> None:
        """What is worth a note to a user is nothing to a program."""

    async def agree(self, question: str, details: str = "") -> bool:
        if not self.yes:
            raise Unfit(f"{details}\n{question}" if details else question, hint=SURE)
        return True


class AsyncHerd:
    """The jobs of one place. What needs a yes raises Unfit without `yes=True`."""

    def __init__(
        self, *, world: str | Path | None = None, environ: Mapping[str, str] | None = None
    ) -> None:
        self._world = Path(world) if world is not None else None
        self._environ = meant.environment() if environ is None else environ

    @asynccontextmanager
    async def _desk(self, *, yes: bool = False) -> AsyncIterator[Desk]:
        place = meant.place(self._environ, world=self._world)
        clock = WallClock()
        store = Database(place.store, clock.now())
        async with AsyncExitStack() as stack:
            stack.callback(store.close)
            reached: list[Cloud] = []

            async def cloud() -> "Cloud":
                if not reached:
                    reach = await stack.enter_async_context(app.reaching(place, clock))
                    reached.append(reach.cloud)
                return reached[0]

            talk = Caller(self._environ, yes=yes)
            yield Desk(place=place, store=store, clock=clock, talk=talk, cloud=cloud)
            engines.ensure(place, self._environ)

    async def run(self, job: Job, *, yes: bool = False) -> str:
        """Wish for it: "made", "same", "changed", "resumed", or "again" where it had ended."""
        return await self._wish(job, Goal.RUN, yes=yes)

    async def up(self, job: Job, *, yes: bool = False) -> str:
        """Wish for its nodes, set up and with its code, without its command."""
        return await self._wish(job, Goal.IDLE, yes=yes)

    async def _wish(self, job: Job, goal: Goal, *, yes: bool) -> str:
        async with self._desk(yes=yes) as here:
            page = job.page
            found = await wishing.ready(page, job.base, goal, here)
            if found is None:
                raise mistaken(page.mistakes, "")
            made = await wishing.wished(found, here, "")
            assert made is not None, "a caller never says no: it raises"
            return made.word

    async def change(self, name: str, *, yes: bool = False, **fields: Any) -> str:
        """Other values for some fields; None takes one back. "changed" or "same"."""
        async with self._desk(yes=yes) as here:
            document = {**here.wish(name).document, **fields}
            page = Page(value={k: v for k, v in document.items() if v is not None})
            made = await wishing.changed(name, page, here)
            if made is None:
                raise mistaken(page.mistakes, "")
            return made.word

    async def scale(self, name: str, copies: int, *, yes: bool = False) -> str:
        """So many of it."""
        return await self.change(name, yes=yes, copies=copies)

    async def stop(self, name: str) -> bool:
        """Stop it and give its nodes back, keep the wish; whether it was not so already."""
        async with self._desk() as here:
            return wishing.stopped(here.wish(name), here)

    async def resume(self, name: str) -> bool:
        """Let it go on."""
        async with self._desk() as here:
            return wishing.resumed(here.wish(name), here)

    async def down(self, *names: str, yes: bool = False, wait: bool = True) -> tuple[str, ...]:
        """Drop these jobs, or all, and everything they have; those that went."""
        async with self._desk(yes=yes) as here:
            seen = await look(here)
            found = doomed(names, seen, here)
            if not found.jobs:
                return ()
            await here.talk.agree(found.question, "\n".join(found.losses))
            await drop(found, seen, here)
            if wait:
                async for _ in watched(found.jobs, here):
                    engines.ensure(here.place, self._environ)
            return found.jobs

    async def wait(self, *names: str, timeout: float | None = None) -> int:
        """The greatest of their exit statuses, when all have ended: 0 is success."""
        async with self._desk() as here:
            jobs = reading.chosen(names, here.store.wishes())
        async with self._desk() as here:  # who has wished or read lets an engine begin
            ends = reading.endings(jobs, here.store, here.clock, timeout_s=timeout)
            ended = {job: status async for job, status, _ in ends}
        left = [job for job in jobs if job not in ended]
        if left:
            raise NotReached(f"{', '.join(left)}: not ended in {timeout:g} s")
        return max(ended.values(), default=0)

    async def jobs(self) -> list[dict[str, Any]]:
        """All jobs, as `herd ls --json` has them."""
        async with self._desk() as here:
            return reading.jobs(here.store, here.clock.now())

    async def status(self, name: str) -> dict[str, Any]:
        """A job or a slot, as `herd status --json` has it."""
        async with self._desk() as here:
            return reading.status(here.store, here.clock.now(), name)

    async def why(self, name: str) -> dict[str, Any]:
        """What it does or waits for, as `herd why --json` has it."""
        async with self._desk() as here:
            return reading.why_told(*reading.why(here.store, here.clock.now(), name))

    async def events(self, name: str) -> list[Event]:
        """What has happened to it, the oldest first."""
        async with self._desk() as here:
            return [event for _, event in here.store.events(job=name)]

    async def capacity(self) -> list[dict[str, Any]]:
        """What was learnt of zones, as `herd capacity --json` has it."""
        async with self._desk() as here:
            return reading.capacity(here.store, here.clock.now())

    async def plan(self, name: str | None = None) -> dict[str, Any]:
        """What would be done in the cloud now, as `herd plan --json` has it."""
        async with self._desk() as here:
            return (await planned(name, here)).as_json()

    async def gc(self, *names: str, yes: bool = False) -> dict[str, Any]:
        """What bears our name and nobody wishes, as `herd gc --json` has it; these are deleted."""
        async with self._desk(yes=yes) as here:
            found = await collect(names, here)
            assert found is not None, "a caller never says no: it raises"
            return found.as_json()

    async def adopt(self, owner: str | None = None) -> dict[str, list[str]]:
        """Take that over, or what another owner has, as `herd adopt --json` has it."""
        async with self._desk() as here:
            return (await take_over(owner, here)).as_json()


class Herd:
    """The same in plain calls; also where an event loop runs already, as in notebooks."""

    def __init__(
        self, *, world: str | Path | None = None, environ: Mapping[str, str] | None = None
    ) -> None:
        self._herd = AsyncHerd(world=world, environ=environ)

    def run(self, job: Job, *, yes: bool = False) -> str:
        """Wish for it: "made", "same", "changed", "resumed", or "again" where it had ended."""
        return done(self._herd.run(job, yes=yes))

    def up(self, job: Job, *, yes: bool = False) -> str:
        """Wish for its nodes, set up and with its code, without its command."""
        return done(self._herd.up(job, yes=yes))

    def change(self, name: str, *, yes: bool = False, **fields: Any) -> str:
        """Other values for some fields; None takes one back. "changed" or "same"."""
        return done(self._herd.change(name, yes=yes, **fields))

    def scale(self, name: str, copies: int, *, yes: bool = False) -> str:
        """So many of it."""
        return done(self._herd.scale(name, copies, yes=yes))

    def stop(self, name: str) -> bool:
        """Stop it and give its nodes back, keep the wish; whether it was not so already."""
        return done(self._herd.stop(name))

    def resume(self, name: str) -> bool:
        """Let it go on."""
        return done(self._herd.resume(name))

    def down(self, *names: str, yes: bool = False, wait: bool = True) -> tuple[str, ...]:
        """Drop these jobs, or all, and everything they have; those that went."""
        return done(self._herd.down(*names, yes=yes, wait=wait))

    def wait(self, *names: str, timeout: float | None = None) -> int:
        """The greatest of their exit statuses, when all have ended: 0 is success."""
        return done(self._herd.wait(*names, timeout=timeout))

    def jobs(self) -> list[dict[str, Any]]:
        """All jobs, as `herd ls --json` has them."""
        return done(self._herd.jobs())

    def status(self, name: str) -> dict[str, Any]:
        """A job or a slot, as `herd status --json` has it."""
        return done(self._herd.status(name))

    def why(self, name: str) -> dict[str, Any]:
        """What it does or waits for, as `herd why --json` has it."""
        return done(self._herd.why(name))

    def events(self, name: str) -> list[Event]:
        """What has happened to it, the oldest first."""
        return done(self._herd.events(name))

    def capacity(self) -> list[dict[str, Any]]:
        """What was learnt of zones, as `herd capacity --json` has it."""
        return done(self._herd.capacity())

    def plan(self, name: str | None = None) -> dict[str, Any]:
        """What would be done in the cloud now, as `herd plan --json` has it."""
        return done(self._herd.plan(name))

    def gc(self, *names: str, yes: bool = False) -> dict[str, Any]:
        """What bears our name and nobody wishes, as `herd gc --json` has it; these are deleted."""
        return done(self._herd.gc(*names, yes=yes))

    def adopt(self, owner: str | None = None) -> dict[str, list[str]]:
        """Take that over, or what another owner has, as `herd adopt --json` has it."""
        return done(self._herd.adopt(owner))


def done(work: Coroutine[Any, Any, T]) -> T:
    """Its result; in a thread of its own where this one has a loop."""
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return asyncio.run(work)
    with ThreadPoolExecutor(1) as apart:
        return apart.submit(asyncio.run, work).result()
