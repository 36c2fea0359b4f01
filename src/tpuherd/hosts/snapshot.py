"""Taking a snapshot: of a folder as it is now, or of a commit."""

import os
import stat
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from tpuherd.hosts import guard, snapshot_git
from tpuherd.hosts.guard import Finding
from tpuherd.hosts.snapshot_archive import Archive, Seen, Signature
from tpuherd.ports import Unfit
from tpuherd_host.agent.blobs import PIECE, Pack
from tpuherd_host.agent.snapshots_rows import parsed, row

TRIES = 3
RACY_NS = 2_000_000_000  #: a file may change twice within its file system's tick
EXECUTABLE, PLAIN, LINK = stat.S_IFREG | 0o755, stat.S_IFREG | 0o644, stat.S_IFLNK | 0o777
SUBMODULE = 0o160000


@dataclass(frozen=True, kw_only=True, slots=True)
class Snapshot:
    """Code as it is shipped: always the same under the same id."""

    id: str
    rows: tuple[bytes, ...]
    size: int  #: bytes of all files
    source: str  #: where it is from, for people
    findings: tuple[Finding, ...] = ()  #: what to ask about before it leaves this machine
    notes: tuple[str, ...] = ()  #: what was left out though somebody may expect it


class Changing(Exception):
    """A file is being written just now."""


def take(path: Path, archive: Archive, environment: Mapping[str, str]) -> Snapshot:
    """Of a folder: what git would ship, as it is now, kept in the archive; Unfit where it can't."""
    root = rooted(path)
    stamp = archive.tick()
    notes: list[str] = []
    paths = set(listed(root, archive, environment, notes))
    before = archive.seen(root)
    seen, fresh = looked(root, paths, before, notes)
    with archive.blobs.held():
        absent = archive.blobs.missing(each.row[-32:] for each in seen.values())
        lost = [path for path, each in seen.items() if each.row[-32:] in absent] if absent else []
        with archive.blobs.writer() as pack:
            for each in (*fresh, *lost):
                try:
                    seen[each] = read(root, each, pack)
                except FileNotFoundError:  # deleted just now
                    seen.pop(each, None)
        if not seen:
            hint = "is all of it ignored? herd ships what git would, and what .herdignore leaves"
            raise Unfit(f"{path} holds nothing to ship", hint=hint)
        rows = sorted(one.row for one in seen.values())
        id = archive.add(rows)
    if fresh or lost or seen.keys() != before.keys():
        young = stamp - RACY_NS
        known = {p: each for p, each in seen.items() if max(each.signature[:2]) < young}
        archive.remember(root, known)
    bad = [(path, each) for path, each in seen.items() if each.verdict]
    findings = [guard.finding(path, each.verdict, each.row[-32:]) for path, each in sorted(bad)]
    return snapshot(id, rows, str(path), findings, notes, archive)


def snapshot(
    id: str,
    rows: Iterable[bytes],
    source: str,
    findings: Iterable[Finding],
    notes: Iterable[str],
    archive: Archive,
) -> Snapshot:
    """The noun, with what has not been approved yet."""
    rows = tuple(rows)
    size = sum(parsed(each).size for each in rows)
    approved = archive.approved()
    asked = tuple(f for f in (*findings, *guard.heavy(size)) if f.id not in approved)
    return Snapshot(id=id, rows=rows, size=size, source=source, findings=asked, notes=tuple(notes))


def again(id: str, archive: Archive) -> Snapshot | None:
    """One that was taken before; None when it is here no more."""
    rows = archive.rows(id)
    if rows is None or archive.blobs.missing(each[-32:] for each in rows):
        return None
    return snapshot(id, rows, id[:12], (), (), archive)


def rooted(path: Path) -> Path:
    """The folder itself; Unfit when it is none."""
    try:
        root = path.resolve(strict=True)
        os.scandir(root).close()
    except FileNotFoundError:
        raise Unfit(f"{path} is not there") from None
    except NotADirectoryError:
        raise Unfit(f"{path} is no folder", hint=f"herd cp {path} … copies a file") from None
    except OSError as error:
        raise Unfit(f"{path} cannot be read: {error.strerror}") from None
    return root


def listed(
    root: Path, archive: Archive, environment: Mapping[str, str], notes: list[str]
) -> Iterator[bytes]:
    """Paths of a folder and of the repositories inside it."""
    empty = archive.repositories / "empty"
    waiting = [b""]
    while waiting:
        prefix = waiting.pop()
        folder = root / os.fsdecode(prefix)
        for path in snapshot_git.listed(folder, empty, environment):
            whole = prefix + path.rstrip(b"/")
            inner = root / os.fsdecode(whole)
            if not path.endswith(b"/") and (inner.is_symlink() or not inner.is_dir()):
                yield whole
            elif (inner / ".git").exists():
                waiting.append(whole + b"/")
            else:
                notes.append(f"submodule {os.fsdecode(whole)} is not checked out: left out")


def looked(
    root: Path, paths: Iterable[bytes], before: Mapping[bytes, Seen], notes: list[str]
) -> tuple[dict[bytes, Seen], list[bytes]]:
    """What is known of the files that are there, and those that must be read."""
    seen: dict[bytes, Seen] = {}
    fresh: list[bytes] = []
    prefix = os.fsencode(root) + b"/"
    lstat, known = os.lstat, before.get
    for path in paths:
        try:
            found = lstat(prefix + path)
        except (FileNotFoundError, NotADirectoryError):
            continue  # deleted, but not for git yet
        one = known(path)
        if one is not None and one.signature == signature(found):
            seen[path] = one
        elif stat.S_ISREG(found.st_mode) or stat.S_ISLNK(found.st_mode):
            fresh.append(path)
        else:
            notes.append(f"{os.fsdecode(path)} is neither file nor symlink: left out")
    return seen, sorted(fresh)


def signature(found: os.stat_result) -> Signature:
    """What changes when a file does."""
    return (found.st_mtime_ns, found.st_ctime_ns, found.st_size, found.st_ino, found.st_mode)


def read(root: Path, path: bytes, pack: Pack) -> Seen:
    """A file's content into the archive, again where it changes meanwhile."""
    for _ in range(TRIES):
        try:
            return read_once(os.fsencode(root) + b"/" + path, path, pack)
        except Changing:
            continue
        except FileNotFoundError:
            raise
        except OSError as error:
            raise Unfit(f"{os.fsdecode(path)} cannot be read: {error.strerror}") from None
    raise Unfit(f"{os.fsdecode(path)} changes while it is read; sync again when it is at rest")


def read_once(whole: bytes, path: bytes, pack: Pack) -> Seen:
    """The same, once; Changing if it did."""
    found = os.lstat(whole)
    if stat.S_ISLNK(found.st_mode):
        id, size = pack.add([os.readlink(whole)])  # noqa: PTH115 - a Path would tidy it up
        if signature(os.lstat(whole)) != signature(found):
            raise Changing
        return Seen(signature(found), row(path, LINK, size, id), 0)
    head: list[bytes] = []
    file = os.open(whole, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        found = os.fstat(file)
        id, size = pack.add(pieces(file, head))
        if signature(os.fstat(file)) != signature(found) or size != found.st_size:
            raise Changing
    finally:
        os.close(file)
    mode = as_shipped(found.st_mode)
    verdict = guard.verdict(path, head[0][: guard.LOOKED_AT] if head else b"")
    return Seen(signature(found), row(path, mode, size, id), verdict)


def as_shipped(mode: int) -> int:
    """Of a mode, what git would keep."""
    if stat.S_ISLNK(mode):
        return LINK
    return EXECUTABLE if mode & 0o100 else PLAIN


def pieces(file: int, head: list[bytes]) -> Iterator[bytes]:
    """What a file holds; its first piece is put aside too."""
    while piece := os.read(file, PIECE):
        if not head:
            head.append(piece)
        yield piece


def take_commit(url: str, ref: str, archive: Archive, environment: Mapping[str, str]) -> Snapshot:
    """Of a commit in somebody's repository; who asks for it, and how, stays on this machine."""
    folder, commit = snapshot_git.fetched(url, ref, archive.repositories, environment)
    notes, rows, findings = [], [], []
    entries = snapshot_git.tree(folder, commit, environment)
    for mode, _, path in entries:
        if mode == SUBMODULE:
            notes.append(f"submodule {os.fsdecode(path)} is left out: sync a checkout to ship it")
    entries = [one for one in entries if one[0] != SUBMODULE]
    asked = [name for _, name, _ in entries]
    with archive.blobs.held(), archive.blobs.writer() as pack:
        with snapshot_git.contents(folder, asked, environment) as found:
            for (mode, _, path), content in zip(entries, found, strict=True):
                head: list[bytes] = []
                id, size = pack.add(kept(content, head))
                rows.append(row(path, as_shipped(mode), size, id))
                number = guard.verdict(path, head[0][: guard.LOOKED_AT] if head else b"")
                if number and not stat.S_ISLNK(mode):
                    findings.append(guard.finding(path, number, id))
        if not rows:
            raise Unfit(f"{ref} of {snapshot_git.shown(url)} holds no files")
        rows.sort()
        id_ = archive.add(rows)
    source = f"{snapshot_git.shown(url)}@{commit[:12]}"
    return snapshot(id_, rows, source, findings, notes, archive)


def kept(content: Iterator[bytes], head: list[bytes]) -> Iterator[bytes]:
    """The same; its first piece is put aside too."""
    for piece in content:
        if not head:
            head.append(piece)
        yield piece
