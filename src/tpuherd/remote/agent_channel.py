"""Multiplexes many calls to an agent over one byte stream."""

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

EVENTS_MAX = (
    10_000  #: unread events, after which a slow listener is disconnected and must survey again
)
EVENT_BYTES_MAX = 32 << 20  #: the same in bytes: a usual event has less than 10 kB
FRAME_COST = 1 << 10  #: what a frame that nobody asked for counts at least, in bytes
SLACK = 1 << 12  #: bytes that an agent may send beyond its credit: its JUMP records
SENTENCE_MAX = 4096  #: characters of an agent's error that are kept
#: The agent's error codes, as our errors.
ERRORS: Mapping[str, type[HerdError]] = {
    "not-found": NotFound,
    "not-allowed": NotAllowed,
    "not-reached": NotReached,
    "unfit": InvalidInput,
    "unknown": NotFound,
    "outdated": Superseded,  # another engine took over
}


class Wire(Protocol):
    """The stream that the bytes are written to."""

    def write(self, piece: bytes) -> None: ...

    def close(self) -> None: ...


class Multiplexer:
    """Both directions of one byte stream, with an agent at its other end."""

    def __init__(self, wire: Wire) -> None:
        self.wire = wire
        self.error: HerdError | None = None  #: why the stream is broken
        self.hello: asyncio.Future[Mapping[str, Any]] = asyncio.get_running_loop().create_future()
        self.calls: dict[int, Call] = {}
        self.listeners: set[EventQueue] = set()
        self.free = asyncio.Event()  #: set while the wire accepts more data
        self.free.set()
        self.unasked = 0  #: bytes that arrived and answer nothing, since somebody set this to 0
        self._reader = frames.FrameReader()
        self._id = 0

    def send_hello(self, hello: Mapping[str, Any]) -> None:
        """Send our hello, which must come first."""
        self.wire.write(frames.pack_json(frames.HELLO, 0, dict(hello)))

    def feed(self, piece: bytes) -> None:
        """Handle bytes that arrived."""
        if self.error is not None:
            return
        try:
            for frame in self._reader.feed(piece):
                self._dispatch_frame(frame)
        except (frames.BadFrame, struct.error, IndexError) as error:
            self.mark_broken(
                OperationFailed(
                    f"its agent violates the protocol ({error}); the connection was closed"
                )
            )
            self.wire.close()

    def _dispatch_frame(self, frame: frames.Frame) -> None:
        if frame.kind == frames.HELLO:
            if not self.hello.done():
                self.hello.set_result(frame.content)
        elif frame.kind == frames.EVENT:
            self._count_unasked(frame)
            self._publish_event(frame.content, len(frame.payload))
        elif (call := self.calls.get(frame.id)) is not None:
            call.handle_frame(frame)
            if frame.kind in (frames.REPLY, frames.FAIL):
                del self.calls[frame.id]
        else:
            self._count_unasked(frame)

    def _count_unasked(self, frame: frames.Frame) -> None:
        self.unasked += max(len(frame.payload), FRAME_COST)

    def _publish_event(self, event: Mapping[str, Any], size: int) -> None:
        for listener in list(self.listeners):
            listener.put(event, size)
            if listener.is_full:
                self.listeners.discard(listener)
                listener.close()

    def mark_broken(self, error: HerdError) -> None:
        """Fail every call under way, and all later ones, with this error."""
        if self.error is not None:
            return
        self.error = error
        if not self.hello.done():
            self.hello.set_exception(error)
            self.hello.exception()  # mark it as retrieved, even if nothing awaits it
        for call in self.calls.values():
            call.fail_with(error)
        self.calls.clear()
        for listener in self.listeners:
            listener.close()
        self.free.set()

    def open_call(self, verb: RpcRequest) -> "Call":
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
        """A call with byte streams, cancelled when the block ends."""
        call = self.open_call(verb)
        try:
            yield call
        finally:
            call.cancel()

    async def iter_events(self) -> AsyncIterator[Mapping[str, Any]]:
        """The events that the agent sends from now on; ends when the stream breaks."""
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
    """Events that a listener has not read yet, bounded in number and size."""

    def __init__(self) -> None:
        self._queue: asyncio.Queue[tuple[Mapping[str, Any] | None, int]] = asyncio.Queue()
        self._bytes = 0

    @property
    def is_full(self) -> bool:
        """Whether the listener is too slow to get more events."""
        return self._queue.qsize() >= EVENTS_MAX or self._bytes >= EVENT_BYTES_MAX

    def put(self, event: Mapping[str, Any], size: int) -> None:
        """Add an event, which took `size` bytes on the wire."""
        self._bytes += size
        self._queue.put_nowait((event, size))

    def close(self) -> None:
        """End the stream for the listener."""
        self._queue.put_nowait((None, 0))

    async def get(self) -> Mapping[str, Any] | None:
        """The next event; None at the end."""
        event, size = await self._queue.get()
        self._bytes -= size
        return event


class Call:
    """One call: implements ports.Stream."""

    def __init__(self, multiplexer: Multiplexer, id: int) -> None:
        self.multiplexer = multiplexer
        self.id = id
        #: Received data, each piece after the byte of its port.
        self._pieces: deque[bytes] = deque()
        self._come = asyncio.Event()  #: set if there is data to read, or the call has ended
        self._may_send = frames.WINDOW
        self._credit = asyncio.Event()
        self._may_come = frames.WINDOW + SLACK  #: bytes that the agent may still send
        self._read = 0  #: bytes read since we last gave credit
        self._over = False
        self._left = False  #: cancelled by us: drop further data
        self._reply: Mapping[str, Any] | None = None
        self._error: HerdError | None = None

    def handle_frame(self, frame: frames.Frame) -> None:
        """Handle a frame of this call."""
        if frame.kind == frames.DATA:
            if not frame.payload:
                raise frames.BadFrame("data without a port number")
            self._may_come -= len(frame.payload) - 1
            if self._may_come < 0:
                raise frames.BadFrame("more data than its credit")
            if len(frame.payload) > 1 and not self._left:  # no credit limits empty pieces
                self._pieces.append(frame.payload)
                self._come.set()
        elif frame.kind == frames.CREDIT:
            self._may_send += struct.unpack(">I", frame.payload)[0]
            self._credit.set()
        elif frame.kind == frames.REPLY:
            self._reply = frame.content
            self._mark_done()
        elif frame.kind == frames.FAIL:
            reply = frame.content
            kind = ERRORS.get(str(reply.get("error")), OperationFailed)
            sentence = str(reply.get("sentence") or reply.get("error") or "it failed on the host")
            hint = str(reply.get("hint") or "")
            self.fail_with(kind(sentence[:SENTENCE_MAX], hint=hint[:SENTENCE_MAX]))

    def fail_with(self, error: HerdError) -> None:
        """End the call with this error."""
        self._error = error
        self._mark_done()

    def _mark_done(self) -> None:
        self._over = True
        self._come.set()
        self._credit.set()

    @property
    def unacked_bytes(self) -> int:
        """Bytes that we sent and that the agent has not acknowledged by credit."""
        return max(0, frames.WINDOW - self._may_send)

    async def read(self) -> tuple[int, bytes] | None:
        """The available data of the next port; None at the end; NotReached if the link broke.

        The next read gives credit for it, so that a reader that stops buffers at most a window.
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
        """Give the agent credit for the data that was read."""
        if self._read >= frames.WINDOW // 2 and not self._over:
            self.multiplexer.wire.write(frames.pack_credit(self.id, self._read))
            self._may_come += self._read
            self._read = 0

    async def write(self, port: int, piece: bytes) -> None:
        """Send data, waiting for credit; data after the end of the call is dropped."""
        rest = memoryview(piece)
        while rest and not self._over:
            many = min(len(rest), self._may_send, frames.DATA_MAX - 1)
            if many == 0:
                self._credit.clear()
                await self._credit.wait()
                continue
            await self.multiplexer.free.wait()
            if self._over:
                break
            self._may_send -= many
            self.multiplexer.wire.write(frames.pack_data(self.id, port, bytes(rest[:many])))
            rest = rest[many:]
        if isinstance(self._error, NotReached):
            raise self._error

    async def send_eof(self, port: int) -> None:
        """Tell the agent that no more data follows on this port."""
        if not self._over:
            self.multiplexer.wire.write(frames.pack_frame(frames.END, self.id, bytes([port])))

    async def reply(self) -> Mapping[str, Any]:
        """Wait for the reply; unread data is dropped."""
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
        """Stop listening; what the call started on the host keeps running."""
        self._left = True
        self._pieces.clear()
        if not self._over:
            self.multiplexer.wire.write(frames.pack_frame(frames.CANCEL, self.id, b""))
            self.fail_with(OperationFailed("the call was cancelled"))
