"""First contact on a busy machine: how long a slow host is waited for."""

import asyncio

import pytest

from tests.simulated.virtual_loop import run
from tpuherd.clock import LoopClock
from tpuherd.remote.handshake_limits import (
    HANDSHAKE_S_MAX,
    TURNS,
    SharedPatience,
    SharedTimeout,
)

CLOCK = LoopClock(0.0)  #: of the virtual loop


def test_a_slow_host_is_waited_for_while_others_connect() -> None:
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


def test_a_host_that_never_connects_is_not_waited_for_forever() -> None:
    async def main() -> float:
        patience, begun = SharedTimeout(10.0), CLOCK.now()
        never = asyncio.ensure_future(patience.wait_for(asyncio.Event().wait()))
        while not never.done():
            await patience.wait_for(CLOCK.sleep(1.0))
        with pytest.raises(TimeoutError):
            await never
        return CLOCK.now() - begun

    assert run(main()) == pytest.approx(TURNS * 10.0, abs=1.0)


def test_without_any_connection_no_host_is_waited_for() -> None:
    async def main() -> tuple[bool, float]:
        begun = CLOCK.now()
        arrival: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        with pytest.raises(TimeoutError):
            await SharedTimeout(10.0).wait_for(arrival)
        return arrival.cancelled(), CLOCK.now() - begun

    assert run(main()) == (True, 10.0)


def test_a_failed_host_is_not_waited_for() -> None:
    async def fail() -> None:
        raise OSError

    with pytest.raises(OSError):
        run(SharedTimeout(60.0).wait_for(fail()))


def test_a_handshake_is_waited_for_as_long_as_some_host_is_heard() -> None:
    async def main(heard_s: int) -> float:
        patience, begun = SharedPatience(), CLOCK.now()

        async def hear_others() -> None:
            for _ in range(heard_s):
                await CLOCK.sleep(1.0)
                patience.note_heard()

        others = asyncio.ensure_future(hear_others())
        with pytest.raises(TimeoutError):
            await patience.wait_for(asyncio.Event().wait(), 10.0)
        others.cancel()
        return CLOCK.now() - begun

    assert [run(main(heard_s)) for heard_s in (0, 2, 20)] == [10.0, 12.0, 30.0]
    assert run(main(1000)) == HANDSHAKE_S_MAX


def test_a_handshake_that_ends_is_not_waited_for_longer() -> None:
    async def shake() -> str:
        await CLOCK.sleep(15.0)
        return "hello"

    async def main() -> str:
        patience = SharedPatience()
        other = asyncio.ensure_future(patience.wait_for(shake(), 10.0))
        await CLOCK.sleep(8.0)
        patience.note_heard()
        return await other

    assert run(main()) == "hello"
