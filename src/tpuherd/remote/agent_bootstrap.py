"""Brings a channel to a host's agent: by its door, else by starting it, sent along if missing."""

import asyncio
import shlex
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any, Protocol

import asyncssh
from asyncssh.channel import SSHChannel

from tpuherd.errors import HerdError, NotReached, OperationFailed
from tpuherd.remote.agent_channel import Multiplexer
from tpuherd_host.agent.attach import FOLDER, SOCKET
from tpuherd_host.agent.frames import PROTOCOL
from tpuherd_host.agent.main import PREFIX, SUFFIX

MARK = b"\x01tpuherd "  #: before it a host may say what it likes: the user's start files do
NOISE_MAX = 1 << 16
LAST_WORDS_MAX = 4096
WINDOW = 2 << 20  #: of the channel; each call has its own credit within
HERE = Path(__file__).parent


class AgentBundle(Protocol):
    """The agent as it is sent: a file whose name changes with its content."""

    @property
    def name(self) -> str: ...

    @property
    def compressed(self) -> bytes:
        """The file in zlib's format."""
        ...


class AgentSession:
    """The client's end of a channel, as a lane's wire."""

    _channel: SSHChannel[bytes]

    def __init__(self, hello: Mapping[str, Any]) -> None:
        self.lane = Multiplexer(self)
        self._hello = hello

    def connection_made(self, chan: Any) -> None:
        self._channel = chan

    def write(self, piece: bytes) -> None:
        """For the lane. What is written to a broken one is lost with it."""
        if not self._channel.is_closing():
            self._channel.write(piece)

    def close(self) -> None:
        """Hang up. The agent goes on without us."""
        self._channel.abort()

    def pause_writing(self) -> None:
        self.lane.free.clear()

    def resume_writing(self) -> None:
        self.lane.free.set()

    def eof_received(self) -> bool:
        return False

    def connection_lost(self, exc: Exception | None) -> None:
        self.lane.mark_broken(self._closing_error())

    def _closing_error(self) -> HerdError:
        """Why there is nothing more."""
        return NotReached("the connection was cut")


class SocketSession(AgentSession, asyncssh.SSHUNIXSession[bytes]):
    """Leads to the socket of an agent that lives: nothing is started on the host for it."""

    def session_started(self) -> None:
        self.lane.send_hello(self._hello)

    def data_received(self, data: bytes, datatype: int | None) -> None:
        self.lane.feed(data)


class BootstrapSession(AgentSession, asyncssh.SSHClientSession[bytes]):
    """Starts what finds the agent, or starts that; then frames come."""

    def __init__(self, parcel: AgentBundle, hello: Mapping[str, Any]) -> None:
        super().__init__(hello)
        self._parcel = parcel
        self._noise = b""
        self._there = False  #: what comes now is frames
        self._last_words = b""
        self._status: int | None = None

    def data_received(self, data: bytes, datatype: int | None) -> None:
        if datatype is not None:
            self._last_words = (self._last_words + data)[-LAST_WORDS_MAX:]
        elif self._there:
            self.lane.feed(data)
        else:
            self._noise += data
            self._parse_script_output()

    def _parse_script_output(self) -> None:
        """Look for what the start script has to say."""
        while not self._there:
            start = self._noise.find(MARK)
            end = self._noise.find(b"\n", start)
            if start < 0 or end < 0:
                if len(self._noise) > NOISE_MAX:
                    self.lane.mark_broken(
                        OperationFailed("its shell says too much before the agent can start")
                    )
                    self.close()
                return
            word, self._noise = self._noise[start + len(MARK) : end], self._noise[end + 1 :]
            if word == b"want":
                self.write(b"%d\n" % len(self._parcel.compressed) + self._parcel.compressed)
            elif word == b"have":
                self._there = True
                self.lane.send_hello(self._hello)
                self.lane.feed(self._noise)
                self._noise = b""
            else:
                self.lane.mark_broken(
                    OperationFailed("it has no python3", hint="the agent needs Python 3.8 or newer")
                )

    def exit_status_received(self, status: int) -> None:
        self._status = status

    def _closing_error(self) -> HerdError:
        words = self._last_words.decode("utf-8", "replace").strip().splitlines()
        if self._status is not None and words:
            kind = NotReached if self.lane.hello.done() else OperationFailed
            return kind(f"the agent ended: {words[-1]}")
        if self._status is not None:
            return NotReached(f"the agent ended with status {self._status}")
        return super()._closing_error()


@cache
def minified_script(name: str) -> str:
    """A program for hosts, without comments and docstrings, which have a line each."""
    lines = (HERE / name).read_text().splitlines()
    return "\n".join(line for line in lines if line.strip() and line.lstrip()[0] not in '#"')


def bootstrap_command(parcel: AgentBundle) -> str:
    """What the login shell of the host is given: what looks for Python, and what that does."""
    shell, python = (
        shlex.quote(minified_script("bootstrap.sh")),
        shlex.quote(minified_script("bootstrap_on_host.py")),
    )
    return " ".join(["exec sh -c", shell, "tpuherd", parcel.name, python])


def agent_socket_path(login: str) -> str:
    """Where the agent of a login listens, on hosts that put homes where all do."""
    home = "/root" if login == "root" else f"/home/{login}"
    return f"{home}/{FOLDER}/{SOCKET}"


async def connect_to_agent(
    connection: asyncssh.SSHClientConnection,
    path: str,
    parcel: AgentBundle,
    hello: Mapping[str, Any],
) -> tuple[Multiplexer, Mapping[str, Any]] | None:
    """A lane to an agent that lives and is this one; None: `arrive` finds out what is there."""
    try:
        _, end = await connection.create_unix_connection(
            lambda: SocketSession(hello), path, encoding=None, window=WINDOW
        )
    except (OSError, asyncssh.Error):
        return None  # nobody is there, or its sshd allows no such way
    assert isinstance(end, SocketSession)
    try:
        theirs = await wait_for_hello(end)
    except HerdError:
        return None
    if PREFIX + str(theirs.get("agent")) + SUFFIX == parcel.name:
        return end.lane, theirs
    end.close()  # who comes by `attach` may replace it
    return None


async def bootstrap_agent(
    connection: asyncssh.SSHClientConnection, parcel: AgentBundle, hello: Mapping[str, Any]
) -> tuple[Multiplexer, Mapping[str, Any]]:
    """A lane to the host's agent, and what that said of itself."""
    try:
        _, arrival = await connection.create_session(
            lambda: BootstrapSession(parcel, hello),
            bootstrap_command(parcel),
            encoding=None,
            window=WINDOW,
            request_pty=False,
        )
    except (OSError, asyncssh.Error) as error:
        raise NotReached(f"it opens no channel ({error})") from error
    assert isinstance(arrival, BootstrapSession)
    theirs = await wait_for_hello(arrival)
    if theirs.get("protocol") != PROTOCOL:
        arrival.close()
        raise OperationFailed(
            f"its agent speaks protocol {theirs.get('protocol')}, we speak {PROTOCOL}",
            hint="another tpuherd, newer than this one, is at work there: use that one",
        )
    return arrival.lane, theirs


async def wait_for_hello(end: AgentSession) -> Mapping[str, Any]:
    """What the agent says of itself; nobody stays behind where nobody waits for it any more."""
    try:
        return await end.lane.hello
    except asyncio.CancelledError:
        end.close()
        raise
