"""The SSH addresses of one host: they open, go silent and shut with it."""

import asyncio
import socket
from collections.abc import Coroutine
from enum import Enum
from typing import Any

import asyncssh

from tpuherd.clock import Clock
from tpuherd_sim.hosts.host_protocols import Desk, Host
from tpuherd_sim.model.host_view import HostView
from tpuherd_sim.ssh.accept_loop import Acceptor
from tpuherd_sim.ssh.authorized_keys import NAME, admitted, entry_of
from tpuherd_sim.ssh.connection import Visit
from tpuherd_sim.ssh.session import text

STRANGERS_MAX = 100  #: connections of one host that have not logged in yet (MaxStartups)
BACKLOG = 512
INSIDE = ("0.0.0.0", 22)  #: where the other hosts of the world find a host's sshd


class Manner(Enum):
    """How a host's address behaves."""

    SHUT = "connections are refused"
    OPEN = "served"
    MUTE = "connections come about, and then nothing"
    DARK = "packets vanish: connecting takes until the client gives up"


def manner(view: HostView | None, host: Host | None) -> Manner:
    """How the address of such a host behaves."""
    if view is None or host is None or host.gone.is_set() or not view.on or not view.ssh:
        return Manner.SHUT
    if view.network == "down":
        return Manner.DARK
    return Manner.MUTE if view.hung else Manner.OPEN


class Gate:
    """The listening sockets and the connections of one host while it runs."""

    def __init__(self, desk: Desk, key: str, host: Host, clock: Clock) -> None:
        self.desk = desk
        self.key = key
        self.host = host
        self.clock = clock
        self.manner = Manner.SHUT
        self.options: asyncssh.SSHServerConnectionOptions
        self.visits: set[Visit] = set()
        self.address: tuple[str, int] | None = None
        self.outside: socket.socket | None = None
        self.inside: socket.socket | None = None
        self.fillers: list[socket.socket] = []
        self.accepting: list[Acceptor] = []
        self.tasks: set[asyncio.Task[None]] = set()

    async def open(self, private: asyncssh.SSHKey) -> None:
        """Make ready; the sockets come with the first manner."""
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
        self.start(self.watch())

    async def open_inside(self) -> None:
        """Let the other hosts in too, once the outer address is taken: they may be the same."""
        try:
            self.inside = await self.host.listen(*INSIDE)
        except OSError:  # taken by the user's own sshd
            return
        if self.manner is Manner.OPEN:
            self.accepting.append(Acceptor(self.inside, self.welcome))

    @property
    def still(self) -> bool:
        """Whether nothing moves here for now."""
        return self.manner is not Manner.OPEN

    def start(self, work: Coroutine[Any, Any, None]) -> "asyncio.Task[None]":
        task = asyncio.create_task(work)
        self.tasks.add(task)
        task.add_done_callback(self.tasks.discard)
        return task

    async def watch(self) -> None:
        """The moment the host is dead its connections are, too."""
        await self.host.gone.wait()
        self.behave(Manner.SHUT, None)

    def behave(self, manner: Manner, address: tuple[str, int] | None) -> None:
        """Change to another manner, or address; harmless when it is the same."""
        if (manner, address) == (self.manner, self.address) and (self.outside or not address):
            return
        if address != self.address or self.manner is Manner.DARK:
            self.stop_listening()
        self.manner, self.address = manner, address
        if manner is Manner.SHUT:
            self.shut()
            return
        self.stop_accepting()
        try:
            if self.outside is None and address is not None:
                self.outside = listening(address)
        finally:
            self.turn()

    def turn(self) -> None:
        """Accept or not, hold or release what there is: by the manner."""
        if self.manner is Manner.OPEN:
            for listener in (self.outside, self.inside):
                if listener is not None:
                    self.accepting.append(Acceptor(listener, self.welcome))
        elif self.manner is Manner.DARK:
            self.fill_up()
        for visit in self.visits:
            if self.manner is Manner.OPEN:
                visit.release()
            else:
                visit.hold()

    def shut(self) -> None:
        """Refuse everybody, and throw out who is in."""
        self.stop_listening()
        if self.inside is not None:
            self.inside.close()
            self.inside = None
        for visit in list(self.visits):
            visit.cut()

    def fill_up(self) -> None:
        """Make the kernel drop who connects: a listening queue of length nought, and one in it."""
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

    def welcome(self, end: socket.socket, _: object) -> None:
        """Let everybody in; who they are is seen later."""
        if sum(visit.stranger for visit in self.visits) >= STRANGERS_MAX:
            end.close()
        else:
            self.start(self.serve(end))

    async def serve(self, end: socket.socket) -> None:
        """One connection, from its first byte to its last."""
        try:
            connection = await asyncssh.run_server(
                end, options=self.options, server_factory=lambda: Visit(self)
            )
            await connection.wait_closed()
        except (OSError, asyncssh.Error):
            return

    async def admits(self, user: str, public: bytes) -> bool:
        """Whether this key is the user's by the metadata, or by the user's own authorized_keys."""
        if not NAME.fullmatch(user):
            return False
        now = self.clock.now()
        if admitted(self.desk.logins(self.key).get(user, ()), public, now):
            return True
        try:
            entry = entry_of(await text(self.host, "/etc/passwd"), user)
            lines = await text(self.host, f"{entry[5]}/.ssh/authorized_keys") if entry else ""
        except OSError:
            return False
        return admitted(lines.splitlines(), public, now)

    async def close(self) -> None:
        """End everything, and wait for it."""
        self.behave(Manner.SHUT, None)
        tasks = list(self.tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


def listening(address: tuple[str, int]) -> socket.socket:
    """A listening socket outside."""
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
