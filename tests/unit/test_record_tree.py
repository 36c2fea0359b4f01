"""An environment works in any folder, with the Python that was downloaded for it."""

import json
import subprocess
from pathlib import Path

from tpuherd_host.agent.environments.environment_folders import HERE
from tpuherd_host.agent.environments.record_tree import make_relocatable, record_tree
from tpuherd_host.agent.snapshots.manifest import parse_row
from tpuherd_host.agent.snapshots.tree_layout import load_rows

PYTHON = '#!/bin/sh\necho "$(dirname "$0")" "$@"\n'


def write_program(file: Path, text: str) -> None:
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(text)
    file.chmod(0o755)


def make_tree(folder: Path) -> tuple[Path, Path]:
    """An environment as uv makes it, and the folder of the Python that it downloaded."""
    tree, pythons = folder / "new", folder / "new.python"
    write_program(pythons / "cpython-3.12/bin/python3.12", PYTHON)
    (pythons / "cpython").symlink_to("cpython-3.12")
    (tree / "bin").mkdir(parents=True)
    (tree / "bin/python").symlink_to(pythons / "cpython/bin/python3.12")
    (tree / "bin/python3").symlink_to("python")
    write_program(tree / "bin/tool", f"#!{tree}/bin/python3.12\nprint(1)\n")
    (tree / "bin/activate").write_text(f"VIRTUAL_ENV={tree}\n")
    (tree / "lib/__pycache__").mkdir(parents=True)
    (tree / "lib/__pycache__/a.pyc").write_bytes(b"\0")
    (tree / "lib/a.py").write_text("a = 1\n")
    (tree / "pyvenv.cfg").write_text(f"home = {pythons}/cpython/bin\nprompt = {tree}\n")
    return tree, pythons


def test_everything_in_it_works_in_another_folder(tmp_path: Path) -> None:
    tree, pythons = make_tree(tmp_path)
    final = Path("/home/me/herd/.environments/key")
    text = make_relocatable(tree, pythons, final)
    assert text == f"home = {HERE}/.python/cpython-3.12/bin\nprompt = {HERE}"
    assert (tree / "bin/activate").read_text() == f"VIRTUAL_ENV={final}\n"
    moved = tree.rename(tmp_path / "moved")
    done = subprocess.run([moved / "bin/tool", "x"], capture_output=True, text=True)
    assert done.stdout == f"{moved}/bin {moved}/bin/tool x\n", done.stderr
    links = [file for file in moved.rglob("*") if file.is_symlink()]
    assert {str(link.resolve()).startswith(str(moved)) for link in links} == {True}
    assert not any(link.readlink().is_absolute() for link in links)


def test_a_snapshot_has_its_files_without_what_python_makes_again(tmp_path: Path) -> None:
    tree, pythons = make_tree(tmp_path)
    make_relocatable(tree, pythons, tree)
    (tree / "about").write_text(json.dumps({}))
    id, size = record_tree(tree, tmp_path / "agent")
    rows = load_rows(tmp_path / "agent", id)
    assert rows is not None
    found = {one.path.decode(): one for one in map(parse_row, rows)}
    assert "lib/a.py" in found and "bin/tool" in found
    assert not [path for path in found if "pycache" in path or path == "pyvenv.cfg"]
    assert found["bin/python"].is_link
    assert found["bin/tool"].mode & 0o111 and not found["lib/a.py"].mode & 0o111
    assert size == sum(one.size for one in found.values())
    assert record_tree(tree, tmp_path / "agent") == (id, size)
