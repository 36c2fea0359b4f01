"""Runs work on many hosts at once; unreachable hosts don't delay the others."""

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterable, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from typing import Generic, TypeVar

from tpuherd.errors import HerdError, NotReached
from tpuherd.ports import Host, host_labels
from tpuherd.targets import fold_names

T = TypeVar("T")
AT_ONCE = 256  #: hosts at the same time


@dataclass(frozen=True, kw_only=True, slots=True)
class FanoutResult(Generic[T]):
    """The result on one host: a value or an error."""

    host: Host
    value: T | None = None
    error: HerdError | None = None


async def run_on_each(
    hosts: Iterable[Host],
    work: Callable[[Host], Awaitable[T]],
    *,
    at_once: int = AT_ONCE,
    seconds: float | None = None,
) -> AsyncGenerator[FanoutResult[T], None]:
    """Run `work` on every host and yield the results as they arrive.

    A HerdError of one host is its result and stops no other; any other exception is a bug and stops
    all. After `seconds` the work on a host is cancelled with NotReached. Leaving the loop cancels
    the rest: `async with aclosing(run_on_each(...)) as results: async for ...`.
    """
    results: asyncio.Queue[FanoutResult[T] | None] = asyncio.Queue()
    slots = asyncio.Semaphore(at_once)

    async def one(host: Host) -> None:
        async with slots:
            results.put_nowait(await try_host(host, work, seconds))

    async def all_of_them() -> None:
        try:
            async with asyncio.TaskGroup() as group:
                for host in hosts:
                    group.create_task(one(host))
        finally:
            results.put_nowait(None)

    parent = asyncio.create_task(all_of_them())
    try:
        while (done := await results.get()) is not None:
            yield done
        await parent
    finally:
        parent.cancel()
        await asyncio.wait([parent])
        if not parent.cancelled():
            parent.exception()  # already raised above, unless the caller left early


async def try_host(
    host: Host, work: Callable[[Host], Awaitable[T]], seconds: float | None
) -> FanoutResult[T]:
    """Run the work on one host with a time limit."""
    limit = nullcontext() if seconds is None else asyncio.timeout(seconds)
    try:
        async with limit:
            return FanoutResult(host=host, value=await work(host))
    except HerdError as error:
        return FanoutResult(host=host, error=error)
    except TimeoutError:
        return FanoutResult(host=host, error=NotReached(f"no answer in {seconds:g} s"))


async def run_on_all(
    hosts: Sequence[Host],
    work: Callable[[Host], Awaitable[T]],
    *,
    at_once: int = AT_ONCE,
    seconds: float | None = None,
) -> list[FanoutResult[T]]:
    """Run `work` on every host and return all results in the order of the hosts."""
    results = {
        done.host: done async for done in run_on_each(hosts, work, at_once=at_once, seconds=seconds)
    }
    return [results[host] for host in hosts]


def host_names(hosts: Iterable[Host]) -> str:
    """The names of the hosts, folded: gpt-[0-2]/w[0-7]."""
    return fold_names(host_labels(list(hosts)))


def failure_lines(results: Iterable[FanoutResult[T]]) -> list[str]:
    """One line per reason with its hosts: `gpt/w[3,9]: no answer in 10 s`."""
    affected: dict[tuple[str, str], list[Host]] = {}
    for done in results:
        if done.error is not None:
            reason = (done.error.sentence, done.error.hint)
            affected.setdefault(reason, []).append(done.host)
    return [
        f"{host_names(hosts)}: {sentence}{f' ({hint})' if hint else ''}"
        for (sentence, hint), hosts in affected.items()
    ]
