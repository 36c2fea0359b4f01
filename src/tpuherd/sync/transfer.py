"""Carries out one shipment: asks, fills and switches hosts.

1. `ask_hosts`: each host reports what it has (`have`) and where it listens. If we know what a host
   has at the destination, a small change is sent along with the question (`collect_hints`).
2. `fill_hosts`: in rounds, until every host is ready or has failed. Each round plans trees
   (relay_tree.py): we send the difference (delta.py, upload_blocks.py) to the top of a tree and the
   hosts relay it. A host that relaying missed too often gets it over its own link.
3. `switch_hosts`: all ready hosts switch (`commit`) at once, or, if one failed, `abandon_all`.
The agent's side is in tpuherd_host/agent/snapshots*; recent_cache.py remembers what was learned.
"""

import asyncio
import secrets
from collections import Counter
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from itertools import combinations
from typing import Any

from tpuherd.errors import HerdError, NotReached
from tpuherd.ports import Link, RpcRequest
from tpuherd.sync.compressor import COMPRESSOR
from tpuherd.sync.delta import BASE_LETTERS, Delta, compute_delta
from tpuherd.sync.recent_cache import APART, STANDS
from tpuherd.sync.relay_tree import (
    DIRECT_AFTER,
    NodePair,
    RelayHost,
    RelayTree,
    detour_reasons,
    node_key,
    plan_relays,
)
from tpuherd.sync.shipment import Payload, Progress, ProgressCallback, ShipOptions
from tpuherd.sync.upload_blocks import UploadMeter, await_reply, send_blocks
from tpuherd_host.agent.frames import BLOBS
from tpuherd_host.agent.snapshots.stream import encode_stream

HAVE_S = 30.0
COMMIT_S = 120.0
PATIENCE_S = 20.0  #: how much longer the others may take than the first, at least
GRACE_S = 5.0  #: after the host that relays to them failed
FIRST_S = 1800.0
#: Changes up to this size are sent with the first question, to each host over its own link: this
#: saves a round trip and costs no more than asking.
HINT_MAX, HINTS_MAX = 2048, 65_536
HINT_PLAIN_MAX, HINT_ROWS_MAX = 1 << 20, 20_000

AskHost = Callable[[str], Awaitable[Mapping[str, Any]]]
NOTHING: Mapping[str, Any] = {}


class Transfer:
    """The state of one shipment."""

    def __init__(
        self,
        cargo: Payload,
        dest: str,
        links: Mapping[str, Link],
        report: ProgressCallback,
        terms: ShipOptions,
    ) -> None:
        self.cargo = cargo
        self.dest = dest
        self.links = links
        self.report = report
        self.terms = terms
        self.tokens: dict[str, str] = {}  #: a new one for each host and try
        self.haves: dict[str, Mapping[str, Any]] = {}
        self.unchanged: set[str] = set()
        self.ready: list[str] = []
        self.switched: set[str] = set()
        self.silent: set[str] = set()  #: hosts whose last reply is missing
        self.unsure: set[str] = set()
        self.alone = (
            len(links) == 1 and terms.tops is None
        )  #: a single host switches by itself: one call less
        self.failed: dict[str, str] = {}
        self.slow: dict[str, str] = {}
        self.kept: dict[str, tuple[str, ...]] = {}
        self.nodes = {name: node_key(link.host) for name, link in links.items()}
        self.tries: Counter[str] = (
            Counter()
        )  #: by host: rounds in which another host of its node had it
        self.misses: Counter[str] = (
            Counter()
        )  #: by node: rounds after which none of its hosts had it
        self.apart: set[NodePair] = set()  #: pairs of nodes that could not reach each other
        self.strays: set[str] = set()  #: nodes that other nodes could not reach
        self.whys: dict[str, str] = {}
        self.below: dict[str, set[str]] = {}  #: the descendants of each host in this round
        self.orphans: set[str] = set()  #: hosts that can't get it any more in this round
        self.sent = 0

    def make_verb(self, verb: str, host: str, **more: Any) -> RpcRequest:
        """A request about this shipment with the host's token."""
        return RpcRequest(name=f"snapshot.{verb}", arguments={"token": self.tokens[host], **more})

    def report_progress(self, stage: str) -> None:
        ready = len(self.ready) + len(self.unchanged)
        self.report(Progress(stage=stage, sent=self.sent, ready=ready, hosts=len(self.links)))

    async def call_each(
        self, names: Iterable[str], ask: AskHost, limit_s: float
    ) -> dict[str, Mapping[str, Any]]:
        """Ask all hosts at once; those that fail or are late count as failed."""

        async def one(name: str) -> None:
            try:
                async with asyncio.timeout(limit_s):
                    found[name] = await ask(name)
            except HerdError as error:
                self.mark_failed(name, error)
            except TimeoutError:
                self.silent.add(name)
                self.failed[name] = f"did not answer within {limit_s:g} s"

        found: dict[str, Mapping[str, Any]] = {}
        async with asyncio.TaskGroup() as group:
            for name in names:
                group.create_task(one(name))
        return found

    def mark_failed(self, name: str, error: HerdError) -> None:
        self.failed[name] = error.sentence
        if isinstance(error, NotReached):
            self.silent.add(name)

    # ---- fill ------------------------------------------------------------------------------------

    async def fill_hosts(self) -> None:
        """Fill hosts in rounds until every host is ready or has failed."""
        self.report_progress("ask")
        waiting = await self.ask_hosts(self.links, await self.collect_hints())
        for name in list(waiting):
            if self.haves[name].get("intact"):
                self.unchanged.add(name)
            elif self.haves[name].get("ready"):
                self.record_reply(name, self.haves[name])
            else:
                continue
            waiting.remove(name)
        while waiting and (self.terms.partial or not self.failed):
            waiting = await self.run_round(waiting)
        reached = {self.nodes[name] for name in self.ready}
        lone = map(
            frozenset, combinations(sorted(self.strays), 2)
        )  # not tried, but likely apart too
        for pair in {*self.apart, *lone}:
            if pair <= reached:
                APART.put(pair, None, self.loop_time())

    def loop_time(self) -> float:
        return asyncio.get_running_loop().time()

    async def collect_hints(self) -> dict[str, tuple[str, bytes]]:
        """By host, the small changes to send with the question, and their base snapshot."""
        if self.terms.tops is not None or len(self.cargo.rows) > HINT_ROWS_MAX:
            return {}
        stands = {
            name: STANDS.get(self.destination_key(name), self.loop_time()) for name in self.links
        }
        bases = {id for id in stands.values() if id not in (None, self.cargo.id)}
        found = {
            id: await asyncio.to_thread(self.encode_hint, id) for id in bases if len(bases) == 1
        }
        return {n: (id, found[id]) for n, id in stands.items() if id and found.get(id)}

    def encode_hint(self, base: str) -> bytes:
        """The stream that turns the base snapshot into this one; empty if it is too long."""
        offered = compute_delta(self.cargo.rows, [{"whole": [base]}], self.cargo.rows_of)
        if offered.base is None or offered.size > HINT_PLAIN_MAX:
            return b""
        found = b"".join(self.encode_blocks(offered, UploadMeter()))
        most = min(HINT_MAX, HINTS_MAX // len(self.links))
        return found if len(found) <= most else b""

    def destination_key(self, name: str) -> tuple[str, str, str]:
        """The key of this destination in STANDS."""
        return self.nodes[name], name, self.dest

    async def ask_hosts(
        self, names: Iterable[str], hints: Mapping[str, tuple[str, bytes]] = NOTHING
    ) -> list[str]:
        """Ask what the hosts have and where they listen; returns those that answered."""

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
                return await self.links[name].call(self.make_verb("have", name, **order))
            base, changes = hints[name]
            order |= {"base": base[:BASE_LETTERS], **self.switch_flag()}
            async with self.links[name].open_stream(self.make_verb("have", name, **order)) as call:
                await call.write(BLOBS, changes)
                self.sent += len(changes)
                return await call.reply()

        found = await self.call_each(names, one, HAVE_S)
        self.haves.update(found)
        return [name for name in names if name in found]

    async def run_round(self, waiting: list[str]) -> list[str]:
        """Try once to fill all waiting hosts; returns those that still wait."""
        if self.tries or self.misses:
            waiting = await self.ask_hosts(waiting)
        feeds = self.plan_round(waiting)
        self.below = {
            one.name: one.descendant_names() for feed in feeds for one in feed.iter_descendants()
        }
        self.orphans.clear()
        ends = await asyncio.gather(*map(self.run_relay_tree, feeds), return_exceptions=True)
        for error in filter(None, ends):
            raise error
        return self.remaining_hosts(waiting, feeds)

    def plan_round(self, waiting: Sequence[str]) -> list[RelayTree]:
        sources = {self.nodes[name]: name for name in reversed(self.ready)}
        copies = self.terms.tops is not None  # hosts do not keep copies to pass on
        spent = {node for node in self.misses if self.misses[node] >= 2 * DIRECT_AFTER}
        spent |= sources.keys() if copies else set()
        spent |= set() if self.terms.relay else set(self.nodes.values())
        tired = {n for n in waiting if self.tries[n] >= DIRECT_AFTER or self.nodes[n] in spent}
        return plan_relays(
            [self.relay_host(name) for name in waiting],
            {} if copies else sources,
            alone=tired,
            strays={*self.strays, *(n for n in self.misses if self.misses[n] >= DIRECT_AFTER)},
            apart=self.apart.union(APART.iter_recent(self.loop_time())),
        )

    def remaining_hosts(self, waiting: Sequence[str], feeds: Sequence[RelayTree]) -> list[str]:
        """The hosts without it; those that had their last try count as failed."""
        left = [name for name in waiting if name not in self.ready and name not in self.failed]
        for feed in feeds:
            node = self.nodes[feed.host]
            ways = detour_reasons(feed, stray=node in self.strays, again=self.misses[node] > 0)
            if self.terms.relay:
                self.slow.update((name, way) for name, way in ways.items() if name in self.ready)
            if feed.alone and feed.host in left:
                left.remove(feed.host)
                self.failed[feed.host] = self.whys.get(feed.host, "took too long to receive it")
        reached = {self.nodes[name] for name in self.ready}
        self.tries.update(name for name in left if self.nodes[name] in reached)
        missed = {self.nodes[name] for name in left} - reached
        fed = missed & {self.nodes[feed.host] for feed in feeds}
        self.misses.update([*missed, *fed])  # counts twice if we sent it ourselves
        return left

    def relay_host(self, name: str) -> RelayHost:
        return RelayHost(
            name=name,
            address=self.links[name].host.internal_ip,
            port=int(self.haves[name].get("port") or 0),
            token=self.tokens[name],
            node=self.nodes[name],
        )

    def delta_for_hosts(self, names: Sequence[str]) -> Delta:
        return compute_delta(
            self.cargo.rows, [self.haves[name] for name in names], self.cargo.rows_of
        )

    async def send_to_host(self, feed: RelayTree) -> Mapping[str, Any]:
        """Send the stream to one host, which passes it on."""
        offered = self.delta_for_hosts([feed.host, *(one.name for one in feed.iter_descendants())])
        up = UploadMeter()

        def sent(many: int) -> None:
            self.sent += many
            self.report_progress("send")

        children = [one.to_json() for one in feed.children]
        verb = self.make_verb("receive", feed.host, children=children, **self.switch_flag())
        async with self.links[feed.host].open_stream(verb) as call:
            await send_blocks(call, self.encode_blocks(offered, up), up, sent)
            self.report_progress("fill")
            return await await_reply(call)

    def encode_blocks(self, offered: Delta, up: UploadMeter) -> Iterator[bytes]:
        contents = offered.iter_contents(self.cargo.pieces, self.cargo.kept)
        return encode_stream(
            offered.stream_head(), offered.stream_body(), contents, up.compression_level, COMPRESSOR
        )

    def switch_flag(self) -> dict[str, Any]:
        """The flag that lets a single host switch as soon as it has everything."""
        return {"switch": True} if self.alone else {}

    async def pass_on(self, feed: RelayTree) -> Mapping[str, Any]:
        """Let a host that is ready pass it on to others."""
        verb = self.make_verb("pass", feed.host, children=[one.to_json() for one in feed.children])
        async with self.links[feed.host].open_stream(verb) as call:
            return await await_reply(call)

    async def await_relayed(self, name: str) -> Mapping[str, Any]:
        """Wait for a host that gets it from another host."""
        async with self.links[name].open_stream(self.make_verb("relay", name)) as call:
            return await await_reply(call)

    def record_reply(self, name: str, reply: Mapping[str, Any]) -> None:
        """Record a host's reply: its own result, and the hosts that it could not reach."""
        names = {token: name for name, token in self.tokens.items()}
        for lost in filter(None, map(names.get, reply.get("lost", ()))):
            self.orphans |= {lost, *self.below.get(lost, ())}
            if self.nodes[lost] != self.nodes[name]:
                self.strays.add(self.nodes[lost])
                self.apart.add(frozenset((self.nodes[lost], self.nodes[name])))
        self.whys[name] = str(reply.get("why"))
        if reply.get("ready") == self.cargo.id:
            self.ready.append(name)
            self.report_progress("fill")
        if reply.get("switched") == self.cargo.id:
            self.mark_switched(name, reply)

    async def run_relay_tree(self, feed: RelayTree) -> None:
        """Fill a tree. Waits for the others not much longer than for the first, nor after their
        parent failed."""
        loop = asyncio.get_running_loop()
        first = (feed.host, self.send_to_host(feed)) if feed.up else ("", self.pass_on(feed))
        calls = [
            first,
            *((one.name, self.await_relayed(one.name)) for one in feed.iter_descendants()),
        ]
        tasks = {asyncio.ensure_future(call): name for name, call in calls}
        begun, end = loop.time(), loop.time() + FIRST_S
        pending = set(tasks)
        try:
            while pending and loop.time() < end:
                done, pending = await asyncio.wait(
                    pending, timeout=end - loop.time(), return_when=asyncio.FIRST_COMPLETED
                )
                for task in done:
                    end = min(
                        end, loop.time() + self.handle_finished(tasks[task], task, feed, begun)
                    )
                pending = {task for task in pending if tasks[task] not in self.orphans}
            for task in pending:
                self.tries[tasks[task]] = DIRECT_AFTER
        finally:
            late = [task for task in tasks if not task.done()]
            for task in late:
                task.cancel()
            await asyncio.gather(*late, return_exceptions=True)

    def handle_finished(
        self,
        name: str,
        task: "asyncio.Future[Mapping[str, Any]]",
        feed: RelayTree,
        begun: float,
    ) -> float:
        """Handle one result; returns how long the others may still take."""
        error = task.exception()
        if error is None:
            self.record_reply(name or feed.host, task.result())
        elif not isinstance(error, HerdError):
            raise error
        elif name:
            self.mark_failed(name, error)
        if name in ("", feed.host):
            return GRACE_S if error is not None else FIRST_S
        return max(PATIENCE_S, asyncio.get_running_loop().time() - begun)

    # ---- switch ----------------------------------------------------------------------------------

    async def switch_hosts(self) -> None:
        self.report_progress("switch")
        ready = [name for name in self.ready if name not in self.switched]
        found = await self.call_each(
            ready, lambda name: self.links[name].call(self.make_verb("commit", name)), COMMIT_S
        )
        for name in ready:
            if name in found:
                self.mark_switched(name, found[name])
            else:
                self.unsure.add(name)
                self.failed[name] = f"received it but may not have switched: {self.failed[name]}"
        for name in self.unchanged:
            STANDS.put(self.destination_key(name), self.cargo.id, self.loop_time())

    def mark_switched(self, name: str, reply: Mapping[str, Any]) -> None:
        self.switched.add(name)
        STANDS.put(self.destination_key(name), self.cargo.id, self.loop_time())
        if reply.get("stays"):
            self.kept[name] = tuple(reply["stays"])

    async def abandon_all(self) -> None:
        """Discard it on all reachable hosts, so that none switches. A single host whose reply was
        lost may have switched, so it is asked."""
        failed = dict(self.failed)
        for name in failed:
            STANDS.remove(self.destination_key(name))
        asked = self.silent & failed.keys() if self.alone else set()
        names = {*self.haves, *asked}
        found = await self.call_each(
            names, lambda name: self.links[name].call(self.make_verb("abandon", name)), GRACE_S
        )
        self.failed = failed
        for name in asked:
            if name not in found:
                self.unsure.add(name)
            elif found[name].get("stands"):
                self.failed.pop(name, None)
                self.mark_switched(name, found[name])
