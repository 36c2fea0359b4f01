"""Reads and writes a user's files without blocking the event loop.

O_NONBLOCK is shared with the user's shell, so it must not be set. Instead each file has a thread,
started at first use, which may block.
"""

import asyncio
import contextlib
import os
import select
import sys
import threading
from collections import deque
from collections.abc import Callable
from queue import SimpleQueue

from tpuherd.exit_status import ReaderGone

HELD_MAX = 1 << 20  #: bytes that may wait to be written
PIECES_AT_ONCE = 256
READ_MAX = 1 << 16


def post_to_loop(loop: asyncio.AbstractEventLoop, call: Callable[[], object]) -> None:
    """Schedule a call in the loop, unless it is closed."""
    with contextlib.suppress(RuntimeError):
        loop.call_soon_threadsafe(call)


def poll_readable(*files: int) -> set[int]:
    """Wait until some of the files can be read or have ended, and return those."""
    poll = select.poll()
    for file in files:
        poll.register(file, select.POLLIN | select.POLLHUP)
    return {file for file, _ in poll.poll()}


def select_readable(*files: int) -> set[int]:
    """The same for files below 1024, terminals of macOS included, which its poll does not know."""
    return set(select.select(files, (), ())[0])


wait_readable = select_readable if sys.platform == "darwin" else poll_readable


class FileWriter:
    """Writes to one file, in order."""

    def __init__(self, file: int) -> None:
        self._file = file
        self._own = -1
        self._loop = asyncio.get_running_loop()
        self._pieces: deque[bytes] = deque()
        self._held = 0
        self._news = threading.Condition()
        self._thread: threading.Thread | None = None
        self._holding = False
        self._gone = False
        self._closed = False
        self._moved = asyncio.Event()

    async def write(self, piece: bytes) -> None:
        """Queue a piece; wait while too much is queued."""
        if self._closed or not piece:
            return
        if self._gone:
            raise ReaderGone
        if self._thread is None:
            self._own = os.dup(self._file)  # it may write after others have closed theirs
            self._thread = threading.Thread(target=self._run_thread, daemon=True)
            self._thread.start()
        with self._news:
            self._pieces.append(piece)
            self._held += len(piece)
            self._news.notify()
        if self._held > HELD_MAX:
            await self._wait_for_room()  # once: in a loop each piece would wake all writers

    async def flush(self) -> None:
        """Wait until everything is written."""
        while self._held and not self._closed:
            await self._wait_for_room()

    async def _wait_for_room(self) -> None:
        if not self._gone:
            self._moved.clear()
            await self._moved.wait()
        if self._gone:
            raise ReaderGone

    def set_paused(self, on: bool) -> None:
        """Pause or continue writing."""
        with self._news:
            self._holding = on
            self._news.notify()

    def write_urgent(self, piece: bytes) -> None:
        """Write even while paused: a question."""
        with contextlib.suppress(OSError):
            os.write(self._file, piece)

    def close(self) -> None:
        """Discard what is not written yet."""
        with self._news:
            self._closed = True
            self._pieces.clear()
            self._held = 0
            self._news.notify()
        self._moved.set()

    def _run_thread(self) -> None:
        try:
            while batch := self._next_batch():
                many = sum(map(len, batch))
                self._write_batch(batch)
                with self._news:
                    self._held = max(0, self._held - many)
                if self._held <= HELD_MAX:
                    post_to_loop(self._loop, self._moved.set)
        except OSError:
            self._gone = True
            post_to_loop(self._loop, self._moved.set)
        finally:
            os.close(self._own)

    def _next_batch(self) -> list[bytes]:
        """Wait for the next pieces; none at the end."""
        with self._news:
            self._news.wait_for(lambda: self._closed or (bool(self._pieces) and not self._holding))
            many = min(len(self._pieces), PIECES_AT_ONCE)
            return [self._pieces.popleft() for _ in range(many)]

    def _write_batch(self, batch: list[bytes]) -> None:
        rest: deque[bytes | memoryview] = deque(batch)
        while rest and not self._closed:
            try:
                many = os.writev(self._own, list(rest))
                while rest and many >= len(rest[0]):
                    many -= len(rest.popleft())
                if many:
                    rest[0] = memoryview(rest[0])[many:]
            except BlockingIOError:  # another process made it non-blocking
                select.select([], [self._own], [])


class FileReader:
    """Reads one file only on demand, so that no other program's input is taken."""

    def __init__(self, file: int) -> None:
        self._file = file
        self._own = -1
        self._loop = asyncio.get_running_loop()
        self._asked: SimpleQueue[asyncio.Future[bytes] | None] = SimpleQueue()
        self._thread: threading.Thread | None = None
        self._wake: tuple[int, int] | None = None
        self._under_way: asyncio.Future[bytes] | None = None

    async def read(self) -> bytes:
        """Return the next piece, or b"" at the end. A cancelled read is continued by the next."""
        if self._thread is None:
            self._wake = os.pipe()
            self._own = os.dup(self._file)
            self._thread = threading.Thread(target=self._run_thread, daemon=True)
            self._thread.start()
        if self._under_way is None:
            self._under_way = self._loop.create_future()
            self._asked.put(self._under_way)
        piece = await asyncio.shield(self._under_way)
        self._under_way = None
        return piece

    def close(self) -> None:
        """Stop reading, even while waiting for input."""
        if self._wake is not None:
            os.write(self._wake[1], b".")
            os.close(self._wake[1])
            self._asked.put(None)  # only now: with it the thread closes the other end
            self._wake = None

    def _run_thread(self) -> None:
        assert self._wake is not None
        wake = self._wake[0]
        try:
            while (future := self._asked.get()) is not None:
                piece = self._read_piece(wake)
                post_to_loop(self._loop, lambda f=future, p=piece: f.done() or f.set_result(p))  # type: ignore[misc]
        finally:
            os.close(wake)
            os.close(self._own)

    def _read_piece(self, wake: int) -> bytes:
        while True:
            if wake in wait_readable(wake, self._own):
                return b""
            try:
                return os.read(self._own, READ_MAX)
            except BlockingIOError:
                continue
            except OSError:
                return b""
