"""What is sent to hosts means the same as its sources, docstrings apart."""

import ast
from pathlib import Path

import pytest

import tpuherd_host
from tpuherd.remote.agent_bundle import (
    compressed_content,
    current_agent,
    documented_nodes,
    strip_docs,
)

ROOT = Path(tpuherd_host.__file__).parent
SOURCES = sorted(ROOT.rglob("*.py"))


def test_a_packed_agent_is_kept_and_a_damaged_one_is_packed_again(tmp_path: Path) -> None:
    folder = tmp_path / "state" / "agent"
    folder.mkdir(parents=True)
    (folder / "agent-of-before.pyz.z").write_bytes(b"x")
    agent = current_agent(folder)
    packed = agent.compressed
    (kept,) = folder.iterdir()
    assert kept.read_bytes() == packed == current_agent().compressed
    for damaged in (packed[:-1], packed[:1000] + b"?" + packed[1001:], b""):
        kept.write_bytes(damaged)
        compressed_content.cache_clear()
        assert agent.compressed == packed
        assert kept.read_bytes() == packed


def stripped(text: str) -> str:
    """The program without its docstrings."""
    tree = ast.parse(text)
    for node in documented_nodes(tree):
        if ast.get_docstring(node, clean=False) is not None:
            node.body[:1] = [] if len(node.body) > 1 else [ast.Pass()]
    return ast.dump(tree)


@pytest.mark.parametrize("file", SOURCES, ids=lambda file: str(file.relative_to(ROOT)))
def test_a_stripped_source_is_the_same_program(file: Path) -> None:
    text = file.read_text()
    assert ast.dump(ast.parse(strip_docs(text))) == stripped(text)
    assert strip_docs(text).count("\n") == text.count("\n")


def test_a_body_on_the_same_line_is_kept() -> None:
    text = "class Lists(Protocol):\n    def __len__(self) -> int: ...\n"
    assert strip_docs(text) == text
