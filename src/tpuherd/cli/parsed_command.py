"""What a command does on hosts, as a value: the keeper does it, or this process."""

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
from tpuherd.exit_status import ABORTED, BROKEN_PIPE, FAILED, SIGNALLED, STATUS, Declined

if TYPE_CHECKING:  # they load what is heavy, and a page of help needs none of it
    from tpuherd.commands.console import Console
    from tpuherd.commands.host_access import HostAccess


@dataclass(frozen=True, kw_only=True, slots=True)
class ParsedCommand:
    """A command line that was understood, and is still to be done."""

    name: str  #: who says it, if there is something to be said: herd exec
    said: Invocation
    work: "Callable[[Console, HostAccess], Awaitable[int]]"
    #: It hears signals, and that its user is gone, by itself. Others are cancelled by both.
    attentive: bool = False


def make_parsed_command(
    name: str, work: "Callable[[Console, HostAccess], Awaitable[int]]", *, attentive: bool = False
) -> ParsedCommand:
    """The errand of the command that is being parsed."""
    return ParsedCommand(name=name, said=current_invocation(), work=work, attentive=attentive)


async def run_parsed_command(errand: ParsedCommand, console: "Console", home: "HostAccess") -> int:
    """Do it; whatever goes wrong is a sentence and an exit status."""
    from tpuherd.commands.console import ReaderGone

    try:
        said = console.said = resolve_world(errand.said, console)
        if said.world is not None and said.loud >= 0 and console.is_terminal(2):
            await console.print_notice(f"world: {said.world} (simulated)")
        status = await run_until_signalled(errand, console, home)
        await console.flush()
        return status
    except Exception as error:  # noqa: BLE001 - the last net: no traceback reaches a user
        cause = innermost_error(error)
        if home.daemon_status() is not None and not isinstance(
            cause, HerdError | ReaderGone | Declined
        ):
            traceback.print_exception(error)  # for the keeper's own file
            sys.stderr.flush()
        with suppress(ReaderGone):
            return await report_error(errand.name, cause, console)
        return BROKEN_PIPE


def innermost_error(error: Exception) -> Exception:
    """What went wrong, out of what it went wrong in."""
    while isinstance(error, ExceptionGroup):
        error = error.exceptions[0]
    return error


async def report_error(name: str, error: Exception, console: "Console") -> int:
    """One sentence, what to do, and the exit status."""
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
        await console.print_notice(
            f"{name}: the disk is full{what}; free some space, and say it again"
        )
        await console.flush()
        return FAILED
    await console.print_notice(f"herd: internal error: {type(error).__name__}: {error}")
    if console.environ.get("HERD_DEBUG"):
        await console.print_notice("".join(traceback.format_exception(error)).rstrip())
    else:
        await console.print_notice("Set HERD_DEBUG=1 for a traceback.")
    await console.flush()
    return FAILED


def resolve_world(said: Invocation, console: "Console") -> Invocation:
    """With a world's folder that is the same wherever one stands."""
    return replace(said, world=said.world and Path(console.folder, said.world))


async def run_until_signalled(errand: ParsedCommand, console: "Console", home: "HostAccess") -> int:
    """The work; if it does not listen by itself, a signal or the user's leaving ends it."""
    import asyncio

    work = asyncio.ensure_future(errand.work(console, home))
    if errand.attentive:
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
    """The first signal that is meant to end us."""
    while True:
        number = await console.signals.get()
        if number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            return number
