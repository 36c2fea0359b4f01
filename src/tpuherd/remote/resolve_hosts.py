"""Resolves targets such as gpt/w0 to hosts, and looks hosts up in the cloud."""

import asyncio
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import partial

from tpuherd.clock import Clock
from tpuherd.cloud import parse
from tpuherd.cloud.node_cache import NodeCache
from tpuherd.cloud.nodes_api import Cloud, NodeList
from tpuherd.cloud.parse import GuestInfo, Node
from tpuherd.errors import InvalidInput, NotFound, NotReached
from tpuherd.ports import Host
from tpuherd.remote.connection_pool import ConnectionPool
from tpuherd.remote.single_flight import SingleFlight
from tpuherd.remote.user_notices import notify_user
from tpuherd.targets import (
    BadTarget,
    KnownNode,
    TargetName,
    choose_workers,
    is_foreign,
    split_bid_name,
)
from tpuherd.targets import parse_target_names as parse_targets

NO_WORDS: Mapping[str, str] = {}
FRESH_S = 2.0  #: how long an answer of the cloud is reused
YOUNG_S = 600.0  #: the age of a node up to which its host keys may still be missing
LATE_KEYS_S = 20.0  #: how long to wait for them
LATE_KEYS_LOOK_S = 1.0
PROOF_S = 2.0  #: wait for cached hosts as long as one connects within this time
#: States of nodes whose hosts can't answer.
OFF = frozenset({"PREEMPTED", "TERMINATED", "STOPPED", "STOPPING", "SUSPENDED", "HIDDEN"})


class CloudNodeDirectory:
    """The HostDirectory of a project or world: answers the connection pool from the cloud."""

    def __init__(
        self, cloud: Cloud, ssh_port: int, clock: Clock, seen: NodeCache | None = None
    ) -> None:
        self.cloud = cloud
        self.ssh_port = ssh_port
        self.clock = clock
        self.seen = seen  #: from earlier processes
        self.survey: NodeList | None = None
        self.surveyed_at = 0.0
        self._asking = SingleFlight(clock)
        self._indexed: tuple[NodeList | None, Mapping[str, Node]] = (None, {})

    async def list_nodes(self) -> NodeList:

        async def work() -> NodeList:
            now = self.clock.now()
            self.survey = await self.cloud.list_nodes()
            self.surveyed_at = now
            if self.seen is not None:
                self.seen.save_nodes(self.survey)
            return self.survey

        return await self._asking.run("survey", work)

    def find_node(self, host: Host) -> Node | None:
        """The host's node as of the last survey."""
        if self._indexed[0] is not self.survey:  # each of thousands of hosts asks
            nodes = self.survey.nodes if self.survey else ()
            self._indexed = self.survey, {node.incarnation: node for node in reversed(nodes)}
        return self._indexed[1].get(host.incarnation)

    def unreachable_reason(self, host: Host) -> str | None:
        """Why connecting is pointless, if it is."""
        node = self.find_node(host)
        return f"its node is {node.state}" if node is not None and node.state in OFF else None

    async def look_up_host(self, host: Host) -> tuple[Host, str]:
        """With its host keys, for which a young node is polled; they may be missing."""
        node = self.find_node(host)
        now = self.clock.now()
        young = node is not None and now - node.created < YOUNG_S
        end = now + (LATE_KEYS_S if young and not host.booting else 0.0)
        while True:
            guest = await self._fetch_guest(host)
            if guest.host_keys or self.clock.now() >= end:
                return replace(host, host_keys=guest.host_keys), guest.instance
            await self.clock.sleep(LATE_KEYS_LOOK_S)

    async def find_current(self, host: Host) -> Host | None:
        node = await self._asking.run(
            ("node", host.zone, host.node),
            partial(self.cloud.get_node, host.zone, host.node), fresh_s=FRESH_S,
        )  # fmt: skip
        if node is None or host.worker >= len(node.workers):
            return None
        if node.state in OFF and node.incarnation == host.incarnation:
            raise NotReached(f"its node is {node.state}")
        found = parse.worker_host(node, host.worker, self.ssh_port, await self._fetch_guest(host))
        return replace(found, foreign=host.foreign)

    async def install_key(self, host: Host, login: str, public: str) -> None:
        async def install() -> None:
            changed = await self.cloud.install_key(host.zone, host.node, login, public)
            if changed:
                notify = notify_user.get()
                await notify(f"Added your SSH key for {login} to the metadata of {changed}")

        key = ("install", host.zone, host.node, login, public)
        await self._asking.run(key, install, fresh_s=FRESH_S)

    async def _fetch_guest(self, host: Host) -> GuestInfo:
        guests = await self._asking.run(
            ("guests", host.zone, host.node),
            partial(self.cloud.get_guests, host.zone, host.node), fresh_s=FRESH_S,
        )  # fmt: skip
        return guests[host.worker] if host.worker < len(guests) else GuestInfo()


class RemoteSession:
    """The hosts of a project or world: resolves targets and holds the connections."""

    def __init__(
        self,
        directory: CloudNodeDirectory,
        pool: ConnectionPool,
        clock: Clock,
        owners: Callable[[], Collection[str]],
    ) -> None:
        self.directory = directory
        self.pool = pool
        self.clock = clock
        #: Our owner ids: only their nodes can be named by job and slot.
        self.owners = owners

    @property
    def cloud(self) -> Cloud:
        return self.directory.cloud

    async def resolve_hosts(
        self, target: str, without: Callable[[], Mapping[str, str]] = dict
    ) -> list[Host]:
        """The hosts of a target, in its order; NotFound if a name matches nothing. `without` says
        why jobs and slots have no node now.

        For targets that name nodes, the cloud is not asked again while we have a link to each of
        their hosts: that proves that the nodes exist.
        """
        try:
            names = parse_targets(target)
        except BadTarget as error:
            raise InvalidInput(str(error)) from error
        known = self.directory.survey
        if known is not None:
            hosts, missing = self._select_hosts(names, known)
            fresh = self.clock.now() - self.directory.surveyed_at < FRESH_S
            linked = all(self.pool.is_alive(host) for host in hosts)
            if not missing and linked and (fresh or has_only_node_names(names, known.nodes)):
                return hosts
        elif self.directory.seen is not None:
            hosts = await self._hosts_from_cache(names, self.directory.seen)
            if hosts:
                return hosts
        survey = await self.directory.list_nodes()
        hosts, missing = self._select_hosts(names, survey)
        if missing:
            missing = self._select_hosts(names, survey, without())[1]
            raise NotFound("; ".join(missing), hint=silent_zones_hint(survey))
        return hosts

    async def _hosts_from_cache(self, names: Sequence[TargetName], seen: NodeCache) -> list[Host]:
        """The hosts from the last survey, if all names are nodes and all hosts can be connected."""
        survey = seen.load_nodes()
        if survey is None or not has_only_node_names(names, survey.nodes):
            return []
        hosts, missing = self._select_hosts(names, survey)
        if missing or not all(map(self.pool.has_pinned_key, hosts)):
            return []
        pending = {asyncio.ensure_future(self.pool.get_link(host)) for host in hosts}
        try:
            while pending:
                done, pending = await asyncio.wait(
                    pending, timeout=PROOF_S, return_when=asyncio.FIRST_EXCEPTION
                )
                troubles = [one.exception() for one in done]
                if not done or any(troubles):
                    return []
        finally:
            for one in pending:
                one.cancel()
        self.directory.survey = survey
        return hosts

    def _select_hosts(
        self, names: Sequence[TargetName], survey: NodeList, without: Mapping[str, str] = NO_WORDS
    ) -> tuple[list[Host], list[str]]:
        owners = self.owners()
        nodes = {known_node(node, owners): node for node in survey.nodes}
        chosen = choose_workers(names, nodes, without)
        port = self.directory.ssh_port
        hosts = [
            replace(parse.worker_host(nodes[there], worker, port), foreign=there.foreign)
            for there, worker in chosen.workers
        ]
        return hosts, list(chosen.missing)


def known_node(node: Node, owners: Collection[str]) -> KnownNode:
    """A node in the form that targets match."""
    return KnownNode(
        name=node.name,
        zone=node.zone,
        workers=len(node.workers),
        state=node.state,
        foreign=is_foreign(node.bid, owners),
        bid=node.bid if split_bid_name(node.name) is None else "",
    )


def has_only_node_names(targets: Iterable[TargetName], nodes: Iterable[Node]) -> bool:
    """Whether all targets name nodes; the nodes of a job or slot may change at any time."""
    bids = [bid for node in nodes if (bid := split_bid_name(node.bid)) is not None]
    lasting = {node.name for node in nodes if split_bid_name(node.name) is None}
    lasting -= {name for bid in bids for name in (bid.slot, bid.job)}
    return all(one.name in lasting for one in targets)


def silent_zones_hint(survey: NodeList) -> str:
    """The hint that names zones that did not answer."""
    if not survey.unknown:
        return ""
    return f"it may be in {', '.join(sorted(survey.unknown))}, which did not answer"
