"""Calls a function in a fork of this process, and says how it ended if it did not return."""

import os
import pickle
import resource
import signal
from collections.abc import Callable
from typing import Any

MEMORY = 4 << 30
HANG_S = 1200  #: a fork that waits so long for something is ended


class ForkDied(Exception):
    """A fork ended without a result: nobody knows what the tests would have said."""


class OutOfTime(ForkDied):
    """A fork used up the processor time that `limit` allows."""


def limit(seconds: float) -> None:
    """End this process when it has used so much more of a processor, or waits for too long."""
    signal.setitimer(signal.ITIMER_VIRTUAL, seconds)
    signal.alarm(HANG_S)


def forked(do: Callable[[], object], quiet: bool = True) -> Any:
    """Return what a function returns in a fork; raise ForkDied if it raises or the fork dies."""
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            out = os.open(os.devnull, os.O_WRONLY) if quiet else 2
            os.dup2(out, 1)
            os.dup2(out, 2)
            resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
            with open(writing, "wb") as pipe:
                pickle.dump(outcome(do), pipe)
        finally:
            os._exit(1)  # as far as the parent looks, only what came through the pipe counts
    os.close(writing)
    with open(reading, "rb") as pipe:
        said = pipe.read()
    status = os.waitpid(child, 0)[1]
    if not said:
        raise death(status)
    value, trouble = pickle.loads(said)
    if trouble:
        raise ForkDied(trouble)
    return value


def outcome(do: Callable[[], object]) -> tuple[object, str]:
    """Return what a function returns, or in words what it raises."""
    try:
        return do(), ""
    except BaseException as error:  # noqa: BLE001 -- whatever it is, the parent reports it
        return None, f"{type(error).__name__}: {error}"


def death(status: int) -> ForkDied:
    """Return the error for a fork that ended with this status and said nothing."""
    if os.WIFSIGNALED(status):
        number = os.WTERMSIG(status)
        kind = OutOfTime if number == signal.SIGVTALRM else ForkDied
        return kind(f"ended by {signal.Signals(number).name}")
    return ForkDied(f"exited with {os.WEXITSTATUS(status)} and no result")
