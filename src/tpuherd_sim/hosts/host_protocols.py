"""What the rest of the world may ask of a running host, and what a host may ask of the world."""

import asyncio
import socket
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from tpuherd_sim.model.host_view import HostView
from tpuherd_sim.model.http_types import Request, Response


@dataclass(frozen=True, kw_only=True, slots=True)
class Program:
    """Something to start inside a host."""

    argv: Sequence[str]
    #: On top of the login's own: PATH, HOME, USER, LOGNAME, SHELL and the host's /etc/environment.
    #: Nothing is inherited from the machine.
    env: Mapping[str, str] = field(default_factory=dict)
    user: str = "root"
    directory: str | None = None  #: the user's home where not given
    executable: str | None = None  #: argv[0] where not given


@dataclass(frozen=True, kw_only=True, slots=True)
class Account:
    """A login of a host."""

    name: str
    uid: int
    gid: int
    home: str


@dataclass(frozen=True, kw_only=True, slots=True)
class ChipHolder:
    """A process inside a host that has a chip's device file open."""

    device: str  #: /dev/accel0, /dev/vfio/0
    pid: int  #: as seen inside
    resident_bytes: int
    cpu_s: float  #: processor time used so far


class Process(Protocol):
    """A program that was started inside a host."""

    pid: int  #: as seen inside; leader of its own session

    async def wait(self) -> int:
        """Its wait status, as os.waitpid gives it; SIGKILL's where the host died."""
        ...


class Host(Protocol):
    """One running host. Calls fail with OSError when it is gone or does not answer in time."""

    view: HostView
    gone: asyncio.Event  #: set once, when it is dead

    async def spawn_program(self, program: Program, fds: Sequence[int]) -> Process:
        """Start a program with these three as its stdin, stdout and stderr."""
        ...

    async def spawn_on_terminal(
        self, program: Program, size: tuple[int, int, int, int]
    ) -> tuple[Process, int]:
        """Start a program on a new terminal (rows, columns, x, y); and that terminal's master."""
        ...

    async def connect(self, address: str, port: int) -> socket.socket:
        """A connection made inside the host's network (non-blocking, may still be under way).

        The address may be a name of the host's /etc/hosts, or the path of a socket file.
        """
        ...

    async def connect_unix(self, path: str, user: str) -> socket.socket:
        """A connection to a unix socket of the host, made with the rights of that user."""
        ...

    async def open_listener(self, address: str, port: int) -> socket.socket:
        """A listening socket inside the host's network (non-blocking).

        Where hosts have no network of their own it listens on the external address, and a port
        below 1024 is 8000 higher: ask the socket.
        """
        ...

    async def send_signal(self, pid: int, number: int, *, whole_session: bool) -> None:
        """Send a signal to a process of the host, to all of its session, or (pid -1) to all."""
        ...

    async def terminate_all(self) -> None:
        """What systemd does at soft-off: SIGTERM to all, SIGHUP too to those on a terminal."""
        ...

    async def ensure_account(self, name: str) -> Account:
        """The login of that name, made with its home at the first use."""
        ...

    async def chip_holders(self) -> list[ChipHolder]:
        """Who has the chips."""
        ...

    async def read(self, path: str) -> bytes:
        """A file of the host as its root sees it, at most 1 MiB; FileNotFoundError if absent."""
        ...

    async def write(self, path: str, content: bytes, mode: int) -> None:
        """Put a file into the host as its root."""
        ...


class WorldApi(Protocol):
    """The world as a host sees it."""

    def host_view(self, key: str) -> HostView | None:
        """What the host should be like; None when its node is no more."""
        ...

    def metadata_tree(self, key: str) -> dict[str, Any]:
        """The tree under /computeMetadata/v1/ of that host, now."""
        ...

    def login_keys(self, key: str) -> Mapping[str, Sequence[str]]:
        """Which user may come in with which public keys."""
        ...

    def handle_request(self, request: Request) -> Response:
        """Ask or tell the world something, at this moment."""
        ...

    async def wait_for_change(self, key: str) -> None:
        """Return when the view or the metadata of that host changes the next time."""
        ...
