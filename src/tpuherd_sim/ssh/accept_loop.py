"""Accepts the connections of a listening socket, and can stop immediately."""

import asyncio
import socket
from collections.abc import Callable
from typing import Any

REST_S = 0.1  #: when the machine is out of file descriptors


class Acceptor:
    """Accepts from construction until `stop`; the owner of the socket may close it then.

    asyncio's own `sock_accept` releases the descriptor one loop iteration after its task was
    cancelled. If the socket is closed meanwhile, the number may belong to another socket, which
    then gets no events.
    """

    def __init__(
        self, listener: socket.socket, welcome: Callable[[socket.socket, Any], None]
    ) -> None:
        self.listener = listener
        self.welcome = welcome
        self.loop = asyncio.get_running_loop()
        self.rest: asyncio.TimerHandle | None = None
        self.resume_accepting()

    def resume_accepting(self) -> None:
        self.rest = None
        self.loop.add_reader(self.listener, self.accept_connection)

    def accept_connection(self) -> None:
        try:
            end, origin = self.listener.accept()
        except (BlockingIOError, ConnectionAbortedError):
            return  # the client is gone already
        except OSError:
            self.loop.remove_reader(self.listener)
            self.rest = self.loop.call_later(REST_S, self.resume_accepting)
            return
        end.setblocking(False)
        self.welcome(end, origin)

    def stop(self) -> None:
        """Stop accepting. Calling it twice is harmless."""
        if self.rest is not None:
            self.rest.cancel()
            self.rest = None
        if self.listener.fileno() >= 0:
            self.loop.remove_reader(self.listener)
