"""Play a fuzz from the command line: five hundred altered messages or answers for each seed."""

import sys
from collections.abc import Iterable, Mapping
from typing import Protocol

A_SEED = 500  #: altered messages


class PlaySeed(Protocol):
    """Play so many of a seed; return what went wrong."""

    def __call__(self, seed: int, many: int, /) -> Iterable[str]: ...


def play_seeds(plays: Mapping[str, PlaySeed]) -> tuple[int, int]:
    """Play as many of each as the command line says, print what went wrong; return both numbers."""
    many = int(sys.argv[1]) if sys.argv[1:] else 10_000
    bad = 0
    for seed in range(max(1, many // A_SEED)):
        for what, play in plays.items():
            for sentence in play(seed, A_SEED):
                bad += 1
                print(f"{what}, seed {seed}: {sentence[:300]}", flush=True)
    return many, bad
