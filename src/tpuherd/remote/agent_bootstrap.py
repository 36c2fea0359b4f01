"""Opens a channel to a host's agent: to its socket, else by starting, or first installing, it."""

import asyncio
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any, Protocol

import asyncssh
from asyncssh.channel import SSHChannel

from tpuherd.errors import HerdError, NotReached, OperationFailed
from tpuherd.remote.agent_channel import Multiplexer
from tpuherd.remote.shell_line import any_shell_line
from tpuherd_host.agent.attach import FOLDER, SOCKET
from tpuherd_host.agent.frames import PROTOCOL
from tpuherd_host.agent.main import PREFIX, SUFFIX

MARK = b"\x01tpuherd "  #: what the shell profile prints before it is ignored
END_OF_LINES = b"\n"  #: an empty line: no line for a shell follows
NOISE_MAX = 1 << 16
LAST_WORDS_MAX = 4096
WINDOW = 2 << 20  #: of the channel; each call has its own credit within it
UNASKED_MAX, FLOOD_S = 1 << 20, 1.0  #: more bytes that answer nothing in this time wait for as long
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
    """The client's end of a channel; the multiplexer writes to it."""

    _channel: SSHChannel[bytes]

    def __init__(self, hello: Mapping[str, Any]) -> None:
        self.multiplexer = Multiplexer(self)
        self._hello = hello
        self._counted_since = -FLOOD_S

    def connection_made(self, chan: Any) -> None:
        self._channel = chan

    def write(self, piece: bytes) -> None:
        """Write for the multiplexer; does nothing if the channel is closing."""
        if not self._channel.is_closing():
            self._channel.write(piece)

    def close(self) -> None:
        """Close the channel; the agent keeps running."""
        self._channel.abort()

    def receive_frames(self, data: bytes) -> None:
        """Handle what the agent sends; one that floods us is read again after a pause."""
        self.multiplexer.feed(data)
        if self.multiplexer.unasked < UNASKED_MAX:
            return
        self.multiplexer.unasked = 0
        loop = asyncio.get_running_loop()
        if loop.time() < self._counted_since + FLOOD_S:
            self._channel.pause_reading()
            loop.call_later(FLOOD_S, self._resume_reading)
        self._counted_since = loop.time()

    def _resume_reading(self) -> None:
        if not self._channel.is_closing():
            self._channel.resume_reading()

    def pause_writing(self) -> None:
        self.multiplexer.free.clear()

    def resume_writing(self) -> None:
        self.multiplexer.free.set()

    def eof_received(self) -> bool:
        return False

    def connection_lost(self, exc: Exception | None) -> None:
        self.multiplexer.mark_broken(self._closing_error())

    def _closing_error(self) -> HerdError:
        return NotReached("the connection was cut")


class SocketSession(AgentSession, asyncssh.SSHUNIXSession[bytes]):
    """A channel to the socket of a running agent; starts nothing on the host."""

    def session_started(self) -> None:
        self.multiplexer.send_hello(self._hello)

    def data_received(self, data: bytes, datatype: int | None) -> None:
        self.receive_frames(data)


class BootstrapSession(AgentSession, asyncssh.SSHClientSession[bytes]):
    """Runs the start script, which finds or starts the agent; frames follow."""

    def __init__(self, bundle: AgentBundle, hello: Mapping[str, Any]) -> None:
        super().__init__(hello)
        self._bundle = bundle
        self._noise = b""
        self._heard = False  #: the script runs
        self._attached = False  #: from now on the host sends frames
        self._last_words = b""
        self._status: int | None = None

    def session_started(self) -> None:
        """Send the command as input, too: a start file that becomes another shell drops the first
        one, and that shell reads its input. The script skips what no shell has read.
        """
        self.write(bootstrap_command(self._bundle).encode() + b"\n")

    def data_received(self, data: bytes, datatype: int | None) -> None:
        if datatype is not None:
            self._last_words = (self._last_words + data)[-LAST_WORDS_MAX:]
        elif self._attached:
            self.receive_frames(data)
        else:
            self._noise += data
            self._parse_script_output()

    def _parse_script_output(self) -> None:
        """Handle the start script's words: it wants the agent, has it, or found no Python."""
        while not self._attached:
            start = self._noise.find(MARK)
            end = self._noise.find(b"\n", start)
            if start < 0 or end < 0:
                if len(self._noise) > NOISE_MAX:
                    self.multiplexer.mark_broken(
                        OperationFailed("its shell prints too much before the agent can start")
                    )
                    self.close()
                return
            word, self._noise = self._noise[start + len(MARK) : end], self._noise[end + 1 :]
            if not self._heard:
                self._heard = True
                self.write(END_OF_LINES)
            if word == b"want":
                self.write(b"%d\n" % len(self._bundle.compressed) + self._bundle.compressed)
            elif word == b"have":
                self._attached = True
                self.multiplexer.send_hello(self._hello)
                self.receive_frames(self._noise)
                self._noise = b""
            else:
                self.multiplexer.mark_broken(
                    OperationFailed("it has no python3", hint="the agent needs Python 3.8 or newer")
                )

    def exit_status_received(self, status: int) -> None:
        self._status = status

    def _closing_error(self) -> HerdError:
        words = self._last_words.decode("utf-8", "replace").strip().splitlines()
        if self._status is not None and words:
            kind = NotReached if self.multiplexer.hello.done() else OperationFailed
            return kind(f"the agent ended: {words[-1]}")
        if self._status is not None:
            return NotReached(f"the agent ended with status {self._status}")
        return super()._closing_error()


@cache
def minified_script(name: str) -> str:
    """A script for hosts without its comments and docstrings, each of which fits on one line."""
    lines = (HERE / name).read_text().splitlines()
    return "\n".join(line for line in lines if line.strip() and line.lstrip()[0] not in '#"')


def bootstrap_command(bundle: AgentBundle) -> str:
    """The command for the host's login shell: a script that finds Python, and one for Python."""
    shell, python = map(minified_script, ("bootstrap.sh", "bootstrap_on_host.py"))
    return any_shell_line(shell, bundle.name, python)


def agent_socket_path(login: str) -> str:
    """Where the agent of a login listens if its home is in the usual place."""
    home = "/root" if login == "root" else f"/home/{login}"
    return f"{home}/{FOLDER}/{SOCKET}"


async def connect_to_agent(
    connection: asyncssh.SSHClientConnection,
    path: str,
    bundle: AgentBundle,
    hello: Mapping[str, Any],
) -> tuple[Multiplexer, Mapping[str, Any]] | None:
    """Connect to a running agent of this version; None if there is none: then bootstrap it."""
    try:
        _, end = await connection.create_unix_connection(
            lambda: SocketSession(hello), path, encoding=None, window=WINDOW
        )
    except (OSError, asyncssh.Error):
        return None  # no agent listens, or sshd does not forward sockets
    assert isinstance(end, SocketSession)
    try:
        theirs = await wait_for_hello(end)
    except HerdError:
        return None
    if PREFIX + str(theirs.get("agent")) + SUFFIX == bundle.name:
        return end.multiplexer, theirs
    end.close()  # bootstrapping may replace it
    return None


async def bootstrap_agent(
    connection: asyncssh.SSHClientConnection, bundle: AgentBundle, hello: Mapping[str, Any]
) -> tuple[Multiplexer, Mapping[str, Any]]:
    """Find or start the host's agent; return its multiplexer and its hello."""
    try:
        _, arrival = await connection.create_session(
            lambda: BootstrapSession(bundle, hello),
            bootstrap_command(bundle),
            encoding=None,
            window=WINDOW,
            request_pty=False,
        )
    except (OSError, asyncssh.Error) as error:
        raise NotReached(f"it opens no SSH channel ({error})") from error
    assert isinstance(arrival, BootstrapSession)
    theirs = await wait_for_hello(arrival)
    if theirs.get("protocol") != PROTOCOL:
        arrival.close()
        raise OperationFailed(
            f"its agent speaks protocol {theirs.get('protocol')}, we speak {PROTOCOL}",
            hint="a newer tpuherd is in use there: use that one",
        )
    return arrival.multiplexer, theirs


async def wait_for_hello(end: AgentSession) -> Mapping[str, Any]:
    """Wait for the agent's hello; close the channel if the wait is cancelled."""
    try:
        return await end.multiplexer.hello
    except asyncio.CancelledError:
        end.close()
        raise
