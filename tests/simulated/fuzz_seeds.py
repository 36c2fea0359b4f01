"""Play a fuzz from the command line: five hundred altered messages or answers for each seed."""

import sys
from collections.abc import Iterable, Mapping
from resource import RUSAGE_SELF, getrusage
from typing import Protocol

A_SEED = 500  #: altered messages
GROWTH_MB = 150  #: of engines, their worlds and what they keep, whatever they are told


class PlaySeed(Protocol):
    """Play so many of a seed; return what went wrong."""

    def __call__(self, seed: int, many: int, /) -> Iterable[str]: ...


def play_seeds(plays: Mapping[str, PlaySeed]) -> tuple[int, int]:
    """Play as many of each as the command line says, print what went wrong; return both numbers."""
    many = int(sys.argv[1]) if sys.argv[1:] else 10_000
    bad, start_mb = 0, peak_megabytes()
    for seed in range(max(1, many // A_SEED)):
        for what, play in plays.items():
            for sentence in play(seed, A_SEED):
                bad += 1
                print(f"{what}, seed {seed}: {sentence[:300]}", flush=True)
    if (grown := peak_megabytes() - start_mb) > GROWTH_MB:
        bad += 1
        print(f"this process grew by {grown} MB", flush=True)
    return many, bad


def peak_megabytes() -> int:
    """The most memory that this process has had."""
    return getrusage(RUSAGE_SELF).ru_maxrss >> 10
