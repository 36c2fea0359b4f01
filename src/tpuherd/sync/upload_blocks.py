"""Sends a stream of blocks over a link; compresses harder over a slow uplink."""

import asyncio
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from tpuherd.errors import NotReached
from tpuherd.ports import Stream
from tpuherd_host.agent.frames import BLOBS

#: Level 4 compresses 60 MB/s; level 1 is twice as fast with a sixth more bytes.
THIN_LEVEL, WIDE_LEVEL = 4, 1
STALL_S = 60.0  #: give up a host that accepts no data for this long
MEASURED_AFTER = 8 << 20  #: bytes that may be in buffers before the uplink's speed shows


class UploadMeter:
    """Measures how long we waited for the compressor and for the uplink."""

    def __init__(self) -> None:
        self.sent = 0
        self.pressing_s = 0.0  #: both counted after JUDGED_AFTER bytes
        self.sending_s = 0.0

    def compression_level(self) -> int:
        """The compression level; lower if the uplink is faster than the compressor."""
        return WIDE_LEVEL if self.pressing_s > 3 * self.sending_s else THIN_LEVEL

    def record_piece(self, pressing_s: float, sending_s: float, many: int) -> None:
        """Record the times of one piece."""
        self.sent += many
        if self.sent > MEASURED_AFTER:
            self.pressing_s += pressing_s
            self.sending_s += sending_s


async def send_blocks(
    stream: Stream, blocks: Iterator[bytes], up: UploadMeter, sent: Callable[[int], None]
) -> None:
    """Send all blocks; the next one is made while the last one is sent."""
    loop = asyncio.get_running_loop()

    def next_block() -> "asyncio.Future[bytes | None]":
        return asyncio.ensure_future(asyncio.to_thread(next, blocks, None))

    coming = next_block()
    try:
        while True:
            begun = loop.time()
            piece = await coming
            pressed = loop.time() - begun
            if piece is None:
                break
            coming = next_block()
            begun = loop.time()
            try:
                async with asyncio.timeout(STALL_S):
                    await stream.write(BLOBS, piece)
            except TimeoutError:
                raise NotReached(f"accepted no data for {STALL_S:g} s") from None
            up.record_piece(pressed, loop.time() - begun, len(piece))
            sent(len(piece))
        await stream.send_eof(BLOBS)
    finally:
        await asyncio.gather(coming, return_exceptions=True)


async def await_reply(stream: Stream) -> Mapping[str, Any]:
    """The reply, however long it takes while the host shows signs of life."""
    try:
        while True:
            async with asyncio.timeout(STALL_S):
                if await stream.read() is None:
                    return await stream.reply()
    except TimeoutError:
        raise NotReached(f"no sign of life for {STALL_S:g} s") from None
