"""Small parts of a world: its settings, dice, notes and what is due."""

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True, kw_only=True, slots=True)
class Settings:
    """What is decided once, when a world is made."""

    seed: int = 0
    project: str = "demo"
    project_number: int = 123456789012
    time_scale: float = 1.0  #: hastens the cloud's lifecycle only
    network: int = 64  #: external addresses are 127.<network>.y.z
    real_hosts: bool = False  #: a node waits for its hosts to report before it is READY
    created: float = 0.0


@dataclass(order=True, frozen=True, slots=True)
class AgendaItem:
    """Something that will happen by itself: `verb` names its function, the rest is its argument."""

    at: float
    seq: int
    verb: str = field(compare=False)
    target: str = field(compare=False)
    args: Mapping[str, Any] = field(compare=False, default_factory=dict)


@dataclass(kw_only=True, slots=True)
class Dice:
    """Chance that can be replayed: the n-th throw of a seed is always the same."""

    seed: int
    thrown: int = 0

    def random_bits(self) -> int:
        """64 fresh bits."""
        self.thrown += 1
        digest = hashlib.blake2b(f"{self.seed}:{self.thrown}".encode(), digest_size=8).digest()
        return int.from_bytes(digest, "big")

    def random_fraction(self) -> float:
        """A number in [0, 1)."""
        return (self.random_bits() >> 11) / (1 << 53)

    def random_between(self, low: float, high: float) -> float:
        """A number in [low, high)."""
        return low + (high - low) * self.random_fraction()


@dataclass(frozen=True, kw_only=True, slots=True)
class LogEntry:
    """One line of the world's log: what was done, to whom, when."""

    at: float
    name: str  #: a constant such as node.preempted
    facts: Mapping[str, Any]
