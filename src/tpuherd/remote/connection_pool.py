"""The SSH connections to hosts: one for each incarnation of a host, kept and shared."""

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any, Protocol, TypeVar

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
from tpuherd.remote.client_key import KeyPair
from tpuherd.remote.handshake_limits import HandshakeLimiter, SharedTimeout, unreachable_sentence
from tpuherd.remote.host_key_pins import Pins
from tpuherd.settings.host_routes import Route, RouteKind, default_routes, proxy_command

T = TypeVar("T")
PATIENCE_S = 10.0  #: for one host to say the next thing, until it has let us in
AGENT_PATIENCE_S = 60.0  #: for any agent to come up; a host that dies meanwhile is noticed sooner
SHORT_PATIENCE_S = 3.0  #: for one that did not answer a moment ago
MOMENT_S = 60.0
ADMISSION_S = 60.0  #: from a key in the metadata to the account on the host
GREETINGS = 64  #: under way at the same time, in all
GREETINGS_BY_JUMP = 8  #: the same through one jump host or proxy: its sshd drops more
GREETING_S = 4.0  #: whoever takes longer holds up nobody
ARRIVALS = 64  #: agents that are started at the same time: more would only hold up one another
#: asyncssh's own order puts chacha20 first, which costs half as much again per megabyte.
CIPHERS = ("aes128-gcm@openssh.com", "aes256-gcm@openssh.com", "chacha20-poly1305@openssh.com")
HOST_KEYS = (
    "ssh-ed25519",
    "ecdsa-sha2-nistp256",
    "ecdsa-sha2-nistp384",
    "ecdsa-sha2-nistp521",
    "rsa-sha2-512",
    "rsa-sha2-256",
)
KEEPALIVE_S = 5.0
KEEPALIVES_MAX = 3  #: unanswered ones, until a connection counts as lost


class HostDirectory(Protocol):
    """What the cloud knows of hosts. Asked when a host is met for the first time, or lost."""

    def unreachable_reason(self, host: Host) -> str | None:
        """Why it makes no sense to try, if it doesn't: its node is PREEMPTED."""
        ...

    async def look_up_host(self, host: Host) -> tuple[Host, str]:
        """The host with its own host keys, if the cloud has them, and its instance name."""
        ...

    async def find_current(self, host: Host) -> Host | None:
        """The same worker of the same node as it is now, with its host keys; None: it is gone."""
        ...

    async def install_key(self, host: Host, login: str, public: str) -> None:
        """Let this key in. NotAllowed, with a sentence, where that can't be done."""
        ...


@dataclass(frozen=True, kw_only=True, slots=True)
class ClientIdentity:
    """Who we are to hosts and agents."""

    login: str
    keys: KeyPair
    hello: Mapping[str, Any]
    parcel: AgentBundle  #: the agent, as it is sent
    ways: tuple[Route, ...] = ()  #: to be tried in order; none: whichever address the host has


class KeyRejected(Exception):
    """The host does not know our key."""


@dataclass(frozen=True, slots=True)
class IncarnationKey:
    """A host as created once."""

    incarnation: str
    worker: int


class ConnectionPool:
    """Opens connections and links, keeps them, and shares them among all who ask."""

    def __init__(
        self, register: HostDirectory, caller: ClientIdentity, pins: Pins, clock: Clock
    ) -> None:
        self.register = register
        self.caller = caller
        self.pins = pins
        self.clock = clock
        self._links: dict[IncarnationKey, AgentLink] = {}
        self._connections: dict[IncarnationKey, asyncssh.SSHClientConnection] = {}
        self._under_way: dict[IncarnationKey | str, asyncio.Task[Any]] = {}
        self._failed_at: dict[IncarnationKey, float] = {}
        self._jumps: dict[str, asyncssh.SSHClientConnection] = {}
        self._turnstile = HandshakeLimiter(GREETINGS, GREETING_S)
        self._jump_turnstile = HandshakeLimiter(GREETINGS_BY_JUMP, GREETING_S)
        self._arrivals = HandshakeLimiter(ARRIVALS, GREETING_S)
        self._agents = SharedTimeout(AGENT_PATIENCE_S)
        self._options = connection_options(caller)

    def is_alive(self, host: Host) -> bool:
        """Whether there is a link to this host, as far as is known."""
        link = self._links.get(IncarnationKey(host.incarnation, host.worker))
        return link is not None and link.alive

    def has_pinned_key(self, host: Host) -> bool:
        """Whether it can prove that it is this host: its key is known."""
        return bool(self.pins.pinned_keys(host))

    def drop_connection(self, host: Host) -> None:
        """It does not answer any more: nobody else need find that out by waiting."""
        key = IncarnationKey(host.incarnation, host.worker)
        self._links.pop(key, None)
        connection = self._connections.pop(key, None)
        if connection is not None:
            self._failed_at[key] = self.clock.now()
            connection.abort()

    async def get_link(self, host: Host) -> AgentLink:
        """The link to the host's agent: the one there is, or a new one."""
        key = IncarnationKey(host.incarnation, host.worker)
        link = self._links.get(key)
        if link is not None and link.alive:
            return link
        return await self._single_flight(key, lambda: self._open_link(key, host))

    async def get_connection(self, host: Host) -> asyncssh.SSHClientConnection:
        """The SSH connection itself: for terminals, and whatever has no agent yet."""
        await self.get_link(host)
        return self._connections[IncarnationKey(host.incarnation, host.worker)]

    async def close(self) -> None:
        """Hang up everywhere. What agents do goes on."""
        tasks = list(self._under_way.values())
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        connections = [*self._connections.values(), *self._jumps.values()]
        self._links.clear()
        self._connections.clear()
        self._jumps.clear()
        for connection in connections:
            connection.abort()
        await asyncio.gather(*(connection.wait_closed() for connection in connections))

    async def _single_flight(
        self, key: IncarnationKey | str, work: Callable[[], Awaitable[T]]
    ) -> T:
        """Do it, or wait for who does it already. A waiter that gives up stops nobody else's."""
        task = self._under_way.get(key)
        if task is None:
            task = self._under_way[key] = asyncio.ensure_future(work())
            task.add_done_callback(lambda done: self._forget_task(key, done))
        result: T = await asyncio.shield(task)
        return result

    def _forget_task(self, key: IncarnationKey | str, task: asyncio.Future[Any]) -> None:
        self._under_way.pop(key, None)
        if not task.cancelled():
            task.exception()  # perhaps nobody waits for it any more

    async def _open_link(self, key: IncarnationKey, host: Host) -> AgentLink:
        """Connect if need be, and bring up the agent."""
        connection = self._connections.get(key)
        seen = self.has_pinned_key(host)  # then its agent may still live
        if connection is None or connection.is_closed():
            connection = self._connections[key] = await self._connect_with_refresh(key, host)
        try:
            lane, hello = await self._agents.wait_for(self._reach_agent(connection, seen=seen))
        except TimeoutError as error:
            connection.abort()
            raise NotReached(f"its agent gave no answer in {AGENT_PATIENCE_S:g} s") from error
        link = self._links[key] = AgentLink(host, hello, lane, connection)
        return link

    async def _reach_agent(
        self, connection: asyncssh.SSHClientConnection, *, seen: bool
    ) -> tuple[Multiplexer, Mapping[str, Any]]:
        """Its agent, at its door if it may be there, else started."""
        parcel, words = self.caller.parcel, self.caller.hello
        if seen and (
            found := await connect_to_agent(
                connection, agent_socket_path(self.caller.login), parcel, words
            )
        ):
            return found
        async with self._arrivals.handshake_slot():
            return await bootstrap_agent(connection, parcel, words)

    async def _connect_with_refresh(
        self, key: IncarnationKey, host: Host
    ) -> asyncssh.SSHClientConnection:
        """Connect; where that fails, once more if the cloud knows better than we did."""
        obstacle = self.register.unreachable_reason(host)
        if obstacle is not None:
            raise NotReached(obstacle)
        host, instance = await self._resolve_host(host)
        try:
            connection = await self._connect_by_routes(key, host, instance)
        except (NotReached, IdentityMismatch) as error:
            self._failed_at[key] = self.clock.now()
            now = await self.register.find_current(host)
            if now is None:
                raise NotFound("it is no more") from error
            if now.incarnation != host.incarnation:
                raise NotFound("it was created anew since", hint="look again") from error
            known = self.pins.pinned_keys(host) or host.host_keys
            if now.host_keys and set(now.host_keys) != set(known):
                self.pins.pin_keys(now, now.host_keys)
            elif without_keys(now) == without_keys(host):
                raise
            connection = await self._connect_by_routes(key, now, instance)
        self._failed_at.pop(key, None)
        return connection

    async def _resolve_host(self, host: Host) -> tuple[Host, str]:
        """The host with its keys and its instance name, as far as they are known and needed."""
        wants_name = any("%n" in way.by for way in self.caller.ways)
        if wants_name or not (self.pins.pinned_keys(host) or host.host_keys):
            return await self.register.look_up_host(host)
        return host, ""

    async def _connect_by_routes(
        self, key: IncarnationKey, host: Host, instance: str
    ) -> asyncssh.SSHClientConnection:
        """Connect to where the host is said to be, by the first way that leads there."""
        ways = [way for way in self.caller.ways or default_routes(host) if way.can_reach(host)]
        failed: HerdError = NotReached("none of the ways leads there: it has no external address")
        for way in ways:
            try:
                return await self._connect_with_key_install(key, host, way, instance)
            except (NotReached, IdentityMismatch) as error:
                failed = error
        raise failed

    async def _connect_with_key_install(
        self, key: IncarnationKey, host: Host, way: Route, instance: str
    ) -> asyncssh.SSHClientConnection:
        """Connect by this way, and have our key let in where it is not known yet."""
        end = self.clock.now() + ADMISSION_S
        pause_s = 0.5
        while True:
            try:
                return await self._connect(key, host, way, instance)
            except KeyRejected as refusal:
                if self.clock.now() > end:
                    raise NotAllowed(
                        f"it does not take our key for {self.caller.login},"
                        f" though it is in the metadata for {ADMISSION_S:g} s",
                        hint="its guest agent may be broken: look at its serial console",
                    ) from refusal
            await self.register.install_key(host, self.caller.login, self.caller.keys.public)
            await self.clock.sleep(pause_s)
            pause_s = min(pause_s * 1.5, 5.0)

    async def _connect(
        self, key: IncarnationKey, host: Host, way: Route, instance: str
    ) -> asyncssh.SSHClientConnection:
        """One try by one way."""
        doorman = HostKeyVerifier(host, self.pins)
        more = await self._route_options(way, host, instance)
        direct = way.kind in (RouteKind.EXTERNAL, RouteKind.INTERNAL)
        turnstile = self._turnstile if direct else self._jump_turnstile
        seconds = self._answer_timeout(key)
        try:
            async with turnstile.handshake_slot(), asyncio.timeout(seconds) as patience:
                doorman.heard = lambda: patience.reschedule(
                    asyncio.get_running_loop().time() + seconds
                )
                connection = await asyncssh.connect(
                    way.host_address(host),
                    host.ssh_port,
                    options=self._options,
                    config=None,
                    client_factory=lambda: doorman,
                    server_host_key_algs=host_key_algorithms(doorman.known),
                    **more,
                )
                doorman.pin_shown_key()
                return connection
        except TimeoutError as error:
            raise NotReached(f"no answer in {seconds:g} s") from error
        except asyncssh.PermissionDenied as error:
            raise KeyRejected from error
        except asyncssh.HostKeyNotVerifiable as error:
            raise doorman.stranger_error() from error
        except asyncssh.KeyExchangeFailed as error:
            if doorman.known and "host key" in str(error).lower():
                raise doorman.stranger_error() from error
            raise OperationFailed(f"it speaks another SSH than we do ({error})") from error
        except asyncssh.Error as error:
            raise NotReached(f"it hung up before it let us in ({error.reason})") from error
        except OSError as error:
            raise NotReached(unreachable_sentence(error, host.ssh_port)) from error

    async def _route_options(self, way: Route, host: Host, instance: str) -> dict[str, Any]:
        """What asyncssh must know of the way."""
        if way.kind is RouteKind.COMMAND:
            return {"proxy_command": proxy_command(way, host, instance)}
        if way.kind is RouteKind.JUMP:
            return {
                "tunnel": await self._single_flight(way.by, lambda: self._jump_connection(way.by))
            }
        return {}

    async def _jump_connection(self, by: str) -> asyncssh.SSHClientConnection:
        """The connection to a jump host, one for all: by the user's own SSH settings and keys."""
        jump = self._jumps.get(by)
        if jump is not None and not jump.is_closed():
            return jump
        user, _, rest = by.rpartition("@")
        name, _, port = rest.partition(":")
        more: dict[str, Any] = {"username": user} if user else {}
        try:
            async with asyncio.timeout(PATIENCE_S):
                jump = await asyncssh.connect(
                    name, int(port or 22), keepalive_interval=KEEPALIVE_S, **more
                )
        except TimeoutError as error:
            raise NotReached(f"the jump host {by} gave no answer in {PATIENCE_S:g} s") from error
        except (OSError, asyncssh.Error, ValueError) as error:
            raise NotReached(f"the jump host {by} can't be used ({error})") from error
        self._jumps[by] = jump
        return jump

    def _answer_timeout(self, key: IncarnationKey) -> float:
        """How long to wait for a host: not as long again for one that has just been waited for."""
        failed_at = self._failed_at.get(key)
        recent = failed_at is not None and self.clock.now() - failed_at < MOMENT_S
        return SHORT_PATIENCE_S if recent else PATIENCE_S


class HostKeyVerifier(asyncssh.SSHClient):
    """Looks at the host key before anything is said to the host."""

    def __init__(self, host: Host, pins: Pins) -> None:
        self.host = host
        self.pins = pins
        self.known = pins.pinned_keys(host) or host.host_keys
        self.shown = ""
        self.heard: Callable[[], None] = lambda: None  #: it lives, however slow we all are

    def connection_made(self, conn: asyncssh.SSHClientConnection) -> None:
        self.heard()

    def validate_host_public_key(
        self, host: str, addr: str, port: int, key: asyncssh.SSHKey
    ) -> bool:
        self.heard()
        self.shown = " ".join(key.export_public_key().decode().split()[:2])
        return not self.known or self.shown in self.known

    def pin_shown_key(self) -> None:
        """It has proven that the key is its own: pin what the cloud said, else what it showed."""
        self.pins.pin_keys(self.host, self.known or (self.shown,))

    def stranger_error(self) -> IdentityMismatch:
        """The sentence for a key that is not the host's."""
        owner = self.pins.key_owner(self.shown)
        if owner is not None and owner.incarnation != self.host.incarnation:
            return IdentityMismatch(f"another node has its address now: {owner.name} answers there")
        return IdentityMismatch(
            "who answers at its address shows another host key: another node has this address"
            " now, or somebody stands in between",
            hint="nothing was sent there; `herd exec` looks again at every call",
        )


def connection_options(caller: ClientIdentity) -> asyncssh.SSHClientConnectionOptions:
    """What all connections have in common. Nothing of the user's SSH settings, agent or files."""
    return asyncssh.SSHClientConnectionOptions(
        config=None,
        username=caller.login,
        client_keys=[caller.keys.private],
        agent_path=None,
        agent_forwarding=False,
        known_hosts=([], [], []),  # the doorman decides
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


def host_key_algorithms(known: tuple[str, ...]) -> list[str]:
    """The kinds of host keys to ask for: those that are known, else all, the best first."""
    kinds = {key.partition(" ")[0] for key in known}
    wanted = [
        name for name in HOST_KEYS if name in kinds or (name[:3] == "rsa" and "ssh-rsa" in kinds)
    ]
    return wanted or list(HOST_KEYS)


def without_keys(host: Host) -> Host:
    """A host without its keys: where it is."""
    return replace(host, host_keys=())
