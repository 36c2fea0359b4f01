"""Turns a freshly installed environment into a snapshot that works in any folder."""

import os
import shutil
import stat
from pathlib import Path
from typing import Iterator, List, Tuple

from tpuherd_host.agent.environments.environment_folders import CONFIGURATION, HERE
from tpuherd_host.agent.snapshots.blobs import PIECE
from tpuherd_host.agent.snapshots.manifest import pack_row, pack_rows, rows_id
from tpuherd_host.agent.snapshots.tree import CACHE, walk_folders
from tpuherd_host.agent.snapshots.tree_layout import open_blobs, rows_file

EXECUTABLE, PLAIN, LINK = stat.S_IFREG | 0o755, stat.S_IFREG | 0o644, stat.S_IFLNK | 0o777
SCRIPT_MAX = 1 << 20
PYTHONS = ".python"  #: a Python that uv downloaded, within the environment
#: The first lines of a script that starts the Python beside it, wherever that is.
BESIDE = b"""#!/bin/sh
'''exec' "$(dirname -- "$(realpath -- "$0")")"/python "$0" "$@"
' '''
"""


def make_relocatable(tree: Path, pythons: Path, final: Path) -> str:
    """Remove this folder's path from an environment; return the text of its pyvenv.cfg.

    `pythons` holds a Python that was downloaded for it, and moves inside; `final`: where it will be
    on most hosts.
    """
    own = (tree / "bin" / "python").resolve()
    inside = pythons.resolve() in own.parents
    text = (tree / CONFIGURATION).read_text(encoding="utf-8")
    (tree / CONFIGURATION).unlink()
    if inside:
        link_python_inside(tree, pythons, own)
        home = Path(HERE) / PYTHONS / own.relative_to(pythons.resolve()).parent
        lines = text.splitlines()
        text = "\n".join(f"home = {home}" if one.startswith("home") else one for one in lines)
    for file in (tree / "bin").iterdir():
        if file.is_file() and not file.is_symlink() and file.stat().st_size <= SCRIPT_MAX:
            replace_paths(file, os.fsencode(str(tree)), os.fsencode(str(final)))
    return text.replace(str(tree), HERE)


def link_python_inside(tree: Path, pythons: Path, own: Path) -> None:
    """Move the downloaded Python into the environment, and link to it by relative paths."""
    goal = Path(PYTHONS) / own.relative_to(pythons.resolve())
    pythons.rename(tree / PYTHONS)
    for link in (tree / "bin").iterdir():
        if link.is_symlink() and link.name.startswith("python"):
            link.unlink()
            link.symlink_to(".." / goal if link.name == "python" else "python")


def replace_paths(file: Path, old: bytes, new: bytes) -> None:
    """Let a script start the Python beside it; replace the path of the folder in other files."""
    content = file.read_bytes()
    if old not in content or b"\0" in content:
        return
    first, _, rest = content.partition(b"\n")
    if first.startswith(b"#!" + old + b"/bin/python"):
        content = BESIDE + rest
    mode = file.stat().st_mode
    file.unlink()  # it may be a link into a cache
    file.write_bytes(content.replace(old, new))
    file.chmod(mode)


def record_tree(tree: Path, agent_folder: Path) -> Tuple[str, int]:
    """Add a folder to this host's snapshots, without compiled files; return its id and size."""
    store, found, total = open_blobs(agent_folder), os.fsencode(str(tree)), 0
    rows: List[bytes] = []
    with store.shared_lock(), store.new_pack() as pack:
        for path, entries in walk_folders(found):
            if CACHE in path.split(b"/"):
                continue
            for entry in entries:
                if entry.is_dir(follow_symlinks=False):
                    continue
                facts = entry.stat(follow_symlinks=False)
                name = path + b"/" + entry.name if path else entry.name
                id, size = pack.add(read_entry(entry))
                rows.append(pack_row(name, row_mode(facts.st_mode), size, id))
                total += size
    return write_rows(sorted(rows), agent_folder), total


def write_rows(rows: List[bytes], agent_folder: Path) -> str:
    """Add a snapshot whose contents are here; return its id."""
    id = rows_id(rows).hex()
    file = rows_file(agent_folder, id)
    fresh = file.with_name(f"{id}.{os.getpid()}")
    fresh.write_bytes(pack_rows(rows))
    fresh.replace(file)
    return id


def read_entry(entry: "os.DirEntry[bytes]") -> Iterator[bytes]:
    if entry.is_symlink():
        yield os.readlink(entry.path)
        return
    with open(entry.path, "rb") as file:
        while True:
            piece = file.read(PIECE)
            if not piece:
                return
            yield piece


def row_mode(mode: int) -> int:
    if stat.S_ISLNK(mode):
        return LINK
    return EXECUTABLE if mode & 0o100 else PLAIN


def remove_folder_tree(folder: Path) -> None:
    shutil.rmtree(str(folder), ignore_errors=True)
