"""A job runs to its end where no leaf can be imported: the core needs none of them."""

import subprocess
import sys
import tomllib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.integration.engines import Owner, owner

pytestmark = pytest.mark.real
PYPROJECT = Path(__file__).parents[2] / "pyproject.toml"
BLOCK = """
import sys

class Blocker:
    def find_spec(self, name, path=None, target=None):
        if any(name == leaf or name.startswith(leaf + ".") for leaf in {leaves!r}):
            raise ImportError("the leaf " + name + " is blocked")

sys.meta_path.insert(0, Blocker())
"""


def leaves() -> list[str]:
    """Return the modules that contracts of pyproject.toml call leaves."""
    contracts = tomllib.loads(PYPROJECT.read_text())["tool"]["importlinter"]["contracts"]
    return [
        module
        for contract in contracts
        if contract["type"] == "protected" and "lea" in contract["name"]
        for module in contract["protected_modules"]
    ]


@dataclass(frozen=True)
class WithoutLeaves(Owner):
    """A user whose Python can import no leaf: of commands, the daemon and the engine."""

    blocker: Path

    @property
    def env(self) -> dict[str, str]:
        return super().env | {"PYTHONPATH": str(self.blocker)}


@pytest.fixture
def user(tmp_path: Path) -> Iterator[Owner]:
    (tmp_path / "sitecustomize.py").write_text(BLOCK.format(leaves=leaves()))
    with owner() as found:
        yield WithoutLeaves(home=found.home, world=found.world, blocker=tmp_path)


def test_a_job_runs_to_its_end_without_any_leaf(user: Owner) -> None:
    assert len(leaves()) >= 7
    for leaf in leaves():
        line = [sys.executable, "-c", f"import {leaf}"]
        assert b"is blocked" in subprocess.run(line, env=user.env, capture_output=True).stderr
    user.job("gpt", "echo hello from $HERD_JOB", accelerator="v4-8")
    assert user.herd("wait", "gpt", seconds=180).returncode == 0
    assert "hello from gpt" in user.herd("logs", "gpt").stdout
    for words in ("ls", "status gpt", "why gpt", "events gpt", "engine plan", "types v4-8", "gc"):
        done = user.herd(*words.split())
        assert (done.returncode, done.stderr) == (0, ""), words
    assert user.herd("down", "gpt", "--yes").returncode == 0
    assert user.all_there_is() == []
