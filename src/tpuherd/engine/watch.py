"""One host of ours: its link, brought up again whenever it is lost, and what it says."""

import asyncio
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from tpuherd.clock import Clock
from tpuherd.core.facts import HostWord, Work, WorkWord
from tpuherd.engine import heard
from tpuherd.ports import HerdError, Host, HostsPort, Link, NotFound, NotReached, Verb
from tpuherd.store.logs import SETUP, About, Place, Shelf, Writer
from tpuherd_host.agent.records import JUMP, Records
from tpuherd_host.agent.turn import LOG_PORT

PAUSE_S, PAUSE_S_MAX = 1.0, 30.0  #: from one try to reach a host to the next
SOON_S = 0.1  #: the first, after a link that has lived: what cut it is worth knowing at once
LIVED_S = 2.0
LATER_S = 30.0  #: until a log that could not be written down is followed again

Json = Mapping[str, Any]


@dataclass(frozen=True, kw_only=True, slots=True)
class Means:
    """What every watch needs."""

    hosts: HostsPort
    shelf: Shelf
    clock: Clock
    stir: Callable[[], None]  #: something has happened that the judgement should know


class Watch:
    """A host as it was created once."""

    def __init__(self, host: Host, slot: str, means: Means) -> None:
        self.host = host
        self.slot = slot
        self.link: Link | None = None
        self.word = HostWord(
            node=host.node,
            worker=host.worker,
            incarnation=host.incarnation,
            reached=False,
            heard_at=0.0,
        )
        self.wanted = asyncio.Event()  #: it makes sense to try to reach it
        self._works: dict[str, Work] = {}
        self._paces: dict[str, deque[tuple[float, int]]] = {}
        self._followed: set[str] = set()
        self._means = means

    async def live(self) -> None:
        """Reach it, hear it, and again."""
        clock, pause_s = self._means.clock, PAUSE_S
        while True:
            await self.wanted.wait()
            try:
                self.link = await self._means.hosts.open(self.host)
                begun = clock.now()
                trouble = await self._hear(self.link)
                pause_s = SOON_S if clock.now() >= begun + LIVED_S else PAUSE_S
            except HerdError as error:
                trouble = error.sentence
            self._lost(trouble)
            await clock.sleep(pause_s)
            pause_s = min(max(PAUSE_S, pause_s * 2), PAUSE_S_MAX)

    def _lost(self, trouble: str) -> None:
        self.link = None
        self._followed.clear()
        if self.word.reached or self.word.trouble != trouble:
            self._put(replace(self.word, reached=False, trouble=trouble))

    async def _hear(self, link: Link) -> str:
        """As long as the link lives; why it doesn't any more."""
        async with asyncio.TaskGroup() as group:
            listening = group.create_task(self._listen(link, group))
            try:
                await self._catch_up(link, group)
            except HerdError as error:
                listening.cancel()
                return error.sentence
        return "the link was cut"

    async def _listen(self, link: Link, group: asyncio.TaskGroup) -> None:
        async for event in link.events():
            if event.get("event") == "missed":
                try:
                    await self._catch_up(link, group)
                except HerdError:
                    return
            else:
                self._take(event, link, group)

    async def _catch_up(self, link: Link, group: asyncio.TaskGroup) -> None:
        """How all stands now: what happened before we listened is in it.

        The greeting's notices may be old: of a link that came late to hand, or is used again.
        """
        told = await link.call(Verb(name="attempts"))
        now = self._means.clock.now()
        word = replace(
            self.word,
            reached=True,
            heard_at=now,
            trouble="",
            boot=str(link.hello.get("boot") or ""),
        )
        for key, value in dict(told.get("notices") or {}).items():
            word = heard.noticed(word, str(key), str(value), now)
        for attempt in told.get("attempts", ()):
            self._tell(attempt, link, group)
        self._put(replace(word, works=self._all()))

    def _take(self, event: Json, link: Link, group: asyncio.TaskGroup) -> None:
        """Something that the agent said unasked."""
        now = self._means.clock.now()
        kind = event.get("event")
        word = self.word
        if kind == "notice":
            word = heard.noticed(word, str(event["what"]), str(event["value"]), now)
        elif kind in ("attempt", "ended"):
            self._tell(event, link, group)
        elif kind == "step":
            self._report(str(event["attempt"]), event.get("report") or {}, now)
        elif kind == "heartbeat":
            for one in event.get("attempts", ()):
                self._report(str(one["id"]), one.get("report") or {}, now)
        word = replace(word, heard_at=now, works=self._all())
        if essence(word) != essence(self.word):
            self._put(word)
        else:
            self.word = word

    def _tell(self, told: Json, link: Link, group: asyncio.TaskGroup) -> None:
        """How an attempt stands, or a setup; its log is followed from now on."""
        kind, id = told.get("kind"), str(told.get("id"))
        if told.get("slot") != self.slot:
            return
        if kind == "attempt":
            self._works[id] = heard.work(told, self._works.get(id), self._means.clock.now())
            speaks = not self._works[id].drained
        else:
            speaks = kind == SETUP and (told.get("phase") == "running" or bool(told.get("length")))
        if speaks and id not in self._followed:
            self._followed.add(id)
            if kind == SETUP:
                self._describe(id, float(told.get("asked") or 0.0))
            group.create_task(self._follow(link, id))

    def _describe(self, setup: str, asked: float) -> None:
        """Write down beside its log what it is, and that it was done here too."""
        here, shelf = place(self.host), self._means.shelf
        about = shelf.of(setup) or About(
            id=setup, kind=SETUP, title=f"{self.slot}: setup", target=self.slot, started=asked,
            places=(),
        )  # fmt: skip
        if here not in about.places:
            try:
                shelf.put(replace(about, places=(*about.places, here)))
            except OSError:
                return  # the disk is full; it is set up all the same

    def _report(self, attempt: str, report: Json, now: float) -> None:
        """How far its script is."""
        known = self._works.get(attempt)
        if known is None or not report:
            return
        work = heard.reported(known, report, now)
        if work.step is not None and work.step != known.step:
            pace = self._paces.setdefault(attempt, deque(maxlen=heard.STEPS_KEPT))
            pace.append((now, work.step))
            if "step_s" not in report:
                work = replace(work, step_s=heard.pace(tuple(pace)) or work.step_s)
        self._works[attempt] = work

    async def _follow(self, link: Link, attempt: str) -> None:
        """Bring its log here, to the end; through gaps, and again when there was no room."""
        writer = self._means.shelf.writer(attempt, place(self.host))
        try:
            while not await self._followed_up(link, attempt, writer):
                await self._means.clock.sleep(LATER_S if writer.silent else PAUSE_S)
                writer.close()
                writer = self._means.shelf.writer(attempt, place(self.host))
        except NotReached:
            return  # it is followed again by the next link
        except NotFound:
            self._done(attempt)  # its agent has forgotten it: there is no more
        finally:
            writer.close()

    async def _followed_up(self, link: Link, attempt: str, writer: Writer) -> bool:
        """By one call; whether all of it is here."""
        reader = Records(self._means.shelf.end(attempt, place(self.host)))
        asked = {"attempt": attempt, "from": reader.offset}
        try:
            async with link.stream(Verb(name="follow", arguments=asked)) as call:
                while (got := await call.read()) is not None:
                    port, piece = got
                    if port == LOG_PORT:
                        write(writer, reader, piece)
                        self._logged(attempt)
                await call.reply()
        except (NotReached, NotFound):
            raise
        except HerdError:
            return False  # "dropped", or not now: from where we are, once more
        if not writer.silent:
            self._done(attempt)
        return not writer.silent

    def _logged(self, attempt: str) -> None:
        """It has said something."""
        known = self._works.get(attempt)
        if known is not None:
            self._works[attempt] = replace(known, logged_at=self._means.clock.now())
            self.word = replace(self.word, works=self._all())

    def _done(self, attempt: str) -> None:
        """All its log is here."""
        known = self._works.get(attempt)
        if known is not None and not known.drained:
            self._works[attempt] = replace(known, drained=True)
            self._put(replace(self.word, works=self._all()))

    def _all(self) -> tuple[Work, ...]:
        return tuple(self._works.values())

    def _put(self, word: HostWord) -> None:
        self.word = word
        self._means.stir()


def essence(word: HostWord) -> tuple[Any, ...]:
    """What the judgement should think again for: not each step, nor each sign of life."""
    told = [
        (one.attempt, one.word, one.exit, one.complete, one.termed, one.step is None, one.saved)
        for one in word.works
    ]
    return word.reached, word.boot, word.notice, word.deadly, word.trouble, told


def write(writer: Writer, reader: Records, piece: bytes) -> None:
    """Records as they came, each at its place."""
    before = reader.offset
    for record in reader.feed(piece):
        if record.port != JUMP:
            writer.put(before, record)
        before = reader.offset
    writer.flush()


def place(host: Host) -> Place:
    """The host, as logs know it."""
    return Place(zone=host.zone, node=host.node, worker=host.worker, incarnation=host.incarnation)


def over(work: Work) -> bool:
    """Whether nothing of it runs any more."""
    return work.word in (WorkWord.ENDED, WorkWord.LOST)
