"""Connections to jump hosts, each shared by all hosts behind it."""

import asyncio
from functools import partial
from typing import Any

import asyncssh

from tpuherd.clock import Clock
from tpuherd.errors import NotReached
from tpuherd.remote.single_flight import SingleFlight
from tpuherd.settings.host_routes import split_jump_host

PATIENCE_S = 10.0  #: for a host's next message during the handshake
KEEPALIVE_S = 5.0


class JumpHosts:
    """Opens and keeps them, with the user's own SSH settings and keys."""

    def __init__(self, clock: Clock) -> None:
        self._opening = SingleFlight(clock)
        self._open: dict[str, asyncssh.SSHClientConnection] = {}

    async def get_connection(self, by: str) -> asyncssh.SSHClientConnection:
        """Return the connection to [USER@]HOST[:PORT]."""
        return await self._opening.run(by, partial(self._connect, by))

    async def close(self) -> None:
        await self._opening.close()
        connections = list(self._open.values())
        self._open.clear()
        for connection in connections:
            connection.abort()
        await asyncio.gather(*(connection.wait_closed() for connection in connections))

    async def _connect(self, by: str) -> asyncssh.SSHClientConnection:
        jump = self._open.get(by)
        if jump is not None and not jump.is_closed():
            return jump
        try:
            user, name, port = split_jump_host(by)
            more: dict[str, Any] = {"username": user} if user else {}
            async with asyncio.timeout(PATIENCE_S):
                jump = await asyncssh.connect(name, port, keepalive_interval=KEEPALIVE_S, **more)
        except TimeoutError as error:
            raise NotReached(
                f"the jump host {by} did not answer within {PATIENCE_S:g} s"
            ) from error
        except (OSError, asyncssh.Error, ValueError) as error:
            raise NotReached(f"can't connect to the jump host {by} ({error})") from error
        self._open[by] = jump
        return jump
