"""How well the laws know the judgement: it is changed in small ways, and each must be noticed.

    .venv/bin/python scripts/mutants.py [--room plan,zones] [--sample 8] [--offset 0]
                                        [--workers 2] [--list]

Each mutant is one change of one room of the core, in a fork of its own, judged by the laws
(tests/laws/test_core_*.py) until the first that fails; those that speak of the room go first.
`--sample 8` takes every eighth of all rooms together, `--offset 1` the ones after those: samples
of different offsets have nothing in common. Survivors are listed with their lines.
"""

import argparse
import ast
import copy
import multiprocessing
import os
import re
import signal
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from importlib import import_module
from importlib.machinery import ModuleSpec
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
CORE = ROOT / "src" / "tpuherd" / "core"
ROOMS = (
    "adopt", "bidding", "case", "deeds", "fold", "fold_bids", "fold_slots", "fold_world", "gang",
    "guard", "limits", "notes", "phase", "plan", "policy", "progress", "verdict", "verdict_lines",
    "zones",
)  # fmt: skip
#: The laws, the quick ones first.
JUDGES = (
    "rooms", "zones", "fold", "verdict", "gangs", "progress", "corners", "loop",
    "plan",
)  # fmt: skip
#: What the rooms stand on and no mutant changes: imported once for all.
GROUND = ("facts", "model", "order", "spec", "targets", "trail", "wish")
QUIET = (
    "-x", "-q", "--assert=plain", "-p", "no:cacheprovider", "-p", "no:faulthandler",
    "-k", "not two_faults",
)  # fmt: skip
LONG_AGO = "a time that nobody knows is long ago, be it the first second of 1970 or the next"
SHORT = "a short cut: `waiting` comes to the same"
#: Changes that change nothing: room ("": any), a word of the line, the change, and why.
EQUIVALENT = (
    ("", "_at or 0.0", "0.0 → 1.0", LONG_AGO),
    ("", "_at\") or 0.0", "0.0 → 1.0", LONG_AGO),
    ("", "ended or 0.0", "0.0 → 1.0", LONG_AGO),
    ("", "due = 0.0 if last is None", "0.0 → 1.0", LONG_AGO),
    ("", ", 10)", "10 → 11", "no number without end: the cap beside it is reached long before"),
    ("case", "survey_s: float = 60.0", "60.0 → 61.0", "the plan takes 60 where a slot wants more"),
    ("verdict", "if attempt.started_at is None or attempt.stopping", "if always", SHORT),
    ("verdict", "if bid.lost_at is not None or bid.noticed_at", "if always", SHORT),
    ("verdict", "    return True", "True → False", SHORT),
    ("verdict", "if host.boot not in attempt.boots:", "if always", SHORT),
    ("verdict", "if work.word is not WorkWord.RUNNING:", "if always", SHORT),
    ("zones", "if all((one.zone, one.rank) in taken", "if never", "a short cut: none is left"),
    ("plan", "if work.attempt == known:", "if never", "a short cut: its number is none above"),
)  # fmt: skip
PATIENCE_S = 120  #: a mutant that takes so long does not end: that is noticed
COMPARES = {
    ast.Lt: ast.LtE, ast.LtE: ast.Lt, ast.Gt: ast.GtE, ast.GtE: ast.Gt, ast.Eq: ast.NotEq,
    ast.NotEq: ast.Eq, ast.Is: ast.IsNot, ast.IsNot: ast.Is, ast.In: ast.NotIn, ast.NotIn: ast.In,
}  # fmt: skip
SUMS = {ast.Add: ast.Sub, ast.Sub: ast.Add, ast.Mult: ast.Div, ast.Div: ast.Mult}


@dataclass(frozen=True)
class Mutant:
    """One change."""

    room: str
    number: int  #: of all of its room
    line: int
    what: str


def changes(node: ast.AST) -> Iterator[tuple[str, ast.AST]]:
    """What may become of one node: a word for it, and the other node."""
    other = copy.deepcopy(node)
    match other:
        case ast.Compare(ops=[op]) if type(op) in COMPARES:
            other.ops = [COMPARES[type(op)]()]
            yield f"{type(op).__name__} → {type(other.ops[0]).__name__}", other
        case ast.BoolOp():
            other.op = ast.Or() if isinstance(other.op, ast.And) else ast.And()
            yield "and ↔ or", other
        case ast.UnaryOp(op=ast.Not()):
            yield "not dropped", other.operand
        case ast.BinOp(op=op) if type(op) in SUMS:
            other.op = SUMS[type(op)]()
            yield f"{type(op).__name__} → {type(other.op).__name__}", other
        case ast.Constant(value=bool() as value):
            yield f"{value} → {not value}", ast.Constant(value=not value)
        case ast.Constant(value=int() | float() as amount):
            yield f"{amount} → {amount + 1}", ast.Constant(value=amount + 1)
        case ast.Expr(value=ast.Call()) | ast.Continue():
            yield "dropped", ast.Pass()
        case ast.IfExp():
            yield "if always", other.body
            yield "if never", other.orelse
        case ast.If(body=body, orelse=orelse):
            yield "if always", ast.If(test=ast.Constant(value=True), body=body, orelse=orelse)
            yield "if never", ast.If(test=ast.Constant(value=False), body=body, orelse=orelse)
        case ast.Call(func=ast.Name(id=name)):
            yield from other_calls(other, name)


#: Functions that are easily taken for each other.
TWINS = {"min": "max", "max": "min", "any": "all", "all": "any"}


def other_calls(call: ast.Call, name: str) -> Iterator[tuple[str, ast.AST]]:
    """Calls of the wrong one, and rows of tables with a cell changed."""
    if name in {"_row", "_gang"}:
        yield from other_cells(call)
    elif name in {"any", "all"} or (name in TWINS and len(call.args) > 1):
        call.func = ast.Name(id=TWINS[name], ctx=ast.Load())
        yield f"{name} → {TWINS[name]}", call


def other_cells(call: ast.Call) -> Iterator[tuple[str, ast.AST]]:
    """A row of one of the tables with one cell changed."""
    words = [str(getattr(one, "value", "")) for one in call.args]
    cells = words[0].split() if len(words) == 1 else words
    for place, cell in enumerate(cells):
        swapped = {".": "x", "w": "x", "x": "w", "a": "w", "leave": "wait", "wait": "leave"}
        now = [*cells[:place], swapped.get(cell, "leave"), *cells[place + 1 :]]
        if {cell, now[place]} in ({".", "w"}, {"leave", "wait"}):
            continue  # the same thing to do: nothing
        other = copy.deepcopy(call)
        texts = [" ".join(now)] if len(words) == 1 else now
        other.args = [ast.Constant(value=text) for text in texts]
        yield f"cell {place}: {cell} → {now[place]}", other


class Swap(ast.NodeTransformer):
    """Makes the change of one number, or counts all."""

    def __init__(self, wanted: int = -1) -> None:
        self.wanted, self.seen = wanted, 0
        self.found: list[tuple[int, str]] = []

    def visit(self, node: ast.AST) -> ast.AST:
        for what, other in changes(node):
            if self.seen == self.wanted:
                self.seen += 1
                return ast.copy_location(other, node)
            self.found.append((getattr(node, "lineno", 0), what))
            self.seen += 1
        return self.generic_visit(node)


def skipped(tree: ast.Module) -> set[int]:
    """Lines whose change means nothing to a law: constants in `slots=True` and the like."""
    lines: set[int] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.ClassDef):
            for one in node.decorator_list:
                lines |= set(range(one.lineno, (one.end_lineno or one.lineno) + 1))
    return lines


def mutants(room: str) -> list[Mutant]:
    """All of one room."""
    tree = ast.parse((CORE / f"{room}.py").read_text())
    mute = skipped(tree)
    swap = Swap()
    swap.visit(copy.deepcopy(tree))
    return [
        Mutant(room, number, line, what)
        for number, (line, what) in enumerate(swap.found)
        if line not in mute
    ]


def mutated(mutant: Mutant) -> str:
    """The room with this change."""
    tree = ast.parse((CORE / f"{mutant.room}.py").read_text())
    return ast.unparse(ast.fix_missing_locations(Swap(mutant.number).visit(tree)))


class Changed:
    """An importer that gives the changed room instead of the one on the disk."""

    def __init__(self, room: str, text: str) -> None:
        self.name, self.text = f"tpuherd.core.{room}", text

    def find_spec(self, name: str, path: object, target: object = None) -> object:
        if name != self.name:
            return None
        return ModuleSpec(name, self)  # type: ignore[arg-type]

    def create_module(self, spec: object) -> None:
        return None

    def exec_module(self, module: object) -> None:
        exec(compile(self.text, self.name, "exec"), vars(module))


def laws(room: str) -> list[str]:
    """The laws in the order in which they judge this room."""
    folder = ROOT / "tests" / "laws"
    files = [folder / f"test_core_{name}.py" for name in JUDGES]
    named = re.compile(rf"^from tpuherd\.core\.{room} |^    {room},$|import .*\b{room}\b", re.M)
    return [str(one) for one in sorted(files, key=lambda one: not named.search(one.read_text()))]


def judge(mutant: Mutant | None) -> bool:
    """Whether the laws notice; without a mutant, whether they hold as it is."""
    child = os.fork()
    if child == 0:
        out = os.open(os.devnull, os.O_WRONLY)
        os.dup2(out, 1)
        os.dup2(out, 2)
        signal.alarm(PATIENCE_S)
        code = 1
        try:
            if mutant is not None:
                sys.meta_path.insert(0, Changed(mutant.room, mutated(mutant)))  # type: ignore[arg-type]
            code = int(pytest.main([*laws(mutant.room if mutant else ""), *QUIET]))
        finally:
            os._exit(1 if code else 0)
    _, status = os.waitpid(child, 0)
    return status != 0


def judged(mutant: Mutant) -> tuple[Mutant, bool]:
    """The same, with what was judged."""
    return mutant, judge(mutant)


def chosen(said: argparse.Namespace) -> list[Mutant]:
    """The sample, without what is known to change nothing."""
    rooms = said.room.split(",") if said.room else ROOMS
    found = [one for room in rooms for one in mutants(room)]
    return [one for one in found[said.offset :: said.sample] if not equivalent(one)]


def equivalent(mutant: Mutant) -> bool:
    """It is in the table."""
    line = (CORE / f"{mutant.room}.py").read_text().splitlines()[mutant.line - 1]
    return any(
        mutant.what == what and mutant.room.startswith(room) and word in line
        for room, word, what, _ in EQUIVALENT
    )


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0] if __doc__ else "")
    parser.add_argument("--room", default="", help="one or several of: " + ", ".join(ROOMS))
    parser.add_argument("--sample", type=int, default=1, help="only one of so many")
    parser.add_argument("--offset", type=int, default=0, help="which one of them")
    parser.add_argument("--workers", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--list", action="store_true")
    said = parser.parse_args()
    found = chosen(said)
    if said.list:
        for one in found:
            print(f"{one.room}.py:{one.line} {one.what}")
        return 0
    os.chdir(ROOT)
    for name in GROUND:
        import_module(f"tpuherd.core.{name}")
    if judge(None):
        print("the laws do not hold as it is")
        return 2
    return judge_all(found, said.workers)


def judge_all(found: list[Mutant], workers: int) -> int:
    """Tells who survives, and the share of those that do not."""
    began, killed = time.monotonic(), 0
    with multiprocessing.get_context("fork").Pool(workers) as pool:
        for done, (one, noticed) in enumerate(pool.imap_unordered(judged, found), 1):
            killed += noticed
            if not noticed:
                print(f"survives: {one.room}.py:{one.line} {one.what}", flush=True)
            if done % 100 == 0:
                print(f"{done} of {len(found)}, {killed} noticed", file=sys.stderr, flush=True)
    share = 100 * killed / max(1, len(found))
    took = time.monotonic() - began
    print(f"{killed} of {len(found)} mutants noticed ({share:.1f} %) in {took:.0f} s")
    return 0 if share >= 95 else 1


if __name__ == "__main__":
    sys.exit(main())
