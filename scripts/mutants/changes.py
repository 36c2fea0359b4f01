"""The small changes that are made to a pure module, one at a time."""

import ast
import copy
import random
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[2]
SOURCES = ROOT / "src" / "tpuherd"
#: The packages that decide, and what they decide on. All their modules are changed.
PACKAGES = (
    "planner", "history", "accounting", "sweeps", "diagnosis", "jobfile", "model", "catalogue",
)  # fmt: skip
JUDGEMENTS = "checks/judge_*.py"  #: pure modules of a package that is not
ADAPTERS = {"sweeps.optuna_sampler"}  #: needs a library of others' that may not be there
ROWS = {"_bid_row", "_gang_row"}  #: functions whose calls are the rows of the policy tables
COMPARES = {
    ast.Lt: ast.LtE, ast.LtE: ast.Lt, ast.Gt: ast.GtE, ast.GtE: ast.Gt, ast.Eq: ast.NotEq,
    ast.NotEq: ast.Eq, ast.Is: ast.IsNot, ast.IsNot: ast.Is, ast.In: ast.NotIn, ast.NotIn: ast.In,
}  # fmt: skip
SUMS = {ast.Add: ast.Sub, ast.Sub: ast.Add, ast.Mult: ast.Div, ast.Div: ast.Mult}
SEEN = "__seen__"  #: what marks are put into, a name of each module
#: Functions that are easily taken for each other.
TWINS = {"min": "max", "max": "min", "any": "all", "all": "any"}


def module_path(module: str) -> Path:
    """Where a module such as planner.gang_actions is."""
    path = SOURCES / module.replace(".", "/")
    return path / "__init__.py" if path.is_dir() else path.with_suffix(".py")


def pure_modules() -> list[str]:
    """Return all modules that are changed, such as planner.gang_actions."""
    files = [file for name in PACKAGES for file in sorted((SOURCES / name).rglob("*.py"))]
    files += sorted(SOURCES.glob(JUDGEMENTS))
    paths = [file.parent if file.stem == "__init__" else file.with_suffix("") for file in files]
    names = [".".join(path.relative_to(SOURCES).parts) for path in paths]
    return [name for name in names if name not in ADAPTERS]


@dataclass(frozen=True)
class Mutant:
    """One change."""

    module: str
    number: int  #: of all of its module
    line: int
    what: str
    text: str  #: the line as it stands, after the one before it
    statement: int  #: the line where its statement begins: only a law that comes there can notice


def choose_sample(
    found: Sequence[Mutant], *, share: float, seed: int, whole: Collection[str]
) -> list[Mutant]:
    """Return a random share of the mutants of each package, and all of the `whole` ones."""
    packages: dict[str, list[Mutant]] = {}
    for one in found:
        packages.setdefault(one.module.partition(".")[0], []).append(one)
    chosen: set[Mutant] = set()
    for name, mine in packages.items():
        count = len(mine) if name in whole else max(1, round(share * len(mine)))
        chosen.update(random.Random(f"{seed} {name}").sample(mine, min(count, len(mine))))
    return [one for one in found if one in chosen]


def changes(node: ast.AST) -> Iterator[tuple[str, ast.AST]]:
    """What may become of one node: a word for it, and the other node."""
    other = copy.copy(node)
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


def other_calls(call: ast.Call, name: str) -> Iterator[tuple[str, ast.AST]]:
    """Calls of the wrong one, and rows of tables with a cell changed."""
    if name in ROWS:
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
        other = copy.copy(call)
        texts = [" ".join(now)] if len(words) == 1 else now
        other.args = [ast.Constant(value=text) for text in texts]
        yield f"cell {place}: {cell} → {now[place]}", other


class Swap(ast.NodeTransformer):
    """Makes the change of one number, or lists all."""

    def __init__(self, wanted: int = -1) -> None:
        self.wanted, self.seen = wanted, 0
        self.statement = 0
        self.found: list[tuple[int, str, int]] = []

    def visit(self, node: ast.AST) -> ast.AST:
        outer = self.statement
        if isinstance(node, ast.stmt):
            self.statement = node.lineno
        for what, other in changes(node):
            if self.seen == self.wanted:
                self.seen += 1
                return ast.copy_location(other, node)
            self.found.append((getattr(node, "lineno", 0), what, self.statement))
            self.seen += 1
        changed = self.generic_visit(node)
        self.statement = outer
        return changed


class Marked(ast.NodeTransformer):
    """Each statement of a function says that it is reached."""

    def __init__(self, module: str) -> None:
        self.module, self.depth = module, 0

    def visit(self, node: ast.AST) -> ast.AST:
        inside = isinstance(node, ast.FunctionDef)
        self.depth += inside
        self.generic_visit(node)
        if self.depth:
            for name in ("body", "orelse", "finalbody"):
                block = getattr(node, name, None)
                if isinstance(block, list):
                    setattr(node, name, [new for one in block for new in (self.mark(one), one)])
        self.depth -= inside
        return node

    def mark(self, one: ast.stmt) -> ast.stmt:
        """`SEEN.add((module, line))`"""
        text = f"{SEEN}.add(({self.module!r}, {one.lineno}))"
        return ast.copy_location(ast.parse(text).body[0], one)


def skipped(tree: ast.Module) -> set[int]:
    """Lines whose change means nothing to a law: constants in `slots=True` and the like."""
    lines: set[int] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.ClassDef):
            for one in node.decorator_list:
                lines |= set(range(one.lineno, (one.end_lineno or one.lineno) + 1))
    return lines


def mutants(module: str) -> list[Mutant]:
    """All of one module."""
    text = module_path(module).read_text()
    tree, lines = ast.parse(text), [line.strip() for line in text.splitlines()]
    mute = skipped(tree)
    swap = Swap()
    swap.visit(tree)
    return [
        Mutant(module, number, line, what, " ".join(lines[line - 2 : line]), statement)
        for number, (line, what, statement) in enumerate(swap.found)
        if line not in mute
    ]


def mutated(mutant: Mutant) -> ast.Module:
    """The module with this change."""
    tree = ast.parse(module_path(mutant.module).read_text())
    changed = Swap(mutant.number).visit(tree)
    assert isinstance(changed, ast.Module)
    return ast.fix_missing_locations(changed)


def marked(module: str) -> ast.Module:
    """The module with a mark before each statement."""
    tree = ast.parse(module_path(module).read_text())
    changed = Marked(module).visit(tree)
    assert isinstance(changed, ast.Module)
    return ast.fix_missing_locations(changed)
