"""Taking a snapshot: of a folder as it is now, or of a commit."""

import os
import stat
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from itertools import compress
from operator import attrgetter, eq, itemgetter
from pathlib import Path

from tpuherd.hosts import guard, snapshot_git
from tpuherd.hosts.guard import Finding
from tpuherd.hosts.snapshot_archive import Archive, Seen, Shot, Signature
from tpuherd.hosts.snapshot_git import Listing
from tpuherd.ports import Unfit
from tpuherd_host.agent.blobs import PIECE, Pack
from tpuherd_host.agent.snapshots_rows import row

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
    before = archive.seen(root)
    last = archive.last.get(root)
    if last and last.seen is not before:
        last = None
    known = last.listing if last else None
    look = looked(root, before, known, archive.repositories / "empty", environment)
    with archive.blobs.held():
        idle = not look.fresh and len(look.seen) == len(before)
        if last and idle and archive.blobs.all(last.ids):
            archive.used(last.id)
            return snapshot(last, str(path), look.notes, archive)
        shot = kept(root, look, archive)
    if not shot.rows:
        hint = "is all of it ignored? herd ships what git would, and what .herdignore leaves"
        raise Unfit(f"{path} holds nothing to ship", hint=hint)
    if look.fresh or shot.seen.keys() != before.keys():
        young = stamp - RACY_NS
        before = {p: each for p, each in shot.seen.items() if max(each.signature[:2]) < young}
        archive.remember(root, before)
    if len(before) == len(shot.rows):
        listing = look.listing if look.names == len(shot.rows) else None
        archive.last[root] = shot._replace(seen=before, listing=listing)
    return snapshot(shot, str(path), look.notes, archive)


def kept(root: Path, look: "Look", archive: Archive) -> Shot:
    """What was looked at, with all contents in the archive."""
    seen = look.seen
    absent = archive.blobs.missing(each.row[-32:] for each in seen.values())
    lost = [path for path, each in seen.items() if each.row[-32:] in absent] if absent else []
    with archive.blobs.writer() as pack:
        for path in (*sorted(look.fresh), *lost):
            try:
                seen[path] = read(root, path, pack)
            except FileNotFoundError:  # deleted just now
                seen.pop(path, None)
    bad = sorted(path for path, each in seen.items() if each.verdict)
    findings = (guard.finding(path, seen[path].verdict, seen[path].row[-32:]) for path in bad)
    return archive.add((one.row for one in seen.values()), tuple(findings), seen)


def snapshot(shot: Shot, source: str, notes: Iterable[str], archive: Archive) -> Snapshot:
    """The noun, with what has not been approved yet."""
    approved = archive.approved()
    asked = (*shot.findings, *guard.heavy(shot.size))
    return Snapshot(
        id=shot.id,
        rows=shot.rows,
        size=shot.size,
        source=source,
        findings=tuple(finding for finding in asked if finding.id not in approved),
        notes=tuple(notes),
    )


def again(id: str, archive: Archive) -> Snapshot | None:
    """One that was taken before; None when it is here no more."""
    rows = archive.rows(id)
    if rows is None:
        return None
    ids = [each[-32:] for each in rows]
    if archive.blobs.missing(ids):
        archive.blobs.look()  # another process has taken it since we looked last
    if archive.blobs.missing(ids):
        return None
    return snapshot(archive.add(rows), id[:12], (), archive)


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


@dataclass(frozen=True, kw_only=True, slots=True)
class Look:
    """A folder as it is now."""

    seen: dict[bytes, Seen]  #: files that are as they were when they were read last
    fresh: list[bytes]  #: those that must be read
    notes: list[str]
    listing: Listing  #: what git said
    names: int  #: how many paths that are


def looked(
    root: Path,
    before: Mapping[bytes, Seen],
    known: Listing | None,
    empty: Path,
    environment: Mapping[str, str],
) -> Look:
    """What git would ship, and what is known of it. Git is asked while we look ourselves. `known`
    is what it says where it names exactly the files of `before`.
    """
    with ThreadPoolExecutor(1) as asking:
        said = asking.submit(snapshot_git.listing, root, empty, environment)
        same = unchanged(root, before)
        listing = said.result()
    if listing == known and len(same) == len(before):
        return Look(seen=same, fresh=[], notes=[], listing=listing, names=len(same))
    paths = snapshot_git.listed(listing)
    fresh: list[bytes] = []
    notes: list[str] = []
    waiting = list(paths - same.keys())
    while waiting:
        path = waiting.pop().rstrip(b"/")
        place = root / os.fsdecode(path)
        try:
            mode = place.lstat().st_mode
        except (FileNotFoundError, NotADirectoryError):
            continue  # deleted, but not for git yet
        if stat.S_ISREG(mode) or stat.S_ISLNK(mode):
            fresh.append(path)
        elif not stat.S_ISDIR(mode):
            notes.append(f"{os.fsdecode(path)} is neither file nor symlink: left out")
        elif (place / ".git").exists():
            inner = snapshot_git.listed(snapshot_git.listing(place, empty, environment))
            paths |= {path + b"/" + each for each in inner}
            waiting += {path + b"/" + each for each in inner} - same.keys()
        else:
            notes.append(f"submodule {os.fsdecode(path)} is not checked out: left out")
    seen = same
    if not same.keys() <= paths:
        seen = {path: one for path, one in same.items() if path in paths}
    return Look(seen=seen, fresh=fresh, notes=notes, listing=listing, names=len(paths))


def unchanged(root: Path, before: Mapping[bytes, Seen]) -> dict[bytes, Seen]:
    """Of the files that are known, those that are as they were."""
    prefix = os.fsencode(root) + b"/"
    known = map(itemgetter(0), before.values())
    try:  # as a rule all are there: no line of Python for each, and nothing of them is kept
        same = list(map(eq, map(signature, map(os.lstat, map(prefix.__add__, before))), known))
    except OSError:
        same = [signed(prefix + path) == one.signature for path, one in before.items()]
    return dict(before) if all(same) else dict(compress(before.items(), same))


#: What changes when a file does.
signature: Callable[[os.stat_result], Signature] = attrgetter(
    "st_mtime_ns", "st_ctime_ns", "st_size", "st_ino", "st_mode"
)


def signed(whole: bytes) -> Signature | None:
    """The same of a path; None where nothing is."""
    try:
        return signature(os.lstat(whole))
    except OSError:
        return None


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
                id, size = pack.add(begun(content, head))
                rows.append(row(path, as_shipped(mode), size, id))
                number = guard.verdict(path, head[0][: guard.LOOKED_AT] if head else b"")
                if number and not stat.S_ISLNK(mode):
                    findings.append(guard.finding(path, number, id))
        if not rows:
            raise Unfit(f"{ref} of {snapshot_git.shown(url)} holds no files")
        shot = archive.add(rows, tuple(findings))
    return snapshot(shot, f"{snapshot_git.shown(url)}@{commit[:12]}", notes, archive)


def begun(content: Iterator[bytes], head: list[bytes]) -> Iterator[bytes]:
    """The same; its first piece is put aside too."""
    for piece in content:
        if not head:
            head.append(piece)
        yield piece
