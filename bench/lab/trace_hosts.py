"""Hosts of simulated nodes: agents that the engine reaches, and what they run."""

import asyncio
from collections.abc import AsyncIterator, Callable, Collection, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from bench.lab.constants import Constants
from bench.lab.trace_cloud import TraceNode
from bench.lab.training import GangRun, Training

from tpuherd.clock import Clock
from tpuherd.errors import NotFound, NotReached
from tpuherd.model.node_spec import EnvironmentNote
from tpuherd.ports import FetchedFiles, Host, Link, RpcRequest, Stream

CONNECT_S = 1.0  #: until a host's agent answers
#: Between the packets by which TCP knocks at a host without power, until it is not reached.
KNOCKS_S = (1.0, 2.0, 4.0, 3.0)
CALL_S = 0.05
DEADLY_NOTICE = {"event": "notice", "what": "preempted", "value": "TRUE"}


class HostLink:
    """The engine's link to the agent of one host."""

    def __init__(self, host: Host, hosts: "TraceHosts", news: Callable[[], None]) -> None:
        self.host = host
        self.hello: Mapping[str, Any] = {"boot": f"boot-{host.incarnation}", "zlib": "1"}
        self.broken: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._hosts = hosts
        self._clock = hosts.clock
        self._news = news
        self._queue: asyncio.Queue[Mapping[str, Any] | None] = asyncio.Queue()

    async def call(self, verb: RpcRequest) -> Mapping[str, Any]:
        await self._clock.sleep(CALL_S)
        self.check_open()
        self._news()
        if not self._hosts.has_power(self.host):
            await self.broken
            self.check_open()
        return await self._hosts.answer_call(self, verb)

    @asynccontextmanager
    async def open_stream(self, verb: RpcRequest) -> AsyncIterator[Stream]:
        await self._clock.sleep(CALL_S)
        self.check_open()
        yield LogStream(self, self._hosts.find_run(str(verb.arguments.get("attempt"))))

    async def events(self) -> AsyncIterator[Mapping[str, Any]]:
        while (event := await self._queue.get()) is not None:
            yield event

    def disconnect(self, why: str) -> None:
        if not self.broken.done():
            self.broken.set_result(None)
            self._queue.put_nowait(None)
            self._news()

    def deliver_event(self, event: Mapping[str, Any], *, quiet: bool = False) -> None:
        """Hand the engine what the agent says; `quiet`: nothing that it acts upon."""
        if not self.broken.done():
            self._queue.put_nowait(event)
            if not quiet:
                self._news()

    def check_open(self) -> None:
        if self.broken.done():
            raise NotReached(f"the connection to {self.host.name} was lost")

    async def wait_for(self, future: "asyncio.Future[None]") -> None:
        """Wait for it, or raise NotReached when the link breaks."""
        await asyncio.wait((future, self.broken), return_when=asyncio.FIRST_COMPLETED)
        if not future.done():
            self.check_open()


class LogStream:
    """The log of an attempt, which is empty and ends with it."""

    def __init__(self, link: HostLink, run: GangRun | None) -> None:
        self._link = link
        self._run = run

    async def read(self) -> tuple[int, bytes] | None:
        if self._run is not None:
            await self._link.wait_for(self._run.ended)
        return None

    async def write(self, port: int, piece: bytes) -> None:
        return

    async def send_eof(self, port: int) -> None:
        return

    async def reply(self) -> Mapping[str, Any]:
        return {}


class TraceHosts:
    """The engine's HostsPort, and the cloud's watcher of nodes."""

    def __init__(
        self, constants: Constants, clock: Clock, training: Training, news: Callable[[], None]
    ) -> None:
        self._constants = constants
        self.clock = clock
        self._training = training
        self._news = news
        self._nodes: dict[str, TraceNode] = {}  #: those that have power
        self._links: dict[Host, HostLink] = {}

    # ---- the cloud's nodes -----------------------------------------------------------------------

    def start_hosts(self, node: TraceNode) -> None:
        self._nodes[node.name] = node

    def give_notice(self, node: TraceNode) -> None:
        for host in node.hosts:
            self._deliver_event(host, DEADLY_NOTICE)
        self._training.stop_node(node.name, "it received a preemption notice")

    def end_hosts(self, node: TraceNode, *, lost: bool) -> None:
        """All that runs there is over. A lost host's agent can say so before the link is cut."""
        self._nodes.pop(node.name, None)
        self._training.lose_node(node.name)
        for host in node.hosts:
            if lost:
                asyncio.get_running_loop().call_later(
                    self._constants.signal_s, self._part_with, host
                )
            else:
                self._cut_link(host)

    def _part_with(self, host: Host) -> None:
        self._deliver_event(host, DEADLY_NOTICE)
        self._cut_link(host)

    def _cut_link(self, host: Host) -> None:
        link = self._links.pop(host, None)
        if link is not None:
            link.disconnect("its host is gone")

    def _deliver_event(self, host: Host, event: Mapping[str, Any]) -> None:
        if (link := self._links.get(host)) is not None:
            link.deliver_event(event)

    # ---- the agents ------------------------------------------------------------------------------

    def tell_engine(self, node: str, worker: int, event: Mapping[str, Any]) -> None:
        """Deliver what an agent says of its attempt; a heartbeat with a new step is no news."""
        quiet = event["event"] == "heartbeat" and all(row["report"] for row in event["attempts"])
        for host, link in self._links.items():
            if host.node == node and host.worker == worker:
                link.deliver_event(event, quiet=quiet)

    def has_power(self, host: Host) -> bool:
        return host.node in self._nodes

    def find_run(self, attempt: str) -> GangRun | None:
        return self._training.runs.get(attempt)

    async def answer_call(self, link: HostLink, verb: RpcRequest) -> Mapping[str, Any]:
        """Answer a call of the engine as the agent does."""
        arguments, host = verb.arguments, link.host
        match verb.name:
            case "ping":
                return {"time": self.clock.now()}
            case "attempts":
                return {"attempts": self._training.list_statuses(host.node, host.worker)}
            case "setup":
                return await self._set_up(link, arguments)
            case "start":
                return self._training.start_attempt(host, arguments)
            case "halt":
                return await self._halt_attempt(link, arguments)
            case _:
                return {}

    async def _set_up(self, link: HostLink, arguments: Mapping[str, Any]) -> Mapping[str, Any]:
        asked = self.clock.now()
        work = asyncio.ensure_future(self.clock.sleep(self._constants.setup_s))
        try:
            await link.wait_for(work)
        finally:
            work.cancel()
        return {
            "id": arguments["id"], "kind": "setup", "phase": "ended", "exit": 0, "asked": asked,
            "slot": arguments.get("slot", ""),
        }  # fmt: skip

    async def _halt_attempt(
        self, link: HostLink, arguments: Mapping[str, Any]
    ) -> Mapping[str, Any]:
        attempt = str(arguments["attempt"])
        run = self._training.runs.get(attempt)
        if run is None or run.node != link.host.node:
            return {"id": attempt, "kind": "attempt", "phase": "absent"}
        run.stop(float(arguments["grace_s"]), str(arguments.get("why", "")))
        await link.wait_for(run.ended)
        return run.build_status(link.host.worker)

    # ---- the engine's port -----------------------------------------------------------------------

    async def open_link(self, host: Host) -> Link:
        for wait_s in KNOCKS_S:
            if self.has_power(host):
                break
            await self.clock.sleep(wait_s)
        else:
            raise NotReached(f"{host.name} does not answer")
        await self.clock.sleep(CONNECT_S)
        if not self.has_power(host):
            raise NotReached(f"{host.name} does not answer")
        link = self._links[host] = HostLink(host, self, self._news)
        return link

    async def ship(
        self, snapshot: str, dest: str, links: Sequence[Link], source: Link | None = None
    ) -> Mapping[str, str]:
        return {}

    async def fetch_files(
        self, paths: Sequence[str], link: Link, into: Path, within_s: float | None = None
    ) -> FetchedFiles:
        raise NotFound("hosts of traces have no files")

    def known_environments(self, job: str, key: str) -> Mapping[str, EnvironmentNote]:
        return {}

    def note_environment(self, job: str, key: str, note: EnvironmentNote) -> None:
        return

    def is_complete(self, snapshot: str) -> bool:
        return True

    async def lend_uv(self, link: Link, platform: str) -> bool:
        return False

    def retain_snapshots(self, snapshots: Collection[str]) -> Collection[str]:
        return ()

    async def recover_snapshot(self, snapshot: str, links: Sequence[Link]) -> None:
        raise NotFound(f"no host has {snapshot}")
