"""The world's HTTP/1.1 server on loopback."""

import asyncio
import contextlib
import socket
from collections.abc import AsyncIterator, Callable

from uvicorn.config import Config
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol
from uvicorn.server import ServerState

from tpuherd_sim.http.app import CUT, App, Receive, Scope, Send, read_headers, write_response
from tpuherd_sim.request_guard import AccessGuard, refuse_stranger, refuse_web_page

#: Google's front ends close an idle connection after about four minutes.
IDLE_S = 240
BACKLOG = 2048
REFUSED_S = 2  #: how long a refused connection may take to ask and read why
#: The extension with the reason to refuse a connection; "" if it is accepted.
REFUSED = "tpuherd.refused"


class HostConnection(HttpToolsProtocol):
    """A connection from inside a host, which the app can cut."""

    def __init__(self, config: Config) -> None:
        super().__init__(config, ServerState(), {})
        self.over = asyncio.Event()

    def connection_lost(self, exc: Exception | None) -> None:
        super().connection_lost(exc)
        self.over.set()

    def on_message_begin(self) -> None:
        super().on_message_begin()
        self.scope["extensions"] = {
            CUT: self.transport.abort,  # type: ignore[dict-item]
            REFUSED: "",  # type: ignore[dict-item]
        }


class GuardedConnection(HttpToolsProtocol):
    """A connection that the app can cut, with the result of the access check."""

    guard: AccessGuard
    refused = ""

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self.refused = self.guard.refusal_reason(transport.get_extra_info("socket"))
        if self.refused:
            self.loop.call_later(REFUSED_S, transport.abort)

    def on_message_begin(self) -> None:
        super().on_message_begin()
        self.scope["extensions"] = {
            CUT: self.transport.abort,  # type: ignore[dict-item]
            REFUSED: self.refused,  # type: ignore[dict-item]
        }


def guard_app(app: App, now: Callable[[], float]) -> App:
    """Wrap the app so that it refuses connections that fail the access check."""

    async def answer(scope: Scope, receive: Receive, send: Send) -> None:
        refused = scope["extensions"][REFUSED]
        no = refuse_stranger(refused) if refused else refuse_web_page(read_headers(scope))
        if no is None:
            await app(scope, receive, send)
        else:
            await write_response(send, no, now())

    return answer


@contextlib.asynccontextmanager
async def serve_app(
    app: App, listener: socket.socket, guard: AccessGuard, now: Callable[[], float]
) -> AsyncIterator[None]:
    """Serve the app on this socket; uvicorn's own Server would handle signals and exit
    the process.
    """
    config = make_config(guard_app(app, now))
    state = ServerState()
    loop = asyncio.get_running_loop()

    def welcome() -> GuardedConnection:
        connection = GuardedConnection(config, state, {})
        connection.guard = guard
        return connection

    server = await loop.create_server(welcome, sock=listener, backlog=BACKLOG)
    try:
        yield
    finally:
        server.close()
        for connection in list(state.connections):
            connection.transport.abort()
        for task in list(state.tasks):
            task.cancel()
        await asyncio.gather(*state.tasks, return_exceptions=True)


async def serve_connection(end: socket.socket, config: Config) -> None:
    """Serve one accepted connection until it closes."""
    loop = asyncio.get_running_loop()
    connection = HostConnection(config)
    await loop.connect_accepted_socket(lambda: connection, end)
    tasks = connection.tasks
    try:
        await connection.over.wait()
    finally:
        connection.transport.abort()
        for task in list(tasks):
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


def make_config(app: App) -> Config:
    """Return uvicorn's settings for connections."""
    config = Config(
        app,
        http=HttpToolsProtocol,
        ws="none",
        lifespan="off",
        log_config=None,
        access_log=False,
        server_header=False,
        date_header=False,
        timeout_keep_alive=IDLE_S,
    )
    config.load()
    return config
