"""The SSH addresses of one host: they open, freeze and close with it."""

import asyncio
import socket
from collections.abc import Coroutine
from enum import Enum
from typing import Any

import asyncssh

from tpuherd.clock import Clock
from tpuherd_sim.hosts.host_protocols import Host, WorldApi
from tpuherd_sim.model.host_view import HostView
from tpuherd_sim.ssh.accept_loop import Acceptor
from tpuherd_sim.ssh.authorized_keys import NAME, is_key_listed, passwd_entry
from tpuherd_sim.ssh.connection import ClientConnection
from tpuherd_sim.ssh.session import read_text

STRANGERS_MAX = 100  #: connections per host that have not logged in yet (MaxStartups)
BACKLOG = 512
INSIDE = ("0.0.0.0", 22)  #: the address of a host's sshd for other hosts of the world


class ListenState(Enum):
    """How a host's address behaves."""

    SHUT = "connections are refused"
    OPEN = "served"
    MUTE = "connections are accepted, but no data flows"
    DARK = "packets are dropped: connecting times out"


def listen_state(view: HostView | None, host: Host | None) -> ListenState:
    """Return how the address of such a host behaves."""
    if view is None or host is None or host.gone.is_set() or not view.on or not view.ssh:
        return ListenState.SHUT
    if view.network == "down":
        return ListenState.DARK
    return ListenState.MUTE if view.hung else ListenState.OPEN


class HostListener:
    """The listening sockets and connections of one running host."""

    def __init__(self, world_api: WorldApi, key: str, host: Host, clock: Clock) -> None:
        self.world_api = world_api
        self.key = key
        self.host = host
        self.clock = clock
        self.state = ListenState.SHUT
        self.options: asyncssh.SSHServerConnectionOptions
        self.connections: set[ClientConnection] = set()
        self.address: tuple[str, int] | None = None
        self.outside: socket.socket | None = None
        self.inside: socket.socket | None = None
        self.fillers: list[socket.socket] = []
        self.accepting: list[Acceptor] = []
        self.tasks: set[asyncio.Task[None]] = set()

    async def open(self, private: asyncssh.SSHKey) -> None:
        """Prepare; sockets open with the first state."""
        self.options = await asyncssh.SSHServerConnectionOptions.construct(
            server_host_keys=[private],
            server_version="tpuherd",
            encoding=None,
            line_editor=False,
            compression_algs=None,
            gss_host=None,
            agent_forwarding=False,
            x11_forwarding=False,
            allow_scp=False,
            password_auth=False,
            kbdint_auth=False,
            host_based_auth=False,
        )
        self.start_task(self.shut_when_gone())

    async def open_inside(self) -> None:
        """Listen for other hosts after the external address is bound, because both may
        be the same.
        """
        try:
            self.inside = await self.host.open_listener(*INSIDE)
        except OSError:  # used by the user's own sshd
            return
        if self.state is ListenState.OPEN:
            self.accepting.append(Acceptor(self.inside, self.accept_client))

    @property
    def is_paused(self) -> bool:
        return self.state is not ListenState.OPEN

    def start_task(self, work: Coroutine[Any, Any, None]) -> "asyncio.Task[None]":
        task = asyncio.create_task(work)
        self.tasks.add(task)
        task.add_done_callback(self.tasks.discard)
        return task

    async def shut_when_gone(self) -> None:
        """Close all connections when the host dies."""
        await self.host.gone.wait()
        self.set_state(ListenState.SHUT, None)

    def set_state(self, state: ListenState, address: tuple[str, int] | None) -> None:
        """Change to another state or address; no effect if both are the same."""
        if (state, address) == (self.state, self.address) and (self.outside or not address):
            return
        if address != self.address or self.state is ListenState.DARK:
            self.stop_listening()
        self.state, self.address = state, address
        if state is ListenState.SHUT:
            self.shut_down()
            return
        self.stop_accepting()
        try:
            if self.outside is None and address is not None:
                self.outside = open_listener(address)
        finally:
            self.apply_state()

    def apply_state(self) -> None:
        """Accept, freeze or resume connections as the state demands."""
        if self.state is ListenState.OPEN:
            for listener in (self.outside, self.inside):
                if listener is not None:
                    self.accepting.append(Acceptor(listener, self.accept_client))
        elif self.state is ListenState.DARK:
            self.fill_backlog()
        for owner in self.connections:
            if self.state is ListenState.OPEN:
                owner.resume_transfer()
            else:
                owner.pause_transfer()

    def shut_down(self) -> None:
        """Refuse new connections and close the others."""
        self.stop_listening()
        if self.inside is not None:
            self.inside.close()
            self.inside = None
        for owner in list(self.connections):
            owner.reset_connection()

    def fill_backlog(self) -> None:
        """Make the kernel drop new connections: a listen queue of length zero with one connection
        in it.
        """
        if self.outside is None:
            return
        self.outside.listen(0)
        for _ in range(2):
            filler = socket.socket()
            filler.setblocking(False)
            filler.connect_ex(self.outside.getsockname())
            self.fillers.append(filler)

    def stop_accepting(self) -> None:
        for acceptor in self.accepting:
            acceptor.stop()
        self.accepting.clear()

    def stop_listening(self) -> None:
        self.stop_accepting()
        for one in (self.outside, *self.fillers):
            if one is not None:
                one.close()
        self.outside = None
        self.fillers.clear()

    def accept_client(self, end: socket.socket, _: object) -> None:
        """Accept a connection; authentication follows."""
        if sum(owner.stranger for owner in self.connections) >= STRANGERS_MAX:
            end.close()
        else:
            self.start_task(self.serve_connection(end))

    async def serve_connection(self, end: socket.socket) -> None:
        try:
            connection = await asyncssh.run_server(
                end, options=self.options, server_factory=lambda: ClientConnection(self)
            )
            await connection.wait_closed()
        except (OSError, asyncssh.Error):
            return

    async def may_log_in(self, user: str, public: bytes) -> bool:
        """Whether the metadata or the user's own authorized_keys have this key."""
        if not NAME.fullmatch(user):
            return False
        now = self.clock.now()
        if is_key_listed(self.world_api.login_keys(self.key).get(user, ()), public, now):
            return True
        try:
            entry = passwd_entry(await read_text(self.host, "/etc/passwd"), user)
            lines = await read_text(self.host, f"{entry[5]}/.ssh/authorized_keys") if entry else ""
        except OSError:
            return False
        return is_key_listed(lines.splitlines(), public, now)

    async def close(self) -> None:
        """Close everything and wait for it."""
        self.set_state(ListenState.SHUT, None)
        tasks = list(self.tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


def open_listener(address: tuple[str, int]) -> socket.socket:
    """Return a listening socket outside."""
    listener = socket.socket()
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.setblocking(False)
        listener.bind(address)
        listener.listen(BACKLOG)
    except BaseException:
        listener.close()
        raise
    return listener
