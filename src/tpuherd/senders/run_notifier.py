"""Runs the user's command with a message: bounded in time and output."""

import asyncio
import os
import signal
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager, suppress
from tempfile import TemporaryFile

from tpuherd.notify.compose import Message
from tpuherd.notify.outbox import SendProblem
from tpuherd.notify.payloads import command_variables, plain_text

COMMAND_S = 30.0
TAIL_S = 1.0  #: for the rest of the output, once the command has ended
TAIL = 2048  #: bytes of its output that are kept


async def run_notifier(
    command: str | tuple[str, ...], message: Message, environ: Mapping[str, str]
) -> SendProblem | None:
    """Run it; None: it ended with exit status 0."""
    words = ("/bin/sh", "-c", command) if isinstance(command, str) else command
    variables = {name: os.fsencode(value) for name, value in environ.items()}
    for name, value in command_variables(message).items():
        variables[name] = value.encode("utf-8", "replace")
    reading, writing = os.pipe()
    try:
        with TemporaryFile() as text:
            text.write(plain_text(message).encode("utf-8", "replace"))
            text.seek(0)
            process = await asyncio.create_subprocess_exec(
                *words,
                env=variables,
                cwd="/",
                stdin=text,
                stdout=writing,  # not PIPE: a child that stays would hold `wait` up
                stderr=asyncio.subprocess.STDOUT,
                start_new_session=True,
            )
    except OSError as error:
        os.close(reading)
        return SendProblem(sentence=f"it can't be started: {error.strerror}", final=True)
    finally:
        os.close(writing)
    tail = bytearray()
    async with keep_tail(reading, tail) as whole:
        if not await wait_or_kill(process):
            return SendProblem(sentence=f"it ran longer than {COMMAND_S:.0f} s and was killed")
        await asyncio.wait((whole,), timeout=TAIL_S)
    if process.returncode == 0:
        return None
    last = bytes(tail).decode(errors="replace").strip().splitlines()[-1:]
    said = "".join(one if one.isprintable() else " " for one in "".join(last))
    more = f": {said}" if said else ""
    return SendProblem(sentence=f"it ended with exit status {process.returncode}{more}")


async def wait_or_kill(process: asyncio.subprocess.Process) -> bool:
    """Wait for its end; after a limit, or if we are cancelled, kill all that it has started."""
    try:
        async with asyncio.timeout(COMMAND_S):
            await process.wait()
        return True
    except TimeoutError:
        return False
    finally:
        if process.returncode is None:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            await process.wait()


@asynccontextmanager
async def keep_tail(descriptor: int, tail: bytearray) -> AsyncIterator[asyncio.Task[None]]:
    """Read what is written, and keep the end of it; the task ends when no more can come."""
    reader = asyncio.StreamReader()
    with os.fdopen(descriptor, "rb", buffering=0) as pipe:
        transport, _ = await asyncio.get_running_loop().connect_read_pipe(
            lambda: asyncio.StreamReaderProtocol(reader), pipe
        )

        async def read_all() -> None:
            while piece := await reader.read(65_536):
                tail.extend(piece)
                del tail[:-TAIL]

        whole = asyncio.create_task(read_all())
        try:
            yield whole
        finally:
            whole.cancel()
            transport.close()
            await asyncio.gather(whole, return_exceptions=True)
