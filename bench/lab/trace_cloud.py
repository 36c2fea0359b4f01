"""A cloud whose zones have capacity when traces say so, for the engine in virtual time."""

import asyncio
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from enum import StrEnum
from math import ceil
from typing import Protocol

from bench.lab.capacity import Capacity
from bench.lab.constants import Constants, Spread

from tpuherd.clock import Clock
from tpuherd.model.node_spec import NodeSpec
from tpuherd.model.observed import BidObservation, NodeObservation, NodeState, RequestState
from tpuherd.model.slot_history import BidRecord
from tpuherd.model.slots_and_plan import Ask, Offer, Withdraw
from tpuherd.ports import BidRefused, Host, Survey
from tpuherd_sim.model.world_parts import Dice
from tpuherd_sim.weather.storm import random_stream

API_S = 0.5  #: until the API answers
PERIOD_S_MIN = 3.0  #: the engine looks no more often
STEP_S = 1.0  #: how often a look that is due soon asks whether it is due sooner


class NodePhase(StrEnum):
    """What the cloud shows of a request and its node."""

    QUEUED = "queued"
    MAKING = "making"
    READY = "ready"
    LOST = "lost"
    LEAVING = "leaving"


#: The request, and the node if there is one.
SHOWN: Mapping[NodePhase, tuple[RequestState, NodeState | None]] = {
    NodePhase.QUEUED: (RequestState.QUEUED, None),
    NodePhase.MAKING: (RequestState.GRANTED, NodeState.MAKING),
    NodePhase.READY: (RequestState.ACTIVE, NodeState.READY),
    NodePhase.LOST: (RequestState.LOST, NodeState.LOST),
    NodePhase.LEAVING: (RequestState.LEAVING, NodeState.LEAVING),
}


@dataclass(eq=False, kw_only=True, slots=True)
class TraceNode:
    """A request and, once it is granted, its node."""

    name: str
    slot: str
    offer: Offer
    dice: Dice
    hosts: tuple[Host, ...]
    phase: NodePhase = NodePhase.QUEUED
    granted_at: float | None = None
    ready_at: float | None = None
    ended_at: float | None = None  #: it was lost, or its deletion is over
    timers: tuple[asyncio.TimerHandle, ...] = ()

    @property
    def alive(self) -> bool:
        return self.ready_at is not None and self.ended_at is None

    def cancel_timers(self) -> None:
        for timer in self.timers:
            timer.cancel()
        self.timers = ()


class NodeWatcher(Protocol):
    """Learns when a node's hosts come, will go, and are gone."""

    def start_hosts(self, node: TraceNode) -> None: ...

    def give_notice(self, node: TraceNode) -> None: ...

    def end_hosts(self, node: TraceNode, *, lost: bool) -> None: ...


class TraceCloud:
    """The engine's CloudPort: queued requests only.

    A look at which nothing can have changed is skipped: `note_change` says that something has.
    """

    def __init__(
        self,
        capacities: Mapping[str, Capacity],
        constants: Constants,
        clock: Clock,
        *,
        seed: int,
        watcher: NodeWatcher,
    ) -> None:
        self.nodes: dict[str, TraceNode] = {}
        self.past: list[TraceNode] = []  #: those that were deleted
        self.period_s: Callable[[], float] = lambda: PERIOD_S_MIN
        self._capacities = capacities
        self._constants = constants
        self._clock = clock
        self._seed = seed
        self._watcher = watcher
        self._looked_at = -PERIOD_S_MIN
        self._news = asyncio.Event()
        self._news.set()

    # ---- the engine's calls ----------------------------------------------------------------------

    def note_change(self) -> None:
        """Something has changed: the next look is not skipped."""
        self._news.set()

    async def survey_bids(self, zones: Collection[str], known: Mapping[str, BidRecord]) -> Survey:
        await self._await_look()
        begun_at = self._clock.now()
        self._looked_at = loop_time()
        self._news.clear()
        observations = {name: observe_node(node) for name, node in self.nodes.items()}
        await self._clock.sleep(API_S)
        return Survey(observations=observations, zones=frozenset(zones), begun_at=begun_at)

    async def _await_look(self) -> None:
        """Wait until the next look is due; skip those that would see what the last one saw."""
        if not self._news.is_set():
            await self._news.wait()
            period_s = max(PERIOD_S_MIN, self.period_s())
            skipped = ceil((loop_time() - self._looked_at) / period_s) - 1
            self._looked_at += max(0, skipped) * period_s
        while (left := self._looked_at + max(PERIOD_S_MIN, self.period_s()) - loop_time()) > 0:
            await self._clock.sleep(min(left, STEP_S))

    async def submit_bid(self, ask: Ask, order: NodeSpec) -> None:
        await self._clock.sleep(API_S)
        if ask.bid in self.nodes:
            return
        node = TraceNode(
            name=ask.bid,
            slot=ask.slot,
            offer=ask.offer,
            dice=self._dice_for(ask.offer.zone),
            hosts=hosts_of_bid(ask, len(self.nodes) + len(self.past)),
        )
        self.nodes[ask.bid] = node
        self._queue_node(node)
        self.note_change()

    async def withdraw_bid(self, withdraw: Withdraw, sight: BidObservation | None) -> None:
        await self._clock.sleep(API_S)
        node = self.nodes.get(withdraw.bid)
        if node is None or node.phase is NodePhase.LEAVING:
            return
        node.cancel_timers()
        node.phase = NodePhase.LEAVING
        if node.alive:
            self._watcher.end_hosts(node, lost=False)
        self._call_later(
            node, self._draw_seconds(node, self._constants.delete_s), self._delete_node
        )
        self.note_change()

    async def find_refusal(self, bid: str, offer: Offer) -> BidRefused | None:
        return None

    def bid_hosts(self, bid: str) -> tuple[Host, ...]:
        node = self.nodes.get(bid)
        return node.hosts if node is not None else ()

    # ---- the life of a node ----------------------------------------------------------------------

    def _dice_for(self, zone: str) -> Dice:
        """Return the luck of requests in this stretch of a zone's capacity, whoever asks and how
        often: so a change of policy changes no luck.
        """
        up = self._capacities[zone].next_up(loop_time())
        until = None if up is None else self._capacities[zone].up_until(up)
        return random_stream(self._seed, "node", zone, until)

    def _queue_node(self, node: TraceNode) -> None:
        """Grant it when its zone has had capacity for the time that a queued request needs."""
        zone, start = self._capacities[node.offer.zone], loop_time()
        while (up := zone.next_up(start)) is not None:
            until = zone.up_until(up)
            granted_at = max(up, start) + self._draw_seconds(node, self._constants.grant_lag_s)
            if until is None or granted_at < until:
                self._call_later(node, granted_at - loop_time(), self._grant_node)
                return
            start = until

    def _grant_node(self, node: TraceNode) -> None:
        now = loop_time()
        node.phase, node.granted_at = NodePhase.MAKING, now
        until = self._capacities[node.offer.zone].up_until(now)
        made_s = self._draw_seconds(node, self._constants.create_s)
        if until is None or now + made_s < until:
            self._call_later(node, made_s, self._make_ready)
        else:
            self._call_later(node, until - now, self._lose_node)
        self.note_change()

    def _make_ready(self, node: TraceNode) -> None:
        now = loop_time()
        node.phase, node.ready_at = NodePhase.READY, now
        until = self._capacities[node.offer.zone].up_until(now)
        if until is not None:
            self._call_later(node, until - now, self._lose_node)
            if notice_s := self._constants.notice_s:
                lose, wait_s = node.timers[0], max(0.0, until - notice_s - now)
                self._call_later(node, wait_s, self._watcher.give_notice)
                node.timers = (lose, *node.timers)
        self._watcher.start_hosts(node)
        self.note_change()

    def _lose_node(self, node: TraceNode) -> None:
        node.ended_at = loop_time()
        if node.ready_at is not None:
            self._watcher.end_hosts(node, lost=True)
        self._call_later(node, self._draw_seconds(node, self._constants.visible_s), self._show_loss)

    def _show_loss(self, node: TraceNode) -> None:
        node.phase = NodePhase.LOST
        self.note_change()

    def _delete_node(self, node: TraceNode) -> None:
        node.ended_at = node.ended_at or loop_time()
        node.timers = ()
        self.past.append(self.nodes.pop(node.name))
        self.note_change()

    def _call_later(
        self, node: TraceNode, seconds: float, change: Callable[[TraceNode], None]
    ) -> None:
        node.timers = (asyncio.get_running_loop().call_later(seconds, change, node),)

    @staticmethod
    def _draw_seconds(node: TraceNode, spread: Spread) -> float:
        low, high = spread
        return low + (high - low) * node.dice.random_fraction()


def loop_time() -> float:
    """Return the seconds since the traces began."""
    return asyncio.get_running_loop().time()


def observe_node(node: TraceNode) -> BidObservation:
    request, state = SHOWN[node.phase]
    nodes: tuple[NodeObservation, ...] = ()
    if state is not None and (node.granted_at is not None or state is NodeState.LOST):
        shown = NodeObservation(
            name=node.name, word=state, state=state.name, hosts=len(node.hosts),
            incarnation=node.hosts[0].incarnation,
        )  # fmt: skip
        nodes = (shown,)
    return BidObservation(
        bid=node.name, zone=node.offer.zone, request=request, nodes=nodes, state=request.name
    )


def hosts_of_bid(ask: Ask, number: int) -> tuple[Host, ...]:
    return tuple(
        Host(
            node=ask.bid,
            zone=ask.offer.zone,
            worker=worker,
            incarnation=f"{number}@{ask.bid}",
            internal_ip=f"10.{number >> 8 & 255}.{number & 255}.{worker + 1}",
            external_ip=None,
            bid=ask.bid,
        )
        for worker in range(ask.offer.hosts)
    )
