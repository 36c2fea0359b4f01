"""`herd engine install`: the program and variables of the unit."""

import json
import shlex
import sys
from pathlib import Path

import pytest

from tests.hostile_words import WORDS
from tpuherd.cli.systemd_unit import install_unit
from tpuherd.errors import InvalidInput
from tpuherd.settings import project_access

PROGRAM = [sys.executable, "-P", "-m", "tpuherd.launcher", "engine", "run"]


def make_world(world: Path, environ: dict[str, str]) -> project_access.ProjectAccess:
    world.mkdir(parents=True)
    facts = {"project": "demo", "url": "http://127.0.0.1:1", "ssh_port": 22, "pid": 1}
    (world / "world.json").write_text(json.dumps(facts))
    return project_access.resolve_access(environ, world=world)


def test_the_unit_runs_the_same_program(tmp_path: Path) -> None:
    world = tmp_path / "a world"
    environ = {"HOME": str(tmp_path), "PATH": '/a "b":/100%', "SHELL": "/bin/zsh", "HERD_WORLD": ""}
    place = make_world(world, environ)
    unit, _ = install_unit(place, environ)
    lines = [line.partition("=") for line in unit.read_text().splitlines()]
    (program,) = [value for name, _, value in lines if name == "ExecStart"]
    assert shlex.split(program) == PROGRAM


#: What a variable or a folder can be called at all.
NAMES = {kind: word for kind, word in WORDS.items() if kind not in ("nul", "half", "bytes", "long")}


@pytest.mark.parametrize("kind", NAMES)
def test_no_path_or_variable_adds_a_line_to_a_service(tmp_path: Path, kind: str) -> None:
    word = NAMES[kind]
    environ = {"HOME": str(tmp_path), "PATH": f"/usr/bin:{word}\\"}
    place = make_world(tmp_path / "w" / f"a{word}".replace("/", "_"), environ)
    try:
        unit, _ = install_unit(place, environ)
    except InvalidInput as refused:
        assert not word.isprintable()
        assert refused.sentence.isprintable()
        return
    assert word.isprintable()
    lines = unit.read_text().splitlines()
    assert [line for line in lines if line[:1] == "["] == ["[Unit]", "[Service]", "[Install]"]
    assert sum(line.startswith("Exec") for line in lines) == 1
    assert not any(line.endswith("\\") for line in lines)
