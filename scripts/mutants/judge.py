"""Judges mutants quickly: one process collects all tests, and forks for each mutant.

In the fork the changed functions get their new code, and the tests that reach the changed statement
run, the quick ones first, until one fails. What is decided when a module is imported (tables,
defaults) cannot be changed that way: it is reported as `fresh`, and judged with new imports.
"""

import ast
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from gc import get_objects
from importlib import import_module
from types import CodeType, FunctionType

import pytest
from _pytest.runner import runtestprotocol
from changes import SEEN, SOURCES, Mutant, marked, module_path, mutated
from forks import ForkDied, OutOfTime, forked, limit

PATIENCE_S = 5.0  #: of processor time for one test, and the multiple of its time without a change
PATIENCE = 20
Lines = frozenset[tuple[str, int]]  #: modules and where statements in them begin
Swaps = list[tuple[FunctionType, CodeType]]


@dataclass(frozen=True)
class Law:
    """One test, where it comes, and how long it takes."""

    item: pytest.Item
    lines: Lines
    took: float


@dataclass(eq=False)
class Court:
    """A plugin that judges instead of running the tests."""

    mutants: Sequence[Mutant]
    modules: Sequence[str]
    reborn: Lines  #: statements that run while a module is imported
    say: Callable[[str], None]
    noticed: dict[Mutant, str] = field(default_factory=dict)  #: by what; "": by none; "fresh"
    died: dict[Mutant, str] = field(default_factory=dict)  #: no verdict: how the fork ended
    laws: list[Law] = field(default_factory=list)
    caught: Counter[tuple[object, str]] = field(default_factory=Counter)  #: how often, where

    def pytest_runtestloop(self, session: pytest.Session) -> bool:
        began = time.monotonic()
        for module in self.modules:
            import_module(f"tpuherd.{module}")
        functions, marks, seen = living(), [], set()
        for module in self.modules:
            vars(sys.modules[f"tpuherd.{module}"])[SEEN] = seen
            marks += exchanged(module, marked(module), functions)[0]
        self.laws = [law for item in session.items if (law := self.known(item, marks, seen))]
        self.laws.sort(key=lambda law: law.took)
        broken = len(session.items) - len(self.laws)
        if broken:
            raise pytest.UsageError(f"{broken} laws do not hold as it is")
        self.say(f"{len(self.laws)} laws known in {time.monotonic() - began:.0f} s")
        for done, mutant in enumerate(self.mutants, 1):
            word = self.noticed[mutant] = self.judge(mutant, functions)
            if word == "died":
                self.say(f"no verdict: {mutant.module}.py:{mutant.line} {self.died[mutant]}")
            if not word:
                self.say(f"survives: {mutant.module}.py:{mutant.line} {mutant.what}")
            if done % 100 == 0:
                self.say(f"{done} of {len(self.mutants)} in {time.monotonic() - began:.0f} s")
        return True

    def known(self, item: pytest.Item, marks: Swaps, seen: set[tuple[str, int]]) -> Law | None:
        """How long a test takes, and all statements where it comes; None if it does not pass."""

        def trial() -> tuple[float, Lines] | None:
            install(marks)
            began = time.process_time()
            return (time.process_time() - began, frozenset(seen)) if passes(item) else None

        try:
            told = forked(trial)
        except ForkDied as error:
            self.say(f"{item.nodeid} {error}")
            return None
        if told is None:
            self.say(f"{item.nodeid} fails")
        return told and Law(item, told[1], told[0])

    def judge(self, mutant: Mutant, functions: dict[CodeType, list[FunctionType]]) -> str:
        """By which law it is noticed."""
        swaps, whole = exchanged(mutant.module, mutated(mutant), functions)
        if not whole:
            return "fresh"
        here = (mutant.module, mutant.statement)
        laws = sorted(
            [law for law in self.laws if here in law.lines] or self.laws,
            key=lambda law: self.order(law, here),
        )

        def trial() -> str:
            install(swaps)
            return next((law.item.nodeid for law in laws if not holds(law)), "")

        try:
            word = forked(trial)
        except OutOfTime:
            return "time"
        except ForkDied as error:
            self.died[mutant] = str(error)
            return "died"
        self.caught[here, word] += 1
        self.caught[mutant.module, word] += 1
        return str(word) or ("fresh" if here in self.reborn else "")

    def order(self, law: Law, here: tuple[str, int]) -> tuple[int, float]:
        """First the laws that noticed another change of the statement, or of the module."""
        name = law.item.nodeid
        return -self.caught[here, name], law.took / (1 + self.caught[here[0], name])


def holds(law: Law) -> bool:
    """Whether a test passes, within its time."""
    limit(PATIENCE_S + PATIENCE * law.took)
    return passes(law.item)


def passes(item: pytest.Item) -> bool:
    reports = runtestprotocol(item, log=False, nextitem=None)
    return all(report.outcome != "failed" for report in reports)


def living() -> dict[CodeType, list[FunctionType]]:
    """All functions of tpuherd, by their code."""
    found: dict[CodeType, list[FunctionType]] = {}
    for one in get_objects():
        if type(one) is FunctionType and one.__code__.co_filename.startswith(str(SOURCES)):
            found.setdefault(one.__code__, []).append(one)
    return found


def exchanged(
    module: str, changed: ast.Module, functions: dict[CodeType, list[FunctionType]]
) -> tuple[Swaps, bool]:
    """The functions that a change concerns with their new code, and whether that is all of it."""
    path = str(module_path(module))
    old = compile(module_path(module).read_text(), path, "exec", dont_inherit=True)
    new = compile(changed, path, "exec", dont_inherit=True)
    swaps: Swaps = []
    made: set[CodeType] = set()  #: what functions make whenever they run
    whole = True
    for before, after in differing(old, new):
        alive = functions.get(before, [])
        fitting = before.co_freevars == after.co_freevars
        if fitting:
            swaps += [(function, after) for function in alive]
        if alive:
            made |= inner(before)
        if own(before) != own(after) and (not fitting if alive else before not in made):
            whole = False
    return swaps, whole


def install(swaps: Swaps) -> None:
    """Give functions their other code."""
    for function, code in swaps:
        function.__code__ = code


def differing(old: CodeType, new: CodeType) -> Iterator[tuple[CodeType, CodeType]]:
    """Pairs of code that are not the same, the outer ones first."""
    if old == new:
        return
    yield old, new
    olds, news = (
        [one for one in code.co_consts if isinstance(one, CodeType)] for code in (old, new)
    )
    if len(olds) == len(news):  # else the outer one left some out, and changed none
        for before, after in zip(olds, news, strict=True):
            yield from differing(before, after)


def inner(code: CodeType) -> set[CodeType]:
    """All code that is made by running it."""
    found = {one for one in code.co_consts if isinstance(one, CodeType)}
    return found | {one for each in found for one in inner(each)}


def own(code: CodeType) -> tuple[object, ...]:
    """A code without the code in it."""
    rest = tuple(repr(one) for one in code.co_consts if not isinstance(one, CodeType))
    return code.co_code, rest, code.co_names
