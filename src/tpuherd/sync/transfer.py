"""Carries out one shipment: asks, fills and switches hosts.

1. `ask_hosts`: each host reports what it has (`have`) and where it listens. If we know what a host
   has at the destination, a small change is sent along with the question (`collect_hints`).
2. `fill_hosts`: in rounds, until every host is ready or has failed. Each round plans trees
   (relay_rounds.py, relay_tree.py): we send the difference (delta.py, upload_blocks.py) to the top
   of a tree and the hosts relay it. A host that relaying missed too often is filled directly.
3. `switch_hosts`: all ready hosts switch (`commit`) at once, or, if one failed, `abandon_all`.
The agent's side is in tpuherd_host/agent/snapshots*; recent_cache.py remembers what was learned.
"""

import asyncio
import secrets
import zlib
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from importlib import import_module
from typing import Any

from tpuherd.errors import HerdError, NotReached
from tpuherd.ports import Link, RpcRequest
from tpuherd.sync.delta import BASE_LETTERS, Delta, compute_delta
from tpuherd.sync.recent_cache import LAST_SHIPPED
from tpuherd.sync.relay_rounds import RelayRounds
from tpuherd.sync.relay_tree import RelayHost, RelayTree, node_key
from tpuherd.sync.shipment import Payload, Progress, ProgressCallback, ShipOptions
from tpuherd.sync.upload_blocks import UploadMeter, await_reply, send_blocks
from tpuherd_host.agent.frames import BLOBS
from tpuherd_host.agent.snapshots.stream import MakeCompressor, encode_stream

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


def fastest_compressor() -> MakeCompressor:
    """zlib-ng, which takes a third of the time for the same size, else the standard library."""
    try:
        compressor: MakeCompressor = import_module("zlib_ng.zlib_ng").compressobj
    except ImportError:
        return zlib.compressobj
    return compressor


COMPRESSOR = fastest_compressor()  #: every host can read its output


class Transfer:
    """The state of one shipment."""

    def __init__(
        self,
        payload: Payload,
        dest: str,
        links: Mapping[str, Link],
        report: ProgressCallback,
        options: ShipOptions,
    ) -> None:
        self.payload = payload
        self.dest = dest
        self.links = links
        self.report = report
        self.options = options
        self.tokens: dict[str, str] = {}  #: a new one for each host and try
        self.haves: dict[str, Mapping[str, Any]] = {}
        self.unchanged: set[str] = set()
        self.ready: list[str] = []
        self.switched: set[str] = set()
        self.silent: set[str] = set()  #: hosts whose last reply is missing
        self.unsure: set[str] = set()
        #: A single host switches by itself: one call less.
        self.alone = len(links) == 1 and options.tops is None
        self.failed: dict[str, str] = {}
        self.slow: dict[str, str] = {}
        self.kept: dict[str, tuple[str, ...]] = {}
        self.nodes = {name: node_key(link.host) for name, link in links.items()}
        self.rounds = RelayRounds(self.nodes, relay=options.relay, copies=options.tops is not None)
        self.reasons: dict[str, str] = {}
        self.below: dict[str, set[str]] = {}  #: the descendants of each host in this round
        self.orphans: set[str] = set()  #: hosts that can no longer get it in this round
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
        while waiting and (self.options.partial or not self.failed):
            waiting = await self.run_round(waiting)
        self.rounds.remember_apart(self.ready, self.loop_time())

    def loop_time(self) -> float:
        return asyncio.get_running_loop().time()

    async def collect_hints(self) -> dict[str, tuple[str, bytes]]:
        """By host, the small changes to send with the question, and their base snapshot."""
        if self.options.tops is not None or len(self.payload.rows) > HINT_ROWS_MAX:
            return {}
        last = {
            name: LAST_SHIPPED.get(self.destination_key(name), self.loop_time())
            for name in self.links
        }
        bases = {id for id in last.values() if id not in (None, self.payload.id)}
        found = {
            id: await asyncio.to_thread(self.encode_hint, id) for id in bases if len(bases) == 1
        }
        return {n: (id, found[id]) for n, id in last.items() if id and found.get(id)}

    def encode_hint(self, base: str) -> bytes:
        """The stream that turns the base snapshot into this one; empty if it is too long."""
        delta = compute_delta(self.payload.rows, [{"whole": [base]}], self.payload.rows_of)
        if delta.base is None or delta.size > HINT_PLAIN_MAX:
            return b""
        found = b"".join(self.encode_blocks(delta, UploadMeter()))
        most = min(HINT_MAX, HINTS_MAX // len(self.links))
        return found if len(found) <= most else b""

    def destination_key(self, name: str) -> tuple[str, str, str]:
        """The key of this destination in LAST_SHIPPED."""
        return self.nodes[name], name, self.dest

    async def ask_hosts(
        self, names: Iterable[str], hints: Mapping[str, tuple[str, bytes]] = NOTHING
    ) -> list[str]:
        """Ask what the hosts have and where they listen; returns those that answered."""

        async def one(name: str) -> Mapping[str, Any]:
            self.tokens[name] = secrets.token_hex(12)
            order: dict[str, Any] = {"id": self.payload.id, "dest": self.dest}
            if self.options.in_code and (code := self.links[name].host.code_folder):
                order["code"] = code
            if self.options.tops is not None:
                order["tops"] = list(self.options.tops)
            if self.options.force:
                order["force"] = True
            if self.options.relay:
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
        if self.rounds.has_failures:
            waiting = await self.ask_hosts(waiting)
        whole = [*self.ready, *sorted(self.unchanged if self.options.unchanged_relay else ())]
        trees = self.rounds.plan_round(
            [self.relay_host(name) for name in waiting], whole, self.loop_time()
        )
        self.below = {
            one.name: one.descendant_names() for tree in trees for one in tree.iter_descendants()
        }
        self.orphans.clear()
        ends = await asyncio.gather(*map(self.run_relay_tree, trees), return_exceptions=True)
        for error in filter(None, ends):
            raise error
        return self.remaining_hosts(waiting, trees)

    def remaining_hosts(self, waiting: Sequence[str], trees: Sequence[RelayTree]) -> list[str]:
        """The hosts without it; those that had their last try count as failed."""
        left = [name for name in waiting if name not in self.ready and name not in self.failed]
        for tree in trees:
            reasons = self.rounds.detour_reasons(tree)
            self.slow.update((name, why) for name, why in reasons.items() if name in self.ready)
            if tree.alone and tree.host in left:
                left.remove(tree.host)
                self.failed[tree.host] = self.reasons.get(tree.host, "took too long to receive it")
        self.rounds.record_round(left, self.ready, trees)
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
            self.payload.rows, [self.haves[name] for name in names], self.payload.rows_of
        )

    async def send_to_host(self, tree: RelayTree) -> Mapping[str, Any]:
        """Send the stream to one host, which passes it on."""
        delta = self.delta_for_hosts([tree.host, *(one.name for one in tree.iter_descendants())])
        up = UploadMeter()

        def sent(many: int) -> None:
            self.sent += many
            self.report_progress("send")

        children = [one.to_json() for one in tree.children]
        verb = self.make_verb("receive", tree.host, children=children, **self.switch_flag())
        async with self.links[tree.host].open_stream(verb) as call:
            await send_blocks(call, self.encode_blocks(delta, up), up, sent)
            self.report_progress("fill")
            return await await_reply(call)

    def encode_blocks(self, delta: Delta, up: UploadMeter) -> Iterator[bytes]:
        contents = delta.iter_contents(self.payload.pieces)
        return encode_stream(
            delta.stream_head(), delta.stream_body(), contents, up.compression_level, COMPRESSOR
        )

    def switch_flag(self) -> dict[str, Any]:
        """The flag that lets a single host switch as soon as it has everything."""
        return {"switch": True} if self.alone else {}

    async def pass_on(self, tree: RelayTree) -> Mapping[str, Any]:
        """Let a host that is ready pass it on to others."""
        verb = self.make_verb("pass", tree.host, children=[one.to_json() for one in tree.children])
        async with self.links[tree.host].open_stream(verb) as call:
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
            self.rounds.record_lost(lost, by=name)
        self.reasons[name] = str(reply.get("why"))
        if reply.get("ready") == self.payload.id:
            self.ready.append(name)
            self.report_progress("fill")
        if reply.get("switched") == self.payload.id:
            self.mark_switched(name, reply)

    async def run_relay_tree(self, tree: RelayTree) -> None:
        """Fill a tree. Waits for the others not much longer than for the first, nor after their
        parent failed."""
        loop = asyncio.get_running_loop()
        first = (tree.host, self.send_to_host(tree)) if tree.up else ("", self.pass_on(tree))
        calls = [
            first,
            *((one.name, self.await_relayed(one.name)) for one in tree.iter_descendants()),
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
                        end, loop.time() + self.handle_finished(tasks[task], task, tree, begun)
                    )
                pending = {task for task in pending if tasks[task] not in self.orphans}
            for task in pending:
                self.rounds.record_late(tasks[task])
        finally:
            late = [task for task in tasks if not task.done()]
            for task in late:
                task.cancel()
            await asyncio.gather(*late, return_exceptions=True)

    def handle_finished(
        self,
        name: str,
        task: "asyncio.Future[Mapping[str, Any]]",
        tree: RelayTree,
        begun: float,
    ) -> float:
        """Handle one result; returns how long the others may still take."""
        error = task.exception()
        if error is None:
            self.record_reply(name or tree.host, task.result())
        elif not isinstance(error, HerdError):
            raise error
        elif name:
            self.mark_failed(name, error)
        if name in ("", tree.host):
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
            LAST_SHIPPED.put(self.destination_key(name), self.payload.id, self.loop_time())

    def mark_switched(self, name: str, reply: Mapping[str, Any]) -> None:
        self.switched.add(name)
        LAST_SHIPPED.put(self.destination_key(name), self.payload.id, self.loop_time())
        if reply.get("stays"):
            self.kept[name] = tuple(reply["stays"])

    async def abandon_all(self) -> None:
        """Discard it on all reachable hosts, so that none switches. A single host whose reply was
        lost may have switched, so it is asked."""
        failed = dict(self.failed)
        for name in failed:
            LAST_SHIPPED.remove(self.destination_key(name))
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
