"""Serves every connection of a listening socket by itself, so that a bad one hurts no other."""

import asyncio
import logging
import socket
from collections.abc import Awaitable, Callable

from tpuherd.clock import Clock

REST_S = 0.1  #: when the machine is out of descriptors

log = logging.getLogger(__name__)


async def accepting(
    listener: socket.socket, serve: Callable[[socket.socket], Awaitable[None]], clock: Clock
) -> None:
    """Accept until cancelled; what still runs is cancelled too."""
    loop = asyncio.get_running_loop()
    with listener:
        listener.setblocking(False)
        async with asyncio.TaskGroup() as group:
            while True:
                try:
                    end, _ = await loop.sock_accept(listener)
                except OSError:
                    await clock.sleep(REST_S)
                else:
                    group.create_task(one(end, serve))


async def one(end: socket.socket, serve: Callable[[socket.socket], Awaitable[None]]) -> None:
    """One connection. What goes wrong with it is its own."""
    try:
        await serve(end)
    except (OSError, EOFError):
        return
    except Exception:
        log.exception("a connection from inside a host broke what serves it")


async def ended(writer: asyncio.StreamWriter) -> None:
    """Close a connection, and wait until it is closed."""
    try:
        writer.close()
        await writer.wait_closed()
    except OSError:
        return
    finally:
        writer.transport.abort()
