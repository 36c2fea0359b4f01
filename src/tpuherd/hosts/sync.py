"""Shipping a snapshot: once over the user's uplink, and all hosts filled before any switches."""

import asyncio
import secrets
from collections import Counter
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tpuherd.hosts.snapshot import Snapshot
from tpuherd.hosts.snapshot_archive import Archive
from tpuherd.hosts.sync_plan import DIRECT_AFTER, Child, Offer, grown, offer
from tpuherd.hosts.sync_upload import Upload, answered, upload
from tpuherd.ports import HerdError, Link, Unfit, Verb
from tpuherd_host.agent.snapshots_stream import Content, stream

HAVE_S = 30.0
COMMIT_S = 120.0
PATIENCE_S = 20.0  #: the others get so much longer than the first, or as long again
GRACE_S = 5.0  #: after the one that feeds them failed
FIRST_S = 1800.0

Ask = Callable[[str], Awaitable[Mapping[str, Any]]]
Rows = Callable[[str], Sequence[bytes] | None]


@dataclass(frozen=True, kw_only=True, slots=True)
class Progress:
    """How far it is."""

    stage: str  #: ask, send, fill, switch
    sent: int = 0  #: bytes over the user's uplink
    ready: int = 0
    hosts: int = 0


Report = Callable[[Progress], None]


@dataclass(frozen=True, kw_only=True, slots=True)
class Terms:
    """How it is to be done."""

    relay: bool = True  #: hosts pass it on; else each gets it over its own SSH link
    force: bool = False  #: mix it with what stands at the destination
    partial: bool = False  #: switch those that are filled though others are not
    tops: tuple[str, ...] | None = None  #: a copy's topmost names; None: a snapshot


TERMS = Terms()


@dataclass(frozen=True, kw_only=True, slots=True)
class Cargo:
    """What is shipped, and where its contents are."""

    id: str
    rows: Sequence[bytes]
    pieces: Callable[[bytes], Iterable[bytes]]
    rows_of: Rows = lambda id: None


@dataclass(frozen=True, kw_only=True, slots=True)
class Shipment:
    """What became of it."""

    id: str
    dest: str
    got: tuple[str, ...]  #: hosts that switched to it, or had it already
    unchanged: tuple[str, ...]  #: of these, those that had it already
    failed: Mapping[str, str]  #: hosts that have not got it, and why; laggards too
    slow: Mapping[str, str]  #: who got it another way than planned, and which
    kept: Mapping[str, tuple[str, ...]]  #: what hosts made that is in the way, and stays beside
    bytes_up: int
    seconds: float


async def ship(
    snapshot: Snapshot,
    dest: str,
    links: Sequence[Link],
    *,
    archive: Archive,
    report: Report = lambda progress: None,
    terms: Terms = TERMS,
) -> Shipment:
    """A snapshot to a destination on all these hosts. If one can't be filled none switches."""
    if not links:
        raise Unfit("there is no host to ship to")
    with archive.blobs.held():
        cargo = Cargo(
            id=snapshot.id, rows=snapshot.rows, pieces=archive.blobs.pieces, rows_of=archive.rows
        )
        return await deliver(cargo, dest, links, report=report, terms=terms)


async def deliver(
    cargo: Cargo, dest: str, links: Sequence[Link], *, report: Report, terms: Terms
) -> Shipment:
    """The same for anything that can be shipped."""
    begun = asyncio.get_running_loop().time()
    voyage = Voyage(cargo, dest, {link.host.name: link for link in links}, report, terms)
    try:
        await voyage.fill()
        if voyage.failed and not terms.partial:
            await voyage.abandon()
        else:
            await voyage.switch()
    except BaseException:
        await asyncio.shield(voyage.abandon())
        raise
    return Shipment(
        id=cargo.id,
        dest=dest,
        got=tuple(n for n in voyage.links if n in voyage.switched or n in voyage.unchanged),
        unchanged=tuple(sorted(voyage.unchanged)),
        failed=voyage.failed,
        slow={name: way for name, way in voyage.slow.items() if name not in voyage.failed},
        kept=voyage.kept,
        bytes_up=voyage.sent,
        seconds=asyncio.get_running_loop().time() - begun,
    )


class Voyage:
    """One shipment that is under way."""

    def __init__(
        self, cargo: Cargo, dest: str, links: Mapping[str, Link], report: Report, terms: Terms
    ) -> None:
        self.cargo = cargo
        self.dest = dest
        self.links = links
        self.report = report
        self.terms = terms
        self.tokens: dict[str, str] = {}  #: another for each host and try
        self.haves: dict[str, Mapping[str, Any]] = {}
        self.unchanged: set[str] = set()
        self.ready: list[str] = []
        self.switched: set[str] = set()
        self.failed: dict[str, str] = {}
        self.slow: dict[str, str] = {}
        self.kept: dict[str, tuple[str, ...]] = {}
        self.tries: Counter[str] = Counter()
        self.below: dict[str, set[str]] = {}  #: who gets it through whom
        self.orphans: set[str] = set()  #: those to whom it can't come any more in this round
        self.sent = 0

    def verb(self, verb: str, host: str, **more: Any) -> Verb:
        """A verb about this shipment, for a host that knows it by its token."""
        return Verb(name=f"snapshot.{verb}", arguments={"token": self.tokens[host], **more})

    def told(self, stage: str) -> None:
        """To whoever watches."""
        ready = len(self.ready) + len(self.unchanged)
        self.report(Progress(stage=stage, sent=self.sent, ready=ready, hosts=len(self.links)))

    async def each(
        self, names: Iterable[str], ask: Ask, limit_s: float
    ) -> dict[str, Mapping[str, Any]]:
        """Ask all of them at once; those that fail or are late are out."""

        async def one(name: str) -> None:
            try:
                async with asyncio.timeout(limit_s):
                    found[name] = await ask(name)
            except HerdError as error:
                self.failed[name] = error.sentence
            except TimeoutError:
                self.failed[name] = f"did not answer within {limit_s:g} s"

        found: dict[str, Mapping[str, Any]] = {}
        async with asyncio.TaskGroup() as group:
            for name in names:
                group.create_task(one(name))
        return found

    # ---- fill ------------------------------------------------------------------------------------

    async def fill(self) -> None:
        """Until every host is ready, or is known not to become so."""
        self.told("ask")
        waiting = await self.ask(self.links)
        for name in list(waiting):
            if self.haves[name].get("intact"):
                self.unchanged.add(name)
                waiting.remove(name)
        while waiting and (self.terms.partial or not self.failed):
            waiting = await self.round(waiting)

    async def ask(self, names: Iterable[str]) -> list[str]:
        """What they have, and where they listen."""

        async def one(name: str) -> Mapping[str, Any]:
            self.tokens[name] = secrets.token_hex(12)
            order: dict[str, Any] = {"id": self.cargo.id, "dest": self.dest}
            if self.terms.tops is not None:
                order["tops"] = list(self.terms.tops)
            if self.terms.force:
                order["force"] = True
            if self.terms.relay:
                order["address"] = self.links[name].host.internal_ip
            return await self.links[name].call(self.verb("have", name, **order))

        found = await self.each(names, one, HAVE_S)
        self.haves.update(found)
        return [name for name in names if name in found]

    async def round(self, waiting: list[str]) -> list[str]:
        """One try to fill all that wait; those that still wait after it."""
        again = self.ready and self.terms.tops is not None  # hosts keep no copies to pass on
        late = [name for name in waiting if again or self.tries[name] >= DIRECT_AFTER]
        if not self.terms.relay or late:
            await self.direct(late or waiting)
            return [name for name in waiting if name not in self.ready and name not in self.failed]
        if any(self.tries[name] for name in waiting):
            waiting = await self.ask(waiting)
        for name in waiting:
            self.tries[name] += 1
        if self.ready and self.terms.tops is None:
            await self.passed(waiting)
        else:
            await self.uploaded(waiting)
        return [name for name in waiting if name not in self.ready and name not in self.failed]

    def children(self, names: Sequence[str]) -> list[Any]:
        """A tree of those that listen."""
        hosts = [
            Child(
                name=name,
                address=self.links[name].host.internal_ip,
                port=int(self.haves[name]["port"]),
                token=self.tokens[name],
            )
            for name in names
        ]
        found = grown(hosts)
        self.below = {child.name: child.names() for each in found for child in each.all()}
        return [child.json() for child in found]

    async def uploaded(self, waiting: list[str]) -> None:
        """To the first over our uplink, and by it to all others."""
        first, *others = waiting
        offered = self.offered(waiting)
        feeder = self.receive(first, offered, self.children(others))
        if self.tries[first] > 1:
            self.slow[first] = "sent once more over its own link"
        await self.settle({first: feeder, **{name: self.follow(name) for name in others}}, first)

    async def passed(self, waiting: list[str]) -> None:
        """From one that is ready to all that are not."""
        source = self.ready[0]
        for name in waiting:
            self.slow[name] = f"from {source}, at the second try"

        async def feed() -> Mapping[str, Any]:
            verb = self.verb("pass", source, children=self.children(waiting))
            async with self.links[source].stream(verb) as call:
                return await answered(call)

        await self.settle({"": feed(), **{name: self.follow(name) for name in waiting}}, "")

    async def direct(self, names: Sequence[str]) -> None:
        """To each over its own link; who fails now is out."""
        if self.terms.relay:
            self.slow.update(dict.fromkeys(names, "over its own link"))

        async def one(name: str) -> Mapping[str, Any]:
            return await self.receive(name, self.offered([name]), [])

        found = await self.each(await self.ask(names), one, FIRST_S)
        for name, reply in found.items():
            self.landed(name, reply)
            if name not in self.ready:
                self.failed[name] = str(reply.get("why"))

    def offered(self, names: Sequence[str]) -> Offer:
        """What they lack."""
        return offer(self.cargo.rows, [self.haves[name] for name in names], self.cargo.rows_of)

    async def receive(
        self, name: str, offered: Offer, children: Sequence[Any]
    ) -> Mapping[str, Any]:
        """The stream to one host, which passes it on."""
        up = Upload()

        def blocks() -> Iterator[bytes]:
            pieces = (Content(n, size, self.cargo.pieces(id)) for n, id, size in offered.give)
            return stream(offered.head(self.cargo.id), offered.body(), pieces, up.level)

        def sent(many: int) -> None:
            self.sent += many
            self.told("send")

        verb = self.verb("receive", name, children=list(children))
        async with self.links[name].stream(verb) as call:
            await upload(call, blocks(), up, sent)
            self.told("fill")
            return await answered(call)

    async def follow(self, name: str) -> Mapping[str, Any]:
        """A host that is fed by another."""
        async with self.links[name].stream(self.verb("relay", name)) as call:
            return await answered(call)

    def landed(self, name: str, reply: Mapping[str, Any]) -> None:
        """A host has said how it went, for itself and for those whom it could not reach."""
        names = {token: name for name, token in self.tokens.items()}
        for token in reply.get("lost", ()):
            lost = names.get(token, "")
            self.orphans |= {lost, *self.below.get(lost, ())}
        if reply.get("ready") == self.cargo.id:
            self.ready.append(name)
            self.told("fill")

    async def settle(self, calls: Mapping[str, Awaitable[Mapping[str, Any]]], feeder: str) -> None:
        """Wait for all; not much longer than for the first, nor when their feeder failed."""
        loop = asyncio.get_running_loop()
        tasks = {asyncio.ensure_future(call): name for name, call in calls.items()}
        begun, end = loop.time(), loop.time() + FIRST_S
        pending = set(tasks)
        self.orphans.clear()
        try:
            while pending and loop.time() < end:
                done, pending = await asyncio.wait(
                    pending, timeout=end - loop.time(), return_when=asyncio.FIRST_COMPLETED
                )
                for task in done:
                    end = min(end, loop.time() + self.heard(tasks[task], task, feeder, begun))
                pending = {task for task in pending if tasks[task] not in self.orphans}
            for task in pending:
                self.tries[tasks[task]] = DIRECT_AFTER
        finally:
            late = [task for task in tasks if not task.done()]
            for task in late:
                task.cancel()
            await asyncio.gather(*late, return_exceptions=True)

    def heard(
        self,
        name: str,
        task: "asyncio.Future[Mapping[str, Any]]",
        feeder: str,
        begun: float,
    ) -> float:
        """What one of them said; how long the others may still take."""
        error = task.exception()
        if error is None:
            self.landed(name, task.result())
        elif not isinstance(error, HerdError):
            raise error
        elif name:
            self.failed[name] = error.sentence
        if name == feeder:
            return GRACE_S if error is not None else FIRST_S
        return max(PATIENCE_S, asyncio.get_running_loop().time() - begun)

    # ---- switch ----------------------------------------------------------------------------------

    async def switch(self) -> None:
        """All that are ready, at once."""
        self.told("switch")
        found = await self.each(
            self.ready, lambda name: self.links[name].call(self.verb("commit", name)), COMMIT_S
        )
        for name in self.ready:
            if name in found:
                self.switched.add(name)
                if found[name].get("stays"):
                    self.kept[name] = tuple(found[name]["stays"])
            else:
                self.failed[name] = f"filled, but not switched for sure: {self.failed[name]}"

    async def abandon(self) -> None:
        """None switches; nothing stays behind where it can be reached."""
        failed = dict(self.failed)
        names = [name for name in self.links if name in self.haves]
        await self.each(
            names, lambda name: self.links[name].call(self.verb("abandon", name)), GRACE_S
        )
        self.failed = failed
