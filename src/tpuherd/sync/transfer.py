"""One shipment that is under way: hosts are asked, filled and switched."""

import asyncio
import secrets
from collections import Counter
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from itertools import combinations
from typing import Any

from tpuherd.errors import HerdError, NotReached
from tpuherd.ports import Link, Verb
from tpuherd.sync.compressor import COMPRESSOR
from tpuherd.sync.delta import BASE_LETTERS, Offer, offer
from tpuherd.sync.recent_cache import APART, STANDS
from tpuherd.sync.relay_tree import DIRECT_AFTER, Child, Feed, Pair, detours, node_of, planned
from tpuherd.sync.shipment import Cargo, Progress, Report, Terms
from tpuherd.sync.upload_blocks import Upload, answered, upload
from tpuherd_host.agent.frames import BLOBS
from tpuherd_host.agent.snapshots_stream import stream

HAVE_S = 30.0
COMMIT_S = 120.0
PATIENCE_S = 20.0  #: the others get so much longer than the first, or as long again
GRACE_S = 5.0  #: after the one that feeds them failed
FIRST_S = 1800.0
#: Changes so small go along with the first question, to each host over its own link: that costs
#: no more than to ask each, and a round trip less.
HINT_MAX, HINTS_MAX = 2048, 65_536
HINT_PLAIN_MAX, HINT_ROWS_MAX = 1 << 20, 20_000

Ask = Callable[[str], Awaitable[Mapping[str, Any]]]
NOTHING: Mapping[str, Any] = {}


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
        self.silent: set[str] = set()  #: their last answer is missing
        self.unsure: set[str] = set()
        self.alone = len(links) == 1 and terms.tops is None  #: it waits for no other: one call less
        self.failed: dict[str, str] = {}
        self.slow: dict[str, str] = {}
        self.kept: dict[str, tuple[str, ...]] = {}
        self.nodes = {name: node_of(link.host) for name, link in links.items()}
        self.tries: Counter[str] = Counter()  #: of hosts, while another of their node had it
        self.misses: Counter[str] = Counter()  #: of nodes of which none has it, in rounds
        self.apart: set[Pair] = set()  #: nodes seen not to reach each other
        self.strays: set[str] = set()  #: the nodes that were not reached
        self.whys: dict[str, str] = {}
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
                self.fell(name, error)
            except TimeoutError:
                self.silent.add(name)
                self.failed[name] = f"did not answer within {limit_s:g} s"

        found: dict[str, Mapping[str, Any]] = {}
        async with asyncio.TaskGroup() as group:
            for name in names:
                group.create_task(one(name))
        return found

    def fell(self, name: str, error: HerdError) -> None:
        """A host failed, and is out."""
        self.failed[name] = error.sentence
        if isinstance(error, NotReached):
            self.silent.add(name)

    # ---- fill ------------------------------------------------------------------------------------

    async def fill(self) -> None:
        """Until every host is ready, or is known not to become so."""
        self.told("ask")
        waiting = await self.ask(self.links, await self.hints())
        for name in list(waiting):
            if self.haves[name].get("intact"):
                self.unchanged.add(name)
            elif self.haves[name].get("ready"):
                self.landed(name, self.haves[name])
            else:
                continue
            waiting.remove(name)
        while waiting and (self.terms.partial or not self.failed):
            waiting = await self.round(waiting)
        reached = {self.nodes[name] for name in self.ready}
        lone = map(frozenset, combinations(sorted(self.strays), 2))  # not tried, but most likely
        for pair in {*self.apart, *lone}:
            if pair <= reached:
                APART.note(pair, None, self.now())

    def now(self) -> float:
        """By the loop's clock."""
        return asyncio.get_running_loop().time()

    async def hints(self) -> dict[str, tuple[str, bytes]]:
        """To whom the changes can be told at once, as far as we know what stands there."""
        if self.terms.tops is not None or len(self.cargo.rows) > HINT_ROWS_MAX:
            return {}
        stands = {name: STANDS.get(self.spot(name), self.now()) for name in self.links}
        bases = {id for id in stands.values() if id not in (None, self.cargo.id)}
        found = {id: await asyncio.to_thread(self.hint, id) for id in bases if len(bases) == 1}
        return {n: (id, found[id]) for n, id in stands.items() if id and found.get(id)}

    def hint(self, base: str) -> bytes:
        """The whole stream by which a host gets from that snapshot to this; none if it is long."""
        offered = offer(self.cargo.rows, [{"whole": [base]}], self.cargo.rows_of)
        if offered.base is None or offered.size > HINT_PLAIN_MAX:
            return b""
        found = b"".join(self.blocks(offered, Upload()))
        most = min(HINT_MAX, HINTS_MAX // len(self.links))
        return found if len(found) <= most else b""

    def spot(self, name: str) -> tuple[str, str, str]:
        """Where it goes on that host."""
        return self.nodes[name], name, self.dest

    async def ask(
        self, names: Iterable[str], hints: Mapping[str, tuple[str, bytes]] = NOTHING
    ) -> list[str]:
        """What they have, and where they listen; changes go along where it is known from what."""

        async def one(name: str) -> Mapping[str, Any]:
            self.tokens[name] = secrets.token_hex(12)
            order: dict[str, Any] = {"id": self.cargo.id, "dest": self.dest}
            if self.terms.tops is not None:
                order["tops"] = list(self.terms.tops)
            if self.terms.force:
                order["force"] = True
            if self.terms.relay:
                order["address"] = self.links[name].host.internal_ip
            if name not in hints:
                return await self.links[name].call(self.verb("have", name, **order))
            base, said = hints[name]
            order |= {"base": base[:BASE_LETTERS], **self.last()}
            async with self.links[name].stream(self.verb("have", name, **order)) as call:
                await call.write(BLOBS, said)
                self.sent += len(said)
                return await call.reply()

        found = await self.each(names, one, HAVE_S)
        self.haves.update(found)
        return [name for name in names if name in found]

    async def round(self, waiting: list[str]) -> list[str]:
        """One try to fill all that wait; those that still wait after it."""
        if self.tries or self.misses:
            waiting = await self.ask(waiting)
        feeds = self.plan(waiting)
        self.below = {one.name: one.names() for feed in feeds for one in feed.below()}
        self.orphans.clear()
        ends = await asyncio.gather(*map(self.settle, feeds), return_exceptions=True)
        for error in filter(None, ends):
            raise error
        return self.left(waiting, feeds)

    def plan(self, waiting: Sequence[str]) -> list[Feed]:
        """Who gets it from whom in this round."""
        sources = {self.nodes[name]: name for name in reversed(self.ready)}
        copies = self.terms.tops is not None  # hosts keep none to pass on
        spent = {node for node in self.misses if self.misses[node] >= 2 * DIRECT_AFTER}
        spent |= sources.keys() if copies else set()
        spent |= set() if self.terms.relay else set(self.nodes.values())
        tired = {n for n in waiting if self.tries[n] >= DIRECT_AFTER or self.nodes[n] in spent}
        return planned(
            [self.child(name) for name in waiting],
            {} if copies else sources,
            alone=tired,
            strays={*self.strays, *(n for n in self.misses if self.misses[n] >= DIRECT_AFTER)},
            apart=self.apart.union(APART.all(self.now())),
        )

    def left(self, waiting: Sequence[str], feeds: Sequence[Feed]) -> list[str]:
        """Those that have not got it; who had its last try is out."""
        left = [name for name in waiting if name not in self.ready and name not in self.failed]
        for feed in feeds:
            node = self.nodes[feed.host]
            ways = detours(feed, stray=node in self.strays, again=self.misses[node] > 0)
            if self.terms.relay:
                self.slow.update((name, way) for name, way in ways.items() if name in self.ready)
            if feed.alone and feed.host in left:
                left.remove(feed.host)
                self.failed[feed.host] = self.whys.get(feed.host, "took too long to be filled")
        reached = {self.nodes[name] for name in self.ready}
        self.tries.update(name for name in left if self.nodes[name] in reached)
        missed = {self.nodes[name] for name in left} - reached
        fed = missed & {self.nodes[feed.host] for feed in feeds}
        self.misses.update([*missed, *fed])  # twice where we fed it ourselves
        return left

    def child(self, name: str) -> Child:
        """A host that listens."""
        return Child(
            name=name,
            address=self.links[name].host.internal_ip,
            port=int(self.haves[name].get("port") or 0),
            token=self.tokens[name],
            node=self.nodes[name],
        )

    def offered(self, names: Sequence[str]) -> Offer:
        """What they lack."""
        return offer(self.cargo.rows, [self.haves[name] for name in names], self.cargo.rows_of)

    async def receive(self, feed: Feed) -> Mapping[str, Any]:
        """The stream to one host, which passes it on."""
        offered = self.offered([feed.host, *(one.name for one in feed.below())])
        up = Upload()

        def sent(many: int) -> None:
            self.sent += many
            self.told("send")

        children = [one.json() for one in feed.children]
        verb = self.verb("receive", feed.host, children=children, **self.last())
        async with self.links[feed.host].stream(verb) as call:
            await upload(call, self.blocks(offered, up), up, sent)
            self.told("fill")
            return await answered(call)

    def blocks(self, offered: Offer, up: Upload) -> Iterator[bytes]:
        """The stream."""
        contents = offered.contents(self.cargo.pieces, self.cargo.kept)
        return stream(offered.head(), offered.body(), contents, up.level, COMPRESSOR)

    def last(self) -> dict[str, Any]:
        """A host that waits for no other switches as soon as it is filled."""
        return {"switch": True} if self.alone else {}

    async def passed(self, feed: Feed) -> Mapping[str, Any]:
        """From one that is ready to others."""
        verb = self.verb("pass", feed.host, children=[one.json() for one in feed.children])
        async with self.links[feed.host].stream(verb) as call:
            return await answered(call)

    async def follow(self, name: str) -> Mapping[str, Any]:
        """A host that is fed by another."""
        async with self.links[name].stream(self.verb("relay", name)) as call:
            return await answered(call)

    def landed(self, name: str, reply: Mapping[str, Any]) -> None:
        """A host has said how it went, for itself and for those whom it could not reach."""
        names = {token: name for name, token in self.tokens.items()}
        for lost in filter(None, map(names.get, reply.get("lost", ()))):
            self.orphans |= {lost, *self.below.get(lost, ())}
            if self.nodes[lost] != self.nodes[name]:
                self.strays.add(self.nodes[lost])
                self.apart.add(frozenset((self.nodes[lost], self.nodes[name])))
        self.whys[name] = str(reply.get("why"))
        if reply.get("ready") == self.cargo.id:
            self.ready.append(name)
            self.told("fill")
        if reply.get("switched") == self.cargo.id:
            self.stood(name, reply)

    async def settle(self, feed: Feed) -> None:
        """Wait for all; not much longer than for the first, nor when their feeder failed."""
        loop = asyncio.get_running_loop()
        first = (feed.host, self.receive(feed)) if feed.up else ("", self.passed(feed))
        calls = [first, *((one.name, self.follow(one.name)) for one in feed.below())]
        tasks = {asyncio.ensure_future(call): name for name, call in calls}
        begun, end = loop.time(), loop.time() + FIRST_S
        pending = set(tasks)
        try:
            while pending and loop.time() < end:
                done, pending = await asyncio.wait(
                    pending, timeout=end - loop.time(), return_when=asyncio.FIRST_COMPLETED
                )
                for task in done:
                    end = min(end, loop.time() + self.heard(tasks[task], task, feed, begun))
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
        feed: Feed,
        begun: float,
    ) -> float:
        """What one of them said; how long the others may still take."""
        error = task.exception()
        if error is None:
            self.landed(name or feed.host, task.result())
        elif not isinstance(error, HerdError):
            raise error
        elif name:
            self.fell(name, error)
        if name in ("", feed.host):
            return GRACE_S if error is not None else FIRST_S
        return max(PATIENCE_S, asyncio.get_running_loop().time() - begun)

    # ---- switch ----------------------------------------------------------------------------------

    async def switch(self) -> None:
        """All that are ready, at once."""
        self.told("switch")
        ready = [name for name in self.ready if name not in self.switched]
        found = await self.each(
            ready, lambda name: self.links[name].call(self.verb("commit", name)), COMMIT_S
        )
        for name in ready:
            if name in found:
                self.stood(name, found[name])
            else:
                self.unsure.add(name)
                self.failed[name] = f"filled, but not switched for sure: {self.failed[name]}"
        for name in self.unchanged:
            STANDS.note(self.spot(name), self.cargo.id, self.now())

    def stood(self, name: str, reply: Mapping[str, Any]) -> None:
        """A host has switched."""
        self.switched.add(name)
        STANDS.note(self.spot(name), self.cargo.id, self.now())
        if reply.get("stays"):
            self.kept[name] = tuple(reply["stays"])

    async def abandon(self) -> None:
        """None switches; nothing stays behind where it can be reached. A host alone may have
        switched when its answer was lost: it is asked."""
        failed = dict(self.failed)
        for name in failed:
            STANDS.forget(self.spot(name))
        asked = self.silent & failed.keys() if self.alone else set()
        names = {*self.haves, *asked}
        found = await self.each(
            names, lambda name: self.links[name].call(self.verb("abandon", name)), GRACE_S
        )
        self.failed = failed
        for name in asked:
            if name not in found:
                self.unsure.add(name)
            elif found[name].get("stands"):
                self.failed.pop(name, None)
                self.stood(name, found[name])
