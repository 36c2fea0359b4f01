"""The whole search, or one history again: `python -m tests.simulated.engine_storm --help`."""

import argparse
import sys
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from os import cpu_count, times
from time import monotonic

from tests.simulated.engine_faults import Moment, moment
from tests.simulated.engine_lifecycles import LIFECYCLES
from tests.simulated.engine_storms import pairs, singles, stormy, struck
from tests.simulated.lab_storms import stormy_lab
from tests.simulated.scrambled_words import differences

STORMS: Mapping[str, Callable[..., list[str]]] = {"storm": stormy, "lab": stormy_lab}
Case = tuple[str, tuple[str, ...]]  #: a lifecycle with its moments, or a storm with its seed


def perform(case: Case) -> list[str]:
    name, rest = case
    if name in STORMS:
        return STORMS[name](int(rest[0]), *map(float, rest[1:]))
    return struck(name, frozenset(map(moment, rest)))[1]


def play(case: Case, *, scramble: bool = False) -> tuple[Case, list[str]]:
    """What was wrong in one history; also what hangs on the words of a sentence."""
    try:
        act = partial(perform, case)
        return case, differences(act) if scramble else act()
    except Exception as error:  # noqa: BLE001 - a history that breaks is a finding like others
        return case, [f"{type(error).__name__}: {error}"]


def again(case: Case) -> str:
    """The command that plays it again."""
    name, rest = case
    return f"python -m tests.simulated.engine_storm {name} {' '.join(rest)}"


def case_of(lifecycle: str, moments: Iterable[Moment]) -> Case:
    """As plain words."""
    return lifecycle, tuple(sorted(str(one) for one in moments))


def cases(arguments: argparse.Namespace) -> Iterable[Case]:
    """All that is to be played."""
    for name in arguments.lifecycles.split(",") if arguments.lifecycles else LIFECYCLES:
        if arguments.singles:
            found = singles(name, arguments.each)[:: arguments.thin]
            yield from (case_of(name, [one]) for one in found)
        yield from (case_of(name, one) for one in pairs(name, arguments.pairs, arguments.first))
    for seed in range(arguments.first, arguments.first + arguments.seeds):
        for name in STORMS:
            yield name, (str(seed), *([str(arguments.hours)] if arguments.hours else []))


def search(
    every: list[Case], workers: int, say: Callable[[str], None], *, scramble: bool = False
) -> int:
    """EngineHarness them all; how many went wrong."""
    started, bad = monotonic(), 0
    many: Counter[str] = Counter()
    with ProcessPoolExecutor(workers) as pool:
        for case, found in pool.map(partial(play, scramble=scramble), every, chunksize=4):
            many[case[0] if case[0] in STORMS else f"{case[0]} x{len(case[1])}"] += 1
            if found:
                bad += 1
                say(again(case))
                for sentence in found[:8]:
                    say(f"    {sentence[:300]}")
    took, busy = monotonic() - started, sum(times()[:4])
    for name, count in sorted(many.items()):
        say(f"{name:24} {count:6} histories")
    say(f"{len(every)} histories in {took:.0f} s ({busy:.0f} s of a processor), {bad} went wrong")
    return bad


def main() -> int:
    """From the command line."""
    parser = argparse.ArgumentParser(prog="engine_storm", description=__doc__)
    parser.add_argument("name", nargs="?", help=f"storm, lab, or one of {', '.join(LIFECYCLES)}")
    parser.add_argument(
        "rest", nargs="*", help="a seed (and hours), or moments such as api:17:lost life:40"
    )
    parser.add_argument("--seeds", type=int, default=0, help="so many storms")
    parser.add_argument("--first", type=int, default=1, help="the first seed")
    parser.add_argument("--hours", type=float, help="how long each lasts; default: 1.5, of a lab 1")
    parser.add_argument("--singles", action="store_true", help="all single faults")
    parser.add_argument("--each", type=int, help="of these, so many kinds at one moment, by turns")
    parser.add_argument("--thin", type=int, default=1, help="of these, only each N-th")
    parser.add_argument("--pairs", type=int, default=0, help="so many pairs a lifecycle")
    parser.add_argument("--lifecycles", default="", help="only these, with commas")
    parser.add_argument("--workers", type=int, default=cpu_count() or 1)
    parser.add_argument(
        "--scramble-words", action="store_true",
        help="play each a second time with random words for all sentences: nothing else may differ",
    )  # fmt: skip
    arguments = parser.parse_args()
    scramble = arguments.scramble_words
    if arguments.name:
        found = play((arguments.name, tuple(arguments.rest)), scramble=scramble)[1]
        print("\n".join(found) or "nothing was wrong")
        return bool(found)
    return bool(
        search(
            list(cases(arguments)),
            arguments.workers,
            lambda line: print(line, flush=True),
            scramble=scramble,
        )
    )


if __name__ == "__main__":
    sys.exit(main())
