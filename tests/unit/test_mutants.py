"""What `make mutants` changes, and what it makes of a fork that ends without a verdict."""

import os
import signal
import time
from collections.abc import Callable

import pytest
from scripts.mutants.changes import (
    COMPARES,
    PACKAGES,
    SOURCES,
    SUMS,
    TWINS,
    Mutant,
    choose_sample,
    module_path,
    mutants,
    pure_modules,
)
from scripts.mutants.forks import ForkDied, OutOfTime, forked, limit

from tests.rules.test_layers import ADAPTERS, PURE
from tpuherd.planner.policy import BIDS, GANG, GangAction

NEAR = ("src/tpuherd/*/*.py",)

#: Pure packages that decide nothing: they word, show and write what others decided.
SHOWING = {"exports", "notify", "views"}
KINDS = {
    "and ↔ or",
    "not dropped",
    "True → False",
    "False → True",
    "number",
    "dropped",
    "if always",
    "if never",
    "cell",
} | {f"{old.__name__} → {new.__name__}" for table in (COMPARES, SUMS) for old, new in table.items()}
KINDS |= {f"{old} → {new}" for old, new in TWINS.items()}  # fmt: skip


def kind(mutant: Mutant) -> str:
    """The kind of a change, without its numbers and cells."""
    if mutant.what.startswith("cell "):
        return "cell"
    return "number" if mutant.what[0] in "-.0123456789" else mutant.what


def test_all_pure_packages_are_changed_and_all_their_modules() -> None:
    assert set(PACKAGES) == PURE - SHOWING | {"catalogue"}
    files = {file for name in PACKAGES for file in (SOURCES / name).rglob("*.py")}
    files |= set((SOURCES / "checks").glob("judge_*.py"))
    files -= {SOURCES.parent / adapter for adapter in ADAPTERS}
    assert {module_path(name) for name in pure_modules()} == files


def test_each_kind_of_change_occurs() -> None:
    found = {kind(mutant) for name in pure_modules() for mutant in mutants(name)}
    assert found == KINDS


def test_each_cell_of_the_policy_tables_is_changed() -> None:
    cells = [one for one in mutants("planner.policy") if kind(one) == "cell"]
    nothing = {GangAction.LEAVE, GangAction.WAIT}  # exchanging these changes no step
    bids = sum(len(row) for row in BIDS.values())
    gangs = sum(action not in nothing for row in GANG.values() for action in row.values())
    assert len(cells) == bids + gangs


def test_a_sample_is_a_share_of_each_package_and_depends_on_the_seed_alone() -> None:
    found = [
        Mutant(f"{package}.module", number, 1, "dropped", "", 1)
        for package, many in (("planner", 30), ("jobfile", 200), ("model", 3))
        for number in range(many)
    ]
    sample = choose_sample(found, share=0.1, seed=1, whole=["planner"])
    many = [sum(one.module == f"{p}.module" for one in sample) for p in ("planner", "jobfile")]
    assert (many, len(sample)) == ([30, 20], 51)
    assert sample == choose_sample(found, share=0.1, seed=1, whole=["planner"])
    assert sample[30:] == choose_sample(found[30:], share=0.1, seed=1, whole=[])
    assert sample != choose_sample(found, share=0.1, seed=2, whole=["planner"])
    assert choose_sample(found, share=1.0, seed=1, whole=[]) == found


def test_a_fork_returns_what_its_function_does() -> None:
    assert forked(lambda: {"survives": ""}) == {"survives": ""}


def kill_itself() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def exit_early() -> None:
    os._exit(3)


def leave() -> None:
    raise SystemExit("no tests")


@pytest.mark.parametrize(
    ("do", "how"),
    [
        (kill_itself, "ended by SIGKILL"),
        (exit_early, "exited with 3 and no result"),
        (leave, "SystemExit: no tests"),
    ],
)
def test_a_fork_that_dies_is_an_error(do: Callable[[], None], how: str) -> None:
    with pytest.raises(ForkDied, match=how) as caught:
        forked(do)
    assert not isinstance(caught.value, OutOfTime)


def test_a_fork_that_does_not_end_is_out_of_time() -> None:
    def run_forever() -> None:
        limit(0.01)
        while time:
            pass

    with pytest.raises(OutOfTime):
        forked(run_forever)
