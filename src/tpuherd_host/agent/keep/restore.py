"""Brings a generation into a job's folder, before the command starts.

What lies there and is not of the base is moved aside. Files are written below folders that are held
open, never through a link, and compared with the manifest as they arrive. Of a file that the script
changed and that is shipped otherwise now, the script's version goes beside it as NAME.kept.
"""

import errno
import hashlib
import os
import stat
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager, suppress
from io import FileIO
from pathlib import Path
from typing import Dict, Iterable, Iterator, List, Mapping, NamedTuple, Optional, Tuple

from tpuherd_host.agent.keep.file_listing import (
    Base,
    Code,
    FileEntry,
    Root,
    find_code,
    find_root,
    find_roots,
    left_out_by,
    look_at,
    made_by_script,
    record_base,
    save_base,
    way_of,
)
from tpuherd_host.agent.keep.generation import Attempt, list_published
from tpuherd_host.agent.keep.kept_manifest import (
    FILE,
    FOLDER,
    HEAD_MAX,
    LINK,
    Generation,
    Head,
    Manifest,
    Row,
    manifest_name,
    parse_head,
    pieces_of,
    printable_path,
)
from tpuherd_host.agent.keep.kept_store import KeepConfig, KeptStore
from tpuherd_host.agent.keep.part_writer import Stream
from tpuherd_host.agent.keep.remove_old import read_manifest
from tpuherd_host.agent.snapshots.safe_tree import NEW_FILE, SafeTree, open_tree
from tpuherd_host.agent.snapshots.tree import is_row_intact
from tpuherd_host.agent.snapshots.trial_files import PutAside, restore_code

AT_ONCE = 4
GAP = 4 << 20  #: so much that is not needed is read rather than asked anew
RESERVE = 64 << 20  #: bytes that stay free on the disk
BESIDE = b".kept"


class Damaged(OSError):
    """A generation can't be restored; another attempt continues the one before."""

    def __init__(self, generation: Generation, why: str) -> None:
        super().__init__(f"generation {generation} of the kept files is damaged: {why}")
        self.generation = generation


class Restored(NamedTuple):
    """What came back."""

    beside: Tuple[bytes, ...] = ()  #: the script's versions of files that the code changed, too
    aside: str = ""  #: where what lay there went
    others: Tuple[int, ...] = ()  #: workers whose files no host got: their number changed
    refused: Tuple[bytes, ...] = ()  #: elsewhere, and not named in `keep` any more
    warning: str = ""
    files: int = 0
    bytes: int = 0


class HostFolders(NamedTuple):
    """The folders of this host that are written to."""

    roots: List[Root]
    code: Code
    base: Base


def restore_files(
    store: KeptStore, begun: Attempt, config: KeepConfig, home: Path, agent_folder: Path
) -> Restored:
    """Record the base, and bring back what this attempt continues. OSError, ValueError: the command
    must not start. A damaged generation is noted in the store."""
    roots, code = find_roots(config, home, agent_folder), find_code(config, home, agent_folder)
    look = look_at(roots, left_out_by(config))
    place = HostFolders(roots, code, record_base(config, agent_folder, look, code))
    if begun.source is None:
        return Restored()
    try:
        if not begun.restores:
            return restore_changed_code(store, config, place)
        manifest, others, warning = choose_manifest(store, begun.source, begun, config, code)
        made, _ = made_by_script(look, roots, place.base, code)
        aside = move_aside(config, agent_folder, place, made, manifest)
        if manifest is None:
            return Restored(aside=aside, others=others, warning=warning)
        done = restore_manifest(store, manifest, manifest.rows, place)
    except Damaged as error:
        store.write_new(f"damaged/{error.generation}", [str(error).encode()])
        raise
    if manifest.worker != config.worker:
        add_to_base(config, agent_folder, place, manifest, done.beside)
    return done._replace(aside=aside, others=others, warning=warning)


def choose_manifest(
    store: KeptStore, source: Generation, begun: Attempt, config: KeepConfig, code: Code
) -> Tuple[Optional[Manifest], Tuple[int, ...], str]:
    """Return what this host gets, the workers whose files no host gets, and a warning or ""."""
    heads: Dict[int, Head] = {}
    for worker in range(begun.source_workers):
        with suppress(FileNotFoundError), as_damage(source):
            text = store.read(manifest_name(source, worker), 0, HEAD_MAX)
            heads[worker], _ = parse_head(text)
    contents = {worker: head.content for worker, head in heads.items() if head.content}
    chosen, others = choose_worker(contents, config, begun.source_workers)
    own, warning = config.worker if config.worker in contents else None, ""
    if chosen not in (None, own) and not has_room(code.tree, heads[chosen or 0].bytes):
        warning = f"the files of worker {chosen} do not fit on this disk, so it gets its own"
        chosen = own
    if chosen is None:
        return None, others, warning
    if not has_room(code.tree, heads[chosen].bytes):
        need = f"the disk has no room for {heads[chosen].bytes / 1e9:.3g} GB of kept files"
        raise OSError(errno.ENOSPC, need, os.fsdecode(code.tree))
    with as_damage(source):
        return read_manifest(store, source, chosen), others, warning


@contextmanager
def as_damage(generation: Generation) -> Iterator[None]:
    """Call what can't be parsed damaged."""
    try:
        yield
    except ValueError as error:
        raise Damaged(generation, str(error)) from None


def choose_worker(
    contents: Mapping[int, str], config: KeepConfig, workers: int
) -> Tuple[Optional[int], Tuple[int, ...]]:
    """Return whose files this host gets, and whose no host gets. One content goes to all hosts, of
    several each gets its own; with another number of hosts the first one's goes to all."""
    if not contents:
        return None, ()
    first = min(contents)
    if workers != config.workers and len(set(contents.values())) > 1:
        return first, tuple(sorted(contents.keys() - {first}))
    own = config.worker if config.worker in contents else None
    return (first if own is None else own) if len(set(contents.values())) == 1 else own, ()


def has_room(folder: bytes, need: int) -> bool:
    while not os.path.isdir(folder):
        folder = os.path.dirname(folder)
    disk = os.statvfs(folder)
    return need + RESERVE <= disk.f_bavail * disk.f_frsize


# ---- what lies there -----------------------------------------------------------------------------


def move_aside(
    config: KeepConfig,
    agent_folder: Path,
    place: HostFolders,
    made: Mapping[bytes, FileEntry],
    manifest: Optional[Manifest],
) -> str:
    """Move what a script made here away, bring back code; return where it went, or ""."""
    comes = {row.path for row in manifest.rows if row.kind != FOLDER} if manifest else set()
    last, moved = b"\0", ""
    for path in sorted(made):
        if path.startswith(last + b"/"):
            continue
        entry, stays = made[path], path in place.base or path in place.code.folders
        if stays and (entry.is_folder or (path not in comes and path not in place.code.rows)):
            continue  # what setup made, and the script changed: there is no other version of it
        root = find_root(path, place.roots)
        if root is not None:
            put = put_aside(config, root)
            put.move_away(way_of(path, root))
            last, moved = path, moved or os.fsdecode(put.aside or b"")
    root = find_root(b"", place.roots)
    if root is not None and place.code.rows:
        restore_code(agent_folder, put_aside(config, root), list(place.code.rows.values()))
    return moved


def put_aside(config: KeepConfig, root: Root) -> PutAside:
    absolute = root.name.startswith(b"/")
    beside = root.name if absolute else root.anchor
    return PutAside(root.anchor, b"%s.aside/%d" % (beside, config.attempt))


def add_to_base(
    config: KeepConfig,
    agent_folder: Path,
    place: HostFolders,
    manifest: Manifest,
    beside: Iterable[bytes],
) -> None:
    """Count what came of another worker as what lay here before."""
    there = look_at(place.roots, left_out_by(config)).entries
    paths = [*(row.path for row in manifest.rows), *beside]
    gone = {path for path, _ in manifest.gone if path not in there}
    base = {path: entry for path, entry in place.base.items() if path not in gone}
    base.update({path: there[path] for path in paths if path in there})
    save_base(config, agent_folder, base)


# ---- to write ------------------------------------------------------------------------------------


def restore_changed_code(store: KeptStore, config: KeepConfig, place: HostFolders) -> Restored:
    """Bring back, on a node where all else lies still, what a switch of code has replaced."""
    published = list_published(store.list("generations/"))
    ours = [g for g, workers in published.workers.items() if config.worker in workers]
    if not ours:
        return Restored()
    with as_damage(max(ours)):
        manifest = read_manifest(store, max(ours), config.worker)
    rows = [row for row in manifest.rows if row.code and is_replaced(row.path, place)]
    gone = tuple(one for one in manifest.gone if one[1])
    return restore_manifest(store, manifest._replace(gone=gone), rows, place)


def is_replaced(path: bytes, place: HostFolders) -> bool:
    """Whether the code has its own version at this path, or removed it."""
    found = os.path.join(place.code.tree, path)
    if path not in place.code.rows:
        return not os.path.lexists(found)
    return is_row_intact(place.code.tree, place.code.rows[path])


def restore_manifest(
    store: KeptStore, manifest: Manifest, rows: Iterable[Row], place: HostFolders
) -> Restored:
    """Write these rows of a manifest, and remove what the script removed."""
    plan, beside, refused = plan_rows(rows, place)
    for anchor in {place.code.tree, *(root.anchor for root in place.roots)}:
        os.makedirs(anchor, exist_ok=True)
    folders = sorted((one for one in plan if one.row.kind == FOLDER), key=lambda one: one.way)
    with Trees() as trees:
        for target in folders:
            trees.open(target.anchor).open_folder(target.way, make=True)
        with ThreadPoolExecutor(AT_ONCE) as pool:
            groups = group_by_parts(plan, manifest)
            tasks = [pool.submit(write_files, store, manifest, group) for group in groups]
            for task in tasks:
                task.result()
        for target in plan:
            if target.row.kind == LINK:
                write_link(trees.open(target.anchor), target)
        remove_gone(trees, manifest, place)
        for target in reversed(folders):
            folder = trees.open(target.anchor).open_folder(target.way)
            os.fchmod(folder, target.row.mode)
            os.utime(folder, ns=(target.row.mtime_ns, target.row.mtime_ns))
    files = [target.row for target in plan if target.row.kind != FOLDER]
    size = sum(row.stored_bytes for row in files)
    return Restored(beside, refused=refused, files=len(files), bytes=size)


class Target(NamedTuple):
    """A row, and where it goes."""

    row: Row
    anchor: bytes
    way: bytes


def plan_rows(
    rows: Iterable[Row], place: HostFolders
) -> Tuple[List[Target], Tuple[bytes, ...], Tuple[bytes, ...]]:
    """Return where each row goes, which go beside the code's version, and which nowhere."""
    plan, beside, refused = [], [], []
    for row in rows:
        root, path = find_target_root(row.path, place), row.path
        if root is None:
            refused.append(path)
            continue
        shipped = place.code.rows.get(path) if row.kind != FOLDER else None
        now = shipped.id.hex() if shipped else ""
        if shipped and row.sha256 == now:
            continue
        if now != row.code:
            path += BESIDE
            beside.append(path)
        plan.append(Target(row, root.anchor, way_of(path, root)))
    return plan, tuple(beside), tuple(refused)


def find_target_root(path: bytes, place: HostFolders) -> Optional[Root]:
    """Return the root that a path of a manifest is in; the working folder is always one."""
    if not path.startswith(b"/"):
        return Root(b"", place.code.tree, b"")
    return find_root(path, place.roots)


class Trees:
    """Folders that are written to, held open; for one thread."""

    def __init__(self) -> None:
        self._trees: Dict[bytes, SafeTree] = {}
        self._stack = ExitStack()

    def __enter__(self) -> "Trees":
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def open(self, anchor: bytes) -> SafeTree:
        if anchor not in self._trees:
            self._trees[anchor] = self._stack.enter_context(open_tree(anchor))
        return self._trees[anchor]


def group_by_parts(plan: Iterable[Target], manifest: Manifest) -> List[List[Target]]:
    """Return the files of each part, in its order; with a large one those of its last part."""
    index = {part.name: number for number, part in enumerate(manifest.parts)}
    files = [target for target in plan if target.row.kind == FILE]
    files.sort(key=lambda one: (index[one.row.part], one.row.offset))
    groups: List[List[Target]] = []
    end = -1
    for target in files:
        first = index[target.row.part]
        with as_damage(manifest.generation):
            last = max(
                (p.part for p in pieces_of(target.row, manifest.parts, first)), default=first
            )
        if first > end:
            groups.append([])
        groups[-1].append(target)
        end = max(end, last)
    return groups


def write_files(store: KeptStore, manifest: Manifest, targets: Iterable[Target]) -> None:
    reader = RowReader(store, manifest)
    with Trees() as trees:
        for target in targets:
            write_file(trees.open(target.anchor), target, reader)


def write_file(tree: SafeTree, target: Target, reader: "RowReader") -> None:
    row, digest = target.row, hashlib.sha256()
    name, above = open_free_place(tree, target.way)
    with FileIO(os.open(name, NEW_FILE, 0o600, dir_fd=above), "wb") as file:
        stream = Stream(reader.iter_row(row))
        for start, length in ((0, row.size),) if row.segments is None else row.segments:
            file.seek(start)
            for block in stream.iter_portion(length):
                digest.update(block)
                rest = memoryview(block)
                while rest:
                    rest = rest[file.write(rest) :]
        if digest.hexdigest() != row.sha256:
            raise Damaged(reader.manifest.generation, f"{printable_path(row.path)} is altered")
        file.truncate(row.size)
        os.fchmod(file.fileno(), row.mode)
        os.utime(file.fileno(), ns=(row.mtime_ns, row.mtime_ns))


def write_link(tree: SafeTree, target: Target) -> None:
    name, above = open_free_place(tree, target.way)
    os.symlink(target.row.target, name, dir_fd=above)
    times = (target.row.mtime_ns, target.row.mtime_ns)
    os.utime(name, ns=times, dir_fd=above, follow_symlinks=False)


def open_free_place(tree: SafeTree, way: bytes) -> Tuple[bytes, int]:
    """Return the last name of a way and the folder it is in, once nothing is there."""
    name, above = tree.open_parent(way, make=True)
    with suppress(FileNotFoundError):
        os.unlink(name, dir_fd=above)
    return name, above


def remove_gone(trees: Trees, manifest: Manifest, place: HostFolders) -> None:
    """Remove what the script removed: code as it was then, and what setup made."""
    for path, id in sorted(manifest.gone, reverse=True):
        root, shipped = find_target_root(path, place), place.code.rows.get(path)
        stays = shipped.id.hex() != id if shipped else bool(id) or path not in place.base
        if root is None or stays:
            continue
        with suppress(OSError):  # it is not there, or has what did not go
            name, above = trees.open(root.anchor).open_parent(way_of(path, root))
            if stat.S_ISDIR(os.stat(name, dir_fd=above, follow_symlinks=False).st_mode):
                os.rmdir(name, dir_fd=above)
            else:
                os.unlink(name, dir_fd=above)


class RowReader:
    """Reads files from parts, one after another."""

    def __init__(self, store: KeptStore, manifest: Manifest) -> None:
        self._store, self.manifest = store, manifest
        self._index = {part.name: number for number, part in enumerate(manifest.parts)}
        self._part, self._at = -1, 0
        self._stream = Stream(iter(()))

    def iter_row(self, row: Row) -> Iterator[bytes]:
        for piece in pieces_of(row, self.manifest.parts, self._index[row.part]):
            skip = piece.first - self._at
            if self._part != piece.part or not 0 <= skip <= GAP:
                name = self.manifest.parts[piece.part].name
                self._part, self._at, skip = piece.part, piece.first, 0
                self._stream = Stream(self._store.iter_pieces(name, piece.first))
            try:
                for block in self._stream.iter_portion(skip):
                    self._at += len(block)
                for block in self._stream.iter_portion(piece.length):
                    self._at += len(block)
                    yield block
            except FileNotFoundError as error:
                raise Damaged(self.manifest.generation, str(error)) from None
