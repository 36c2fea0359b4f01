"""The stream to an agent: concurrent calls, credit, cancelled calls, and invalid frames."""

import asyncio
import json
import struct
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from tests.simulated.virtual_loop import run
from tpuherd.clock import LoopClock
from tpuherd.errors import (
    HerdError,
    InvalidInput,
    NotFound,
    NotReached,
    OperationFailed,
    Superseded,
)
from tpuherd.ports import RpcRequest
from tpuherd.remote import agent_channel as lanes
from tpuherd.remote.agent_channel import Multiplexer
from tpuherd_host.agent import frames
from tpuherd_host.agent.frames import Frame

PORT = frames.STDOUT
CLOCK = LoopClock(0.0)  #: of the virtual loop that every test here runs in
QUIET_S = 1.0  #: by then all that can happen by itself has happened; it takes no time


class Partner:
    """The other end, in this process: records what arrives and sends what the test wants."""

    def __init__(self) -> None:
        self.reader = frames.FrameReader()
        self.heard: list[Frame] = []
        self.closed = False
        self.multiplexer = Multiplexer(self)

    def write(self, piece: bytes) -> None:
        self.heard += self.reader.feed(piece)

    def close(self) -> None:
        self.closed = True

    def say(self, kind: int, id: int, content: dict[str, Any]) -> None:
        self.multiplexer.feed(frames.pack_json(kind, id, content))

    def kinds(self, id: int) -> list[int]:
        return [frame.kind for frame in self.heard if frame.id == id]

    def data(self, id: int) -> bytes:
        return b"".join(f.payload[1:] for f in self.heard if (f.kind, f.id) == (frames.DATA, id))


def met(work: Callable[[Partner], Awaitable[None]]) -> None:
    async def main() -> None:
        async with asyncio.timeout(10):
            await work(Partner())

    run(main())


def test_calls_do_not_block_each_other() -> None:
    async def work(partner: Partner) -> None:
        multiplexer = partner.multiplexer
        first, second = (
            multiplexer.open_call(RpcRequest(name="a")),
            multiplexer.open_call(RpcRequest(name="b", arguments={"x": 1})),
        )
        assert first.id != second.id
        assert json.loads(partner.heard[1].payload) == {"verb": "b", "x": 1}
        partner.say(frames.REPLY, second.id, {"two": 2})
        partner.say(frames.REPLY, first.id, {"one": 1})
        assert await first.reply() == {"one": 1}
        assert await second.reply() == {"two": 2}
        assert multiplexer.calls == {}

    met(work)


def test_frames_arrive_in_any_pieces() -> None:
    async def work(partner: Partner) -> None:
        call = partner.multiplexer.open_call(RpcRequest(name="a"))
        text = frames.pack_data(call.id, PORT, b"hello") + frames.pack_json(
            frames.REPLY, call.id, {}
        )
        for at in range(len(text)):
            partner.multiplexer.feed(text[at : at + 1])
        assert await call.read() == (PORT, b"hello")
        assert await call.read() is None

    met(work)


@pytest.mark.parametrize(
    ("word", "kind"),
    [
        ("unknown", NotFound),
        ("unfit", InvalidInput),
        ("outdated", Superseded),
        ("full", OperationFailed),
    ],
)
def test_failures_are_sentences(word: str, kind: type[HerdError]) -> None:
    async def work(partner: Partner) -> None:
        call = partner.multiplexer.open_call(RpcRequest(name="a"))
        partner.say(frames.FAIL, call.id, {"error": word, "sentence": "so it is"})
        assert await call.read() is None
        with pytest.raises(kind, match="so it is"):
            await call.reply()

    met(work)


def test_a_writer_waits_for_credit() -> None:
    async def work(partner: Partner) -> None:
        call = partner.multiplexer.open_call(RpcRequest(name="a"))
        text = bytes(range(256)) * (frames.WINDOW // 128)  # twice the window
        writing = asyncio.create_task(call.write(PORT, text))
        await CLOCK.sleep(QUIET_S)
        assert not writing.done()
        assert len(partner.data(call.id)) == frames.WINDOW
        partner.multiplexer.feed(frames.pack_credit(call.id, frames.WINDOW))
        await writing
        assert partner.data(call.id) == text

    met(work)


def test_a_slow_reader_grants_no_credit() -> None:
    async def work(partner: Partner) -> None:
        call = partner.multiplexer.open_call(RpcRequest(name="a"))
        for _ in range(4):
            partner.multiplexer.feed(
                frames.pack_data(call.id, PORT, b"x" * (frames.WINDOW // 4 - 1))
            )
        partner.multiplexer.feed(frames.pack_data(call.id, PORT + 1, b"y"))
        await CLOCK.sleep(QUIET_S)
        got = await call.read()
        assert got is not None and got[0] == PORT and len(got[1]) == frames.WINDOW - 4
        assert frames.CREDIT not in partner.kinds(call.id)  # it is not through with that yet
        assert await call.read() == (PORT + 1, b"y")
        given = [f.payload for f in partner.heard if f.kind == frames.CREDIT]
        assert [struct.unpack(">I", one)[0] for one in given] == [frames.WINDOW - 4]

    met(work)


def test_a_caller_waiting_for_the_reply_grants_credit_for_dropped_output() -> None:
    async def work(partner: Partner) -> None:
        call = partner.multiplexer.open_call(RpcRequest(name="a"))
        waiting = asyncio.create_task(call.reply())
        for _ in range(4):
            partner.multiplexer.feed(
                frames.pack_data(call.id, PORT, b"x" * (frames.WINDOW // 4 - 1))
            )
        await CLOCK.sleep(QUIET_S)
        assert frames.CREDIT in partner.kinds(call.id)
        partner.multiplexer.feed(frames.pack_json(frames.REPLY, call.id, {"exit": 0}))
        assert await waiting == {"exit": 0}

    met(work)


def test_a_broken_channel_fails_all_current_and_later_calls() -> None:
    async def work(partner: Partner) -> None:
        multiplexer = partner.multiplexer
        call, other = (
            multiplexer.open_call(RpcRequest(name="a")),
            multiplexer.open_call(RpcRequest(name="b")),
        )
        partner.multiplexer.feed(frames.pack_data(call.id, PORT, b"last words"))
        multiplexer.mark_broken(NotReached("the connection was cut"))
        assert await call.read() == (PORT, b"last words")
        for wait in (call.read(), call.reply(), other.read(), other.write(PORT, b"x")):
            with pytest.raises(NotReached, match="was cut"):
                await wait
        with pytest.raises(NotReached):
            multiplexer.open_call(RpcRequest(name="c"))
        assert [event async for event in multiplexer.iter_events()] == []

    met(work)


def test_closing_says_so_and_reads_nothing_more() -> None:
    async def work(partner: Partner) -> None:
        async with partner.multiplexer.open_stream(RpcRequest(name="a")) as call:
            pass
        assert partner.kinds(call.id) == [frames.CALL, frames.CANCEL]
        partner.multiplexer.feed(frames.pack_data(call.id, PORT, b"too late"))
        partner.say(frames.FAIL, call.id, {"error": "cancelled", "sentence": "cancelled"})
        assert partner.multiplexer.calls == {}
        assert not call._pieces

    met(work)


def test_a_finished_call_is_not_cancelled() -> None:
    async def work(partner: Partner) -> None:
        async with partner.multiplexer.open_stream(RpcRequest(name="a")) as call:
            partner.say(frames.REPLY, call.id, {})
        assert partner.kinds(call.id) == [frames.CALL]

    met(work)


def test_events_reach_all_listeners() -> None:
    async def work(partner: Partner) -> None:
        heard: list[list[Any]] = [[], []]

        async def listen(ear: list[Any]) -> None:
            async for event in partner.multiplexer.iter_events():
                ear.append(event["event"])

        async with asyncio.TaskGroup() as group:
            for ear in heard:
                group.create_task(listen(ear))
            await CLOCK.sleep(QUIET_S)
            partner.say(frames.EVENT, 0, {"event": "notice"})
            partner.say(frames.EVENT, 0, {"event": "ended"})
            partner.multiplexer.mark_broken(NotReached("over"))
        assert heard == [["notice", "ended"]] * 2

    met(work)


def test_a_listener_that_does_not_read_is_disconnected(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lanes, "EVENTS_MAX", 3)

    async def work(partner: Partner) -> None:
        events = partner.multiplexer.iter_events()
        first = asyncio.ensure_future(anext(events))
        await CLOCK.sleep(QUIET_S)
        for number in range(9):
            partner.say(frames.EVENT, 0, {"event": number})
        assert (await first)["event"] == 0
        assert len([event async for event in events]) <= 3

    met(work)


@pytest.mark.parametrize(
    "nonsense",
    [
        b"SSH-2.0-OpenSSH_9.2\r\n",
        frames.pack_frame(frames.HELLO, 0, b"[]"),
        frames.pack_frame(frames.EVENT, 0, b"{"),
        frames.HEAD.pack(0, 99, 1),
    ],
)
def test_malformed_frames_close_the_channel(nonsense: bytes) -> None:
    async def work(partner: Partner) -> None:
        call = partner.multiplexer.open_call(RpcRequest(name="a"))
        partner.multiplexer.feed(nonsense)
        assert partner.closed
        with pytest.raises(OperationFailed, match="violates the protocol"):
            await call.reply()

    met(work)


@pytest.mark.parametrize("payload", [b"", b"\x00"])
def test_truncated_frames_close_the_channel(payload: bytes) -> None:
    async def work(partner: Partner) -> None:
        call = partner.multiplexer.open_call(RpcRequest(name="a"))
        partner.multiplexer.feed(frames.pack_frame(frames.CREDIT, call.id, payload))
        assert partner.closed

    met(work)
