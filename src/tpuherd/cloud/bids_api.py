"""Bids in the cloud: looked at all at once, asked for, withdrawn, and how they came out."""

import asyncio
from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping
from contextlib import aclosing
from typing import Any

from tpuherd.clock import Clock
from tpuherd.cloud import error_replies, nodes_api, parse, request_bodies, state_mapping
from tpuherd.cloud.nodes_api import Cloud
from tpuherd.cloud.parse import Node, Request
from tpuherd.cloud.rest import Said
from tpuherd.errors import HerdError, NotFound, NotReached
from tpuherd.model.node_spec import Order
from tpuherd.model.observed import NodeSight, NodeWord, RequestWord, Sight
from tpuherd.model.slots_and_plan import Ask, Kind, Offer, Refusal, Withdraw
from tpuherd.ports import Host, Refused, Survey
from tpuherd.targets import slot_of

#: By these a request or a node is known as the one that was asked for.
SAME = ("slot", "generation", "owner", "node_digest")
FRESH_S = 15.0  #: so long the operations of a zone are as good as read anew: all bids share them
PAGES_OF_OPERATIONS = 5  #: the newest stand first; a create is followed up within minutes


class Bids:
    """The CloudPort of one project."""

    def __init__(
        self,
        cloud: Cloud,
        clock: Clock,
        ssh_port: int,
        nodes: Callable[[], Awaitable[nodes_api.Survey]],
    ) -> None:
        self.cloud = cloud
        self.clock = clock
        self.ssh_port = ssh_port
        self._list_nodes = nodes
        self._nodes: Mapping[str, list[Node]] = {}  #: by bid, as seen last
        #: By zone, when they were read.
        self._failed: dict[str, tuple[float, Mapping[str, error_replies.Error]]] = {}
        self._reading = asyncio.Lock()

    async def survey(self, zones: Collection[str]) -> Survey:
        """Two wildcard lists; nodes last, so that none seems to be without its request."""
        begun_at, reads = self.clock.now(), self.cloud.rest.reads
        queued, silent, trouble = await self._requests()
        seen = await self._list_nodes()
        self._nodes = by_bid(seen.nodes)
        asked = {one.name: one for one in queued if slot_of(one.name) is not None}
        sights = {
            bid: sight(bid, asked.get(bid), self._nodes.get(bid, []))
            for bid in {**asked, **self._nodes}
        }
        there = {one.zone for one in sights.values()}
        return Survey(
            sights=sights,
            zones=frozenset((there | set(zones)) - silent - set(seen.unknown)),
            begun_at=begun_at,
            reads=self.cloud.rest.reads - reads,
            trouble=trouble or seen.trouble,
        )

    async def _requests(self) -> tuple[list[Request], set[str], str]:
        """Every queued resource, the zones that did not answer, and what makes no sense."""
        found: list[Request] = []
        silent: set[str] = set()
        trouble = ""
        async for page in self.cloud.pages("-", "queuedResources", parse.requests):
            found += page.items
            silent.update(page.unknown)
            trouble = trouble or page.trouble
        return found, silent, trouble

    async def ask(self, ask: Ask, order: Order) -> None:
        """Create it; where the name is in use, look whether that is it."""
        queued = ask.offer.kind is Kind.QUEUED
        path = self._zone(ask.offer.zone)
        try:
            if queued:
                body = request_bodies.queued(ask, order, self.cloud.project)
                answer = await self.cloud.rest.tpu(
                    "POST", f"{path}/queuedResources", body, queuedResourceId=ask.bid
                )
            else:
                body = request_bodies.direct(ask, order)
                answer = await self.cloud.rest.tpu("POST", f"{path}/nodes", body, nodeId=ask.bid)
        except HerdError as error:
            if await self._there(ask, order, error):
                return
            raise told(error, ask.offer.tier) from error
        failed = parse.operation(answer).error
        if failed is not None:
            raise Refused(state_mapping.refusal(failed, ask.offer.tier), failed.sentence)

    async def _there(self, ask: Ask, order: Order, error: HerdError) -> bool:
        """Whether it was refused because it is there already."""
        said = error.__cause__
        if not isinstance(said, Said) or error_replies.error(said.content, said.status).code != 6:
            return False
        path = self._zone(ask.offer.zone)
        if ask.offer.kind is Kind.QUEUED:
            found = await self.cloud.rest.tpu("GET", f"{path}/queuedResources/{ask.bid}")
            metadata = parse.request(found).metadata
        else:
            found = await self.cloud.rest.tpu("GET", f"{path}/nodes/{ask.bid}")
            metadata = parse.node(found).metadata
        card = request_bodies.card_of(metadata)
        return all(card.get(key) == order.card.get(key) for key in SAME)

    async def withdraw(self, withdraw: Withdraw, sight: Sight | None) -> None:
        """The request with its nodes by force, or the nodes where there is no request."""
        path = self._zone(withdraw.zone)
        if sight is None or sight.request is not None:
            if sight is not None and sight.request in (RequestWord.ENDING, RequestWord.LEAVING):
                return  # it can't be deleted now, or is being
            await self._delete(f"{path}/queuedResources/{withdraw.bid}", force="true")
        names = [withdraw.bid] if sight is None else directly(sight)
        for name in names:
            await self._delete(f"{path}/nodes/{name}")

    async def _delete(self, path: str, **query: str) -> None:
        """What is gone already is fine."""
        try:
            await self.cloud.rest.tpu("DELETE", path, None, **query)
        except NotFound:
            pass

    async def outcome(self, bid: str, offer: Offer) -> Refused | None:
        """By the operation that created it: where nothing is listed, a refusal is found there."""
        zone = offer.zone
        async with self._reading:
            at, failed = self._failed.get(zone, (-FRESH_S, {}))
            if self.clock.now() >= at + FRESH_S:
                failed = await self._failures(zone)
                self._failed[zone] = self.clock.now(), failed
        error = failed.get(bid)
        if error is None:
            return None
        return Refused(state_mapping.refusal(error, offer.tier), error.sentence)

    async def _failures(self, zone: str) -> Mapping[str, error_replies.Error]:
        """The creations in a zone that failed, by what they were of."""
        found: dict[str, error_replies.Error] = {}
        many = 0
        async with aclosing(self.cloud.pages(zone, "operations", parse.operations)) as pages:
            async for page in pages:
                for one in page.items:
                    if one.verb == "create" and one.error is not None:
                        found.setdefault(one.target, one.error)
                many += 1
                if many == PAGES_OF_OPERATIONS:
                    break
        return found

    def hosts(self, bid: str) -> tuple[Host, ...]:
        """Of all its nodes, in the order of the slices and of the workers."""
        return tuple(
            parse.host(node, worker, self.ssh_port)
            for node in self._nodes.get(bid, [])
            for worker in range(len(node.workers))
        )

    def _zone(self, zone: str) -> str:
        return f"projects/{self.cloud.project}/locations/{zone}"


def by_bid(nodes: Iterable[Node]) -> Mapping[str, list[Node]]:
    """The nodes that bear an owner, those of a multislice run together and in order."""
    found: dict[str, list[tuple[int, Node]]] = {}
    for node in nodes:
        name = slot_of(node.name)
        if name is not None:
            bid = f"{name.slot}-g{name.generation}-{name.owner}"
            found.setdefault(bid, []).append((name.part or 0, node))
    return {
        bid: [node for _, node in sorted(parts, key=lambda part: part[0])]
        for bid, parts in found.items()
    }


def sight(bid: str, request: Request | None, nodes: list[Node]) -> Sight:
    """A bid as the judgement sees it."""
    metadata: Mapping[str, str] = request.metadata if request else nodes[0].metadata
    error = request.error if request else None
    return Sight(
        bid=bid,
        zone=request.zone if request else nodes[0].zone,
        request=state_mapping.request_word(request.state) if request else None,
        nodes=tuple(node_sight(node) for node in nodes),
        state=request.state if request else nodes[0].state,
        refusal=state_mapping.refusal(error, request.tier) if request and error else None,
        sentence=error.sentence if error else "",
        card=request_bodies.card_of(metadata),
    )


def node_sight(node: Node) -> NodeSight:
    """One node of it."""
    return NodeSight(
        name=node.name,
        word=state_mapping.node_word(node.state, node.health),
        state=node.state,
        incarnation=node.incarnation,
        hosts=len(node.workers),
        created=node.created,
        health=node.health,
    )


def directly(sight: Sight) -> list[str]:
    """The nodes to be deleted by themselves: those without a request that takes them along."""
    if sight.request is not None:
        return []
    return [node.name for node in sight.nodes if node.word is not NodeWord.LEAVING]


def told(error: HerdError, tier: str) -> HerdError:
    """What a failed create means: a refusal, credentials that don't count, or nothing known."""
    said: Any = error.__cause__
    if not isinstance(said, Said):
        return error
    found = error_replies.error(said.content, said.status)
    if said.status >= 500:
        return NotReached(found.sentence)
    if found.code == error_replies.UNAUTHENTICATED:
        return error
    word = state_mapping.refusal(found, tier)
    if word is Refusal.BROKEN:
        return NotReached(found.sentence)
    return Refused(word, found.sentence, hint=error.hint)
