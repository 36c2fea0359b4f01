"""Two kinds of hosts for tests of connections, and a connection pool with its own key and pins."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import (
    AbstractAsyncContextManager,
    AsyncExitStack,
    asynccontextmanager,
    contextmanager,
    suppress,
)
from pathlib import Path
from typing import Any, Protocol, TypeVar

import asyncssh
import pytest

from tests.conformance.hosts_sim import sim
from tests.conformance.hosts_sshd import missing_programs, sshd_hosts
from tests.conformance.tiny_agent import small
from tpuherd.clock import WallClock
from tpuherd.errors import NotReached, OperationFailed
from tpuherd.ports import Host, RpcRequest
from tpuherd.remote.agent_bootstrap import AgentBundle
from tpuherd.remote.agent_link import AgentLink
from tpuherd.remote.client_key import key_pair
from tpuherd.remote.connection_pool import (
    ClientIdentity,
    ConnectionPool,
    HostDirectory,
    IncarnationKey,
)
from tpuherd.remote.host_key_pins import Pins
from tpuherd.remote.iap_tunnel import IapRelay
from tpuherd.settings.host_routes import Route
from tpuherd_host.agent.frames import PROTOCOL

T = TypeVar("T")
PING = RpcRequest(name="ping")
KINDS = ["sim", "sshd"]
AGAIN_S = 60.0  #: a host that was cut off or restarted is there again within this
AGAIN_PAUSE_S = 0.2  #: there is no signal when a real host is back


class HostBackend(Protocol):
    """Where hosts are, and what may befall them."""

    login: str

    def node(self, name: str, workers: int = 1) -> list[Host]: ...
    def hosts(self, name: str) -> list[Host]: ...
    def recreate(self, name: str) -> list[Host]: ...
    def refuse(self, host: Host) -> None: ...
    def silence(self, host: Host) -> None: ...
    def hang(self, host: Host) -> None: ...
    def reboot(self, host: Host) -> None: ...
    def cut(self, host: Host) -> None: ...
    def move(self, host: Host) -> None: ...
    def register(self) -> AbstractAsyncContextManager[HostDirectory]: ...


@contextmanager
def host_backend(kind: str) -> Iterator[HostBackend]:
    """A ground of that kind, or a skip that says why there is none."""
    if kind == "sshd" and (why := missing_programs()):
        pytest.skip(f"real sshd: {why}")
    with sshd_hosts() if kind == "sshd" else sim() as place:
        yield place


def opened(
    backend: HostBackend,
    folder: Path,
    bundle: AgentBundle | None = None,
    routes: tuple[Route, ...] = (),
    relay: IapRelay | None = None,
) -> "Opened":
    return Opened(backend, folder, bundle or small(), routes, relay)


class Opened:
    """Ways from here to a ground, with keys and pins in a folder."""

    def __init__(
        self,
        backend: HostBackend,
        folder: Path,
        bundle: AgentBundle,
        routes: tuple[Route, ...] = (),
        relay: IapRelay | None = None,
    ) -> None:
        self.backend = backend
        self.folder = folder
        self.bundle = bundle
        self.chosen = routes
        self.relay = relay

    @asynccontextmanager
    async def connections(self) -> AsyncIterator[ConnectionPool]:
        hello = {"protocol": PROTOCOL, "who": "a test", "owner": "abc", "epoch": 0}
        caller = ClientIdentity(
            login=self.backend.login,
            keys=key_pair(self.folder / "config"),
            hello=hello,
            bundle=self.bundle,
            routes=self.chosen,
            relay=self.relay,
        )
        async with self.backend.register() as register:
            connections = ConnectionPool(register, caller, Pins(self.folder / "pins"), WallClock())
            try:
                yield connections
            finally:
                await connections.close()

    def run(self, work: Callable[[ConnectionPool], Awaitable[T]]) -> T:
        async def main() -> T:
            before = children()
            async with AsyncExitStack() as stack:
                found = await work(await stack.enter_async_context(self.connections()))
            async with asyncio.timeout(10.0):
                while self.chosen and children() - before:  # a proxy command that ends
                    await WallClock().sleep(0.01)
            return found

        return asyncio.run(main())


def children() -> set[str]:
    """Processes of this one."""
    found: set[str] = set()
    for file in Path("/proc/self/task").glob("*/children"):
        with suppress(FileNotFoundError, ProcessLookupError):  # the thread has ended meanwhile
            found |= set(file.read_text().split())
    return found


async def ssh_connection(connections: ConnectionPool, host: Host) -> asyncssh.SSHClientConnection:
    """The connection that carries the link to a host's agent."""
    await connections.get_link(host)
    return connections._connections[IncarnationKey(host.incarnation, host.worker)]


async def ping(connections: ConnectionPool, host: Host) -> Any:
    link = await connections.get_link(host)
    return await link.call(PING)


async def linked(connections: ConnectionPool, host: Host) -> AgentLink:
    """A link, as soon as there can be one again."""
    async with asyncio.timeout(AGAIN_S):
        while True:
            try:
                return await connections.get_link(host)
            except (NotReached, OperationFailed):
                await connections.clock.sleep(AGAIN_PAUSE_S)
