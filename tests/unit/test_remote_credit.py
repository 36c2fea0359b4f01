"""An agent that exceeds its credit, or sends an invalid frame, is disconnected with an error."""

import asyncio
from collections.abc import Callable

import pytest

from tpuherd.errors import OperationFailed
from tpuherd.ports import RpcRequest
from tpuherd.remote import agent_channel as lanes
from tpuherd.remote.agent_channel import Multiplexer
from tpuherd_host.agent import frames


class Wire:
    """Remembers what was written to it."""

    def __init__(self) -> None:
        self.written: list[bytes] = []
        self.closed = False

    def write(self, piece: bytes) -> None:
        self.written.append(piece)

    def close(self) -> None:
        self.closed = True


def fed(frame: Callable[[int], bytes], times: int) -> tuple[Multiplexer, Wire]:
    """A channel whose agent answers a call with this many frames, which are not read."""
    wires = Wire()

    async def main() -> Multiplexer:
        multiplexer = Multiplexer(wires)
        call = multiplexer.open_call(RpcRequest(name="follow"))
        for _ in range(times):
            multiplexer.feed(frame(call.id))
        if multiplexer.error is not None:
            with pytest.raises(OperationFailed):
                await call.reply()
        return multiplexer

    return asyncio.run(main()), wires


def full(id: int) -> bytes:
    return frames.pack_data(id, frames.LOG, bytes(frames.DATA_MAX - 1))


def test_bytes_within_the_credit_are_accepted() -> None:
    multiplexer, wire = fed(full, frames.WINDOW // frames.DATA_MAX)
    assert (multiplexer.error, wire.closed) == (None, False)


def test_a_peer_that_exceeds_its_credit_is_disconnected() -> None:
    multiplexer, wire = fed(full, frames.WINDOW // frames.DATA_MAX + 1)
    assert isinstance(multiplexer.error, OperationFailed)
    assert "more data than its credit" in multiplexer.error.sentence
    assert wire.closed


def test_credit_grows_as_data_is_read() -> None:
    wire = Wire()

    async def main() -> Multiplexer:
        multiplexer = Multiplexer(wire)
        call = multiplexer.open_call(RpcRequest(name="follow"))
        granted, sent = frames.WINDOW, 0
        for _ in range(100):
            many = min(frames.DATA_MAX - 1, granted - sent)
            multiplexer.feed(frames.pack_data(call.id, frames.LOG, bytes(many)))
            sent += many
            assert (await call.read()) is not None
            call._grant_credit()
            credits_ = [one for one in wire.written if one[4] == frames.CREDIT]
            granted = frames.WINDOW + sum(int.from_bytes(one[-4:], "big") for one in credits_)
        assert sent > 5 * frames.WINDOW
        return multiplexer

    assert asyncio.run(main()).error is None


@pytest.mark.parametrize(
    "frame",
    [
        frames.pack_frame(frames.DATA, 1, b""),
        frames.pack_frame(frames.CREDIT, 1, b"12"),
        frames.pack_frame(frames.REPLY, 1, b"no JSON"),
        frames.pack_frame(frames.REPLY, 1, b"[1]"),
        frames.pack_frame(frames.EVENT, 0, b'{"a":' * 100_000),
        frames.pack_frame(frames.EVENT, 0, b"1" * 5000),
        b"GET / HTTP/1.1\r\n\r\n",
    ],
    ids=["no port", "half a credit", "no JSON", "no object", "deep", "long number", "http"],
)
def test_an_invalid_frame_ends_only_its_link(frame: bytes) -> None:
    multiplexer, wire = fed(lambda id: frame, 1)
    assert isinstance(multiplexer.error, OperationFailed)
    assert wire.closed


def test_a_reader_that_ignores_events_is_told_before_memory_is_full(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(lanes, "EVENT_BYTES_MAX", 1 << 20)

    async def main() -> int:
        multiplexer = Multiplexer(Wire())
        events = multiplexer.iter_events()
        first = asyncio.ensure_future(anext(events))
        await asyncio.sleep(0)
        large = frames.pack_json(frames.EVENT, 0, {"event": "x" * 60_000})
        for _ in range(100):
            multiplexer.feed(large)
        await first
        return 1 + len([one async for one in events])

    assert 10 < asyncio.run(main()) < 20
