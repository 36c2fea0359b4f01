"""The boundaries: what the judgement and the commands ask of clouds, hosts and their agents.

HerdError
├── NotFound        nothing has that name
├── NotAllowed      the account or the host refuses us
├── NotReached      no answer: the network, or the host is down
├── Stranger        somebody else answers at that address
├── Unfit           what was asked makes no sense
└── Broken          the other side failed at it
"""

from collections.abc import AsyncIterator, Mapping
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field
from typing import Any, Protocol


class HerdError(Exception):
    """Something that a user can be told in one sentence; `hint` says what to do next."""

    def __init__(self, sentence: str, *, hint: str = "") -> None:
        super().__init__(sentence)
        self.sentence = sentence
        self.hint = hint


class NotFound(HerdError):
    """Nothing has that name."""


class NotAllowed(HerdError):
    """The account or the host refuses us."""


class NotReached(HerdError):
    """No answer came: the network, or the host is down."""


class Stranger(HerdError):
    """Somebody else answers at that address: another node has it now, or somebody is in between."""


class Unfit(HerdError):
    """What was asked makes no sense."""


class Broken(HerdError):
    """The other side tried and failed."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Host:
    """One worker VM of a node, as created once: all that is needed to reach it and no other."""

    node: str  #: the node's name
    zone: str
    worker: int
    incarnation: str  #: the API's id of the node and its create time: a recreated node has another
    internal_ip: str
    external_ip: str | None
    ssh_port: int = 22
    host_keys: tuple[str, ...] = ()  #: "ssh-ed25519 AAAA…" from its guest attributes; may come late

    @property
    def name(self) -> str:
        """gpt-0/w3"""
        return f"{self.node}/w{self.worker}"


@dataclass(frozen=True, kw_only=True, slots=True)
class Verb:
    """Something that is asked of an agent."""

    name: str
    arguments: Mapping[str, Any] = field(default_factory=dict)


class Stream(Protocol):
    """A call that is under way and carries bytes. Leaving it does not end what it began."""

    async def read(self) -> tuple[int, bytes] | None:
        """The next piece with its port; None when there is no more."""
        ...

    async def write(self, port: int, piece: bytes) -> None:
        """Send a piece; waits while the other side has enough."""
        ...

    async def end(self, port: int) -> None:
        """No more will be sent on this port."""
        ...

    async def reply(self) -> Mapping[str, Any]:
        """What came back at the end; Broken or the like where it failed."""
        ...


class Link(Protocol):
    """A connection to the agent of a host. Every call of a broken link fails with NotReached."""

    host: Host
    hello: Mapping[str, Any]  #: what the agent said of itself and its host

    async def call(self, verb: Verb) -> Mapping[str, Any]:
        """Ask and get the answer."""
        ...

    def stream(self, verb: Verb) -> AbstractAsyncContextManager[Stream]:
        """Ask, with bytes both ways."""
        ...

    def events(self) -> AsyncIterator[Mapping[str, Any]]:
        """What the agent has to say unasked; ends with the link."""
        ...

    def forward(self, port: int) -> AbstractAsyncContextManager[int]:
        """A local port that leads to that port of the host's own loopback."""
        ...
