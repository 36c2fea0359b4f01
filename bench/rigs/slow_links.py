"""Connections to distant hosts: with delay both ways, and limited bandwidth."""

import asyncio
import multiprocessing
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from math import inf
from multiprocessing.connection import Connection

PIECE = 1 << 16
AHEAD = 256  #: pieces under way


class Line:
    """One direction of all connections, with its delay and bytes per second."""

    def __init__(
        self, delay_s: float, rate: float = inf, piece: int = PIECE, ahead: int = AHEAD
    ) -> None:
        self.delay_s, self.rate = delay_s, rate
        self.piece, self.ahead = piece, ahead
        self.free_at = 0.0
        self.carried = 0

    async def carry(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        loop = asyncio.get_running_loop()
        queue: asyncio.Queue[tuple[float, bytes]] = asyncio.Queue(self.ahead)

        async def arrive() -> None:
            while True:
                at, piece = await queue.get()
                await asyncio.sleep(max(0.0, at - loop.time()))
                if not piece:
                    break
                writer.write(piece)
                await writer.drain()
            writer.write_eof()

        task = asyncio.ensure_future(arrive())
        with suppress(OSError):
            while piece := await reader.read(self.piece):
                self.carried += len(piece)
                self.free_at = max(self.free_at, loop.time()) + len(piece) / self.rate
                await queue.put((self.free_at + self.delay_s, piece))
        await queue.put((loop.time() + self.delay_s, b""))
        with suppress(OSError):
            await task


@contextmanager
def late(addresses: Sequence[str], port: int, round_trip_s: float) -> Iterator[int]:
    """Another port at the same addresses, by which their first one is reached so late."""
    here, there = multiprocessing.Pipe()
    process = multiprocessing.Process(
        target=proxy, args=(there, addresses, port, round_trip_s / 2), daemon=True
    )
    process.start()
    try:
        yield int(here.recv())
    finally:
        process.terminate()
        process.join()


def proxy(pipe: Connection, addresses: Sequence[str], port: int, delay_s: float) -> None:
    asyncio.run(serve(pipe, addresses, port, delay_s))


async def serve(pipe: Connection, addresses: Sequence[str], port: int, delay_s: float) -> None:
    found = 0
    for address in addresses:

        async def meet(
            reader: asyncio.StreamReader, writer: asyncio.StreamWriter, address: str = address
        ) -> None:
            answers, onward = await asyncio.open_connection(address, port)
            line = Line(delay_s)
            ways = line.carry(reader, onward), line.carry(answers, writer)
            await asyncio.gather(*ways, return_exceptions=True)
            onward.close()
            writer.close()

        server = await asyncio.start_server(meet, address, found, backlog=512)
        found = server.sockets[0].getsockname()[1]
    pipe.send(found)
    await asyncio.Event().wait()
