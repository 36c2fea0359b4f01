"""A parsed command as a value, run by the daemon or by this process."""

import errno
import signal
import sys
import traceback
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from tpuherd.cli.anywhere import current_invocation
from tpuherd.commands.invocation import Invocation
from tpuherd.errors import HerdError
from tpuherd.exit_status import (
    ABORTED,
    BROKEN_PIPE,
    FAILED,
    MISUSED,
    SIGNALLED,
    STATUS,
    Declined,
)

if TYPE_CHECKING:  # slow to load, and not needed for help
    from tpuherd.commands.console import Console
    from tpuherd.commands.host_access import HostAccess


@dataclass(frozen=True, kw_only=True, slots=True)
class ParsedCommand:
    """A command line that is parsed but not run yet."""

    name: str  #: the prefix of its messages, such as herd exec
    said: Invocation
    work: "Callable[[Console, HostAccess], Awaitable[int]]"
    #: It handles signals and the user's leaving by itself; others are cancelled by them.
    attentive: bool = False


def make_parsed_command(
    name: str, work: "Callable[[Console, HostAccess], Awaitable[int]]", *, attentive: bool = False
) -> ParsedCommand:
    return ParsedCommand(name=name, said=current_invocation(), work=work, attentive=attentive)


async def run_parsed_command(command: ParsedCommand, console: "Console", home: "HostAccess") -> int:
    """Run it; every error becomes a sentence and an exit status."""
    from tpuherd.commands.console import ReaderGone
    from tpuherd.remote.user_notices import notify_user

    notify_user.set(console.print_notice)
    try:
        said = console.said = resolve_world(command.said, console)
        if said.world is not None and said.loud >= 0 and console.is_terminal(2):
            await console.print_notice(f"world: {said.world} (simulated)")
        status = await run_until_signalled(command, console, home)
        await console.flush()
        return status
    except Exception as error:  # noqa: BLE001 - the last net: no traceback reaches a user
        cause = innermost_error(error)
        if home.daemon_status() is not None and not isinstance(
            cause, HerdError | ReaderGone | Declined
        ):
            traceback.print_exception(error)  # for the daemon's log
            sys.stderr.flush()
        with suppress(ReaderGone):
            return await report_error(command.name, cause, console)
        return BROKEN_PIPE


def innermost_error(error: Exception) -> Exception:
    """Return the first error inside nested groups."""
    while isinstance(error, ExceptionGroup):
        error = error.exceptions[0]
    return error


async def report_error(name: str, error: Exception, console: "Console") -> int:
    """Print what is wrong and what to do; return the exit status."""
    from tpuherd.commands.console import ReaderGone

    if isinstance(error, ReaderGone):
        return BROKEN_PIPE
    if isinstance(error, Declined):
        return ABORTED
    if isinstance(error, HerdError):
        hint = f"; {error.hint}" if error.hint else ""
        await console.print_notice(f"{name}: {error.sentence}{hint}")
        await console.flush()
        return next(code for kind, code in STATUS.items() if isinstance(error, kind))
    if isinstance(error, OSError) and error.errno in (errno.ENOSPC, errno.EDQUOT):
        what = f": {error.filename} can't be written" if error.filename else ""
        await console.print_notice(f"{name}: the disk is full{what}; free some space and try again")
        await console.flush()
        return FAILED
    if isinstance(error, OSError) and error.errno == errno.ENAMETOOLONG:
        await console.print_notice(f"{name}: a name in it is too long to be that of a file")
        return MISUSED
    await console.print_notice(f"herd: internal error: {type(error).__name__}: {error}")
    if console.environ.get("HERD_DEBUG"):
        await console.print_notice("".join(traceback.format_exception(error)).rstrip())
    else:
        await console.print_notice("Set HERD_DEBUG=1 for a traceback.")
    await console.flush()
    return FAILED


def resolve_world(said: Invocation, console: "Console") -> Invocation:
    """Make the path of the world absolute."""
    return replace(said, world=said.world and Path(console.folder, said.world))


async def run_until_signalled(
    command: ParsedCommand, console: "Console", home: "HostAccess"
) -> int:
    """Run it until it ends; unless attentive, a signal cancels it."""
    import asyncio

    work = asyncio.ensure_future(command.work(console, home))
    if command.attentive:
        return await work
    signals = asyncio.ensure_future(wait_for_end_signal(console))
    try:
        await asyncio.wait((work, signals), return_when=asyncio.FIRST_COMPLETED)
        if work.done():
            return work.result()
        return SIGNALLED + signals.result()
    finally:
        for task in (work, signals):
            task.cancel()
        await asyncio.gather(work, signals, return_exceptions=True)


async def wait_for_end_signal(console: "Console") -> int:
    while True:
        number = await console.signals.get()
        if number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            return number
