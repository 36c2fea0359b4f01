"""Copies bytes between an SSH channel and a host, with flow control in both directions."""

import asyncio
import os
import socket
from collections.abc import Callable, Mapping
from enum import Enum
from typing import Protocol

PIECE = 1 << 16  #: maximum read size: the capacity of a pipe


class SshChannel(Protocol):
    """What a bridge needs of an SSH channel."""

    def write(self, data: bytes, datatype: int | None = None) -> None: ...

    def is_closing(self) -> bool: ...

    def pause_reading(self) -> None: ...

    def resume_reading(self) -> None: ...


class SinkKind(Enum):
    """What the client's input goes to, which determines how its end is signalled."""

    PIPE = "closed"
    SOCKET = "shut down for writing"
    TERMINAL = "no signal: a terminal has no end of input"


class Bridge:
    """Copies between a channel and descriptors. Input that arrives before `attach_descriptors` is
    kept.
    """

    def __init__(self, channel: SshChannel, drained: Callable[[], None]) -> None:
        self.channel = channel
        self.drained = drained  #: called once, when every source has ended
        self.loop = asyncio.get_running_loop()
        self.sources: dict[int, int | None] = {}
        self.sink: int | None = None
        self.kind = SinkKind.PIPE
        self.waiting = bytearray()  #: input from the client that the sink has not accepted
        self.ended = False  #: the client will send no more
        self.full = False  #: the channel accepts no more for now
        self.held = False  #: the weather stops all transfer

    def attach_descriptors(
        self, kind: SinkKind, sink: int, sources: Mapping[int, int | None]
    ) -> None:
        """Start. The bridge owns the descriptors; the sources have their channel data type."""
        self.kind = kind
        self.sink = sink
        self.sources = dict(sources)
        for descriptor in {sink, *sources}:
            os.set_blocking(descriptor, False)
        self.update_readers()
        self.drain_input()

    def update_readers(self) -> None:
        """Read from the host only while the channel accepts data."""
        for descriptor, datatype in self.sources.items():
            if self.full or self.held:
                self.loop.remove_reader(descriptor)
            else:
                self.loop.add_reader(descriptor, self.read_source, descriptor, datatype)

    def read_source(self, descriptor: int, datatype: int | None) -> bool:
        """Copy one piece to the client; return False if there was none."""
        try:
            piece = os.read(descriptor, PIECE)
        except BlockingIOError:
            return False
        except OSError:  # a terminal whose programs are gone, or a reset connection
            piece = b""
        if piece and not self.channel.is_closing():
            self.channel.write(piece, datatype)
            return True
        self.loop.remove_reader(descriptor)
        del self.sources[descriptor]
        if descriptor != self.sink:
            os.close(descriptor)
        if not self.sources:
            self.drained()
        return False

    def read_remaining(self, *, pieces: int = 16) -> None:
        """Copy what the sources hold now, however slow the client is."""
        for descriptor, datatype in list(self.sources.items()):
            for _ in range(pieces):
                if not self.read_source(descriptor, datatype):
                    break

    def add_input(self, data: bytes) -> None:
        self.waiting += data
        self.drain_input()

    def end_input(self) -> None:
        self.ended = True
        self.drain_input()

    def drain_input(self) -> None:
        """Write pending input; while some is left, the client must not send more."""
        if self.sink is None or self.held:
            if self.waiting:
                self.channel.pause_reading()
            return
        try:
            while self.waiting:
                del self.waiting[: os.write(self.sink, self.waiting)]
        except BlockingIOError:
            self.channel.pause_reading()
            self.loop.add_writer(self.sink, self.drain_input)
            return
        except OSError:  # no reader is left: the input is discarded
            self.waiting.clear()
        self.loop.remove_writer(self.sink)
        if self.ended:
            self.finish_sink(self.sink)
        self.channel.resume_reading()

    def finish_sink(self, sink: int) -> None:
        """Signal the end of the client's input to the sink."""
        self.ended = False
        if self.kind is SinkKind.PIPE:
            os.close(sink)
            self.sink = None
        elif self.kind is SinkKind.SOCKET:
            with socket.socket(fileno=os.dup(sink)) as end:
                try:
                    end.shutdown(socket.SHUT_WR)
                except OSError:  # the other side closed first
                    pass

    def pause_output(self) -> None:
        self.full = True
        self.update_readers()

    def resume_output(self) -> None:
        self.full = False
        self.update_readers()

    def pause_transfer(self) -> None:
        self.held = True
        if self.sink is not None:
            self.loop.remove_writer(self.sink)
        self.update_readers()

    def resume_transfer(self) -> None:
        self.held = False
        self.update_readers()
        self.drain_input()

    def close(self) -> None:
        """Close every descriptor."""
        descriptors = set(self.sources) | ({self.sink} if self.sink is not None else set())
        self.sources = {}
        self.sink = None
        self.waiting.clear()
        for descriptor in descriptors:
            self.loop.remove_reader(descriptor)
            self.loop.remove_writer(descriptor)
            os.close(descriptor)
