"""Limits that no linter checks, each with the file and line that exceeds it."""

import ast
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
FILES = sorted(f for room in ("src", "examples", "docs") for f in (ROOT / room).rglob("*.py"))
FILE_LINES_MAX = 450
FUNCTION_LINES_MAX = 50


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


@pytest.mark.parametrize("file", FILES, ids=lambda f: str(f.relative_to(ROOT)))
def test_a_file_has_at_most_400_lines(file: Path) -> None:
    text = file.read_text()
    tree = ast.parse(text)
    sentence = (ast.get_docstring(tree) or "").partition("\n")[0]
    assert sentence.endswith((".", "?", "!", ":")), f"{file}:1 say in a sentence what it is for"
    assert text.count("\n") <= FILE_LINES_MAX, f"{file} is two rooms in one"
    for node in tree.body:
        assert harmless(node), f"{file}:{node.lineno} does something when imported"


@pytest.mark.parametrize("file", FILES, ids=lambda f: str(f.relative_to(ROOT)))
def test_a_function_has_at_most_50_lines(file: Path) -> None:
    for node in ast.walk(ast.parse(file.read_text())):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            lines = (node.end_lineno or node.lineno) - node.lineno + 1
            assert lines <= FUNCTION_LINES_MAX, f"{file}:{node.lineno} {node.name}: {lines} lines"
