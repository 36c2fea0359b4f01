"""Changes the pure modules in small ways, one at a time, and counts how many the tests notice.

    .venv/bin/python scripts/mutants [--module plan,gang_progress:162] [--sample 0.1] [--seed 1]
                                     [--whole planner,history] [--list] [--slow]

Each mutant is one change of one module, judged by the tests of tests/unit that reach it, until
the first that fails: see judge.py. `--slow` imports everything anew for each mutant and gives the
same result. `--sample 0.1` takes a tenth of the mutants of each package, chosen by the seed, and
all of the packages that `--whole` lists. Survivors are listed.
"""

import argparse
import ast
import os
import re
import sys
import time
from collections.abc import Collection, Sequence
from functools import cache
from importlib import import_module
from importlib.machinery import ModuleSpec
from pathlib import Path

import pytest
from changes import (
    ROOT,
    SEEN,
    Mutant,
    choose_sample,
    marked,
    module_path,
    mutants,
    mutated,
    pure_modules,
)
from forks import ForkDied, OutOfTime, forked, limit
from judge import Court, Lines

sys.path.insert(0, str(ROOT))
from scripts.near import near_tests

MODULES = tuple(pure_modules())
#: The laws that take longest: after all others.
HEAVY = ("test_planner_loop", "test_planner_tables")
#: What the modules stand on and no mutant changes: imported once for all.
GROUND = ("hypothesis", "msgspec", "yaml", "tpuherd.targets", "tpuherd.errors")
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
        if name != self.name:
            return None
        path = module_path(name.removeprefix("tpuherd."))
        package = path.stem == "__init__"
        spec = ModuleSpec(name, self, origin=str(path), is_package=package)  # type: ignore[arg-type]
        spec.has_location = True  # sets __file__
        if spec.submodule_search_locations is not None:
            spec.submodule_search_locations.append(str(path.parent))
        return spec

    def create_module(self, spec: object) -> None:
        return None

    def exec_module(self, module: object) -> None:
        vars(module)[SEEN] = self.seen
        exec(compile(self.tree, self.name, "exec"), vars(module))


def package_of(module: str) -> str:
    return module.partition(".")[0]


@cache
def unit_tests(package: str) -> list[Path]:
    """The unit tests that import a module of this package, themselves or through a rig."""
    texts = {
        str(file.relative_to(ROOT)): file.read_text() for file in (ROOT / "tests").rglob("*.py")
    }
    sources = [name for name in MODULES if package_of(name) == package]
    near = near_tests([str(module_path(name).relative_to(ROOT)) for name in sources], texts)
    return [ROOT / name for name in near if name.startswith("tests/unit/")]


def laws(packages: Collection[str], module: str = "") -> list[str]:
    """The tests in the order in which they judge this module: first those that mention it."""
    leaf = module.rpartition(".")[2]
    named = re.compile(rf"^from tpuherd\.{module} |^    {leaf},$|import .*\b{leaf}\b", re.M)

    def order(file: Path) -> tuple[bool, bool, str]:
        return not named.search(file.read_text()), file.stem in HEAVY, file.stem

    files = {file for package in packages for file in unit_tests(package)}
    return [str(one) for one in sorted(files, key=order)]


def judge(mutant: Mutant | None, packages: Collection[str]) -> bool:
    """Whether the tests notice with fresh imports; without a mutant, whether they fail."""

    def trial() -> int:
        limit(PATIENCE_S)
        if mutant is not None:
            change(mutant.module, mutated(mutant), set())
        return int(pytest.main([*laws(packages, mutant.module if mutant else ""), "-x", *QUIET]))

    try:
        return bool(forked(trial) != 0)
    except OutOfTime:
        return True


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


def quickly(found: Sequence[Mutant]) -> tuple[dict[Mutant, str], dict[Mutant, str]]:
    """By which law each is noticed ("fresh" where only new imports can show it), and who died."""
    reborn = forked(imported)
    packages = {package_of(one.module) for one in found}

    def sitting() -> tuple[dict[Mutant, str], dict[Mutant, str]] | None:
        court = Court(found, MODULES, reborn, say)
        failed = pytest.main([*laws(packages), *QUIET], plugins=[court])
        return None if failed else (court.noticed, court.died)

    result = forked(sitting, quiet=False)
    if result is None:
        raise SystemExit("the laws do not hold as it is")
    noticed, died = result
    return dict(noticed), dict(died)


def say(line: str, terminal: int = os.dup(2)) -> None:
    """How far it is."""
    os.write(terminal, f"{line}\n".encode())


def judge_all(found: list[Mutant], slow: bool) -> int:
    """Tells who survives, and the share of those that do not."""
    began = time.monotonic()
    words, died = (dict.fromkeys(found, "fresh"), {}) if slow else quickly(found)
    anew = [one for one, word in words.items() if word == "fresh"]
    if anew and judge(None, {package_of(one.module) for one in anew}):
        raise SystemExit("the laws do not hold as it is")
    for done, mutant in enumerate(anew, 1):
        try:
            words[mutant] = "anew" if judge(mutant, {package_of(mutant.module)}) else ""
        except ForkDied as error:
            words[mutant], died[mutant] = "died", str(error)
        if done % 20 == 0:
            say(f"{done} of {len(anew)} anew in {time.monotonic() - began:.0f} s")
    share = report(words, died)
    took = time.monotonic() - began
    print(f"{took:.0f} s, {time.process_time() + sum(os.times()[2:4]):.0f} s of a processor")
    return 0 if share >= ENOUGH and not died else 1


def report(words: dict[Mutant, str], died: dict[Mutant, str]) -> float:
    """Print survivors, mutants without a verdict, and the score of each package and of all."""
    for one, word in words.items():
        if word in ("", "died"):
            fate = f"no verdict, {died[one]}" if word else "survives"
            print(f"{fate}: {one.module}:{one.line} {one.what}    | {one.text}")
    packages = dict.fromkeys(package_of(one.module) for one in words)
    for package in packages:
        print(score(package, [w for one, w in words.items() if package_of(one.module) == package]))
    print(score("all", list(words.values())))
    judged = [word for word in words.values() if word != "died"]
    return 100 * sum(map(bool, judged)) / max(1, len(judged))


def score(name: str, words: Sequence[str]) -> str:
    """Return how many mutants were noticed, of those with a verdict."""
    died = words.count("died")
    judged, noticed = len(words) - died, len(words) - died - words.count("")
    text = f"{name}: {noticed} of {judged} mutants noticed: {100 * noticed / max(1, judged):.1f} %"
    return f"{text}; {died} without a verdict" if died else text


def within(place: str) -> list[Mutant]:
    """All mutants of a module, or of a line of it."""
    module, _, line = place.partition(":")
    module = next((one for one in MODULES if one.endswith(f".{module}")), module)
    return [one for one in mutants(module) if line in ("", str(one.line))]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0] if __doc__ else "")
    parser.add_argument("--module", default="", help="such as plan,gang_progress:162")
    parser.add_argument("--sample", type=float, default=1.0, help="the share that is judged")
    parser.add_argument("--seed", type=int, default=1, help="what chooses the sample")
    parser.add_argument("--whole", default="planner,history", help="packages without a sample")
    parser.add_argument("--slow", action="store_true", help="everything anew for each")
    parser.add_argument("--list", action="store_true")
    said = parser.parse_args()
    modules = said.module.split(",") if said.module else MODULES
    found = choose_sample(
        [one for module in modules for one in within(module)],
        share=said.sample, seed=said.seed, whole=said.whole.split(","),
    )  # fmt: skip
    if said.list:
        for one in found:
            print(f"{one.module}:{one.line} {one.what}")
        return 0
    os.chdir(ROOT)
    for name in GROUND:
        import_module(name)
    return judge_all(found, said.slow)


if __name__ == "__main__":
    sys.exit(main())
