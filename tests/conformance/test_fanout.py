"""One operation on many hosts: results as they arrive, failures by name, no hidden bugs."""

import asyncio
from contextlib import aclosing

import pytest

from tests.simulated.virtual_loop import run
from tpuherd.clock import LoopClock
from tpuherd.errors import InvalidInput, NotReached
from tpuherd.ports import Host
from tpuherd.remote import fanout
from tpuherd.remote.fanout import FanoutResult

CLOCK = LoopClock(0.0)  #: of the virtual loop that every test here runs in: no wait takes time


def hosts(many: int, node: str = "gpt-0-g1-7kq") -> list[Host]:
    return [
        Host(
            node=node,
            zone="z",
            worker=worker,
            incarnation=node,
            internal_ip="10.0.0.1",
            external_ip=None,
        )
        for worker in range(many)
    ]


def test_results_come_in_order_of_completion() -> None:
    async def work(host: Host) -> int:
        await CLOCK.sleep(10 - host.worker)
        return host.worker

    async def main() -> None:
        each = [done.value async for done in fanout.run_on_each(hosts(4), work)]
        assert each == [3, 2, 1, 0]
        assert [done.value for done in await fanout.run_on_all(hosts(4), work)] == [0, 1, 2, 3]

    run(main())


def test_failures_and_timeouts_are_results() -> None:
    async def work(host: Host) -> str:
        if host.worker == 1:
            raise InvalidInput("it makes no sense", hint="do something else")
        if host.worker in (3, 5):
            await CLOCK.sleep(1000)
        if host.worker == 7:
            await CLOCK.sleep(29)
        return "fine"

    async def main() -> list[FanoutResult[str]]:
        return await fanout.run_on_all(hosts(8), work, seconds=30)

    done = run(main())
    assert [one.value for one in done].count("fine") == 5
    assert fanout.failure_lines(done) == [
        "gpt-0/w1: it makes no sense (do something else)",
        "gpt-0/w[3,5]: no answer in 30 s",
    ]
    assert fanout.failure_lines([]) == []


def test_concurrency_stays_within_its_limit() -> None:
    now = most = 0

    async def work(host: Host) -> None:
        nonlocal now, most
        now += 1
        most = max(most, now)
        await CLOCK.sleep(1)
        now -= 1

    async def main() -> None:
        await fanout.run_on_all(hosts(20), work, at_once=6)

    run(main())
    assert most == 6


def test_a_bug_is_not_a_result() -> None:
    async def work(host: Host) -> None:
        if host.worker == 2:
            raise ZeroDivisionError
        await CLOCK.sleep(1)

    async def main() -> None:
        await fanout.run_on_all(hosts(4), work)

    with pytest.raises(ExceptionGroup) as caught:
        run(main())
    assert caught.group_contains(ZeroDivisionError)


def test_leaving_early_cancels_the_rest() -> None:
    ended: list[int] = []

    async def work(host: Host) -> int:
        try:
            await CLOCK.sleep(host.worker)
        finally:
            ended.append(host.worker)
        return host.worker

    async def main() -> None:
        async with aclosing(fanout.run_on_each(hosts(5), work)) as results:
            async for done in results:
                assert done.value == 0
                break
        assert sorted(ended) == [0, 1, 2, 3, 4]
        assert len(asyncio.all_tasks()) == 1

    run(main())


def test_a_cancelled_caller_cancels_the_work() -> None:
    async def work(host: Host) -> None:
        await CLOCK.sleep(1000)

    async def main() -> None:
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(1):
                await fanout.run_on_all(hosts(5), work)
        assert len(asyncio.all_tasks()) == 1

    run(main())


def test_the_names_of_hosts() -> None:
    both = [*hosts(4), *hosts(4, node="gpt-1-g7-7kq")]
    assert fanout.host_names(both) == "gpt-[0-1]/w[0-3]"
    error = NotReached("no answer")
    assert fanout.failure_lines(
        [FanoutResult(host=both[0], error=error), FanoutResult(host=both[5], error=error)]
    ) == ["gpt-0/w0,gpt-1/w1: no answer"]
