"""Our gRPC client and the simulator's server, which share no code, over a pair of sockets."""

import asyncio
import socket
from collections.abc import Awaitable, Callable

import pytest

from tpuherd.commands.grpc_calls import GrpcReply, call_methods
from tpuherd.errors import HerdError, NotReached, OperationFailed
from tpuherd_sim.host_services.grpc import NOT_FOUND, GrpcConnection, GrpcError

PATH = "/a.Service/Method"
Serve = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


async def repeat_words(request: bytes) -> bytes:
    if request == b"bad":
        raise GrpcError(NOT_FOUND, "no such thing: ä")
    return request * 10_000


async def call_sim(requests: list[bytes], path: str = PATH) -> list[GrpcReply]:
    near, far = socket.socketpair()
    serving = asyncio.create_task(GrpcConnection({PATH: repeat_words}).serve_calls(far))
    reader, writer = await asyncio.open_connection(sock=near)
    try:
        return await call_methods((reader, writer), path, requests)
    finally:
        writer.close()
        await serving


def test_all_calls_are_answered_in_their_order() -> None:
    """The answers are longer than HTTP/2's first window."""
    replies = asyncio.run(call_sim([b"one", b"bad", b"twelve"]))
    assert replies == [
        GrpcReply(content=b"one" * 10_000),
        GrpcReply(status=NOT_FOUND, message="no such thing: ä"),
        GrpcReply(content=b"twelve" * 10_000),
    ]


def test_a_server_without_the_method_says_so() -> None:
    [reply] = asyncio.run(call_sim([b"x"], "/a.Service/Other"))
    assert reply.status == 12


@pytest.mark.parametrize(
    ("said", "error"),
    [
        (b"", NotReached),
        (b"HTTP/1.1 400 Bad Request\r\n\r\n", OperationFailed),
        (b"\xff" * 64, OperationFailed),
    ],
)
def test_what_is_no_grpc_server_is_an_error(said: bytes, error: type[HerdError]) -> None:
    async def work() -> None:
        near, far = socket.socketpair()
        far.sendall(said)
        far.shutdown(socket.SHUT_WR)
        reader, writer = await asyncio.open_connection(sock=near)
        try:
            with pytest.raises(error):
                await call_methods((reader, writer), PATH, [b"x"])
        finally:
            writer.close()
            far.close()

    asyncio.run(work())
