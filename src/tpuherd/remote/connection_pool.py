"""Opens SSH connections to hosts and shares them: one for each incarnation of a host.

`get_link` returns the link to a host's agent (agent_link.py). If there is none yet, one task opens
it and all callers wait for that task:
1. Ask the directory (resolve_hosts.py) for the host keys, unless they are in host_key_pins.py.
2. Try the routes (settings/host_routes.py) in order: an address, a jump host, a proxy command,
   Google's proxy (iap_tunnel.py).
3. If the host rejects our key, let the directory add it to the metadata; retry for ADMISSION_S.
4. If no route works, ask the directory where the host is now; try again if that has changed.
5. Attach to the running agent by its socket, or start it (agent_bootstrap.py).
The number of handshakes and agent starts at a time is limited (handshake_limits.py), so that
hundreds of hosts can be connected at once and dead ones don't delay the others.
"""

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import partial
from socket import socket
from typing import Any, Protocol

import asyncssh

from tpuherd.clock import Clock
from tpuherd.errors import (
    HerdError,
    IdentityMismatch,
    NotAllowed,
    NotFound,
    NotReached,
    OperationFailed,
)
from tpuherd.ports import Host
from tpuherd.remote.agent_bootstrap import (
    AgentBundle,
    agent_socket_path,
    bootstrap_agent,
    connect_to_agent,
)
from tpuherd.remote.agent_channel import Multiplexer
from tpuherd.remote.agent_link import AgentLink
from tpuherd.remote.boot_probe import STILL_BOOTS, check_boot
from tpuherd.remote.client_key import KeyPair
from tpuherd.remote.handshake_limits import (
    HandshakeLimiter,
    SharedPatience,
    SharedTimeout,
    unreachable_sentence,
)
from tpuherd.remote.host_key_pins import Pins
from tpuherd.remote.host_key_verifier import HostKeyVerifier, host_key_algorithms
from tpuherd.remote.iap_tunnel import IapRelay
from tpuherd.remote.jump_hosts import KEEPALIVE_S, PATIENCE_S, JumpHosts
from tpuherd.remote.single_flight import SingleFlight
from tpuherd.settings.host_routes import Route, RouteKind, default_routes, proxy_command

AGENT_PATIENCE_S = 60.0  #: for an agent to start; a host that dies meanwhile is noticed sooner
SHORT_PATIENCE_S = 3.0  #: for a host that did not answer within the last MOMENT_S
MOMENT_S = 60.0
ADMISSION_S = 60.0  #: for a key in the metadata to be accepted by the host
GREETINGS = 64  #: handshakes at the same time
GREETINGS_BY_JUMP = 8  #: the same through jump hosts and proxies: an sshd drops more
GREETING_S = 4.0  #: a handshake that takes longer gives its place to the next
ARRIVALS, ARRIVAL_S = 64, 30.0  #: the same for starting agents: more slow each other down
#: asyncssh prefers chacha20, which costs 50 % more processor time per megabyte.
CIPHERS = ("aes128-gcm@openssh.com", "aes256-gcm@openssh.com", "chacha20-poly1305@openssh.com")
KEEPALIVES_MAX = 3  #: unanswered ones after which a connection counts as lost


class HostDirectory(Protocol):
    """What the cloud knows about hosts; asked when a host is first contacted, or is lost."""

    def unreachable_reason(self, host: Host) -> str | None:
        """Why connecting is pointless, such as "its node is PREEMPTED"; None if it is not."""
        ...

    async def look_up_host(self, host: Host) -> tuple[Host, str]:
        """The host with its host keys, if the cloud has them, and its instance name."""
        ...

    async def find_current(self, host: Host) -> Host | None:
        """The same worker of the same node as it is now; None if the node no longer exists."""
        ...

    async def install_key(self, host: Host, login: str, public: str) -> None:
        """Make the host accept this key; raises NotAllowed if that is not possible."""
        ...


@dataclass(frozen=True, kw_only=True, slots=True)
class ClientIdentity:
    """How we identify ourselves to hosts and agents."""

    login: str
    keys: KeyPair
    hello: Mapping[str, Any]
    bundle: AgentBundle  #: the agent that is sent to hosts
    #: Routes to try in order; empty: whichever addresses the host has.
    routes: tuple[Route, ...] = ()
    relay: IapRelay | None = None  #: opens tunnels through IAP; None: a world, which has none


@dataclass(frozen=True, kw_only=True, slots=True)
class ReachedBy:
    """A host where it was reached, and the route that led there."""

    host: Host
    route: Route
    instance: str  #: "" if no route needs it


class KeyRejected(Exception):
    """The host does not accept our key."""


@dataclass(frozen=True, slots=True)
class IncarnationKey:
    """Identifies one incarnation of a host."""

    incarnation: str
    worker: int


OpenedConnection = tuple[asyncssh.SSHClientConnection, HostKeyVerifier]


class ConnectionPool:
    """Opens connections and links, keeps them open, and shares them among callers."""

    def __init__(
        self, directory: HostDirectory, caller: ClientIdentity, pins: Pins, clock: Clock
    ) -> None:
        self.directory = directory
        self.caller = caller
        self.pins = pins
        self.clock = clock
        self._links: dict[IncarnationKey, AgentLink] = {}
        self._connections: dict[IncarnationKey, asyncssh.SSHClientConnection] = {}
        self._reached: dict[IncarnationKey, ReachedBy] = {}
        self._opening = SingleFlight(clock)
        self._failed_at: dict[IncarnationKey, float] = {}
        self._jumps = JumpHosts(clock)
        self._direct_limiter = HandshakeLimiter(GREETINGS, GREETING_S)
        self._jump_limiter = HandshakeLimiter(GREETINGS_BY_JUMP, GREETING_S)
        self._bootstrap_limiter = HandshakeLimiter(ARRIVALS, ARRIVAL_S)
        self._agents = SharedTimeout(AGENT_PATIENCE_S)
        self._patience = SharedPatience()
        self._options = connection_options(caller)

    def is_alive(self, host: Host) -> bool:
        """Whether there is a working link to this host, as far as we know."""
        link = self._links.get(IncarnationKey(host.incarnation, host.worker))
        return link is not None and link.alive

    def has_pinned_key(self, host: Host) -> bool:
        """Whether we know its key, so that it can prove its identity."""
        return bool(self.pins.pinned_keys(host))

    def drop_connection(self, host: Host) -> None:
        """Close the connection to a host that stopped answering: no other caller waits for it."""
        key = IncarnationKey(host.incarnation, host.worker)
        self._links.pop(key, None)
        connection = self._connections.pop(key, None)
        if connection is not None:
            self._note_failure(key)
            connection.abort()

    async def get_link(self, host: Host) -> AgentLink:
        """The link to the host's agent, opened if necessary."""
        key = IncarnationKey(host.incarnation, host.worker)
        link = self._links.get(key)
        if link is not None and link.alive:
            return link
        return await self._opening.run(key, lambda: self._open_link(key, host))

    async def find_route(self, host: Host) -> ReachedBy:
        """Connect to the host if necessary, without its agent; return what has worked."""
        key = IncarnationKey(host.incarnation, host.worker)
        await self._get_connection(key, host)
        if key not in self._reached:
            raise NotReached("the connection was lost")
        return self._reached[key]

    async def open_tunnel(
        self, host: Host, port: int
    ) -> tuple[asyncssh.SSHReader[bytes], asyncssh.SSHWriter[bytes]]:
        """Connect to a port of the host itself; NotReached if nothing listens there."""
        await self.get_link(host)
        connection = self._connections.get(IncarnationKey(host.incarnation, host.worker))
        if connection is None:
            raise NotReached("the connection was lost")
        try:
            return await connection.open_connection("localhost", port)
        except asyncssh.ChannelOpenError as error:
            raise NotReached(f"it does not answer on port {port}") from error
        except (OSError, asyncssh.Error) as error:
            raise NotReached("the connection was lost") from error

    async def open_iap_tunnel(self, route: Route, host: Host, instance: str) -> socket | None:
        """A socket through IAP; None for other routes."""
        if route.kind is not RouteKind.IAP:
            return None
        if self.caller.relay is None:
            raise NotReached(
                "a simulated world has no Identity-Aware Proxy",
                hint="choose another way: herd context add NAME --way external",
            )
        return await self.caller.relay.open_tunnel(host, instance)

    async def close(self) -> None:
        """Close all connections; what runs on hosts keeps running."""
        await self._opening.close()
        connections, self._connections = list(self._connections.values()), {}
        self._links.clear()
        for connection in connections:
            connection.abort()
        await asyncio.gather(*(connection.wait_closed() for connection in connections))
        await self._jumps.close()
        if self.caller.relay is not None:
            await self.caller.relay.close()

    async def _open_link(self, key: IncarnationKey, host: Host) -> AgentLink:
        """Connect if necessary, and reach or start the agent."""
        known = self.has_pinned_key(host)  # then its agent may still be running
        connection = await self._get_connection(key, host)
        try:
            multiplexer, hello = await self._agents.wait_for(
                self._reach_agent(connection, known=known)
            )
        except TimeoutError as error:
            connection.abort()
            raise NotReached(f"its agent did not answer within {AGENT_PATIENCE_S:g} s") from error
        link = AgentLink(host, hello, multiplexer)
        if self._connections.get(key) is connection:
            self._links[key] = link
        return link

    async def _get_connection(
        self, key: IncarnationKey, host: Host
    ) -> asyncssh.SSHClientConnection:
        connection = self._connections.get(key)
        if connection is not None and not connection.is_closed():
            return connection

        async def open_connection() -> asyncssh.SSHClientConnection:
            opened, verifier = await self._connect_with_refresh(key, host)
            self._connections[key] = opened
            verifier.lost = partial(self._forget_connection, key, opened)
            if opened.is_closed():
                verifier.lost()
            return opened

        return await self._opening.run(("connection", key), open_connection)

    def _forget_connection(
        self, key: IncarnationKey, connection: asyncssh.SSHClientConnection
    ) -> None:
        """Drop what belongs to a lost connection: most hosts never come back under this key."""
        if self._connections.get(key) is connection:
            del self._connections[key]
            self._links.pop(key, None)
            self._reached.pop(key, None)

    def _note_failure(self, key: IncarnationKey) -> None:
        """Remember for a moment that the host did not answer."""
        now = self.clock.now()
        self._failed_at.pop(key, None)
        self._failed_at[key] = now
        while self._failed_at[next(iter(self._failed_at))] < now - MOMENT_S:
            del self._failed_at[next(iter(self._failed_at))]

    async def _reach_agent(
        self, connection: asyncssh.SSHClientConnection, *, known: bool
    ) -> tuple[Multiplexer, Mapping[str, Any]]:
        """Attach to the agent's socket if it may be running, else start the agent."""
        bundle, hello = self.caller.bundle, self.caller.hello
        if known and (
            found := await connect_to_agent(
                connection, agent_socket_path(self.caller.login), bundle, hello
            )
        ):
            return found
        async with self._bootstrap_limiter.handshake_slot():
            return await bootstrap_agent(connection, bundle, hello)

    async def _connect_with_refresh(self, key: IncarnationKey, host: Host) -> OpenedConnection:
        """Connect; on failure ask the cloud about the host and retry if something has changed."""
        obstacle = self.directory.unreachable_reason(host)
        if obstacle is not None:
            raise NotReached(obstacle)
        if host.booting:
            await check_boot(host, self.caller.routes)
        host, instance = await self._resolve_host(host)
        if host.booting and not (self.pins.pinned_keys(host) or host.host_keys):
            raise NotReached(STILL_BOOTS)
        try:
            connection = await self._connect_by_routes(key, host, instance)
        except (NotReached, IdentityMismatch) as error:
            self._note_failure(key)
            now = await self.directory.find_current(host)
            if now is None:
                raise NotFound("the node no longer exists") from error
            if now.incarnation != host.incarnation:
                raise NotFound("the node was recreated", hint="repeat the command") from error
            known = self.pins.pinned_keys(host) or host.host_keys
            if now.host_keys and set(now.host_keys) != set(known):
                self.pins.pin_keys(now, now.host_keys)
            elif without_keys(now) == without_keys(host):
                raise
            connection = await self._connect_by_routes(key, now, instance)
        self._failed_at.pop(key, None)
        return connection

    async def _resolve_host(self, host: Host) -> tuple[Host, str]:
        """The host with its keys and instance name; asks the cloud only if they are needed."""
        wants_name = any(
            "%n" in route.by or route.kind is RouteKind.IAP for route in self.caller.routes
        )
        if wants_name or not (self.pins.pinned_keys(host) or host.host_keys):
            return await self.directory.look_up_host(host)
        return host, ""

    async def _connect_by_routes(
        self, key: IncarnationKey, host: Host, instance: str
    ) -> OpenedConnection:
        """Connect by the first route that works."""
        routes = [
            route for route in self.caller.routes or default_routes(host) if route.can_reach(host)
        ]
        failed: HerdError = NotReached("no configured route reaches it: it has no external address")
        for route in routes:
            try:
                opened = await self._connect_with_key_install(key, host, route, instance)
                self._reached[key] = ReachedBy(host=host, route=route, instance=instance)
                return opened
            except (NotReached, IdentityMismatch) as error:
                failed = error
        raise failed

    async def _connect_with_key_install(
        self, key: IncarnationKey, host: Host, route: Route, instance: str
    ) -> OpenedConnection:
        """Connect by this route; if the host rejects our key, install the key and retry."""
        end = self.clock.now() + ADMISSION_S
        pause_s = 0.5
        while True:
            try:
                return await self._connect(key, host, route, instance)
            except KeyRejected as refusal:
                if self.clock.now() > end:
                    raise NotAllowed(
                        f"it rejects our SSH key for {self.caller.login},"
                        f" although the key has been in the metadata for {ADMISSION_S:g} s",
                        hint="its guest agent may be broken: check its serial console",
                    ) from refusal
            begun = self.clock.now()
            await self.directory.install_key(host, self.caller.login, self.caller.keys.public)
            # The cloud takes a while for the change, and the host may have seen it already.
            await self.clock.sleep(max(0.0, begun + pause_s - self.clock.now()))
            pause_s = min(pause_s * 1.5, 5.0)

    async def _connect(
        self, key: IncarnationKey, host: Host, route: Route, instance: str
    ) -> OpenedConnection:
        """Try once to connect by this route."""
        verifier = HostKeyVerifier(host, self.pins)
        more = await self._route_options(route, host, instance)
        direct = route.kind in (RouteKind.EXTERNAL, RouteKind.INTERNAL)
        limiter = self._direct_limiter if direct else self._jump_limiter
        seconds = self._answer_timeout(key)
        sock: socket | None = None
        try:
            async with limiter.handshake_slot():
                verifier.heard = self._patience.note_heard
                iap_tunnel = self.open_iap_tunnel(route, host, instance)
                sock = await self._patience.wait_for(iap_tunnel, seconds)
                handshake = asyncssh.connect(
                    route.host_address(host),
                    host.ssh_port,
                    sock=sock,
                    options=self._options,
                    config=None,
                    client_factory=lambda: verifier,
                    server_host_key_algs=host_key_algorithms(verifier.known),
                    **more,
                )
                connection = await self._patience.wait_for(handshake, seconds)
                verifier.pin_shown_key()
                sock = None
                return connection, verifier
        except TimeoutError as error:
            raise NotReached(f"no answer in {seconds:g} s") from error
        except asyncssh.PermissionDenied as error:
            raise KeyRejected from error
        except asyncssh.HostKeyNotVerifiable as error:
            raise verifier.stranger_error() from error
        except asyncssh.KeyExchangeFailed as error:
            if verifier.known and "host key" in str(error).lower():
                raise verifier.stranger_error() from error
            raise OperationFailed(
                f"its SSH server has no algorithm in common with us ({error})"
            ) from error
        except asyncssh.Error as error:
            raise NotReached(f"it closed the connection before login ({error.reason})") from error
        except OSError as error:
            raise NotReached(unreachable_sentence(error, host.ssh_port)) from error
        finally:
            if sock is not None:
                sock.close()

    async def _route_options(self, route: Route, host: Host, instance: str) -> dict[str, Any]:
        """The options of asyncssh for this route."""
        if route.kind is RouteKind.COMMAND:
            return {"proxy_command": proxy_command(route, host, instance)}
        if route.kind is RouteKind.JUMP:
            return {"tunnel": await self._jumps.get_connection(route.by)}
        return {}

    def _answer_timeout(self, key: IncarnationKey) -> float:
        """How long to wait for a host: shorter if it failed a moment ago."""
        failed_at = self._failed_at.get(key)
        recent = failed_at is not None and self.clock.now() - failed_at < MOMENT_S
        return SHORT_PATIENCE_S if recent else PATIENCE_S


def connection_options(caller: ClientIdentity) -> asyncssh.SSHClientConnectionOptions:
    """The options of all connections; ignores the user's SSH settings, agent and files."""
    return asyncssh.SSHClientConnectionOptions(
        config=None,
        username=caller.login,
        client_keys=[caller.keys.private],
        agent_path=None,
        agent_forwarding=False,
        known_hosts=([], [], []),  # HostKeyVerifier decides
        x509_trusted_certs=None,
        gss_host=None,
        preferred_auth=("publickey",),
        password_auth=False,
        kbdint_auth=False,
        host_based_auth=False,
        encryption_algs=CIPHERS,
        compression_algs=None,
        keepalive_interval=KEEPALIVE_S,
        keepalive_count_max=KEEPALIVES_MAX,
    )


def without_keys(host: Host) -> Host:
    """The host without its keys, to compare addresses."""
    return replace(host, host_keys=())
