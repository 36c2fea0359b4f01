"""Runs checks at the same time; an error or a hang of one is that check's result."""

import asyncio
import traceback
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import replace

from tpuherd.checks.check_results import CheckResult, CheckStatus
from tpuherd.checks.check_table import add_reason
from tpuherd.clock import Clock
from tpuherd.errors import HerdError

#: Looks at one thing and returns what it found, at least one result.
CheckFunction = Callable[[], Awaitable[Sequence[CheckResult]]]
#: Gets the tracebacks of our own mistakes.
DebugFunction = Callable[[str], Awaitable[None]]
LIMIT_S = 20.0  #: for one check


async def discard_text(_: str) -> None:
    """Forget a traceback."""


async def run_checks(
    functions: Mapping[str, CheckFunction],
    *,
    where: str,
    clock: Clock,
    seconds: float = LIMIT_S,
    debug: DebugFunction = discard_text,
) -> list[CheckResult]:
    """Return the results in the order of the functions."""

    async def run_one(check: str, function: CheckFunction) -> Sequence[CheckResult]:
        try:
            return await within_limit(function, clock, seconds)
        except HerdError as error:
            return [unseen_result(check, where, error.sentence, error.hint)]
        except TimeoutError:
            late = unseen_result(check, where, f"no answer within {seconds:g} s")
            return [replace(late, status=CheckStatus.PROBLEM)]
        except Exception as error:  # noqa: BLE001 - a check that fails must not hide the others
            await debug(traceback.format_exc())
            broken = unseen_result(check, where, describe_error(error))
            return [replace(broken, status=CheckStatus.WARNING)]

    found = await asyncio.gather(*(run_one(*one) for one in functions.items()))
    return [add_reason(result) for results in found for result in results]


async def within_limit(
    function: CheckFunction, clock: Clock, seconds: float
) -> Sequence[CheckResult]:
    """Raise TimeoutError if it takes longer by this clock."""
    work = asyncio.ensure_future(function())
    timer = asyncio.ensure_future(clock.sleep(seconds))
    try:
        await asyncio.wait((work, timer), return_when=asyncio.FIRST_COMPLETED)
        if work.done():
            return work.result()
        raise TimeoutError
    finally:
        for task in (work, timer):
            task.cancel()
        await asyncio.gather(work, timer, return_exceptions=True)


def unseen_result(check: str, where: str, why: str, remedy: str = "") -> CheckResult:
    """Return the result of a check that could not look."""
    return CheckResult(
        check=check,
        where=where,
        status=CheckStatus.SKIPPED,
        found=f"could not look: {why}",
        remedy=remedy,
    )


def describe_error(error: Exception) -> str:
    """Return an unexpected error in a few words."""
    if isinstance(error, OSError) and error.strerror:
        return f"{error.filename}: {error.strerror}" if error.filename else error.strerror
    return f"{type(error).__name__}: {error}"
