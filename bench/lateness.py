"""A line that is late: what goes to a host and what comes back takes half a round trip each way."""

import asyncio
import multiprocessing
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from multiprocessing.connection import Connection

PIECE = 1 << 16
AHEAD = 256  #: pieces under way


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
            ways = carry(reader, onward, delay_s), carry(answers, writer, delay_s)
            await asyncio.gather(*ways, return_exceptions=True)
            onward.close()
            writer.close()

        server = await asyncio.start_server(meet, address, found, backlog=512)
        found = server.sockets[0].getsockname()[1]
    pipe.send(found)
    await asyncio.Event().wait()


async def carry(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, delay_s: float) -> None:
    loop = asyncio.get_running_loop()
    queue: asyncio.Queue[tuple[float, bytes]] = asyncio.Queue(AHEAD)

    async def arrive() -> None:
        while True:
            at, piece = await queue.get()
            await asyncio.sleep(at - loop.time())
            if not piece:
                break
            writer.write(piece)
            await writer.drain()
        writer.write_eof()

    task = asyncio.ensure_future(arrive())
    with suppress(OSError):
        while piece := await reader.read(PIECE):
            await queue.put((loop.time() + delay_s, piece))
    await queue.put((loop.time() + delay_s, b""))
    with suppress(OSError):
        await task
