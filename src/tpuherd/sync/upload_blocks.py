"""Sending a stream of blocks over a link, compressed as hard as the uplink is slow."""

import asyncio
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from tpuherd.errors import NotReached
from tpuherd.ports import Stream
from tpuherd_host.agent.frames import BLOBS

#: Level 4 makes 60 MB/s, level 1 twice that, of a sixth more bytes.
THIN_LEVEL, WIDE_LEVEL = 4, 1
STALL_S = 60.0  #: a host that takes nothing for so long is given up
JUDGED_AFTER = 8 << 20  #: bytes; so many may be in buffers before the line is felt


class UploadMeter:
    """How long we waited for what: the compressor, or the line."""

    def __init__(self) -> None:
        self.sent = 0
        self.pressing_s = 0.0  #: both since the line is felt
        self.sending_s = 0.0

    def compression_level(self) -> int:
        """How hard to compress: less, once the line is faster than the compressor."""
        return WIDE_LEVEL if self.pressing_s > 3 * self.sending_s else THIN_LEVEL

    def record_piece(self, pressing_s: float, sending_s: float, many: int) -> None:
        """How the last piece went."""
        self.sent += many
        if self.sent > JUDGED_AFTER:
            self.pressing_s += pressing_s
            self.sending_s += sending_s


async def send_blocks(
    stream: Stream, blocks: Iterator[bytes], up: UploadMeter, sent: Callable[[int], None]
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
            pressed = loop.time() - begun
            if piece is None:
                break
            coming = made()
            begun = loop.time()
            try:
                async with asyncio.timeout(STALL_S):
                    await stream.write(BLOBS, piece)
            except TimeoutError:
                raise NotReached(f"took nothing for {STALL_S:g} s") from None
            up.record_piece(pressed, loop.time() - begun, len(piece))
            sent(len(piece))
        await stream.send_eof(BLOBS)
    finally:
        await asyncio.gather(coming, return_exceptions=True)


async def await_reply(stream: Stream) -> Mapping[str, Any]:
    """The answer, however long it takes, as long as there are signs of life."""
    try:
        while True:
            async with asyncio.timeout(STALL_S):
                if await stream.read() is None:
                    return await stream.reply()
    except TimeoutError:
        raise NotReached(f"gave no sign of life for {STALL_S:g} s") from None
