"""What is in a job's folders: which of it the script made, and what a process has open for writing.

The base is what lay there when the command first started on this node: code, and what setup made.
What is as it was then is not kept, nor is code as it was shipped. Nothing is read here but names,
the kernel's word about each, and what processes have open.
"""

import fnmatch
import json
import os
import re
import stat
from contextlib import suppress
from itertools import chain
from pathlib import Path
from typing import Dict, Iterable, List, Mapping, NamedTuple, Optional, Sequence, Set, Tuple

from tpuherd_host.agent.keep.kept_store import KeepConfig
from tpuherd_host.agent.processes import all_processes, with_descendants
from tpuherd_host.agent.snapshots.manifest import ManifestRow
from tpuherd_host.agent.snapshots.safe_tree import join_path
from tpuherd_host.agent.snapshots.tree import is_row_intact, needed_folders
from tpuherd_host.agent.snapshots.tree_layout import find_destination, known_rows, resolve_path

#: Left out unless `keep` names them: folders, and files.
FOLDERS_LEFT_OUT = (
    ".git", ".venv", "__pycache__", "node_modules", "*/.cache/pip", "*/.cache/huggingface",
)  # fmt: skip
FILES_LEFT_OUT = ("*.lock", "*.pid", "*.sock", "core", "core.[0-9]*")
KEYS_LEFT_OUT = (
    ".env", ".netrc", "*.pem", "*.key", "*credentials*.json",
    "id_rsa*", "id_dsa*", "id_ecdsa*", "id_ed25519*",
)  # fmt: skip
REFUSED = ("/proc", "/sys", "/dev", "/etc", "/usr")
KINDS = {stat.S_IFIFO: "is a pipe", stat.S_IFSOCK: "is a socket"}
LOOKED_AT_MAX = 200_000
MOUNT = "another file system is mounted there"
KEY = "may be a secret; name it in `keep` to keep it"


class TooMany(OSError):
    """There is more than can be looked at."""


class Root(NamedTuple):
    """The working folder, or a path that `keep` names."""

    name: bytes  #: as rows begin with: in the working folder, or absolute
    anchor: bytes  #: a folder on the way to it, through no link
    below: bytes  #: the way from there


class FileEntry(NamedTuple):
    """What the kernel says of a file, folder or link."""

    mode: int
    inode: int
    size: int
    mtime_ns: int
    ctime_ns: int  #: of its last change, which no program can set back
    stored: int  #: what it takes on the disk, without holes

    @property
    def is_folder(self) -> bool:
        return stat.S_ISDIR(self.mode)

    @property
    def is_file(self) -> bool:
        return stat.S_ISREG(self.mode)

    def is_same(self, other: "FileEntry") -> bool:
        """Whether it did not change; a folder changes with its names, which are compared too."""
        if self.is_folder:
            return self.mode == other.mode
        return self[:5] == other[:5]


class Look(NamedTuple):
    """What was there."""

    entries: Dict[bytes, FileEntry]
    left_out: Dict[bytes, str]


def make_entry(found: os.stat_result) -> FileEntry:
    stored = min(found.st_size, found.st_blocks * 512)
    times = (found.st_mtime_ns, found.st_ctime_ns)
    return FileEntry(found.st_mode, found.st_ino, found.st_size, *times, stored)


# ---- where ---------------------------------------------------------------------------------------


def find_roots(config: KeepConfig, home: Path, agent_folder: Path) -> List[Root]:
    """Return what `keep` names, else the working folder; ValueError for what is not kept."""
    folder = resolve_path(home, config.folder)
    roots = []
    for text in [path for path in config.paths if not path.startswith("!")] or ["."]:
        if ".." in text.split("/") or "\0" in text:
            raise ValueError(f"keep: {text} leads through `..`")
        path = Path(os.path.normpath(str(home / text[2:] if text[:2] == "~/" else folder / text)))
        if path == folder or folder in path.parents:
            name = os.fsencode(str(path.relative_to(folder)))
            root = Root(b"" if name == b"." else name, os.fsencode(str(folder)), b"")
            root = root._replace(below=root.name)
        else:
            above = os.path.realpath(str(path.parent))
            path = Path(above) / path.name
            root = Root(os.fsencode(str(path)), os.fsencode(above), os.fsencode(path.name))
        refuse_path(path, text, (home.resolve(), agent_folder.resolve(), folder))
        roots.append(root)
    roots.sort(key=lambda root: -len(root.name))  # what is in another one is found first
    tables = left_out_by(config)
    for one in roots:
        for other in roots:
            apart = tables.folders.match(other.name) or tables.files.match(other.name)
            if one is not other and is_below(other.name, one.name) and not apart:
                sentence = (
                    f"{os.fsdecode(other.name)} is in {os.fsdecode(one.name) or 'the folder'}"
                )
                raise ValueError(f"keep: {sentence}; name one of them")
    return roots


def refuse_path(path: Path, text: str, places: Tuple[Path, Path, Path]) -> None:
    home, agent_folder, folder = places
    above = any(path == no or path in no.parents for no in (home, agent_folder))
    if above or (path in folder.parents) or agent_folder in path.parents:
        raise ValueError(f"keep: {text} holds more than a script's files; name a folder in it")
    for no in REFUSED:
        if f"{path}/".startswith(f"{no}/"):
            raise ValueError(f"keep: {text} is in {no}, which is the system's")


def is_below(path: bytes, folder: bytes) -> bool:
    """Whether a row's path is at or below another; b"" is the working folder."""
    if not folder:
        return not path.startswith(b"/")
    return path == folder or path.startswith(folder + b"/")


def join_row(folder: bytes, name: bytes) -> bytes:
    return folder + b"/" + name if folder else name


# ---- what ----------------------------------------------------------------------------------------


class Patterns:
    """Names and paths that are left out, as compiled once."""

    def __init__(self, patterns: Iterable[str]) -> None:
        names, paths = [], []
        for one in patterns:
            if "/" in one:
                paths.append(fnmatch.translate(one if one[0] in "*/" else f"/{one}"))
            else:
                names.append(fnmatch.translate(one))
        self._names, self._paths = (re.compile("|".join(all or ["(?!)"])) for all in (names, paths))

    def match(self, row: bytes) -> bool:
        path = "/" + os.fsdecode(row).lstrip("/")
        name = path.rpartition("/")[2]
        return bool(self._names.match(name) or self._paths.match(path))


class LeftOut(NamedTuple):
    folders: Patterns
    files: Patterns
    keys: Patterns


def left_out_by(config: KeepConfig) -> LeftOut:
    own = [path[1:] for path in config.paths if len(path) > 1 and path[0] == "!"]
    files = (*FILES_LEFT_OUT, *KEYS_LEFT_OUT, *own)
    return LeftOut(Patterns([*FOLDERS_LEFT_OUT, *own]), Patterns(files), Patterns(KEYS_LEFT_OUT))


def look_at(roots: Sequence[Root], left_out: LeftOut) -> Look:
    """List all that may be kept, and name what may not."""
    look = Look({}, {})
    for root in roots:
        top = join_path(root.anchor, root.below)
        try:
            found = os.lstat(top)
        except (FileNotFoundError, NotADirectoryError):
            continue
        if not add_entry(look, root.name, found):
            continue
        waiting = [(top, root.name)] if stat.S_ISDIR(found.st_mode) else []
        while waiting:
            waiting += look_at_folder(look, *waiting.pop(), found.st_dev, left_out)
            if len(look.entries) > LOOKED_AT_MAX:
                sentence = f"more than {LOOKED_AT_MAX:,} files; name in `keep` what is to be kept"
                raise TooMany(0, sentence, os.fsdecode(top))
    return look


def look_at_folder(
    look: Look, path: bytes, name: bytes, device: int, left_out: LeftOut
) -> List[Tuple[bytes, bytes]]:
    """Add what is in a folder; return its folders."""
    below = []
    try:
        with os.scandir(path) as entries:
            for entry in entries:
                row = join_row(name, entry.name)
                is_folder = entry.is_dir(follow_symlinks=False)
                if (left_out.folders if is_folder else left_out.files).match(row):
                    if not is_folder and left_out.keys.match(row):
                        look.left_out[row] = KEY
                    continue
                with suppress(FileNotFoundError):  # it is gone again
                    found = entry.stat(follow_symlinks=False)
                    if found.st_dev != device:
                        look.left_out[row] = MOUNT
                    elif add_entry(look, row, found) and is_folder:
                        below.append((entry.path, row))
    except FileNotFoundError:
        pass
    except OSError as error:
        look.left_out[name] = f"can't be read: {error.strerror}"
    return below


def add_entry(look: Look, row: bytes, found: os.stat_result) -> bool:
    kind = stat.S_IFMT(found.st_mode)
    if kind not in (stat.S_IFREG, stat.S_IFDIR, stat.S_IFLNK):
        look.left_out[row] = KINDS.get(kind, "is a device")
        return False
    look.entries[row] = make_entry(found)
    return True


class Code(NamedTuple):
    """The code in the working folder, as it was shipped."""

    tree: bytes
    rows: Dict[bytes, ManifestRow]
    folders: Set[bytes]
    intact: Dict[bytes, FileEntry]  #: what was found to be as shipped

    def is_intact(self, path: bytes, entry: FileEntry) -> bool:
        row = self.rows.get(path)
        if row is None:
            return False
        if self.intact.get(path) == entry:
            return True
        if is_row_intact(self.tree, row):
            self.intact[path] = entry
            return True
        return False


def find_code(config: KeepConfig, home: Path, agent_folder: Path) -> Code:
    spot = find_destination(agent_folder, home, config.folder, force=True)
    rows = {one.path: one for one in known_rows(agent_folder, spot.current) if not one.is_folder}
    return Code(os.fsencode(str(spot.dest)), rows, needed_folders(rows.values()), {})


Base = Mapping[bytes, FileEntry]


def base_file(config: KeepConfig, agent_folder: Path) -> Path:
    return agent_folder / "kept" / "base" / config.run / "base.json"


def read_base(config: KeepConfig, agent_folder: Path) -> Dict[bytes, FileEntry]:
    """Return what lay there before the command first started on this node; FileNotFoundError."""
    rows = json.loads(base_file(config, agent_folder).read_text())
    return {os.fsencode(path): FileEntry(*facts) for path, *facts in rows}


def record_base(
    config: KeepConfig, agent_folder: Path, look: Look, code: Code
) -> Dict[bytes, FileEntry]:
    """Return the base, which is what lies there now if there is no record. A file that only moved
    with its folder, as when code is switched, is as it was."""
    try:
        base = read_base(config, agent_folder)
    except FileNotFoundError:
        base = {p: e for p, e in look.entries.items() if not code.is_intact(p, e)}
    moved = (path for path in base if path in look.entries and path not in code.rows)
    base.update({p: look.entries[p] for p in moved if look.entries[p][:4] == base[p][:4]})
    save_base(config, agent_folder, base)
    return base


def save_base(config: KeepConfig, agent_folder: Path, base: Base) -> None:
    file = base_file(config, agent_folder)
    file.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    fresh = file.with_name("base.new")
    fresh.write_text(json.dumps([[os.fsdecode(path), *entry] for path, entry in base.items()]))
    fresh.replace(file)


def made_by_script(
    look: Look, roots: Sequence[Root], base: Base, code: Code
) -> Tuple[Dict[bytes, FileEntry], Dict[bytes, str]]:
    """Return what the command made or changed, and what it removed, as shipped or ""."""
    made = {}
    for path, entry in look.entries.items():
        was = base.get(path)
        if not (was and was.is_same(entry)) and not code.is_intact(path, entry):
            made[path] = entry
    missing = {p: "" for p in base if p not in look.entries and p not in code.rows}
    missing.update({p: row.id.hex() for p, row in code.rows.items() if p not in look.entries})
    gone = {path: id for path, id in missing.items() if is_gone(path, roots)}
    changed = {path.rpartition(b"/")[0] for path in chain(made, gone)}
    for path, entry in look.entries.items():
        if entry.is_folder and path in changed:  # its time changed with what is in it
            made[path] = entry
    for path in [p for p, e in made.items() if e.is_folder and p in code.folders - changed]:
        del made[path]
    return made, gone


def is_gone(path: bytes, roots: Sequence[Root]) -> bool:
    """Whether a path that may be kept does not exist; what can't be seen may."""
    root = find_root(path, roots)
    if root is None:
        return False
    try:
        os.lstat(place_of(path, root))
    except (FileNotFoundError, NotADirectoryError):
        return True
    except OSError:
        pass
    return False


def find_root(path: bytes, roots: Sequence[Root]) -> Optional[Root]:
    return next((one for one in roots if is_below(path, one.name)), None)


def place_of(path: bytes, root: Root) -> bytes:
    """Return where a row's path is on this host."""
    return join_path(root.anchor, way_of(path, root))


def way_of(path: bytes, root: Root) -> bytes:
    """Return the way to a row's path from the root's anchor."""
    return root.below + path[len(root.name) :] if root.name else path


# ---- bounds --------------------------------------------------------------------------------------


class Size(NamedTuple):
    bytes: int = 0
    files: int = 0
    changed_ns: int = 0


def top_entry(path: bytes, roots: Sequence[Root]) -> bytes:
    """Return the entry of a root that a path is in; b"" for a root that is a folder."""
    root = find_root(path, roots)
    name = root.name if root else b""
    rest = path[len(name) :].lstrip(b"/")
    return join_row(name, rest.partition(b"/")[0]) if rest else b""


def entries_over_bounds(
    made: Mapping[bytes, FileEntry], roots: Sequence[Root], config: KeepConfig
) -> Dict[bytes, str]:
    """Return the top entries to leave out, largest first, until the rest is within the bounds."""
    sizes: Dict[bytes, Size] = {}
    for path, entry in made.items():
        top = top_entry(path, roots)
        old = sizes.get(top, Size())
        changed_ns = max(old.changed_ns, entry.ctime_ns)
        sizes[top] = Size(old.bytes + entry.stored * entry.is_file, old.files + 1, changed_ns)
    sizes.pop(b"", None)
    newest = max(sizes, key=lambda top: sizes[top].changed_ns, default=b"")
    found = {}
    for field, most in ((0, config.bytes_max), (1, config.files_max)):
        total = sum(size[field] for size in sizes.values())
        while total > most:
            top = max(sizes, key=lambda one: (sizes[one][field], one))
            size = sizes.pop(top)
            total -= size[field]
            bound = f"{most / 1e9:.3g} GB" if field == 0 else f"{most:,} files"
            last = "; it changed last, so it may be the checkpoint" if top == newest else ""
            found[top] = f"{size.bytes / 1e9:.3g} GB in {size.files:,} files, over {bound}{last}"
    return found


# ---- open files ----------------------------------------------------------------------------------


def find_open_files(roots: Sequence[Root]) -> Tuple[Set[int], bool]:
    """Return the inodes that processes have open for writing, and whether all the processes that
    this one started could be asked."""
    places = tuple(join_path(root.anchor, root.below) for root in roots)
    among = all_processes()
    ours, readable = with_descendants({os.getpid()}, among), True
    found: Set[int] = set()
    for pid in among:
        if among[pid].gone or pid == os.getpid():
            continue
        try:
            found |= written_files(pid, places)
        except PermissionError:
            readable &= pid not in ours
        except OSError:
            pass  # it has ended
    return found, readable


def written_files(pid: int, places: Tuple[bytes, ...]) -> Set[int]:
    """Return the inodes at or below these places that a process may write to."""
    folder, found = f"/proc/{pid}/fd", set()
    for number in os.listdir(folder):
        with suppress(FileNotFoundError):
            path = os.fsencode(os.readlink(f"{folder}/{number}"))
            if not path.startswith(places):
                continue
            with open(f"/proc/{pid}/fdinfo/{number}") as file:
                flags = next(int(line.split()[1], 8) for line in file if line.startswith("flags"))
            if flags & os.O_ACCMODE:
                found.add(os.stat(f"{folder}/{number}").st_ino)
    with open(f"/proc/{pid}/maps", "rb") as maps:
        for line in maps:
            if b" rw-s " in line:
                words = line.split(None, 5)
                if len(words) > 5 and words[5].startswith(places):
                    found.add(int(words[4]))
    return found


def file_clock_ns(agent_folder: Path) -> int:
    """Return the time as the kernel sets it for files."""
    place = agent_folder / "kept" / "now"
    place.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    with open(str(place), "wb") as file:
        file.write(b"0")
        file.flush()
        return os.fstat(file.fileno()).st_ctime_ns
