"""A play: the real engine in a world of this process, killed and begun anew as a plot says."""

import asyncio
import tempfile
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from tests.virtual.asking import START
from tests.virtual.engine_ground import OWNER, Asked, Ground
from tests.virtual.engine_oracles import (
    Watch,
    misjudged,
    mistried,
    unaccounted,
    unmet,
    untried,
)
from tests.virtual.engine_ports import Hosts, Life, Store, Wire
from tests.virtual.engine_programs import Script
from tests.virtual.engine_wishes import Wished, launch_of, order_of, slots, wishes_of
from tpuherd.cloud.auth import Nobody
from tpuherd.cloud.bids import Bids
from tpuherd.cloud.client import Cloud
from tpuherd.cloud.rest import Rest, client
from tpuherd.cloud.whence import Urls
from tpuherd.core.fold import fold
from tpuherd.core.model import Event, Goal, Slot
from tpuherd.core.spec import Job, checked
from tpuherd.core.spec_job import Search
from tpuherd.core.sweep_turns import OURS, Advice
from tpuherd.core.trail import Trails
from tpuherd.core.wish import Wish
from tpuherd.engine.desired import Desired
from tpuherd.engine.loop import Ended, Engine, Parts
from tpuherd.founding import GONE_S
from tpuherd.ports import Holder
from tpuherd.sim.tpu.call import Request
from tpuherd.sim.virtual import run
from tpuherd.store.database import Database
from tpuherd.store.logs import Shelf

URL = "http://world"
TTL_S = 30.0
RESTART_S = 1.0  #: from an engine's death to the next one
LOOK_S = 5.0
SETTLE_S = 40.0
STAY_S = 240.0  #: so long nothing may stir when all is as it was wished
ROOM = Path("/dev/shm")  #: a store without a disk, where there is such a thing


def desire(wishes: Mapping[str, Wish]) -> Desired:
    """What an engine makes of wishes."""
    return Desired(
        wishes=wishes_of(wishes),
        order=order_of,
        launch=lambda slot: launch_of(slot, wishes[slot.job]),
        rows=wishes,
        sweeps={job: search_of(wish) for job, wish in wishes.items() if "sweep" in wish.document},
    )


def search_of(wish: Wish) -> Search:
    """How a sweep is searched."""
    found = checked(wish.document)
    assert isinstance(found, Job) and found.sweep is not None, found
    return found.sweep


@dataclass(eq=False, kw_only=True)
class Play:
    """One history, from the first wish to its end."""

    ground: Ground
    folder: Path
    watch: Watch = field(init=False)
    store: Database = field(init=False)  #: the user's, beside the engine's
    owner: str = OWNER
    life: Life | None = None
    lives: int = 0
    at: Callable[[Life, str], None] = lambda life, place: None
    before: Callable[[Request], None] = lambda request: None
    troubles: list[str] = field(default_factory=list)  #: an engine that broke by itself
    wanted: bool = True  #: an engine is begun again when it ends
    engine: Engine | None = None
    page: int = 0  #: lists have so few a page
    look_s: float = 60.0  #: as the plan says: days pass here, and each look costs
    advice: Advice = OURS  #: on the trials of sweeps
    remembered: Trails = field(default_factory=Trails)
    folded: int = 0
    resting: int | None = None  #: the store's version when nothing was left to do

    def __post_init__(self) -> None:
        self.watch = Watch(ground=self.ground)
        self.ground.watchers.append(self.watch.asked)
        self.store = Database(self.folder, self.ground.clock.now())

    # ---- the user --------------------------------------------------------------------------------

    def wish(self, wished: Wished) -> None:
        """Say what is wished."""
        now = self.ground.clock.now()
        wish = wished.wish(now)
        known = self.store.wishes().get(wished.job)
        kind = "wish.made" if known is None else "wish.changed"
        if known is not None:
            wish = replace(wish, made_at=known.made_at)
        self.store.put(wish, [Event(at=now, kind=kind, job=wished.job, facts={"who": "me"})])
        self.look_at_wishes()

    def down(self, job: str) -> None:
        """Nothing is wished of it any more."""
        now = self.ground.clock.now()
        self.store.drop(job, [Event(at=now, kind="wish.dropped", job=job, facts={"who": "me"})])
        self.look_at_wishes()

    def look_at_wishes(self) -> None:
        """The watchers know what is wished now, and forget nothing that was."""
        wished = {slot.name: slot for wish in self.store.wishes().values() for slot in slots(wish)}
        gone = {
            name: replace(slot, goal=Goal.GONE)
            for name, slot in self.watch.slots.items()
            if name not in wished
        }
        self.watch.slots = {**gone, **wished}

    def events(self, *kinds: str) -> list[Event]:
        """What the log says."""
        return [event for _, event in self.store.events(kinds=kinds or None)]

    def trails(self) -> Trails:
        """What is remembered."""
        for seq, event in self.store.events(after=self.folded):
            self.remembered = fold(self.remembered, event)
            self.folded = seq
        return self.remembered

    def forget(self) -> None:
        """The store was lost: a new one, which knows nothing."""
        self.store = Database(self.folder, self.ground.clock.now())
        self.remembered, self.folded, self.resting = Trails(), 0, None

    # ---- the engine ------------------------------------------------------------------------------

    async def keep(self) -> None:
        """One engine after another, as whoever reads wishes begins one where none lives."""
        while True:
            if self.wanted:
                await self.one()
            await asyncio.sleep(RESTART_S)
            while self.resting is not None and self.store.version() == self.resting:
                await asyncio.sleep(RESTART_S)

    async def one(self) -> None:
        """The life of one engine."""
        clock = self.ground.clock
        inner = Database(self.folder, clock.now())
        holder = Holder(pid=1000 + self.lives, host="laptop", who="me@laptop")
        epoch = inner.take(holder, clock.now(), TTL_S)
        if epoch is None:
            inner.close()
            return
        life = self.life = Life()
        life.at = lambda place: self.at(life, place)
        self.lives += 1
        hello = {"who": "me@laptop", "owner": self.owner, "epoch": epoch}
        hosts = Hosts(self.ground.rack.machines, hello, life)
        wire = Wire(self.ground.desk, life, self.asked, self.page)
        store = Store(inner, life)
        try:
            async with client(wire) as http:
                cloud = Cloud(Rest(http, Urls(tpu=URL, compute=URL), Nobody()), "demo")
                parts = Parts(
                    store=store,
                    secrets=inner.secrets,
                    cloud=Bids(cloud, clock, 22, cloud.survey),
                    hosts=hosts,
                    shelf=Shelf(self.folder / "logs"),
                    clock=clock,
                    desire=desire,
                    owner=self.owner,
                    outputs=self.folder / "outputs",
                    gone_s=GONE_S,
                    advice=self.advice,
                    look_s=self.look_s,
                )
                engine = self.engine = Engine(parts, epoch=epoch)
                life.task = asyncio.create_task(engine.run())
                if await self.ended(life.task, life):
                    inner.release(epoch)
                    if life.task.result() is Ended.REST:
                        self.resting = self.store.version()
        finally:
            life.dead = True
            hosts.cut()
            inner.close()

    async def ended(self, task: asyncio.Task[Ended], life: Life) -> bool:
        """Whether an engine ended in peace; one that broke by itself is a finding."""
        self.resting = None
        await asyncio.wait([task])
        if task.cancelled():
            return False
        error = task.exception()
        if life.dead:
            return False
        if error is not None:
            self.troubles.append(f"{self.ground.now():.1f} s: {told(error)}")
        return error is None

    def asked(self, request: Request) -> None:
        """A request is on its way to the world."""
        self.before(request)
        self.ground.note(request)

    def kill(self) -> None:
        """kill -9, from outside."""
        if self.life is not None:
            self.life.die()

    # ---- time ------------------------------------------------------------------------------------

    async def advance(self, seconds: float) -> None:
        """Let time pass, with all watchers awake."""
        end = self.ground.clock.now() + seconds
        while (left := end - self.ground.clock.now()) > 0:
            await asyncio.sleep(min(LOOK_S, left))
            self.watch.look()

    async def until(self, happens: Callable[[], bool], patience_s: float) -> bool:
        """Let time pass until something is so; False when it never was."""
        end = self.ground.clock.now() + patience_s
        while not happens():
            if self.ground.clock.now() >= end:
                return False
            await self.advance(min(LOOK_S, end - self.ground.clock.now()))
        return True

    def met(self) -> bool:
        """Whether everything is as it was wished."""
        return not self.unmet()

    def unmet(self) -> list[str]:
        """What is not as it was wished."""
        slots, trails = self.watch.slots, self.trails()
        return [
            *unmet(self.ground, slots, trails.slots),
            *untried(slots.values(), trails.sweeps),
        ]

    def verdict(self) -> list[str]:
        """All that was wrong in this history."""
        events = self.events()
        return [
            *self.watch.faults,
            *self.troubles,
            *misjudged(self.ground, events),
            *unaccounted(events),
            *mistried(events),
        ]

    async def close(self, patience_s: float = 3600.0) -> list[str]:
        """The end of a history: calm weather, the wish is met and stays met, then all goes."""
        self.ground.calm()
        await self.advance(SETTLE_S)  # what was announced before comes yet
        await self.until(self.met, patience_s)
        found = self.unmet()
        if not found:
            mark = len(self.mutations())
            await self.advance(STAY_S)
            found += [f"later {sentence}" for sentence in self.unmet()]
            restless = [f"{a.method} {a.name}" for a in self.mutations()[mark:]]
            found += [f"nothing was left to do, and yet: {restless}"] if restless else []
        for job in self.store.wishes():
            self.down(job)
        if not await self.until(lambda: not self.ground.remains(), 1800.0):
            found.append(f"after down there is {self.ground.remains()}")
        self.watch.look()
        return [*found, *self.verdict()]

    def mutations(self) -> list[Asked]:
        """All requests of engines that change the world."""
        return [asked for asked in self.ground.asked if not asked.reads]


def told(error: BaseException) -> str:
    """An error, with those that are in it, and where it came from."""
    if isinstance(error, BaseExceptionGroup):
        return "; ".join(told(one) for one in error.exceptions)
    place = error.__traceback__
    while place is not None and place.tb_next is not None:
        place = place.tb_next
    where = f"{place.tb_frame.f_code.co_filename}:{place.tb_lineno}" if place else ""
    return f"{type(error).__name__}: {error} ({where})"


Plot = Callable[[Play], Awaitable[Any]]


def perform(
    plot: Plot,
    *,
    seed: int = 1,
    scripts: Mapping[str, Script] | None = None,
    haste: float = 1.0,
) -> Any:
    """Play a plot in virtual time; with haste the cloud takes less time for everything."""

    async def main() -> Any:
        with tempfile.TemporaryDirectory(dir=ROOM if ROOM.exists() else None) as folder:
            ground = Ground(seed=seed, scripts=scripts or {}, haste=haste)
            play = Play(ground=ground, folder=Path(folder))
            tasks = [asyncio.create_task(ground.live()), asyncio.create_task(play.keep())]
            try:
                return await plot(play)
            finally:
                play.wanted = False
                play.kill()
                for task in tasks:
                    task.cancel()
                await asyncio.gather(*tasks, return_exceptions=True)
                if play.life is not None and play.life.task is not None:
                    await asyncio.wait([play.life.task])
                    with suppress(asyncio.CancelledError):
                        play.life.task.exception()
                play.store.close()

    return run(main())


def wished_slots(play: Play) -> Mapping[str, Slot]:
    """What is wished now."""
    return play.watch.slots


__all__ = ["START", "Play", "Plot", "Wished", "perform"]
