"""Sending a stream of blocks over a link, compressed as hard as the uplink is slow."""

import asyncio
from collections.abc import Callable, Iterator

from tpuherd.ports import NotReached, Stream
from tpuherd_host.agent.frames import BLOBS

THIN_LEVEL, WIDE_LEVEL = 6, 1  #: level 6 makes 40 MB/s, level 1 thrice that, of a fifth more bytes
STALL_S = 60.0  #: a host that takes nothing for so long is given up
JUDGED_S = 0.1


class Upload:
    """How long we waited for what: the compressor, or the line."""

    def __init__(self) -> None:
        self.pressing_s = 0.0
        self.sending_s = 0.0

    def level(self) -> int:
        """How hard to compress: less, once the line is faster than the compressor."""
        wide = self.pressing_s > JUDGED_S and self.pressing_s > 3 * self.sending_s
        return WIDE_LEVEL if wide else THIN_LEVEL


async def upload(
    stream: Stream, blocks: Iterator[bytes], up: Upload, sent: Callable[[int], None]
) -> None:
    """All of it; the next blocks are made while the last are sent."""
    loop = asyncio.get_running_loop()

    def made() -> "asyncio.Future[bytes | None]":
        return asyncio.ensure_future(asyncio.to_thread(next, blocks, None))

    coming = made()
    try:
        while True:
            begun = loop.time()
            piece = await coming
            up.pressing_s += loop.time() - begun
            if piece is None:
                break
            coming = made()
            begun = loop.time()
            try:
                async with asyncio.timeout(STALL_S):
                    await stream.write(BLOBS, piece)
            except TimeoutError:
                raise NotReached(f"took nothing for {STALL_S:g} s") from None
            up.sending_s += loop.time() - begun
            sent(len(piece))
        await stream.end(BLOBS)
    finally:
        await asyncio.gather(coming, return_exceptions=True)
