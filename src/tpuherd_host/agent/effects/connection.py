"""One controller's connection: non-blocking reads and writes."""

import os
import socket
from collections import deque
from typing import Deque, List, Optional

from tpuherd_host.agent.frames import BadFrame, Frame, FrameReader

READ_MAX = 1 << 18
PIECES_AT_ONCE = 64
UNSENT_MAX = 1 << 20  #: while this many bytes are unsent, nothing is read from it


class ClientConnection:
    """Owns the two files and, if `attach` handed them over, its socket."""

    def __init__(self, id: int, control: socket.socket) -> None:
        self.id = id
        self.control: Optional[socket.socket] = control
        self.incoming = control.fileno()
        self.outgoing = control.fileno()
        self.reader = FrameReader()
        self.unsent: Deque[bytes] = deque()
        self.many = 0
        self.hanging = False
        self.greeted = False
        self.files: List[int] = []  #: handed over by `attach`
        self.reading = False
        self.writing = False

    def use_files(self, files: List[int]) -> None:
        """Communicate over these files; the socket only shows when `attach` dies."""
        for file in files:
            os.set_blocking(file, False)
        self.files = files
        self.incoming, self.outgoing = files

    def read_frames(self) -> Optional[List[Frame]]:
        """Return the frames that arrived; None at the end."""
        try:
            piece = os.read(self.incoming, READ_MAX)
        except BlockingIOError:
            return []
        except OSError:
            return None
        if not piece:
            return None
        return self.parse_frames(piece)

    def parse_frames(self, piece: bytes) -> Optional[List[Frame]]:
        """Return the frames that are complete now; None after a protocol error."""
        frames: List[Frame] = []
        try:
            frames += self.reader.feed(piece)
        except BadFrame:
            return None
        return frames

    def queue_frame(self, frame: bytes) -> None:
        self.unsent.append(frame)
        self.many += len(frame)

    def flush(self) -> Optional[int]:
        """Return how many bytes were sent; None if the connection is broken."""
        sent = 0
        while self.unsent:
            pieces = [self.unsent[i] for i in range(min(PIECES_AT_ONCE, len(self.unsent)))]
            try:
                many = os.writev(self.outgoing, pieces)
            except BlockingIOError:
                break
            except OSError:
                return None
            sent += many
            while many:
                piece = self.unsent.popleft()
                if many < len(piece):
                    self.unsent.appendleft(piece[many:])
                    break
                many -= len(piece)
        self.many -= sent
        return sent

    def close(self) -> None:
        for file in self.files:
            os.close(file)
        self.files = []
        if self.control is not None:
            self.control.close()
            self.control = None
