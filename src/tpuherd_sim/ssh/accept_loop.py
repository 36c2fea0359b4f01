"""Takes the connections of a listening socket, and stops at once when it is told to."""

import asyncio
import socket
from collections.abc import Callable
from typing import Any

REST_S = 0.1  #: when the machine is out of descriptors


class Acceptor:
    """Accepts from construction until `stop`; the socket is its owner's, who may close it then.

    asyncio's own `sock_accept` forgets the descriptor only one turn of the loop after its task was
    cancelled. Closed meanwhile, the number may be another socket's by then, which goes deaf.
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
        """Accept again, after a rest."""
        self.rest = None
        self.loop.add_reader(self.listener, self.accept_connection)

    def accept_connection(self) -> None:
        """Take one connection."""
        try:
            end, origin = self.listener.accept()
        except (BlockingIOError, ConnectionAbortedError):
            return  # the client went away again
        except OSError:
            self.loop.remove_reader(self.listener)
            self.rest = self.loop.call_later(REST_S, self.resume_accepting)
            return
        end.setblocking(False)
        self.welcome(end, origin)

    def stop(self) -> None:
        """Accept no more. Harmless when it is said twice."""
        if self.rest is not None:
            self.rest.cancel()
            self.rest = None
        if self.listener.fileno() >= 0:
            self.loop.remove_reader(self.listener)
