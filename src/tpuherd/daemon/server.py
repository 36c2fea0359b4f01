"""The keeper's life: it listens, does what it is asked, each thing apart, and ends when idle."""

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
from tpuherd.daemon.handshake import NO, OTHER, SOCKET, YES, install_stamp, module_stamps
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
    """Owns the socket, the places, and what is under way."""

    def __init__(self, clock: Clock, idle_s: float) -> None:
        self._clock = clock
        self._stamp = install_stamp(__version__)
        self._modules = module_stamps()
        self._idle_s = idle_s
        self._places = OpenProjects(clock)
        self._visits: dict[asyncio.Task[None], str] = {}  #: what each does; "": nothing
        self._unseen: set[asyncio.Task[None]] = set()  #: their users have left
        self._since = self._used_at = clock.now()
        self._over = asyncio.Event()
        self.listener: socket.socket | None = None

    # ---- a home for errands ----------------------------------------------------------------------

    async def open_remote(
        self, console: Console
    ) -> tuple[project_access.ProjectAccess, RemoteSession]:
        """The place that is meant, and the ways to its hosts."""
        place = project_access.resolve_access(console.environ, world=console.said.world)
        return place, await self._places.get_session(place)

    def daemon_status(self) -> Mapping[str, object]:
        """How it is."""
        return {
            "pid": os.getpid(),
            "version": __version__,
            "since": self._since,
            "idle_s": self._idle_s,
            "under_way": [words for words in self._visits.values() if words],
            "places": self._places.project_titles(),
        }

    def stop_daemon(self, *, now: bool) -> bool:
        """End, if that is all right."""
        if now or not self._is_busy():
            self.shut_down()
            return True
        return False

    def _is_busy(self) -> bool:
        """Whether somebody waits for something."""
        return any(words and task not in self._unseen for task, words in self._visits.items())

    def shut_down(self) -> None:
        """Take no more visits; who is here now is not thrown out by this alone."""
        if self.listener is not None:
            self.listener.close()
            self.listener = None
            with suppress(OSError):
                Path(SOCKET).unlink()
        self._over.set()

    # ---- life ------------------------------------------------------------------------------------

    async def run(self, listener: socket.socket) -> None:
        """Until it is told to end, or nobody came for long."""
        self.listener = listener
        loop = asyncio.get_running_loop()
        loop.add_signal_handler(signal.SIGTERM, self.shut_down)
        loop.add_reader(listener, self._accept_connection, listener)
        watch = asyncio.create_task(self._watch_idle())
        await self._over.wait()
        watch.cancel()
        loop.remove_reader(listener)
        tasks = list(self._visits)
        for task in tasks:
            if self._visits[task]:  # who ended us wants to be told so
                task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await self._places.close()

    async def _watch_idle(self) -> None:
        """Close what is not used any more, and end when nothing is."""
        while True:
            await self._clock.sleep(min(LOOK_S, self._idle_s / 4))
            now = self._clock.now()
            if not Path(SOCKET).exists():
                self.shut_down()  # nobody finds us any more
            if self._visits:
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
        task = asyncio.create_task(self._handle_connection(connection))
        self._visits[task] = ""
        task.add_done_callback(self._forget_connection)

    def _forget_connection(self, task: asyncio.Task[None]) -> None:
        self._visits.pop(task, None)
        self._unseen.discard(task)
        self._used_at = self._clock.now()
        if not task.cancelled() and (error := task.exception()) is not None:
            traceback.print_exception(error, file=sys.stderr)
            sys.stderr.flush()

    # ---- one visit -------------------------------------------------------------------------------

    async def _handle_connection(self, connection: socket.socket) -> None:
        """From the letter to the exit status."""
        files: list[int] = []
        with connection:
            try:
                letter, files = await self._receive_request(connection)
                if letter is not None:
                    await self._run_request(connection, letter, files)
            finally:
                for file in files:
                    os.close(file)

    async def _receive_request(
        self, connection: socket.socket
    ) -> tuple[DaemonRequest | None, list[int]]:
        """What is to be done, if it is for us; and the files, which are the caller's to close."""
        files: list[int] = []
        try:
            if not is_same_user(connection):
                return None, files
            text, files = await receive_request(connection)
            letter = decode_request(text)
            answer = self.choose_answer(letter) if len(files) == FILES else NO
            await asyncio.get_running_loop().sock_sendall(connection, answer)
            if answer == YES:
                return letter, files
        except (OSError, InvalidInput, ValueError):
            pass  # whoever it was, it is gone, or speaks something else
        return None, files

    def choose_answer(self, letter: DaemonRequest) -> bytes:
        """Whether it is for us. Of another herd: we make room, as soon as nobody needs us."""
        if letter.stamp != self._stamp and self._has_same_modules(letter.stamp):
            self._stamp = letter.stamp
        if letter.stamp == self._stamp or "keeper" in letter.arguments:
            return YES
        if self._is_busy():
            return OTHER
        self.shut_down()
        return NO

    def _has_same_modules(self, seen: str) -> bool:
        """Whether it is our herd all the same: only what is no module has come to its folders."""
        return seen == install_stamp(__version__) and module_stamps() == self._modules

    async def _run_request(
        self, connection: socket.socket, letter: DaemonRequest, files: list[int]
    ) -> None:
        """Do what the letter says."""
        me = asyncio.current_task()
        assert me is not None
        errand, status, out, err = parse_command_line(letter)
        if errand is not None and not errand.name.startswith("herd keeper"):
            self._visits[me] = " ".join(letter.arguments)[:200]
        colour = command_line.choose_colour(letter.environ)
        console = Console(files, letter.folder, letter.environ, colour=colour)

        def release(status: int) -> None:
            with suppress(OSError):
                connection.send(bytes([status & 0xFF]))
            self._unseen.add(me)

        console.on_release = release
        await console.write(out)
        await console.write(err, 2)
        listening = asyncio.create_task(self._relay_signals(connection, console))
        try:
            if errand is not None:
                status = await run_parsed_command(errand, console, self)
            else:
                await console.flush()
        finally:
            listening.cancel()
            console.close()
        if me not in self._unseen:
            release(status)

    async def _relay_signals(self, connection: socket.socket, console: Console) -> None:
        """Pass signals on; a front that is gone is a terminal that was closed."""
        loop = asyncio.get_running_loop()
        try:
            while numbers := await loop.sock_recv(connection, 64):
                for number in numbers:
                    console.handle_signal(number)
        except OSError:
            pass  # the same
        console.disconnect_user()
        console.handle_signal(signal.SIGHUP)


def parse_command_line(letter: DaemonRequest) -> tuple[ParsedCommand | None, int, bytes, bytes]:
    """What its words mean: an errand, or what is to be printed with an exit status."""
    errands: list[ParsedCommand] = []

    def keep(errand: Any) -> int:
        errands.append(errand)
        return 0

    out, err = io.StringIO(), io.StringIO()
    with redirect_stdout(out), redirect_stderr(err):
        status = command_line.run(letter.arguments, letter.environ, keep)
    said = [stream.getvalue().encode(errors="surrogateescape") for stream in (out, err)]
    return (errands[0] if errands else None), status, said[0], said[1]


def run(ready: int, idle_s: float) -> None:
    """Be the keeper of the folder we stand in, unless there is one."""
    asyncio.run(run_daemon(ready, idle_s, WallClock()))


async def run_daemon(ready: int, idle_s: float, clock: Clock) -> None:
    """The same within a loop."""
    lock = os.open(LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    for _ in range(LOCK_TRIES):
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            break
        except OSError:  # one before us is about to end
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
        keeper = Daemon(clock, idle_s)
        os.write(ready, YES)
        os.close(ready)
        await keeper.run(listener)
    except HerdError as error:
        sys.stderr.write(f"{error.sentence}\n")
