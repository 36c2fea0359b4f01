"""An agent that sends what nobody asked for, without end, is read slowly."""

import asyncio
from collections.abc import Iterable

import pytest

from tests.simulated.virtual_loop import run
from tpuherd.ports import RpcRequest
from tpuherd.remote.agent_bootstrap import SocketSession
from tpuherd_host.agent import frames

HELLO = frames.pack_json(frames.HELLO, 0, {"protocol": frames.PROTOCOL})
SMALL = frames.pack_json(frames.EVENT, 0, {"event": "heartbeat"})
LARGE = frames.pack_json(frames.EVENT, 0, {"event": "sample", "why": "x" * 900_000})
UNKNOWN = frames.pack_json(frames.REPLY, 77, {})
SECONDS = 20
A_SECOND_MAX = 4 << 20


class Channel:
    """SSH's: while reading is paused, the other side can't send."""

    def __init__(self) -> None:
        self.reads = asyncio.Event()
        self.reads.set()
        self.sent: list[bytes] = []

    def pause_reading(self) -> None:
        self.reads.clear()

    def resume_reading(self) -> None:
        self.reads.set()

    def is_closing(self) -> bool:
        return False

    def write(self, piece: bytes) -> None:
        self.sent.append(piece)


def open_session() -> tuple[SocketSession, Channel]:
    session, channel = SocketSession({}), Channel()
    session.connection_made(channel)
    session.data_received(HELLO, None)
    return session, channel


@pytest.mark.parametrize(
    "piece", [SMALL * 100, LARGE, UNKNOWN * 100], ids=["small", "large", "unknown"]
)
def test_a_flood_is_read_at_a_bounded_rate(piece: bytes) -> None:
    async def main() -> int:
        session, channel = open_session()
        loop = asyncio.get_running_loop()
        read, end = 0, loop.time() + SECONDS
        while loop.time() < end:
            await channel.reads.wait()
            session.data_received(piece, None)
            read += 1
            await asyncio.sleep(0.001)
        return read

    units = 100 * 1024 if piece is not LARGE else len(LARGE)
    assert 0 < run(main()) * units < A_SECOND_MAX * SECONDS


def test_the_usual_and_what_was_asked_for_is_read_at_once() -> None:
    async def main() -> Iterable[bool]:
        session, channel = open_session()
        call = session.multiplexer.open_call(RpcRequest(name="ping"))
        paused = []
        for number in range(3000):
            session.data_received(SMALL * 8, None)  # 800 events a second
            if number % 100 == 0:
                session.data_received(frames.pack_json(frames.REPLY, call.id, {}), None)
                call = session.multiplexer.open_call(RpcRequest(name="ping"))
            paused.append(not channel.reads.is_set())
            await asyncio.sleep(0.01)
        return paused

    assert not any(run(main()))
