"""Work that several callers share: one task at a time for each key."""

import asyncio
from dataclasses import dataclass, field

import pytest

from tpuherd.remote.single_flight import SingleFlight


@dataclass
class HandClock:
    """A clock that stands still until it is set."""

    at: float = 1000.0

    def now(self) -> float:
        return self.at

    async def sleep(self, seconds: float) -> None:
        await asyncio.Event().wait()

    def wait(self, seconds: float) -> None:
        raise NotImplementedError


@dataclass
class Service:
    """Counts its calls, and answers the number of each when it may."""

    calls: int = 0
    may_answer: asyncio.Event = field(default_factory=asyncio.Event)
    fails: bool = False

    async def ask(self) -> int:
        self.calls += 1
        number = self.calls
        await self.may_answer.wait()
        if self.fails:
            raise ConnectionError(str(number))
        return number


def test_concurrent_callers_share_one_call_and_one_that_leaves_disturbs_no_other() -> None:
    async def work() -> None:
        flight, service = SingleFlight(HandClock()), Service()
        callers = [asyncio.ensure_future(flight.run("a", service.ask)) for _ in range(3)]
        other = asyncio.ensure_future(flight.run("b", service.ask))
        await asyncio.sleep(0)
        callers[0].cancel()
        service.may_answer.set()
        assert await asyncio.gather(*callers[1:], other) == [1, 1, 2]
        assert await flight.run("a", service.ask) == 3

    asyncio.run(work())


def test_an_answer_is_reused_while_it_is_fresh() -> None:
    async def work() -> None:
        clock, service = HandClock(), Service()
        flight = SingleFlight(clock)
        service.may_answer.set()
        assert await flight.run("a", service.ask, fresh_s=2.0) == 1
        clock.at += 1.9
        assert await flight.run("a", service.ask, fresh_s=2.0) == 1
        clock.at += 0.1
        assert await flight.run("a", service.ask, fresh_s=2.0) == 2

    asyncio.run(work())


def test_a_failure_reaches_all_callers_and_is_not_kept() -> None:
    async def work() -> None:
        flight, service = SingleFlight(HandClock()), Service(fails=True)
        callers = [flight.run("a", service.ask, fresh_s=2.0) for _ in range(2)]
        service.may_answer.set()
        found = await asyncio.gather(*callers, return_exceptions=True)
        assert [repr(one) for one in found] == ["ConnectionError('1')"] * 2
        service.fails = False
        assert await flight.run("a", service.ask) == 2

    asyncio.run(work())


def test_closing_cancels_what_is_under_way() -> None:
    async def work() -> None:
        flight = SingleFlight(HandClock())
        caller = asyncio.ensure_future(flight.run("a", Service().ask))
        await asyncio.sleep(0)
        await flight.close()
        with pytest.raises(asyncio.CancelledError):
            await caller

    asyncio.run(work())
