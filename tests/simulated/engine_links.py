"""Links between an engine and virtual agents: frames in order, late, held up, or cut."""

import asyncio
from collections import deque
from typing import TYPE_CHECKING

from tpuherd.errors import HerdError, NotReached
from tpuherd.remote.agent_channel import Multiplexer

if TYPE_CHECKING:
    from tests.simulated.engine_hosts import Machine

LATENCY_S = 0.02
SLOW_S = 1.5
SILENCE_S = 20.0  #: unanswered keep-alives until a connection counts as lost
DEAF_S = 60.0  #: the same on the host's side
TICK_S = 1e-4  #: what is sent later comes later


class OneWay:
    """One direction of a line: what is sent comes in order, when nothing holds it up."""

    def __init__(self, line: "VirtualLink", up: bool) -> None:
        self.line = line
        self.up = up  #: from the engine to the agent
        self.queue: deque[tuple[float, bytes]] = deque()
        self.last = 0.0

    def send(self, piece: bytes) -> None:
        """On its way."""
        loop = asyncio.get_running_loop()
        latency = SLOW_S if self.line.machine.slow else LATENCY_S
        self.last = max(self.last + TICK_S, loop.time() + latency)
        self.queue.append((self.last, piece))
        loop.call_at(self.last, self.pump)

    def pump(self) -> None:
        """All that is due comes, unless it is held up."""
        now = asyncio.get_running_loop().time() + TICK_S / 2
        while self.queue and self.queue[0][0] <= now and not self.line.broken:
            if self.line.machine.silent or (self.up and not self.line.machine.runs):
                return
            piece = self.queue.popleft()[1]
            if self.up:
                if self.line.machine.fleet.called(self.line, piece):
                    self.line.machine.heard(self.line, piece)
            else:
                for told in self.line.machine.fleet.answered(self.line, piece):
                    self.line.multiplexer.feed(told)
                self.line.machine.flushed(self.line, len(piece))


class VirtualLink:
    """A connection: for the engine a Wire under its Lane, for the agent a number."""

    def __init__(self, machine: "Machine", number: int) -> None:
        self.machine = machine
        self.number = number
        self.broken = False
        self.up = OneWay(self, up=True)
        self.down = OneWay(self, up=False)
        self.multiplexer = Multiplexer(self)

    def write(self, piece: bytes) -> None:
        """The engine says something."""
        if not self.broken:
            self.up.send(piece)

    def close(self) -> None:
        """The engine hangs up."""
        self.cut(NotReached("the link was closed"))

    def cut(self, error: HerdError) -> None:
        """Both sides see at once that it is over."""
        if not self.broken:
            self.broken = True
            self.multiplexer.mark_broken(error)
            self.machine.left(self)

    def hold(self) -> None:
        """Deliver nothing any more; after a while the engine's side gives up."""
        loop = asyncio.get_running_loop()
        loop.call_later(SILENCE_S, self.give_up)

    def give_up(self) -> None:
        """Keep-alives were not answered for long; the host's side notices later still."""
        if not self.broken and not self.machine.answers:
            self.broken = True
            self.multiplexer.mark_broken(
                NotReached(f"{self.machine.name} gave no answer in {SILENCE_S:g} s")
            )
            asyncio.get_running_loop().call_later(DEAF_S, self.machine.left, self)

    def pump(self) -> None:
        """Deliver again."""
        self.up.pump()
        self.down.pump()
