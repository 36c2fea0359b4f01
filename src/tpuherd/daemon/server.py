"""The daemon: listens, runs each command in a task of its own, and ends when idle.

The launcher sends a request (daemon/request.py), which is parsed by cli/main.py and run by
cli/parsed_command.py with the connections that daemon/open_projects.py keeps.
"""

import asyncio
import fcntl
import io
import os
import signal
import socket
import sys
import traceback
from collections.abc import Mapping
from contextlib import redirect_stderr, redirect_stdout, suppress
from pathlib import Path
from typing import Any

from tpuherd._version import __version__
from tpuherd.cli import main as command_line
from tpuherd.cli.parsed_command import ParsedCommand, run_parsed_command
from tpuherd.clock import Clock, WallClock
from tpuherd.commands.console import Console
from tpuherd.commands.terminal_facts import choose_colour
from tpuherd.daemon.handshake import (
    NO,
    OTHER,
    OWN_COMMAND,
    SOCKET,
    YES,
    first_command,
    install_stamp,
    module_stamps,
)
from tpuherd.daemon.open_projects import OpenProjects
from tpuherd.daemon.request import (
    FILES,
    DaemonRequest,
    decode_request,
    is_same_user,
    receive_request,
)
from tpuherd.errors import HerdError, InvalidInput
from tpuherd.remote.resolve_hosts import RemoteSession
from tpuherd.settings import project_access

LOCK = "keeper.lock"
LOCK_TRIES, LOCK_PAUSE_S = 100, 0.05
BACKLOG = 128
LOOK_S = 5.0
LOG_MAX = 1 << 20


class Daemon:
    """Owns the socket, the open projects and the running commands."""

    def __init__(self, clock: Clock, idle_s: float) -> None:
        self._clock = clock
        self._stamp = install_stamp(__version__)
        self._modules = module_stamps()
        self._idle_s = idle_s
        self._places = OpenProjects(clock)
        self._commands: dict[asyncio.Task[None], str] = {}  #: with its command line, or ""
        self._unseen: set[asyncio.Task[None]] = set()  #: whose users have left
        self._since = self._used_at = clock.now()
        self._over = asyncio.Event()
        self.listener: socket.socket | None = None

    # ---- HostAccess ------------------------------------------------------------------------------

    async def open_remote(
        self, console: Console
    ) -> tuple[project_access.ProjectAccess, RemoteSession]:
        place = project_access.resolve_access(console.environ, world=console.said.world)
        return place, await self._places.get_session(place)

    def daemon_status(self) -> Mapping[str, object]:
        """Return what `herd engine daemon status` shows."""
        return {
            "pid": os.getpid(),
            "version": __version__,
            "outdated": module_stamps() != self._modules,
            "since": self._since,
            "idle_s": self._idle_s,
            "under_way": [words for words in self._commands.values() if words],
            "places": self._places.project_titles(),
        }

    def stop_daemon(self, *, now: bool) -> bool:
        """End at once with `now`, else only if no command runs; whether it ends."""
        if now or not self._is_busy():
            self.shut_down()
            return True
        return False

    def _is_busy(self) -> bool:
        """Whether a user waits for a command."""
        return any(words and task not in self._unseen for task, words in self._commands.items())

    def shut_down(self) -> None:
        """Accept no more connections, and let run() end."""
        if self.listener is not None:
            asyncio.get_running_loop().remove_reader(self.listener)
            self.listener.close()
            self.listener = None
            with suppress(OSError):
                Path(SOCKET).unlink()
        self._over.set()

    # ---- life ------------------------------------------------------------------------------------

    async def run(self, listener: socket.socket) -> None:
        """Serve until stopped or idle."""
        self.listener = listener
        loop = asyncio.get_running_loop()
        loop.add_signal_handler(signal.SIGTERM, self.shut_down)
        loop.add_reader(listener, self._accept_connection, listener)
        watch = asyncio.create_task(self._watch_idle())
        await self._over.wait()
        watch.cancel()
        tasks = list(self._commands)
        for task in tasks:
            if self._commands[task]:  # but not `herd engine daemon stop`, which still answers
                task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await self._places.close()

    async def _watch_idle(self) -> None:
        """Close unused projects; end after idle_s without a command."""
        while True:
            await self._clock.sleep(min(LOOK_S, self._idle_s / 4))
            now = self._clock.now()
            if not Path(SOCKET).exists():
                self.shut_down()  # no more connections are possible
            if self._commands:
                self._used_at = now
            else:
                self._places.close_unused(now - self._idle_s)
            if now - self._used_at >= self._idle_s:
                self.shut_down()

    def _accept_connection(self, listener: socket.socket) -> None:
        try:
            connection, _ = listener.accept()
        except OSError:
            return
        connection.setblocking(False)
        task = asyncio.create_task(self.handle_connection(connection))
        self._commands[task] = ""
        task.add_done_callback(self._forget_connection)

    def _forget_connection(self, task: asyncio.Task[None]) -> None:
        self._commands.pop(task, None)
        self._unseen.discard(task)
        self._used_at = self._clock.now()
        if not task.cancelled() and (error := task.exception()) is not None:
            traceback.print_exception(error, file=sys.stderr)
            sys.stderr.flush()

    # ---- one connection --------------------------------------------------------------------------

    async def handle_connection(self, connection: socket.socket) -> None:
        files: list[int] = []
        with connection:
            try:
                request, files = await self._receive_request(connection)
                if request is not None:
                    await self._run_request(connection, request, files)
            finally:
                for file in files:
                    os.close(file)

    async def _receive_request(
        self, connection: socket.socket
    ) -> tuple[DaemonRequest | None, list[int]]:
        """Return the request, or None if it is refused, and the files, which the caller closes."""
        files: list[int] = []
        try:
            if not is_same_user(connection):
                return None, files
            text, files = await receive_request(connection)
            request = decode_request(text)
            answer = self.choose_answer(request) if len(files) == FILES else NO
            await asyncio.get_running_loop().sock_sendall(connection, answer)
            if answer == YES:
                return request, files
        except (OSError, InvalidInput, ValueError):
            pass  # the peer is gone, or speaks another protocol
        return None, files

    def choose_answer(self, request: DaemonRequest) -> bytes:
        """Return YES; for another installation OTHER while busy, else NO, and end."""
        if request.stamp != self._stamp and self._has_same_modules(request.stamp):
            self._stamp = request.stamp
        if request.stamp == self._stamp or first_command(request.arguments)[0] == OWN_COMMAND:
            return YES
        if self._is_busy():
            return OTHER
        self.shut_down()
        return NO

    def _has_same_modules(self, seen: str) -> bool:
        """Whether the folders changed, but no module did."""
        return seen == install_stamp(__version__) and module_stamps() == self._modules

    async def _run_request(
        self, connection: socket.socket, request: DaemonRequest, files: list[int]
    ) -> None:
        me = asyncio.current_task()
        assert me is not None
        command, status, out, err = parse_command_line(request)
        if command is not None and not command.name.startswith("herd engine daemon"):
            self._commands[me] = " ".join(request.arguments)[:200]
        colour = choose_colour(request.environ)
        console = Console(files, request.folder, request.environ, colour=colour)

        def release(status: int) -> None:
            with suppress(OSError):
                connection.send(bytes([status & 0xFF]))
            self._unseen.add(me)

        console.on_release = release
        await console.write(out)
        await console.write(err, 2)
        listening = asyncio.create_task(self._relay_signals(connection, console))
        try:
            if command is not None:
                status = await run_parsed_command(command, console, self)
            else:
                await console.flush()
        finally:
            listening.cancel()
            # Still registered, a closed socket's number would break the next socket that gets it.
            await asyncio.wait([listening])
            console.close()
        if me not in self._unseen:
            release(status)

    async def _relay_signals(self, connection: socket.socket, console: Console) -> None:
        """Pass signals on; a launcher that is gone means that its terminal was closed."""
        loop = asyncio.get_running_loop()
        try:
            while numbers := await loop.sock_recv(connection, 64):
                for number in numbers:
                    console.handle_signal(number)
        except OSError:
            pass  # gone as well
        console.disconnect_user()
        console.handle_signal(signal.SIGHUP)


def parse_command_line(request: DaemonRequest) -> tuple[ParsedCommand | None, int, bytes, bytes]:
    """Return the command, or None with an exit status, and what to print on stdout and stderr."""
    commands: list[ParsedCommand] = []

    def keep(command: Any) -> int:
        commands.append(command)
        return 0

    out, err = io.StringIO(), io.StringIO()
    with redirect_stdout(out), redirect_stderr(err):
        status = command_line.run(request.arguments, request.environ, keep)
    said = [stream.getvalue().encode(errors="surrogateescape") for stream in (out, err)]
    return (commands[0] if commands else None), status, said[0], said[1]


def run(ready: int, idle_s: float) -> None:
    """Run the daemon of the current folder, unless one runs."""
    asyncio.run(run_daemon(ready, idle_s, WallClock()))


async def run_daemon(ready: int, idle_s: float, clock: Clock) -> None:
    lock = os.open(LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    for _ in range(LOCK_TRIES):
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            break
        except OSError:  # the one before is about to end
            await clock.sleep(LOCK_PAUSE_S)
    else:
        return
    log = os.fstat(2)
    if log.st_size > LOG_MAX:
        os.ftruncate(2, 0)
    with suppress(FileNotFoundError):
        Path(SOCKET).unlink()
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    listener.setblocking(False)
    listener.bind(SOCKET)
    listener.listen(BACKLOG)
    try:
        daemon = Daemon(clock, idle_s)
        os.write(ready, YES)
        os.close(ready)
        await daemon.run(listener)
    except HerdError as error:
        sys.stderr.write(f"{error.sentence}\n")
