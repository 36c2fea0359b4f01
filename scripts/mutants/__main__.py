"""Changes the planner in small ways, one at a time, and counts how many the tests notice.

    .venv/bin/python scripts/mutants [--module plan,gang_progress:162] [--sample 8] [--offset 0]
                                     [--list] [--slow]

Each mutant is one change of one module, judged by tests/unit/test_planner_*.py and
test_diagnosis_*.py until the first that fails: see judge.py. `--slow` imports everything anew for
each mutant and gives the same result. `--sample 8` takes every eighth mutant of all modules,
`--offset 1` the ones after those. Survivors are listed.
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
from changes import ROOT, SEEN, Mutant, marked, mutants, mutated
from judge import Court, Lines, forked

MODULES = (
    "planner.bidding", "planner.bid_status", "planner.deletion_guard", "planner.gang_actions",
    "planner.gang_progress", "planner.observations_to_events", "planner.plan",
    "planner.policy", "planner.retry_limits", "planner.slot_input",
    "planner.step_events", "planner.verdict", "planner.zone_choice", "history.apply_event",
    "history.apply_bid_events", "history.apply_slot_events", "history.apply_zone_events",
    "jobfile.jobs_from_cards", "diagnosis.explain", "diagnosis.first_failure",
    "diagnosis.line_time", "diagnosis.log_scanner", "diagnosis.match_line", "diagnosis.parse_rules",
    "diagnosis.scan_text",
)  # fmt: skip
ROOMS = ("planner", "diagnosis")  #: whose unit tests judge
#: The laws that take longest: after all others.
HEAVY = ("test_planner_loop", "test_planner_tables")
#: What the modules stand on and no mutant changes: imported once for all.
GROUND = (
    "model.observed", "model.slots_and_plan", "model.node_spec", "jobfile.read_job", "targets",
    "model.slot_history", "model.stored_job",
)  # fmt: skip
QUIET = (
    "-qq", "-s", "-p", "no:cacheprovider", "-p", "no:faulthandler", "--timeout=0",
    "-p", "no:logging", "-p", "no:unraisableexception", "-p", "no:threadexception",
    "--assert=plain", "-k", "not two_faults",  # they take most of the time
)  # fmt: skip
PATIENCE_S = 300.0  #: of processor time: a mutant that exceeds it does not end, and is noticed
ENOUGH = 95  #: per cent


class Changed:
    """An importer that gives the changed module instead of the one on the disk."""

    def __init__(self, module: str, tree: ast.Module, seen: set[tuple[str, int]]) -> None:
        self.name, self.tree, self.seen = f"tpuherd.{module}", tree, seen

    def find_spec(self, name: str, path: object, target: object = None) -> object:
        return ModuleSpec(name, self) if name == self.name else None  # type: ignore[arg-type]

    def create_module(self, spec: object) -> None:
        return None

    def exec_module(self, module: object) -> None:
        vars(module)[SEEN] = self.seen
        exec(compile(self.tree, self.name, "exec"), vars(module))


def laws(module: str = "") -> list[str]:
    """The tests in the order in which they judge this module: first those that mention it."""
    leaf = module.rpartition(".")[2]
    named = re.compile(rf"^from tpuherd\.{module} |^    {leaf},$|import .*\b{leaf}\b", re.M)

    def order(file: Path) -> tuple[bool, bool, str]:
        return not named.search(file.read_text()), file.stem in HEAVY, file.stem

    files = [file for room in ROOMS for file in (ROOT / "tests/unit").glob(f"test_{room}_*.py")]
    return [str(one) for one in sorted(files, key=order)]


def judge(mutant: Mutant | None) -> bool:
    """Whether the tests notice with fresh imports; without a mutant, whether they fail."""

    def trial() -> int:
        signal.setitimer(signal.ITIMER_VIRTUAL, PATIENCE_S)
        if mutant is not None:
            change(mutant.module, mutated(mutant), set())
        return int(pytest.main([*laws(mutant.module if mutant else ""), "-x", *QUIET]))

    told, code = forked(trial)
    return not told or code != 0


def change(module: str, tree: ast.Module, seen: set[tuple[str, int]]) -> None:
    """From now on this is the module."""
    sys.meta_path.insert(0, Changed(module, tree, seen))  # type: ignore[arg-type]


def imported() -> Lines:
    """The statements in functions that run while the modules are imported."""
    seen: set[tuple[str, int]] = set()
    for module in MODULES:
        change(module, marked(module), seen)
    for module in MODULES:
        import_module(f"tpuherd.{module}")
    return frozenset(seen)


def quickly(found: Sequence[Mutant]) -> dict[Mutant, str]:
    """By which law each is noticed; "fresh" where only new imports can show it."""
    reborn = forked(imported)[1]

    def sitting() -> dict[Mutant, str] | None:
        court = Court(found, MODULES, reborn, say)
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
        print(f"survives: {one.module}:{one.line} {one.what}    | {one.text}", flush=True)
    killed = len(found) - len(alive)
    share = 100 * killed / max(1, len(found))
    print(f"{killed} of {len(found)} mutants noticed: {share:.1f} %")
    took = time.monotonic() - began
    print(f"{took:.0f} s, {time.process_time() + sum(os.times()[2:4]):.0f} s of a processor")
    return 0 if share >= ENOUGH else 1


def within(place: str) -> list[Mutant]:
    """All mutants of a module, or of a line of it."""
    module, _, line = place.partition(":")
    module = next((one for one in MODULES if one.endswith(f".{module}")), module)
    return [one for one in mutants(module) if line in ("", str(one.line))]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0] if __doc__ else "")
    parser.add_argument(
        "--module", default="", help="plan,gang_progress:162 of " + ", ".join(MODULES)
    )
    parser.add_argument("--sample", type=int, default=1, help="only one of so many")
    parser.add_argument("--offset", type=int, default=0, help="which one of them")
    parser.add_argument("--slow", action="store_true", help="everything anew for each")
    parser.add_argument("--list", action="store_true")
    said = parser.parse_args()
    modules = said.module.split(",") if said.module else MODULES
    found = [one for module in modules for one in within(module)][said.offset :: said.sample]
    if said.list:
        for one in found:
            print(f"{one.module}:{one.line} {one.what}")
        return 0
    os.chdir(ROOT)
    for name in GROUND:
        import_module(f"tpuherd.{name}")
    return judge_all(found, said.slow)


if __name__ == "__main__":
    sys.exit(main())
