"""How controllers connect: the socket, the greeting of `attach`, and flow control."""

import os
import socket
import struct
from typing import Any, Callable, Dict, List, Optional, Set

from tpuherd_host.agent.attach import GREETING, LEAVES, REFUSES, STAYS
from tpuherd_host.agent.effects.connection import UNSENT_MAX, ClientConnection
from tpuherd_host.agent.effects.poller import Poller
from tpuherd_host.agent.state_machine import messages
from tpuherd_host.agent.state_machine.state import AgentState

WORD_MAX = 64


class ConnectionTable:
    """Owns every connection."""

    def __init__(
        self,
        version: str,
        files: Poller,
        happen: Callable[[messages.Event], None],
        state: Callable[[], AgentState],
    ) -> None:
        self.version = version
        self.files = files
        self.happen = happen
        self.state = state
        self.lines: Dict[int, ClientConnection] = {}
        self.flushing: Set[int] = set()
        self.last_line = 0
        self.replaced = False

    def accept_client(self, listener: socket.socket) -> None:
        try:
            control, _ = listener.accept()
        except OSError:
            return
        control.setblocking(False)
        self.last_line += 1
        line = ClientConnection(self.last_line, control)
        self.lines[line.id] = line
        self.files.watch_file(control.fileno(), False, lambda: self.read_greeting(line))

    def read_greeting(self, line: ClientConnection) -> None:
        """Take the files that `attach` hands over; any other client sends frames itself."""
        control = line.control
        assert control is not None
        room = socket.CMSG_SPACE(2 * 4)
        try:
            word, extra, _, _ = control.recvmsg(WORD_MAX, room, socket.MSG_CMSG_CLOEXEC)
        except BlockingIOError:
            return
        except OSError:
            word, extra = b"", []
        files = [file for _, _, text in extra for (file,) in struct.iter_unpack("i", text)]
        if word[:1] == GREETING and len(files) == 2:
            self.attach_client(line, files, word[2:].strip().decode("latin-1"))
            return
        for file in files:
            os.close(file)
        if not word or word[:1] == GREETING:
            self.close_connection(line.id)
            return
        self.start_connection(line)
        self.handle_frames(line, line.parse_frames(word))

    def attach_client(self, line: ClientConnection, files: List[int], version: str) -> None:
        """Connect an `attach`; an idle agent ends so that one of another version can start."""
        assert line.control is not None
        others = any(other is not line for other in self.lines.values())
        busy = others or any(work.is_live for work in self.state().works.values())
        if version != self.version and not busy and not is_newer(self.version, version):
            for file in files:
                os.close(file)
            line.control.send(LEAVES)
            self.replaced = True
            return
        try:
            line.use_files(files)
            self.files.unwatch_file(line.control.fileno())
            self.files.watch_file(line.control.fileno(), False, lambda: self.drop_connection(line))
            line.control.send(STAYS)
            self.start_connection(line)
        except OSError:  # epoll does not support these files
            line.control.send(REFUSES)
            self.drop_connection(line)

    def start_connection(self, line: ClientConnection) -> None:
        line.greeted = True
        line.reading = True
        if line.control is not None and line.incoming == line.control.fileno():
            self.files.unwatch_file(line.incoming)
        self.files.watch_file(
            line.incoming, False, lambda: self.handle_frames(line, line.read_frames())
        )
        self.happen(messages.ConnectionOpened(line.id))

    def handle_frames(self, line: ClientConnection, found: Optional[List[Any]]) -> None:
        for frame in found or ():
            self.happen(messages.FrameReceived(line.id, frame))
        if found is None:
            self.drop_connection(line)

    def drop_connection(self, line: ClientConnection) -> None:
        if line.id in self.lines:
            self.close_connection(line.id)
            if line.greeted:
                self.happen(messages.ConnectionClosed(line.id))

    def flush_connection(self, id: int) -> None:
        """Send what fits, and wait until the rest can be sent."""
        self.flushing.discard(id)
        line = self.lines.get(id)
        if line is None:
            return
        sent = line.flush()
        if sent is None or line.hanging:
            self.drop_connection(line)
            return
        if sent:
            self.happen(messages.BytesFlushed(id, sent))
        self.update_watches(line)

    def update_watches(self, line: ClientConnection) -> None:
        """Watch for writing if bytes are unsent; do not read from a client that does not read."""
        writing, reading = bool(line.unsent), line.many < UNSENT_MAX and not line.hanging
        if (writing, reading) == (line.writing, line.reading):
            return
        line.writing, line.reading = writing, reading
        for file in {line.incoming, line.outgoing}:
            self.files.unwatch_file(file)

        def take() -> None:
            self.handle_frames(line, line.read_frames())

        def both() -> None:
            self.flush_connection(line.id)
            if line.reading and line.id in self.lines:
                take()

        if line.incoming == line.outgoing:
            if writing and reading:
                self.files.watch_file(line.incoming, True, both)
            elif writing:
                self.files.watch_writing(line.incoming, lambda: self.flush_connection(line.id))
            elif reading:
                self.files.watch_file(line.incoming, False, take)
            return
        if reading:
            self.files.watch_file(line.incoming, False, take)
        if writing:
            self.files.watch_writing(line.outgoing, lambda: self.flush_connection(line.id))

    def close_connection(self, id: int) -> None:
        line = self.lines.pop(id)
        files = {line.incoming, line.outgoing}
        if line.control is not None:
            files.add(line.control.fileno())
        for file in files:
            self.files.unwatch_file(file)
        line.close()
        self.flushing.discard(id)

    def queue_frame(self, id: int, frame: bytes) -> None:
        """Queue a frame for the end of this round."""
        line = self.lines.get(id)
        if line is not None:
            line.queue_frame(frame)
            self.flushing.add(id)

    def close_when_flushed(self, id: int) -> None:
        line = self.lines.get(id)
        if line is not None:
            line.hanging = True
            self.flushing.add(id)

    def flush_all(self) -> None:
        """Send what this round queued."""
        for id in list(self.flushing):
            self.flush_connection(id)


def is_newer(mine: str, theirs: str) -> bool:
    """Whether the running agent speaks a later protocol than the new one."""
    numbers = [version.partition(".")[0] for version in (mine, theirs)]
    return all(number.isdigit() for number in numbers) and int(numbers[0]) > int(numbers[1])
