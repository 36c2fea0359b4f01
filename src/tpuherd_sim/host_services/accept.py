"""Serves each connection of a listening socket separately, so that failures do not spread."""

import asyncio
import logging
import socket
from collections.abc import Awaitable, Callable
from typing import Protocol

from tpuherd.clock import Clock

REST_S = 0.1  #: when the machine is out of file descriptors

log = logging.getLogger(__name__)


class AcceptSettings(Protocol):
    @property
    def clock(self) -> Clock: ...

    @property
    def admit(self) -> Callable[[socket.socket], bool]: ...


async def accept_connections(
    listener: socket.socket,
    serve: Callable[[socket.socket], Awaitable[None]],
    terms: AcceptSettings,
) -> None:
    """Accept connections until cancelled, which also cancels those that are open."""
    loop = asyncio.get_running_loop()
    with listener:
        listener.setblocking(False)
        async with asyncio.TaskGroup() as group:
            while True:
                try:
                    end, _ = await loop.sock_accept(listener)
                except OSError:
                    await terms.clock.sleep(REST_S)
                    continue
                if terms.admit(end):
                    group.create_task(serve_logged(end, serve))
                else:
                    end.close()


async def serve_logged(
    end: socket.socket, serve: Callable[[socket.socket], Awaitable[None]]
) -> None:
    """Serve one connection; log its errors."""
    try:
        await serve(end)
    except (OSError, EOFError):
        return
    except Exception:
        log.exception("a connection from inside a host made its service fail")


async def close_writer(writer: asyncio.StreamWriter) -> None:
    """Close a connection and wait until it is closed."""
    try:
        writer.close()
        await writer.wait_closed()
    except OSError:
        return
    finally:
        writer.transport.abort()
