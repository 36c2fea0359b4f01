"""The link between the controller and a host, when one side is slower than the other."""

import asyncio
import gc
import socket

import pytest

from tpuherd_sim.hosts import messages
from tpuherd_sim.hosts.channel import Channel

ASKS = 200
LONG = "x" * 20_000  #: some of these fill a socket's buffer


def pair() -> tuple[socket.socket, socket.socket]:
    """Both ends of a line."""
    return socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)


async def ask_all(channel: Channel, within_s: float) -> list[object]:
    """Ask many long questions at once; the answers, or what went wrong."""
    asks = [channel.send_request("boot", {"view": LONG}, within_s=within_s) for _ in range(ASKS)]
    return await asyncio.gather(*asks, return_exceptions=True)


def test_more_than_the_buffer_holds_is_still_sent() -> None:
    async def main() -> list[object]:
        ours, theirs = pair()
        with theirs:
            channel = Channel(ours, hear=lambda message: None, closed=lambda: None)
            asked = asyncio.create_task(ask_all(channel, 60.0))
            for _ in range(ASKS):
                message, _files = await asyncio.to_thread(messages.receive_message, theirs)
                assert message is not None
                messages.send_message(theirs, {"id": message["id"], "pid": message["id"]})
            answers = await asked
            channel.close()
            return answers

    answers = asyncio.run(main())
    assert [answer[0]["pid"] for answer in answers] == list(range(1, ASKS + 1))  # type: ignore[index]


def test_a_blocked_writer_learns_that_the_host_is_gone() -> None:
    async def main() -> list[object]:
        ours, theirs = pair()
        channel = Channel(ours, hear=lambda message: None, closed=lambda: None)
        asked = asyncio.create_task(ask_all(channel, 60.0))
        while not channel.turn.locked():
            await asyncio.to_thread(lambda: None)
        theirs.close()
        return await asked

    assert all(isinstance(answer, OSError) for answer in asyncio.run(main()))


def test_calls_that_were_never_sent_are_not_mentioned() -> None:
    """A world that ended while it stopped 250 hosts logged hundreds of these."""
    complaints: list[str] = []

    async def main() -> None:
        loop = asyncio.get_running_loop()
        loop.set_exception_handler(lambda _, said: complaints.append(str(said["message"])))
        ours, theirs = pair()
        with theirs:
            channel = Channel(ours, hear=lambda message: None, closed=lambda: None)
            asked = asyncio.create_task(ask_all(channel, 60.0))
            while not channel.turn.locked():
                await asyncio.to_thread(lambda: None)
            channel.close()
            await asked
        del asked
        gc.collect()

    asyncio.run(main())
    assert complaints == []


@pytest.mark.parametrize("within_s", [0.05])
def test_no_caller_waits_forever(within_s: float) -> None:
    async def main() -> list[object]:
        ours, theirs = pair()
        with theirs:
            channel = Channel(ours, hear=lambda message: None, closed=lambda: None)
            answers = await ask_all(channel, within_s)
            channel.close()
            return answers

    assert all(isinstance(answer, TimeoutError) for answer in asyncio.run(main()))
