"""Looks at a typed script: its folder, what would be shipped, and what it needs."""

import os
import tomllib
from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path

from tpuherd.errors import InvalidInput
from tpuherd.jobfile.environment_key import PROJECT, PROJECT_FILE
from tpuherd.jobfile.typed_script import REQUIREMENTS, ScriptFacts
from tpuherd.near_names import near_names
from tpuherd.settings.folders import resolve_folders
from tpuherd.sync.snapshot_git import HERDIGNORE, is_work_tree, list_files
from tpuherd.sync.snapshot_store import open_archive
from tpuherd.sync.tree_scan import empty_repo_path, shipped_paths
from tpuherd.views.format_text import format_bytes

JOB_FILES = frozenset((".yaml", ".yml", ".json"))
SCRIPTS = frozenset((".py", ".sh"))
NOTEBOOK = ".ipynb"
PROGRAMS = (b"#!", b"\x7fELF")  #: how the files of programs begin
SHARED = ("/", "/tmp", "/var/tmp")
FILES_MAX, BYTES_MAX = 20_000, 200_000_000


def is_script(file: Path) -> bool:
    """Whether it is a program or script, rather than a job file."""
    suffix = file.suffix.lower()
    if suffix in JOB_FILES:
        return False
    return suffix in (*SCRIPTS, NOTEBOOK) or begins_as_program(file)


def begins_as_program(file: Path) -> bool:
    try:
        with file.open("rb") as stream:
            return stream.read(4).startswith(PROGRAMS)
    except OSError:
        return False


def look_at_script(
    file: str, stands: Path, workdir: str | None, environ: Mapping[str, str]
) -> ScriptFacts:
    """Return what is known of the script; `workdir` is the folder to ship, if the user says so."""
    script = (stands / Path(file).expanduser()).resolve()
    if not script.is_file():
        near = near_names(script.name, list_names(script.parent), most=1)
        what = "is a folder: name a script in it" if script.is_dir() else "does not exist"
        raise InvalidInput(f"{file} {what}", hint=f"did you mean {near[0]}?" if near else "")
    suffix = script.suffix.lower()
    if suffix == NOTEBOOK:
        hint = f"make a script of it: jupyter nbconvert --to script {file}"
        raise InvalidInput(f"{file} is a notebook", hint=hint)
    executable = os.access(script, os.X_OK)
    if suffix not in SCRIPTS and not executable:
        raise InvalidInput(f"{file} is not executable", hint=f"chmod +x {file}")
    root, reason = choose_root(script, stands, workdir)
    contents = doubt = ""
    if workdir is None:
        contents, doubt = judge_folder(root, environ)
    return ScriptFacts(
        script=str(script),
        stands=str(stands.resolve()),
        root=str(root),
        reason=reason,
        contents=contents,
        doubt=doubt,
        starts_itself=executable and begins_as_program(script),
        packages=dict(find_packages({root, script.parent, stands.resolve()}, root)),
    )


def list_names(folder: Path) -> list[str]:
    try:
        return sorted(one.name for one in folder.iterdir())
    except OSError:
        return []


def choose_root(script: Path, stands: Path, workdir: str | None) -> tuple[Path, str]:
    """Return the folder to ship, and why that one."""
    if workdir is not None:
        root = (stands / Path(workdir).expanduser()).resolve()
        if not script.is_relative_to(root):
            raise InvalidInput(f"{script} is not in workdir {workdir}")
        return root, "as you say"
    for folder in script.parents:
        if (folder / ".git").exists():
            return folder, "the git repository"
    return script.parent, "the script's folder"


def judge_folder(root: Path, environ: Mapping[str, str]) -> tuple[str, str]:
    """Return how much would be shipped, and why to ask before that; "" if there is no reason."""
    home = Path(environ.get("HOME") or "/").resolve()
    if root == home or root in home.parents or str(root) in SHARED:
        what = "your home folder" if root == home else "more than the script's own folder"
        return "", f"{root} would be shipped, {what}"
    files = size = 0
    places: Counter[str] = Counter()
    for path, length in list_shipped(root, environ):
        files, size = files + 1, size + length
        places[path.partition("/")[0]] += length + 4096  # many small files count too
        if files > FILES_MAX or size > BYTES_MAX:
            much = f"more than {FILES_MAX:,} files" if files > FILES_MAX else "more than 200 MB"
            most = places.most_common(1)[0][0]
            return "", f"{much} of {root} would be shipped, most of them in {most}"
    return f"{files} {'file' if files == 1 else 'files'}, {format_bytes(size)}", ""


def list_shipped(root: Path, environ: Mapping[str, str]) -> Iterator[tuple[str, int]]:
    """Yield each file that would be shipped, relative to the folder, and its size."""
    if is_work_tree(root) or (root / HERDIGNORE).is_file():
        empty = empty_repo_path(open_archive(resolve_folders(environ).state))
        names: Iterator[str] = map(
            os.fsdecode, sorted(shipped_paths(root, list_files(root, empty, environ)))
        )
    else:
        names = walk_files(root)
    for name in names:
        try:
            yield name, (root / name).lstat().st_size
        except OSError:  # deleted meanwhile
            continue


def walk_files(root: Path) -> Iterator[str]:
    for folder, below, names in os.walk(root):
        below.sort()
        for name in sorted(names):
            yield os.path.relpath(os.path.join(folder, name), root)  # noqa: PTH118 - many files


def find_packages(folders: set[Path], root: Path) -> Iterator[tuple[str, frozenset[str]]]:
    """Yield each file in the shipped folders that may name packages, with its tables of TOML."""
    for folder in folders:
        if not folder.is_relative_to(root):
            continue
        for name in (REQUIREMENTS, PROJECT_FILE, PROJECT):
            file = folder / name
            if file.is_file():
                tables = read_tables(file) if name == PROJECT_FILE else frozenset[str]()
                yield file.relative_to(root).as_posix(), tables


def read_tables(file: Path) -> frozenset[str]:
    try:
        return frozenset(tomllib.loads(file.read_text(encoding="utf-8")))
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError):
        return frozenset()
