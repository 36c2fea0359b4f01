"""How well the laws know the judgement: it is changed in small ways, and each must be noticed.

    .venv/bin/python scripts/mutants.py [--room plan,gang:162] [--sample 8] [--offset 0] [--list]
                                        [--slow]

Each mutant is one change of one room of the core, judged by the laws (tests/unit/test_core_*.py)
until the first that fails: see mutants_court.py. `--slow` starts everything anew for each, which
comes to the same. `--sample 8` takes every eighth of all rooms together, `--offset 1` the ones
after those: samples of different offsets have nothing in common. Survivors are listed.
"""

import argparse
import ast
import os
import re
import signal
import sys
import time
from collections.abc import Sequence
from importlib import import_module
from importlib.machinery import ModuleSpec
from pathlib import Path

import pytest
from mutants_court import Court, Lines, forked
from mutants_made import ROOT, SEEN, Mutant, marked, mutants, mutated
from mutants_same import SAME

ROOMS = (
    "adopt", "bidding", "case", "deeds", "fold", "fold_bids", "fold_slots", "fold_world", "gang",
    "guard", "limits", "notes", "phase", "plan", "policy", "progress", "verdict", "verdict_lines",
    "zones",
)  # fmt: skip
#: The laws that take longest: after all others.
HEAVY = ("test_core_loop", "test_core_plan")
#: What the rooms stand on and no mutant changes: imported once for all.
GROUND = ("facts", "model", "order", "spec", "targets", "trail", "wish")
QUIET = (
    "-qq", "-s", "-p", "no:cacheprovider", "-p", "no:faulthandler", "--timeout=0",
    "-p", "no:logging", "-p", "no:unraisableexception", "-p", "no:threadexception",
    "--assert=plain", "-k", "not two_faults",  # they take most of the time
)  # fmt: skip
PATIENCE_S = 300.0  #: of processor time: a mutant that takes so long does not end, and is noticed
ENOUGH = 95  #: per cent
EQUIVALENT = {row for rows in SAME.values() for row in rows}


class Changed:
    """An importer that gives the changed room instead of the one on the disk."""

    def __init__(self, room: str, tree: ast.Module, seen: set[tuple[str, int]]) -> None:
        self.name, self.tree, self.seen = f"tpuherd.model.{room}", tree, seen

    def find_spec(self, name: str, path: object, target: object = None) -> object:
        return ModuleSpec(name, self) if name == self.name else None  # type: ignore[arg-type]

    def create_module(self, spec: object) -> None:
        return None

    def exec_module(self, module: object) -> None:
        vars(module)[SEEN] = self.seen
        exec(compile(self.tree, self.name, "exec"), vars(module))


def laws(room: str = "") -> list[str]:
    """The laws in the order in which they judge this room: first those that speak of it."""
    named = re.compile(rf"^from tpuherd\.core\.{room} |^    {room},$|import .*\b{room}\b", re.M)

    def order(file: Path) -> tuple[bool, bool, str]:
        return not named.search(file.read_text()), file.stem in HEAVY, file.stem

    return [str(one) for one in sorted((ROOT / "tests/unit").glob("test_core_*.py"), key=order)]


def judge(mutant: Mutant | None) -> bool:
    """Whether the laws notice when all is imported anew; without a mutant, whether they fail."""

    def trial() -> int:
        signal.setitimer(signal.ITIMER_VIRTUAL, PATIENCE_S)
        if mutant is not None:
            change(mutant.room, mutated(mutant), set())
        return int(pytest.main([*laws(mutant.room if mutant else ""), "-x", *QUIET]))

    told, code = forked(trial)
    return not told or code != 0


def change(room: str, tree: ast.Module, seen: set[tuple[str, int]]) -> None:
    """From now on this is the room."""
    sys.meta_path.insert(0, Changed(room, tree, seen))  # type: ignore[arg-type]


def imported() -> Lines:
    """The statements in functions that run while the rooms are imported."""
    seen: set[tuple[str, int]] = set()
    for room in ROOMS:
        change(room, marked(room), seen)
    for room in ROOMS:
        import_module(f"tpuherd.model.{room}")
    return frozenset(seen)


def quickly(found: Sequence[Mutant]) -> dict[Mutant, str]:
    """By which law each is noticed; "fresh" where only new imports can show it."""
    reborn = forked(imported)[1]

    def sitting() -> dict[Mutant, str] | None:
        court = Court(found, ROOMS, reborn, say)
        return court.noticed if pytest.main([*laws(), *QUIET], plugins=[court]) == 0 else None

    _, noticed = forked(sitting, quiet=False)
    if noticed is None:
        raise SystemExit("the laws do not hold as it is")
    return dict(noticed)


def say(line: str, terminal: int = os.dup(2)) -> None:
    """How far it is."""
    os.write(terminal, f"{line}\n".encode())


def judge_all(found: list[Mutant], slow: bool) -> int:
    """Tells who survives, and the share of those that do not."""
    began = time.monotonic()
    same = [one for one in found if equivalent(one)]
    found = [one for one in found if one not in same]
    words = dict.fromkeys(found, "fresh") if slow else quickly(found)
    anew = [one for one, word in words.items() if word == "fresh"]
    if anew and judge(None):
        raise SystemExit("the laws do not hold as it is")
    for done, mutant in enumerate(anew, 1):
        words[mutant] = "anew" if judge(mutant) else ""
        if done % 20 == 0:
            say(f"{done} of {len(anew)} anew in {time.monotonic() - began:.0f} s")
    alive = [one for one in found if not words[one]]
    for one in alive:
        print(f"survives: {one.room}.py:{one.line} {one.what}    | {one.text}", flush=True)
    killed = len(found) - len(alive)
    share = 100 * killed / max(1, len(found))
    print(f"{killed} of {len(found)} mutants noticed: {share:.1f} %; {len(same)} change nothing")
    took = time.monotonic() - began
    print(f"{took:.0f} s, {time.process_time() + sum(os.times()[2:4]):.0f} s of a processor")
    return 0 if share >= ENOUGH else 1


def equivalent(mutant: Mutant) -> bool:
    """The table has it, by its line, or with the line before it."""
    return any(
        (mutant.room, mutant.what) == (room, what) and f" {mutant.text}".endswith(f" {line}")
        for room, what, line in EQUIVALENT
    )


def within(place: str) -> list[Mutant]:
    """All mutants of a room, or of a line of it."""
    room, _, line = place.partition(":")
    return [one for one in mutants(room) if line in ("", str(one.line))]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0] if __doc__ else "")
    parser.add_argument("--room", default="", help="plan,gang:162 of " + ", ".join(ROOMS))
    parser.add_argument("--sample", type=int, default=1, help="only one of so many")
    parser.add_argument("--offset", type=int, default=0, help="which one of them")
    parser.add_argument("--slow", action="store_true", help="everything anew for each")
    parser.add_argument("--list", action="store_true")
    said = parser.parse_args()
    rooms = said.room.split(",") if said.room else ROOMS
    found = [one for room in rooms for one in within(room)][said.offset :: said.sample]
    if said.list:
        for one in found:
            print(f"{one.room}.py:{one.line} {one.what}")
        return 0
    os.chdir(ROOT)
    for name in GROUND:
        import_module(f"tpuherd.model.{name}")
    return judge_all(found, said.slow)


if __name__ == "__main__":
    sys.exit(main())
