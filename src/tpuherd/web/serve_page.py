"""Serves the page until cancelled; open event streams do not delay the end."""

import asyncio
import ipaddress
import logging
import secrets
import socket
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager, suppress

from starlette.types import ASGIApp, Receive, Scope, Send
from uvicorn.config import Config
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol
from uvicorn.server import ServerState

from tpuherd.errors import InvalidInput
from tpuherd.peer_uid import is_stranger
from tpuherd.web.access_guard import LOOPBACK, AccessGuard, AccessRules
from tpuherd.web.json_answers import StoreUnavailable
from tpuherd.web.live_feed import LiveFeed
from tpuherd.web.page_app import create_page_app
from tpuherd.web.page_context import PageContext, PageServices

PORT = 4373  #: "herd" on a telephone
TRIES = 20  #: ports from there on, if it is in use
BACKLOG = 128
IDLE_S = 75


@contextmanager
def listen(host: str, port: int | None) -> Iterator[socket.socket]:
    """Listen on a port, or on the first free one from PORT on; InvalidInput if there is none."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    wanted = [port] if port is not None else [*range(PORT, PORT + TRIES), 0]
    with socket.socket(family, socket.SOCK_STREAM) as listener:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        for number in wanted:
            try:
                listener.bind((host, number))
                break
            except PermissionError:
                raise InvalidInput(f"port {number} is reserved: choose one above 1023") from None
            except OverflowError:
                raise InvalidInput(f"{number} is not a port") from None
            except socket.gaierror:
                raise InvalidInput(f"{host} is not an address of this machine") from None
            except OSError as error:
                reason = error
        else:
            raise InvalidInput(
                f"port {port} on {host} can't be used ({reason.strerror})",
                hint="leave --port out to use a free one",
            )
        listener.listen(BACKLOG)
        yield listener


def access_rules(token: str, host: str, listener: socket.socket) -> AccessRules:
    """Return who may use a server that listens at this address."""
    address, port, *_ = listener.getsockname()
    names = {host.lower(), address, *LOOPBACK}
    is_open = not ipaddress.ip_address(address).is_loopback
    if is_open:
        names |= {socket.gethostname().lower(), socket.getfqdn().lower()}
    return AccessRules(
        token=token,
        session=secrets.token_urlsafe(32),
        port=port,
        names=frozenset(names),
        any_address=is_open,
    )


async def serve_page(
    context: PageContext,
    rules: AccessRules,
    listener: socket.socket,
    announce: Callable[[], Awaitable[None]],
) -> None:
    """Serve until cancelled; announce it when the first picture is ready."""
    feed = LiveFeed(context.open_store, context.clock)
    services = PageServices(context=context, feed=feed)
    app = AccessGuard(create_page_app(services), rules)
    if not context.environ.get("HERD_DEBUG"):
        logging.getLogger("uvicorn.error").setLevel(logging.CRITICAL + 1)  # the page shows errors
    async with serve_connections(app, listener), asyncio.TaskGroup() as tasks:
        tasks.create_task(feed.run())
        with suppress(StoreUnavailable):  # the page says so
            await feed.read_overview()
        await announce()


class PageConnection(HttpToolsProtocol):
    """A connection that is closed at once if it is another user's: browsers send them the cookie,
    and idle ones would use up our open files."""

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        if is_stranger(*map(transport.get_extra_info, ("peername", "sockname"))):
            transport.abort()


@asynccontextmanager
async def serve_connections(app: ASGIApp, listener: socket.socket) -> AsyncIterator[None]:
    """Answer connections within the block, and cut them at its end.

    uvicorn's own Server would handle signals, and wait for every event stream to end.
    """

    async def answer(scope: Scope, receive: Receive, send: Send) -> None:
        with suppress(asyncio.CancelledError):  # the server ends: the connection is cut
            await app(scope, receive, send)

    config = Config(
        answer,
        http=HttpToolsProtocol,
        ws="none",
        lifespan="off",
        log_config=None,
        access_log=False,
        server_header=False,
        timeout_keep_alive=IDLE_S,
    )
    config.load()
    state = ServerState()
    loop = asyncio.get_running_loop()
    server = await loop.create_server(
        lambda: PageConnection(config, state, {}), sock=listener, backlog=BACKLOG
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
