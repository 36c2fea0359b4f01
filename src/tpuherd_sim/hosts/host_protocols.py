"""The interfaces between a running host and the rest of the world."""

import asyncio
import socket
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from tpuherd_sim.model.host_view import HostView
from tpuherd_sim.model.http_types import Request, Response


@dataclass(frozen=True, kw_only=True, slots=True)
class Program:
    """A program to start inside a host."""

    argv: Sequence[str]
    #: Added to the login's variables: PATH, HOME, USER, LOGNAME, SHELL and the host's
    #: /etc/environment. Nothing is inherited from the machine.
    env: Mapping[str, str] = field(default_factory=dict)
    user: str = "root"
    directory: str | None = None  #: by default the user's home
    executable: str | None = None  #: by default argv[0]


@dataclass(frozen=True, kw_only=True, slots=True)
class Account:
    name: str
    uid: int
    gid: int
    home: str


@dataclass(frozen=True, kw_only=True, slots=True)
class ChipHolder:
    """A process inside a host that has a chip's device file open."""

    device: str  #: /dev/accel0, /dev/vfio/0
    pid: int  #: inside the host
    resident_bytes: int
    cpu_s: float  #: processor time used so far


class Process(Protocol):
    """A program that was started inside a host."""

    pid: int  #: inside the host; leader of its own session

    async def wait(self) -> int:
        """Return the wait status as of os.waitpid, or that of SIGKILL if the host died."""
        ...


class Host(Protocol):
    """One running host. Calls raise OSError when it has ended or does not respond in time."""

    view: HostView
    gone: asyncio.Event  #: set when the host is dead

    async def spawn_program(self, program: Program, fds: Sequence[int]) -> Process:
        """Start a program; the descriptors become its stdin, stdout and stderr."""
        ...

    async def spawn_on_terminal(
        self, program: Program, size: tuple[int, int, int, int]
    ) -> tuple[Process, int]:
        """Start a program on a new terminal (rows, columns, x, y); also return the terminal's
        master.
        """
        ...

    async def connect(self, address: str, port: int) -> socket.socket:
        """Return a non-blocking connection in the host's network, which may not be established yet.

        The address may be a name in the host's /etc/hosts or the path of a socket file.
        """
        ...

    async def connect_unix(self, path: str, user: str) -> socket.socket:
        """Return a connection to a unix socket of the host, opened with that user's rights."""
        ...

    async def open_listener(self, address: str, port: int) -> socket.socket:
        """Return a non-blocking listening socket in the host's network.

        Where hosts share a network, it listens on the external address, and ports below 1024 are
        shifted by 8000: the socket knows its port.
        """
        ...

    async def send_signal(self, pid: int, number: int, *, whole_session: bool) -> None:
        """Send a signal to a process, to its session, or (pid -1) to all processes of the host."""
        ...

    async def terminate_all(self, *, reboot: bool = False) -> None:
        """Send SIGTERM to all processes, and SIGHUP to those on a terminal, like systemd at
        soft-off.
        """
        ...

    async def ensure_account(self, name: str) -> Account:
        """Return the login; create it with its home at first use."""
        ...

    async def chip_holders(self) -> list[ChipHolder]: ...

    async def read(self, path: str) -> bytes:
        """Return the content of a file, at most 1 MiB; raise FileNotFoundError if absent."""
        ...

    async def write(self, path: str, content: bytes, mode: int) -> None:
        """Write a file as the host's root."""
        ...


class WorldApi(Protocol):
    """The world as a host sees it."""

    def host_view(self, key: str) -> HostView | None:
        """Return the wanted state of the host, or None if its node is deleted."""
        ...

    def metadata_tree(self, key: str) -> dict[str, Any]:
        """Return the host's tree under /computeMetadata/v1/."""
        ...

    def login_keys(self, key: str) -> Mapping[str, Sequence[str]]:
        """Return the public keys that may log in, by user."""
        ...

    def handle_request(self, request: Request) -> Response:
        """Send a request to the world."""
        ...

    async def wait_for_change(self, key: str) -> None:
        """Wait until the view or the metadata of the host changes."""
        ...
