"""The world's port: HTTP/1.1 over loopback, as fast as one core allows."""

import asyncio
import contextlib
import socket
from collections.abc import AsyncIterator

from uvicorn.config import Config
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol
from uvicorn.server import ServerState

from tpuherd.sim.http.app import CUT, App

#: Google's front ends close an idle connection after about four minutes.
IDLE_S = 240
BACKLOG = 2048


class Connection(HttpToolsProtocol):
    """A client's connection that the app can cut."""

    def on_message_begin(self) -> None:
        super().on_message_begin()
        self.scope["extensions"] = {CUT: self.transport.abort}  # type: ignore[dict-item]


@contextlib.asynccontextmanager
async def serving(app: App, door: socket.socket) -> AsyncIterator[None]:
    """Answer on this socket. Uvicorn's own Server would take the signals and exit the process."""
    config = Config(
        app,
        http=Connection,
        ws="none",
        lifespan="off",
        log_config=None,
        access_log=False,
        server_header=False,
        date_header=False,
        timeout_keep_alive=IDLE_S,
    )
    config.load()
    state = ServerState()
    loop = asyncio.get_running_loop()
    server = await loop.create_server(
        lambda: Connection(config, state, {}), sock=door, backlog=BACKLOG
    )
    try:
        yield
    finally:
        server.close()
        for connection in list(state.connections):
            connection.transport.abort()
        for task in list(state.tasks):
            task.cancel()
        await asyncio.gather(*state.tasks, return_exceptions=True)
