"""From what a user calls hosts to hosts, and what the cloud says of them along the way."""

import asyncio
from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any, TypeVar

from tpuherd.clock import Clock
from tpuherd.cloud import parse
from tpuherd.cloud.node_cache import Seen
from tpuherd.cloud.nodes_api import Cloud, Survey
from tpuherd.cloud.parse import Guest, Node
from tpuherd.errors import NotFound, NotReached, Unfit
from tpuherd.ports import Host
from tpuherd.remote.connection_pool import Ways
from tpuherd.targets import BadTarget, There, Wanted, choose, is_foreign, slot_of
from tpuherd.targets import parse as parse_targets

T = TypeVar("T")
NO_WORDS: Mapping[str, str] = {}
FRESH_S = 2.0  #: so long a survey, or a look at a node, is as good as a new one
YOUNG_S = 600.0  #: a node's age up to which its host keys may still be on their way
LATE_KEYS_S = 20.0  #: so long they are waited for
LATE_KEYS_LOOK_S = 1.0
PROOF_S = 2.0  #: while one that was seen before proves itself in each, the others are waited for
#: Of a node in one of these states no host can answer.
OFF = frozenset({"PREEMPTED", "TERMINATED", "STOPPED", "STOPPING", "SUSPENDED", "HIDDEN"})


class Memory:
    """Answers of a moment ago: many who ask the same at once ask the cloud once."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._answers: dict[tuple[str, ...], tuple[float, asyncio.Task[Any]]] = {}

    async def ask(
        self, key: tuple[str, ...], work: Callable[[], Awaitable[T]], fresh_s: float = FRESH_S
    ) -> T:
        """The answer of a moment ago, the one that is on its way, or a new one."""
        now = self._clock.now()
        at, task = self._answers.get(key, (0.0, None))
        broken = task is not None and task.done() and (task.cancelled() or task.exception())
        if task is None or broken or (task.done() and now - at >= fresh_s):
            self._forget(now)
            task = asyncio.ensure_future(work())
            self._answers[key] = (now, task)
        answer: T = await asyncio.shield(task)
        return answer

    def _forget(self, now: float) -> None:
        old = [
            key for key, (at, task) in self._answers.items() if task.done() and now - at > FRESH_S
        ]
        for key in old:
            task = self._answers.pop(key)[1]
            if not task.cancelled():
                task.exception()


class Registrar:
    """The register of the hosts of one place: what `Ways` asks when it meets or loses a host."""

    def __init__(self, cloud: Cloud, ssh_port: int, clock: Clock, seen: Seen | None = None) -> None:
        self.cloud = cloud
        self.ssh_port = ssh_port
        self.clock = clock
        self.seen = seen  #: before this process
        self.survey: Survey | None = None
        self.surveyed_at = 0.0
        self._memory = Memory(clock)

    async def look(self) -> Survey:
        """All nodes, as they are now."""

        async def work() -> Survey:
            now = self.clock.now()
            self.survey = await self.cloud.survey()
            self.surveyed_at = now
            if self.seen is not None:
                self.seen.keep(self.survey)
            return self.survey

        return await self._memory.ask(("survey",), work, fresh_s=0.0)

    def known(self, host: Host) -> Node | None:
        """The host's node, as it was seen last."""
        for node in self.survey.nodes if self.survey else ():
            if node.incarnation == host.incarnation:
                return node
        return None

    def obstacle(self, host: Host) -> str | None:
        """Why it makes no sense to try, if it doesn't."""
        node = self.known(host)
        return f"its node is {node.state}" if node is not None and node.state in OFF else None

    async def vouch(self, host: Host) -> tuple[Host, str]:
        """With its host keys, which come late on a young node, or never: then there are none."""
        node = self.known(host)
        now = self.clock.now()
        young = node is not None and now - node.created < YOUNG_S
        end = now + (LATE_KEYS_S if young else 0.0)
        while True:
            guest = await self._guest(host)
            if guest.host_keys or self.clock.now() >= end:
                return replace(host, host_keys=guest.host_keys), guest.instance
            await self.clock.sleep(LATE_KEYS_LOOK_S)

    async def find(self, host: Host) -> Host | None:
        """Where the host is now."""
        node = await self._memory.ask(
            ("node", host.zone, host.node), lambda: self.cloud.node(host.zone, host.node)
        )
        if node is None or host.worker >= len(node.workers):
            return None
        if node.state in OFF and node.incarnation == host.incarnation:
            raise NotReached(f"its node is {node.state}")
        found = parse.host(node, host.worker, self.ssh_port, await self._guest(host))
        return replace(found, foreign=host.foreign)

    async def admit(self, host: Host, login: str, public: str) -> None:
        """Let this key in."""
        await self._memory.ask(
            ("admit", host.zone, host.node, login, public),
            lambda: self.cloud.admit(host.zone, host.node, login, public),
        )

    async def _guest(self, host: Host) -> Guest:
        guests = await self._memory.ask(
            ("guests", host.zone, host.node), lambda: self.cloud.guests(host.zone, host.node)
        )
        return guests[host.worker] if host.worker < len(guests) else Guest()


class Reach:
    """A place in use: what its hosts are called, and the ways to them."""

    def __init__(
        self, registrar: Registrar, ways: Ways, clock: Clock, owners: Callable[[], Collection[str]]
    ) -> None:
        self.registrar = registrar
        self.ways = ways
        self.clock = clock
        self.owners = owners  #: whose marks are the user's: jobs and slots are called by them alone

    @property
    def cloud(self) -> Cloud:
        """The cloud of this place."""
        return self.registrar.cloud

    async def hosts(
        self, target: str, without: Callable[[], Mapping[str, str]] = dict
    ) -> list[Host]:
        """The hosts that a target means, in its order; NotFound if any of its names means none,
        in words of `without` for jobs and slots that have no node now.

        The cloud is not asked again for nodes that are named themselves as long as there is a
        link to each of their hosts: that proves that they are there.
        """
        try:
            wished = parse_targets(target)
        except BadTarget as error:
            raise Unfit(str(error)) from error
        known = self.registrar.survey
        if known is not None:
            hosts, missing = self._chosen(wished, known)
            fresh = self.clock.now() - self.registrar.surveyed_at < FRESH_S
            linked = all(self.ways.alive(host) for host in hosts)
            if not missing and linked and (fresh or by_name(wished, known.nodes)):
                return hosts
        elif self.registrar.seen is not None:
            hosts = await self._proven(wished, self.registrar.seen)
            if hosts:
                return hosts
        survey = await self.registrar.look()
        hosts, missing = self._chosen(wished, survey)
        if missing:
            missing = self._chosen(wished, survey, without())[1]
            raise NotFound("; ".join(missing), hint=unknown(survey))
        return hosts

    async def _proven(self, wished: Sequence[Wanted], seen: Seen) -> list[Host]:
        """As they were seen last: named themselves, each with a link by the key that we know."""
        survey = seen.survey()
        if survey is None or not by_name(wished, survey.nodes):
            return []
        hosts, missing = self._chosen(wished, survey)
        if missing or not all(map(self.ways.met, hosts)):
            return []
        pending = {asyncio.ensure_future(self.ways.link(host)) for host in hosts}
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
        self.registrar.survey = survey
        return hosts

    def _chosen(
        self, wished: Sequence[Wanted], survey: Survey, without: Mapping[str, str] = NO_WORDS
    ) -> tuple[list[Host], list[str]]:
        owners = self.owners()
        nodes = {seen_as(node, owners): node for node in survey.nodes}
        chosen = choose(wished, nodes, without)
        port = self.registrar.ssh_port
        hosts = [
            replace(parse.host(nodes[there], worker, port), foreign=there.foreign)
            for there, worker in chosen.workers
        ]
        return hosts, list(chosen.missing)


def seen_as(node: Node, owners: Collection[str]) -> There:
    """A node as targets name it."""
    return There(
        name=node.name,
        zone=node.zone,
        workers=len(node.workers),
        state=node.state,
        foreign=is_foreign(node.name, owners),
    )


def by_name(wished: Iterable[Wanted], nodes: Iterable[Node]) -> bool:
    """Whether all are names of nodes themselves; what a slot or a job means may change."""
    names = {node.name for node in nodes}
    return all(one.name in names and slot_of(one.name) is None for one in wished)


def unknown(survey: Survey) -> str:
    """What to say of zones that did not answer."""
    if not survey.unknown:
        return ""
    return f"it may be in {', '.join(sorted(survey.unknown))}, which did not answer"
