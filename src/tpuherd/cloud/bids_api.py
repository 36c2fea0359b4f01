"""Surveys, submits and withdraws bids in the cloud, and finds out why one was refused."""

import asyncio
from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping
from contextlib import aclosing
from dataclasses import replace
from urllib.parse import quote

from tpuherd.clock import Clock
from tpuherd.cloud import error_replies, nodes_api, parse, request_bodies, state_mapping
from tpuherd.cloud.nodes_api import Cloud
from tpuherd.cloud.parse import Node, QueuedResource
from tpuherd.errors import HerdError, NotFound, NotReached
from tpuherd.model.node_spec import NodeSpec
from tpuherd.model.observed import BidObservation, NodeObservation, NodeState, RequestState
from tpuherd.model.slot_history import BidRecord
from tpuherd.model.slots_and_plan import Ask, Offer, Refusal, RequestKind, Withdraw
from tpuherd.ports import BidRefused, Host, Survey
from tpuherd.targets import natural_key, split_bid_name

#: The card fields by which we recognize a request or node as the one that we asked for.
SAME = ("slot", "generation", "owner", "node_digest")
NOTHING_KNOWN: Mapping[str, BidRecord] = {}
FRESH_S = 15.0  #: all bids of a zone share one list of its operations for this long
PAGES_OF_OPERATIONS = 5  #: the newest come first, and a create is checked within minutes


class BidsApi:
    """The CloudPort of one project."""

    def __init__(
        self,
        cloud: Cloud,
        clock: Clock,
        ssh_port: int,
        nodes: Callable[[], Awaitable[nodes_api.NodeList]],
        login_key: tuple[str, str] | None = None,
    ) -> None:
        """`login_key`: a login and its public key, which new nodes have from the start: the cloud
        takes no key while it creates a node.
        """
        self.cloud = cloud
        self.clock = clock
        self.ssh_port = ssh_port
        self._list_nodes = nodes
        self._login_key = login_key
        self._nodes: Mapping[str, list[Node]] = {}  #: by bid, from the last survey
        #: By zone: when its failed operations were read, and what they were.
        self._failed: dict[str, tuple[float, Mapping[str, error_replies.CloudError]]] = {}
        self._reading = asyncio.Lock()

    async def survey_bids(
        self, zones: Collection[str], known: Mapping[str, BidRecord] = NOTHING_KNOWN
    ) -> Survey:
        """Two wildcard lists. Nodes come last, so that none seems to lack its request."""
        begun_at, reads = self.clock.now(), self.cloud.rest.reads
        queued, silent, trouble = await self._list_requests()
        seen = await self._list_nodes()
        self._nodes = group_by_bid(seen.nodes, known)
        asked = {one.name: one for one in queued if is_request_of_bid(one, known.get(one.name))}
        sights = {
            bid: bid_observation(bid, asked.get(bid), self._nodes.get(bid, []))
            for bid in {**asked, **self._nodes}
        }
        there = {one.zone for one in sights.values()}
        return Survey(
            observations=sights,
            zones=frozenset((there | set(zones)) - silent - set(seen.unknown)),
            begun_at=begun_at,
            reads=self.cloud.rest.reads - reads,
            trouble=trouble or seen.trouble,
        )

    async def _list_requests(self) -> tuple[list[QueuedResource], set[str], str]:
        """Every queued resource, the zones that did not answer, and what was malformed."""
        found: list[QueuedResource] = []
        silent: set[str] = set()
        trouble = ""
        async for page in self.cloud.list_pages(
            "-", "queuedResources", parse.parse_queued_resources
        ):
            found += page.items
            silent.update(page.unknown)
            trouble = trouble or page.trouble
        return found, silent, trouble

    async def submit_bid(self, ask: Ask, order: NodeSpec) -> None:
        """Create it. If the name is taken, succeed if that resource is this very bid."""
        if self._login_key is not None:
            metadata = parse.add_ssh_key(order.metadata, *self._login_key)
            order = replace(order, metadata=metadata or order.metadata)
        queued = ask.offer.kind is RequestKind.QUEUED
        path = self._zone_path(ask.offer.zone)
        try:
            if queued:
                body = request_bodies.queued_resource_body(ask, order, self.cloud.project)
                answer = await self.cloud.rest.call_tpu(
                    "POST", f"{path}/queuedResources", body, queuedResourceId=ask.bid
                )
            else:
                body = request_bodies.create_node_body(ask, order)
                answer = await self.cloud.rest.call_tpu(
                    "POST", f"{path}/nodes", body, nodeId=ask.bid
                )
        except HerdError as error:
            if await self._is_already_created(ask, order, error):
                return
            raise creation_error(error, ask.offer.tier) from error
        failed = parse.parse_operation(answer).error
        if failed is not None:
            raise BidRefused(
                state_mapping.classify_refusal(failed, ask.offer.tier), failed.sentence
            )

    async def _is_already_created(self, ask: Ask, order: NodeSpec, error: HerdError) -> bool:
        """Whether it was refused because an earlier call already created it."""
        if not error.status or error_replies.parse_error(error.reply, error.status).code != 6:
            return False
        path = self._zone_path(ask.offer.zone)
        if ask.offer.kind is RequestKind.QUEUED:
            try:
                found = await self.cloud.rest.call_tpu("GET", f"{path}/queuedResources/{ask.bid}")
            except NotFound:
                raise name_in_use_error(order.node_name or ask.bid, ask.offer.zone) from error
            metadata = parse.parse_queued_resource(found).metadata
        else:
            found = await self.cloud.rest.call_tpu("GET", f"{path}/nodes/{ask.bid}")
            metadata = parse.parse_node(found).metadata
        card = request_bodies.read_card(metadata)
        return all(card.get(key) == order.card.get(key) for key in SAME)

    async def withdraw_bid(self, withdraw: Withdraw, sight: BidObservation | None) -> None:
        """Force-delete the queued resource with its nodes, or the nodes if it has none."""
        path = self._zone_path(withdraw.zone)
        if sight is None or sight.request is not None:
            if sight is not None and sight.request in (RequestState.ENDING, RequestState.LEAVING):
                return  # it can't be deleted in this state, or is being deleted
            await self._delete_resource(f"{path}/queuedResources/{withdraw.bid}", force="true")
        if sight is not None and sight.other_request and nodes_to_delete(sight):
            # deleting another tool's request deletes its node, and nothing else does
            await self._delete_resource(
                f"{path}/queuedResources/{sight.other_request}", force="true"
            )
            return
        names = [withdraw.bid] if sight is None else nodes_to_delete(sight)
        for name in names:
            await self._delete_resource(f"{path}/nodes/{name}")

    async def _delete_resource(self, path: str, **query: str) -> None:
        """Delete it; it is fine if it no longer exists."""
        try:
            await self.cloud.rest.call_tpu("DELETE", path, None, **query)
        except NotFound:
            pass

    async def find_refusal(self, bid: str, offer: Offer) -> BidRefused | None:
        """The refusal of a bid that no list shows: its create operation has failed."""
        zone = offer.zone
        async with self._reading:
            at, failed = self._failed.get(zone, (-FRESH_S, {}))
            if self.clock.now() >= at + FRESH_S:
                failed = await self._failed_creations(zone)
                self._failed[zone] = self.clock.now(), failed
        error = failed.get(bid)
        if error is None:
            return None
        return BidRefused(state_mapping.classify_refusal(error, offer.tier), error.sentence)

    async def _failed_creations(self, zone: str) -> Mapping[str, error_replies.CloudError]:
        """The errors of failed create operations in a zone, by resource name."""
        found: dict[str, error_replies.CloudError] = {}
        many = 0
        async with aclosing(
            self.cloud.list_pages(zone, "operations", parse.parse_operations)
        ) as pages:
            async for page in pages:
                for one in page.items:
                    if one.verb == "create" and one.error is not None:
                        found.setdefault(one.target, one.error)
                many += 1
                if many == PAGES_OF_OPERATIONS:
                    break
        return found

    def bid_hosts(self, bid: str) -> tuple[Host, ...]:
        """The hosts of all its nodes, ordered by slice and worker."""
        return tuple(
            parse.worker_host(node, worker, self.ssh_port)
            for node in self._nodes.get(bid, [])
            for worker in range(len(node.workers))
        )

    def _zone_path(self, zone: str) -> str:
        return f"projects/{self.cloud.project}/locations/{quote(zone, safe='')}"


def group_by_bid(
    nodes: Iterable[Node], known: Mapping[str, BidRecord] = NOTHING_KNOWN
) -> Mapping[str, list[Node]]:
    """The nodes of bids, by bid; those of a multislice run in order.

    Anybody may create nodes of such names elsewhere, or write a card that names a bid: they are
    none of a known bid's.
    """
    found: dict[str, list[Node]] = {}
    claimed: dict[str, list[Node]] = {}
    for node in sorted(nodes, key=lambda node: natural_key(node.name)):
        record = known.get(node.bid)
        if not node.bid or (record is not None and node.zone != record.offer.zone):
            continue
        if not node.created_by:
            claimed.setdefault(node.bid, []).append(node)
        elif record is None or bool(node.request) == (record.offer.kind is RequestKind.QUEUED):
            found.setdefault(node.bid, []).append(node)
    for bid in claimed.keys() - found.keys():
        adopted = find_adopted_node(claimed[bid], known.get(bid))
        found.update({bid: [adopted]} if adopted is not None else {})
    return found


def find_adopted_node(nodes: Iterable[Node], record: BidRecord | None) -> Node | None:
    """The node that was adopted as a bid: the one that was prepared, else the oldest."""
    if record is not None and not record.adopted:
        return None
    before = record.prepared_on if record is not None else ()
    return min(
        nodes,
        key=lambda node: (not any(on.startswith(node.incarnation) for on in before), node.created),
    )


def is_request_of_bid(request: QueuedResource, record: BidRecord | None) -> bool:
    """Whether a queued resource is a bid's, and not one of that name that somebody else made."""
    if record is None:
        return split_bid_name(request.name) is not None
    return record.offer.kind is RequestKind.QUEUED and request.zone == record.offer.zone


def bid_observation(bid: str, request: QueuedResource | None, nodes: list[Node]) -> BidObservation:
    """A bid as the planner sees it."""
    metadata: Mapping[str, str] = request.metadata if request else nodes[0].metadata
    error = request.error if request else None
    refusal = state_mapping.classify_refusal(error, request.tier) if request and error else None
    if refusal is Refusal.TAKEN:  # the request has its name, so it is the node's that is taken
        refusal = Refusal.NAME_IN_USE
    return BidObservation(
        bid=bid,
        zone=request.zone if request else nodes[0].zone,
        request=state_mapping.request_state(request.state) if request else None,
        nodes=tuple(node_observation(node) for node in nodes),
        state=request.state if request else nodes[0].state,
        refusal=refusal,
        sentence=error.sentence if error else "",
        card=request_bodies.read_card(metadata),
        other_request="" if request else nodes[0].request if nodes[0].adopted else "",
    )


def node_observation(node: Node) -> NodeObservation:
    return NodeObservation(
        name=node.name,
        word=state_mapping.node_state(node.state, node.health),
        state=node.state,
        incarnation=node.incarnation,
        hosts=len(node.workers),
        created=node.created,
        health=node.health,
    )


def nodes_to_delete(sight: BidObservation) -> list[str]:
    """The nodes to delete one by one; none if deleting their request deletes them."""
    if sight.request is not None:
        return []
    return [node.name for node in sight.nodes if node.word is not NodeState.LEAVING]


def name_in_use_error(node: str, zone: str) -> BidRefused:
    """The refusal of a queued resource because of the name that its node would have."""
    return BidRefused(
        Refusal.NAME_IN_USE,
        f"a node named {node} already exists in {zone}, and it is not this job's",
    )


def creation_error(error: HerdError, tier: str) -> HerdError:
    """What a failed create means: a refusal, invalid credentials, or an unknown outcome."""
    if not error.status:
        return error
    found = error_replies.parse_error(error.reply, error.status)
    if error.status >= 500:
        return NotReached(found.sentence)
    if found.code == error_replies.UNAUTHENTICATED:
        return error
    word = state_mapping.classify_refusal(found, tier)
    if word is Refusal.BROKEN:
        return NotReached(found.sentence)
    return BidRefused(word, found.sentence, hint=error.hint)
