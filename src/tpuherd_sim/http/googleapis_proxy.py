"""A proxy through which *.googleapis.com is the world, and nothing else is reachable."""

import asyncio
import contextlib
import socket
import ssl
from collections.abc import AsyncIterator, Callable

from tpuherd_sim.request_guard import NAMES, AccessGuard, is_played_host

HEAD_BYTES_MAX = 1 << 16
CHUNK = 1 << 16
PATIENCE_S = 30.0
REFUSAL = (
    "This is the proxy of a simulated Cloud TPU world; it serves only Google's APIs "
    "({names}), which the world simulates. {host} can't be reached through it."
)
PREFACE = b"PRI * HTTP/2.0"


@contextlib.asynccontextmanager
async def serve_proxy(
    listener: socket.socket,
    front: ssl.SSLContext,
    port: int,
    outside: tuple[AccessGuard, Callable[[str], None]],
) -> AsyncIterator[None]:
    """Accept CONNECT on this socket, terminate TLS and forward requests to the world's port.

    The guard checks who connects, because to the world's port all of them look like this process.
    `tell` receives problems.
    """
    guard, tell = outside
    async with asyncio.TaskGroup() as group:
        visitors: set[asyncio.Task[None]] = set()

        def welcome(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            refused = guard.refusal_reason(writer.get_extra_info("socket"))
            if refused:
                task = group.create_task(turn_away(writer, refused))
            else:
                task = group.create_task(serve_client(reader, writer, front, port, tell))
            visitors.add(task)
            task.add_done_callback(visitors.discard)

        server = await asyncio.start_server(welcome, sock=listener, limit=HEAD_BYTES_MAX)
        try:
            yield
        finally:
            server.close()
            for task in visitors:
                task.cancel()


async def serve_client(
    reader: asyncio.StreamReader,
    writer: asyncio.StreamWriter,
    front: ssl.SSLContext,
    port: int,
    tell: Callable[[str], None],
) -> None:
    """Serve one client connection."""
    host = ""
    try:
        async with asyncio.timeout(PATIENCE_S):
            host, refusal = requested_host(await reader.readuntil(b"\r\n\r\n"))
            if refusal:
                await send_refusal(writer, refusal)
                return
            writer.write(b"HTTP/1.1 200 Connection established\r\n\r\n")
            await writer.start_tls(front)
        await relay_bytes(reader, writer, port, tell)
    except ssl.SSLError as error:
        tell(
            f"a TLS handshake as {host} failed ({error.reason}): the client "
            "may ignore the variables of `herd sim env --proxy`, or require gRPC"
        )
    except (OSError, TimeoutError, asyncio.IncompleteReadError, asyncio.LimitOverrunError):
        pass  # the client left, or does not speak HTTP
    except asyncio.CancelledError:
        writer.transport.abort()
        raise
    finally:
        writer.close()  # after flushing


async def turn_away(writer: asyncio.StreamWriter, sentence: str) -> None:
    """Answer every request of a client with the same refusal."""
    try:
        await send_refusal(writer, sentence)
    except OSError:
        pass  # already gone


def requested_host(head: bytes) -> tuple[str, str]:
    """Return the requested host, and the reason to refuse it or ""."""
    words = head.split(b"\r\n", 1)[0].decode("latin-1").split(" ")
    method, where = (words[0], words[1]) if len(words) == 3 else ("", "")
    host = where.rpartition(":")[0].lower() if method == "CONNECT" else where or "This"
    if method == "CONNECT" and is_played_host(host):
        return host, ""
    return host, REFUSAL.format(names=", ".join(NAMES), host=host)


async def send_refusal(writer: asyncio.StreamWriter, sentence: str) -> None:
    """Send a refusal that clients show to the user."""
    body = sentence.encode() + b"\n"
    head = (
        "HTTP/1.1 403 This proxy serves only the simulated world\r\n"
        "Content-Type: text/plain; charset=utf-8\r\n"
        f"Content-Length: {len(body)}\r\nConnection: close\r\n\r\n"
    )
    writer.write(head.encode() + body)
    await writer.drain()
    writer.close()
    await writer.wait_closed()


async def relay_bytes(
    reader: asyncio.StreamReader,
    writer: asyncio.StreamWriter,
    port: int,
    tell: Callable[[str], None],
) -> None:
    """Copy bytes in both directions until one side ends."""
    first = await reader.read(CHUNK)
    if first.startswith(PREFACE):
        tell("a client used HTTP/2 (gRPC?), which the world does not support; set transport='rest'")
        return
    inner_reader, inner_writer = await asyncio.open_connection("127.0.0.1", port)
    try:
        inner_writer.write(first)
        async with asyncio.TaskGroup() as group:
            back = group.create_task(copy_stream(inner_reader, writer))
            forth = group.create_task(copy_stream(reader, inner_writer))
            await asyncio.wait({back, forth}, return_when=asyncio.FIRST_COMPLETED)
            back.cancel()
            forth.cancel()
    finally:
        inner_writer.transport.abort()


async def copy_stream(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    try:
        while chunk := await reader.read(CHUNK):
            writer.write(chunk)
            await writer.drain()
    except OSError:
        pass  # one side is gone, which ends the connection
