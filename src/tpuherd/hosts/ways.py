"""By which way a host is reached: its address, a jump host, or somebody's proxy command."""

import asyncio
import shlex
from collections.abc import AsyncIterator, Awaitable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from enum import Enum
from typing import TypeVar

from tpuherd.ports import Host, Unfit

T = TypeVar("T")
TURNS = 5  #: so often a patience begins anew


class Kind(Enum):
    """What kind of way it is."""

    EXTERNAL = "external"  #: the host's external address
    INTERNAL = "internal"  #: its internal one: from inside its network
    JUMP = "jump"  #: its internal address, through another SSH server
    COMMAND = "command"  #: a program that speaks to it by stdin and stdout, like ProxyCommand


@dataclass(frozen=True, kw_only=True, slots=True)
class Way:
    """One way. Several are tried in order."""

    kind: Kind
    by: str = ""  #: the jump host ([user@]host[:port]), or the command

    def leads_to(self, host: Host) -> bool:
        """Whether the host can be found by it at all."""
        return self.kind is not Kind.EXTERNAL or bool(host.external_ip)

    def address(self, host: Host) -> str:
        """The address at its end."""
        return host.external_ip or "" if self.kind is Kind.EXTERNAL else host.internal_ip


def usual(host: Host) -> tuple[Way, ...]:
    """The way of whoever chose none: the external address, or the internal where there is none."""
    return (Way(kind=Kind.EXTERNAL if host.external_ip else Kind.INTERNAL),)


def parse(text: str) -> Way:
    """external, internal, jump:me@bastion or command:gcloud … %n %p"""
    word, _, by = text.partition(":")
    try:
        kind = Kind(word)
    except ValueError:
        kind = None
    if kind is None or bool(by) != (kind in (Kind.JUMP, Kind.COMMAND)):
        raise Unfit(
            f"{text!r} is no way to a host",
            hint="external, internal, jump:[USER@]HOST[:PORT] or command:WORDS with %h %n %p %z",
        )
    return Way(kind=kind, by=by)


def command(way: Way, host: Host, instance: str) -> list[str]:
    """The proxy command: %h internal address, %n instance name, %z zone, %p port."""
    meanings = {
        "%h": host.internal_ip,
        "%n": instance,
        "%z": host.zone,
        "%p": str(host.ssh_port),
        "%%": "%",
    }
    words = []
    for word in shlex.split(way.by):
        parts = word.replace("%%", "\0").split("\0")
        for mark, meaning in meanings.items():
            parts = [part.replace(mark, meaning) for part in parts]
        words.append("%".join(parts))
    return words


def unreached(error: OSError, port: int) -> str:
    """The sentence for what the network said."""
    if isinstance(error, ConnectionRefusedError):
        return f"nobody listens on its port {port}"
    if isinstance(error, ConnectionResetError):
        return "it hung up before it let us in"
    return (error.strerror or str(error)).lower()


class Turnstile:
    """Lets so many greetings be under way; whoever takes long gives its place to the next."""

    def __init__(self, many: int, seconds: float) -> None:
        self._places = asyncio.Semaphore(many)
        self._seconds = seconds

    @asynccontextmanager
    async def through(self) -> AsyncIterator[None]:
        """Greet within the block."""
        await self._places.acquire()
        given = asyncio.get_running_loop().call_later(self._seconds, self._places.release)
        try:
            yield
        finally:
            if given.when() > asyncio.get_running_loop().time():
                given.cancel()
                self._places.release()


class Patience:
    """Waits for many as long as any of them comes: a slow machine takes long for all together."""

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._came = 0

    async def wait_for(self, coming: Awaitable[T]) -> T:
        """What comes; TimeoutError where nobody at all has come for so long, or it never does."""
        task = asyncio.ensure_future(coming)
        try:
            for _ in range(TURNS):
                before = self._came
                await asyncio.wait([task], timeout=self._seconds)
                if task.done() or self._came == before:
                    break
            if not task.done():
                raise TimeoutError
            found = task.result()
            self._came += 1
            return found
        finally:
            task.cancel()
            await asyncio.wait([task])
