"""First contact on a busy machine: who is near, and for how long who comes slowly is waited for."""

import asyncio
import socket
import struct
import sys
from time import monotonic

import pytest

from tpuherd.clock import LoopClock
from tpuherd.remote.agent_bootstrap import NEAR_US, is_near
from tpuherd.remote.handshake_limits import TURNS, SharedTimeout
from tpuherd_sim.virtual_loop import run

CLOCK = LoopClock(0.0)  #: of the virtual loop
USUAL = struct.Struct("=68xI")  #: how long answers took of late


def usual_us(line: socket.socket) -> int:
    """The same, of a line."""
    told = line.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, USUAL.size)
    return int(USUAL.unpack(told)[0])


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux tells")
def test_a_near_host_that_answers_late_is_near() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        ours = socket.create_connection(server.getsockname())
        theirs, _ = server.accept()
    with ours, theirs:
        assert is_near(ours)
        end = monotonic() + 20.0
        while usual_us(ours) < NEAR_US:  # what was said is acknowledged by the late answer
            assert monotonic() < end
            ours.send(b"?")
            theirs.recv(1)
            late = monotonic() + NEAR_US / 1e5
            while monotonic() < late:
                pass
            theirs.send(b"!")
            ours.recv(1)
        assert is_near(ours)


def test_of_what_is_no_line_nobody_can_tell() -> None:
    ours, theirs = socket.socketpair()
    with ours, theirs:
        assert not is_near(ours)
    assert not is_near(None)


def test_who_comes_slowly_is_waited_for_as_long_as_others_come() -> None:
    async def main() -> str:
        patience = SharedTimeout(10.0)
        arrival: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        slow = asyncio.ensure_future(patience.wait_for(arrival))
        for _ in range(8):
            await patience.wait_for(CLOCK.sleep(5.0))
            assert not slow.done()
        arrival.set_result("here")
        return await slow

    assert run(main()) == "here"


def test_who_never_comes_is_not_waited_for_for_ever() -> None:
    async def main() -> float:
        patience, begun = SharedTimeout(10.0), CLOCK.now()
        never = asyncio.ensure_future(patience.wait_for(asyncio.Event().wait()))
        while not never.done():
            await patience.wait_for(CLOCK.sleep(1.0))
        with pytest.raises(TimeoutError):
            await never
        return CLOCK.now() - begun

    assert run(main()) == pytest.approx(TURNS * 10.0, abs=1.0)


def test_where_nobody_comes_nobody_is_waited_for() -> None:
    async def main() -> tuple[bool, float]:
        begun = CLOCK.now()
        arrival: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        with pytest.raises(TimeoutError):
            await SharedTimeout(10.0).wait_for(arrival)
        return arrival.cancelled(), CLOCK.now() - begun

    assert run(main()) == (True, 10.0)


def test_who_fails_is_not_waited_for() -> None:
    async def fail() -> None:
        raise OSError

    with pytest.raises(OSError):
        run(SharedTimeout(60.0).wait_for(fail()))
