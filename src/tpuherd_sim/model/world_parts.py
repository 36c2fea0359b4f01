"""Small parts of a world: settings, random numbers, log lines and agenda items."""

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True, kw_only=True, slots=True)
class Settings:
    """Settings fixed at the creation of a world."""

    seed: int = 0
    project: str = "demo"
    project_number: int = 123456789012
    time_scale: float = 1.0  #: speeds up the cloud's lifecycle only
    network: int = 64  #: external addresses are 127.<network>.y.z
    real_hosts: bool = False  #: a node becomes READY only after its hosts report
    created: float = 0.0


def default_account_email(project_number: int) -> str:
    """Return the account of nodes that name none, which is also that of the world's user."""
    return f"{project_number}-compute@developer.gserviceaccount.com"


@dataclass(order=True, frozen=True, slots=True)
class AgendaItem:
    """A scheduled event: `verb` names its function, the rest are arguments."""

    at: float
    seq: int
    verb: str = field(compare=False)
    target: str = field(compare=False)
    args: Mapping[str, Any] = field(compare=False, default_factory=dict)


@dataclass(kw_only=True, slots=True)
class Dice:
    """A replayable random source: the n-th number of a seed is always the same."""

    seed: int
    thrown: int = 0

    def random_bits(self) -> int:
        """Return 64 random bits."""
        self.thrown += 1
        digest = hashlib.blake2b(f"{self.seed}:{self.thrown}".encode(), digest_size=8).digest()
        return int.from_bytes(digest, "big")

    def random_fraction(self) -> float:
        """Return a number in [0, 1)."""
        return (self.random_bits() >> 11) / (1 << 53)

    def random_between(self, low: float, high: float) -> float:
        """Return a number in [low, high)."""
        return low + (high - low) * self.random_fraction()


@dataclass(frozen=True, kw_only=True, slots=True)
class LogEntry:
    """One line of the world's log."""

    at: float
    name: str  #: a constant such as node.preempted
    facts: Mapping[str, Any]
