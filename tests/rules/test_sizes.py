"""Limits that no linter checks, each with the file and line that exceeds it."""

import ast
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
FILES = sorted(f for room in ("src", "examples", "docs") for f in (ROOT / room).rglob("*.py"))
FILE_LINES_MAX = 450
FUNCTION_LINES_MAX = 50
DATA_SHARE = 0.8  #: a file is a table of data if tables are this share of its lines


def harmless(node: ast.stmt) -> bool:
    """Whether a statement at the top of a module only names things."""
    match node:
        case ast.Expr(value=ast.Constant()):
            return True
        case ast.If(test=ast.Name(id="TYPE_CHECKING")):
            return True
        case ast.If(test=ast.Compare(left=ast.Name(id="__name__"))):
            return True
        case ast.If():  # sys.platform, sys.version_info
            return all(harmless(child) for child in (*node.body, *node.orelse))
        case ast.Try():  # an import that may fail
            return all(harmless(child) for child in node.body)
        case ast.Expr() | ast.For() | ast.While() | ast.With():
            return False
    return True


def is_data(tree: ast.Module, lines: int) -> bool:
    """Whether values with names at the top of a module are nearly all that it has."""
    named = [node for node in tree.body if isinstance(node, ast.Assign | ast.AnnAssign)]
    return sum((n.end_lineno or n.lineno) - n.lineno + 1 for n in named) >= DATA_SHARE * lines


def test_tables_are_data_and_functions_are_not() -> None:
    assert is_data(ast.parse("A = (\n1,\n2,\n)\nimport b"), 5)
    assert not is_data(ast.parse("A = 1\ndef f():\n    return 1"), 3)


@pytest.mark.parametrize("file", FILES, ids=lambda f: str(f.relative_to(ROOT)))
def test_a_file_has_at_most_450_lines_unless_it_is_data(file: Path) -> None:
    text = file.read_text()
    tree = ast.parse(text)
    sentence = (ast.get_docstring(tree) or "").partition("\n")[0]
    name = file.relative_to(ROOT)
    assert sentence.endswith((".", "?", "!", ":")), f"{name}:1: begin it with a sentence about it"
    lines = text.count("\n")
    assert lines <= FILE_LINES_MAX or is_data(tree, lines), (
        f"{name} has {lines} lines, may have {FILE_LINES_MAX}: move a topic of it,"
        " of 100 lines or more, to a file that has the topic or to one of its own"
    )
    for node in tree.body:
        assert harmless(node), (
            f"{name}:{node.lineno}: does something when imported: move it into a function"
        )


@pytest.mark.parametrize("file", FILES, ids=lambda f: str(f.relative_to(ROOT)))
def test_a_function_has_at_most_50_lines(file: Path) -> None:
    for node in ast.walk(ast.parse(file.read_text())):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            lines = (node.end_lineno or node.lineno) - node.lineno + 1
            assert lines <= FUNCTION_LINES_MAX, (
                f"{file.relative_to(ROOT)}:{node.lineno}: {node.name} has {lines} lines, may have"
                f" {FUNCTION_LINES_MAX}: name a step of it and make it a function"
            )
