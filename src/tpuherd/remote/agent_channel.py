"""Many calls to an agent over one stream of bytes."""

import asyncio
import struct
from collections import deque
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any, Protocol

from tpuherd.errors import (
    HerdError,
    InvalidInput,
    NotAllowed,
    NotFound,
    NotReached,
    OperationFailed,
    Superseded,
)
from tpuherd.ports import RpcRequest
from tpuherd_host.agent import frames

EVENTS_MAX = 10_000  #: unread ones; whoever is so late is cut off, and looks anew
EVENT_BYTES_MAX = 32 << 20  #: the same by their size: an agent's usual event has less than 10 kB
SLACK = 1 << 12  #: DATA beyond its credit that an agent may send: its jumps over dropped records
#: The agent's words for what went wrong, as our errors.
WORDS: Mapping[str, type[HerdError]] = {
    "not-found": NotFound,
    "not-allowed": NotAllowed,
    "not-reached": NotReached,
    "unfit": InvalidInput,
    "unknown": NotFound,
    "outdated": Superseded,  # another engine has taken over
}


class Wire(Protocol):
    """Where the bytes go."""

    def write(self, piece: bytes) -> None: ...

    def close(self) -> None: ...


class Multiplexer:
    """One stream of bytes with an agent at its other end."""

    def __init__(self, wire: Wire) -> None:
        self.wire = wire
        self.error: HerdError | None = None  #: why it is broken
        self.hello: asyncio.Future[Mapping[str, Any]] = asyncio.get_running_loop().create_future()
        self.calls: dict[int, Call] = {}
        self.listeners: set[EventQueue] = set()
        self.free = asyncio.Event()  #: the wire takes more
        self.free.set()
        self._reader = frames.FrameReader()
        self._id = 0

    def send_hello(self, hello: Mapping[str, Any]) -> None:
        """Say who we are: the first thing on the wire."""
        self.wire.write(frames.pack_json(frames.HELLO, 0, dict(hello)))

    def feed(self, piece: bytes) -> None:
        """Take what came."""
        if self.error is not None:
            return
        try:
            for frame in self._reader.feed(piece):
                self._dispatch_frame(frame)
        except (frames.BadFrame, struct.error, IndexError) as error:
            self.mark_broken(
                OperationFailed(f"its agent speaks something else ({error}); the link was cut")
            )
            self.wire.close()

    def _dispatch_frame(self, frame: frames.Frame) -> None:
        if frame.kind == frames.HELLO:
            if not self.hello.done():
                self.hello.set_result(frame.content)
        elif frame.kind == frames.EVENT:
            self._publish_event(frame.content, len(frame.payload))
        elif (call := self.calls.get(frame.id)) is not None:
            call.handle_frame(frame)
            if frame.kind in (frames.REPLY, frames.FAIL):
                del self.calls[frame.id]

    def _publish_event(self, event: Mapping[str, Any], size: int) -> None:
        for listener in list(self.listeners):
            listener.put(event, size)
            if listener.is_full:
                self.listeners.discard(listener)
                listener.close()

    def mark_broken(self, error: HerdError) -> None:
        """It is broken: whatever was under way fails."""
        if self.error is not None:
            return
        self.error = error
        if not self.hello.done():
            self.hello.set_exception(error)
            self.hello.exception()  # whether somebody waits for it or not
        for call in self.calls.values():
            call.fail_with(error)
        self.calls.clear()
        for listener in self.listeners:
            listener.close()
        self.free.set()

    def open_call(self, verb: RpcRequest) -> "Call":
        """Begin a call."""
        if self.error is not None:
            raise self.error
        self._id = self._id % 0xFFFFFFFF + 1
        while self._id in self.calls:
            self._id = self._id % 0xFFFFFFFF + 1
        call = Call(self, self._id)
        opening = frames.pack_json(frames.CALL, call.id, {**verb.arguments, "verb": verb.name})
        self.calls[call.id] = call
        self.wire.write(opening)
        return call

    @asynccontextmanager
    async def open_stream(self, verb: RpcRequest) -> AsyncIterator["Call"]:
        """A call whose bytes flow as long as the block lasts."""
        call = self.open_call(verb)
        try:
            yield call
        finally:
            call.cancel()

    async def iter_events(self) -> AsyncIterator[Mapping[str, Any]]:
        """What comes unasked from now on."""
        if self.error is not None:
            return
        listener = EventQueue()
        self.listeners.add(listener)
        try:
            while (event := await listener.get()) is not None:
                yield event
        finally:
            self.listeners.discard(listener)


class EventQueue:
    """Events that somebody has not read yet, with a bound on how many and how large they are."""

    def __init__(self) -> None:
        self._queue: asyncio.Queue[tuple[Mapping[str, Any] | None, int]] = asyncio.Queue()
        self._bytes = 0

    @property
    def is_full(self) -> bool:
        """Whoever reads is too late for more."""
        return self._queue.qsize() >= EVENTS_MAX or self._bytes >= EVENT_BYTES_MAX

    def put(self, event: Mapping[str, Any], size: int) -> None:
        """One more, which came in so many bytes."""
        self._bytes += size
        self._queue.put_nowait((event, size))

    def close(self) -> None:
        """No more comes."""
        self._queue.put_nowait((None, 0))

    async def get(self) -> Mapping[str, Any] | None:
        """The next; None when there is no more."""
        event, size = await self._queue.get()
        self._bytes -= size
        return event


class Call:
    """One of them: a Stream."""

    def __init__(self, lane: Multiplexer, id: int) -> None:
        self.lane = lane
        self.id = id
        self._pieces: deque[bytes] = deque()  #: each behind the byte of its port
        self._come = asyncio.Event()  #: there is something to read, or the end
        self._may_send = frames.WINDOW
        self._credit = asyncio.Event()
        self._may_come = frames.WINDOW + SLACK  #: bytes that the agent may send
        self._read = 0  #: bytes taken since we gave credit last, and dealt with by the next reading
        self._over = False
        self._left = False  #: nobody reads any more
        self._reply: Mapping[str, Any] | None = None
        self._error: HerdError | None = None

    def handle_frame(self, frame: frames.Frame) -> None:
        """A frame of this call came."""
        if frame.kind == frames.DATA:
            if not frame.payload:
                raise frames.BadFrame("data without a port")
            self._may_come -= len(frame.payload) - 1
            if self._may_come < 0:
                raise frames.BadFrame("more data than it has credit for")
            if not self._left:
                self._pieces.append(frame.payload)
                self._come.set()
        elif frame.kind == frames.CREDIT:
            self._may_send += struct.unpack(">I", frame.payload)[0]
            self._credit.set()
        elif frame.kind == frames.REPLY:
            self._reply = frame.content
            self._mark_done()
        elif frame.kind == frames.FAIL:
            said = frame.content
            kind = WORDS.get(str(said.get("error")), OperationFailed)
            sentence = str(said.get("sentence") or said.get("error") or "it failed on the host")
            self.fail_with(kind(sentence, hint=str(said.get("hint") or "")))

    def fail_with(self, error: HerdError) -> None:
        """It ended badly."""
        self._error = error
        self._mark_done()

    def _mark_done(self) -> None:
        self._over = True
        self._come.set()
        self._credit.set()

    @property
    def unacked_bytes(self) -> int:
        """Bytes that were sent and that the agent has not given credit for again."""
        return max(0, frames.WINDOW - self._may_send)

    async def read(self) -> tuple[int, bytes] | None:
        """All that is there of the next port; None when there is no more, NotReached if it was cut.

        Credit for it is given by the next reading: who can't go on holds no more than a window.
        """
        self._grant_credit()
        while not self._pieces:
            if self._over:
                if isinstance(self._error, NotReached):
                    raise self._error
                return None
            self._come.clear()
            await self._come.wait()
        port = self._pieces[0][0]
        run = []
        while self._pieces and self._pieces[0][0] == port:
            run.append(memoryview(self._pieces.popleft())[1:])
        piece = b"".join(run)
        self._read += len(piece)
        return port, piece

    def _grant_credit(self) -> None:
        """Give credit for what was read."""
        if self._read >= frames.WINDOW // 2 and not self._over:
            self.lane.wire.write(frames.pack_credit(self.id, self._read))
            self._may_come += self._read
            self._read = 0

    async def write(self, port: int, piece: bytes) -> None:
        """Send a piece; waits while the agent has enough. What comes too late is dropped."""
        rest = memoryview(piece)
        while rest and not self._over:
            many = min(len(rest), self._may_send, frames.DATA_MAX - 1)
            if many == 0:
                self._credit.clear()
                await self._credit.wait()
                continue
            await self.lane.free.wait()
            if self._over:
                break
            self._may_send -= many
            self.lane.wire.write(frames.pack_data(self.id, port, bytes(rest[:many])))
            rest = rest[many:]
        if isinstance(self._error, NotReached):
            raise self._error

    async def send_eof(self, port: int) -> None:
        """No more will be sent on this port."""
        if not self._over:
            self.lane.wire.write(frames.pack_frame(frames.END, self.id, bytes([port])))

    async def reply(self) -> Mapping[str, Any]:
        """What came back at the end. Data that nobody has read by then is dropped."""
        while not self._over:
            self._come.clear()
            if self._pieces:
                await self.read()
            else:
                self._grant_credit()
                await self._come.wait()
        if self._error is not None:
            raise self._error
        return self._reply or {}

    def cancel(self) -> None:
        """Nobody is interested any more: what it began goes on."""
        self._left = True
        self._pieces.clear()
        if not self._over:
            self.lane.wire.write(frames.pack_frame(frames.CANCEL, self.id, b""))
            self.fail_with(OperationFailed("it was left"))
