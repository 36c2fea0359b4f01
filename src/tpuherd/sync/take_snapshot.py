"""Taking a snapshot: of a folder as it is now, or of a commit."""

import os
import stat
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from tpuherd.errors import Unfit
from tpuherd.sync import snapshot_git, upload_check
from tpuherd.sync.snapshot_store import FULL, Archive, Seen, Shot
from tpuherd.sync.tree_scan import Look, looked, signature
from tpuherd.sync.upload_check import Finding
from tpuherd_host.agent.blobs import PIECE, Pack
from tpuherd_host.agent.snapshots_rows import row

TRIES = 3
RACY_NS = 2_000_000_000  #: a file may change twice within its file system's tick
EXECUTABLE, PLAIN, LINK = stat.S_IFREG | 0o755, stat.S_IFREG | 0o644, stat.S_IFLNK | 0o777
SUBMODULE = 0o160000


@dataclass(frozen=True, kw_only=True, slots=True)
class Snapshot:
    """Code as it is shipped: always the same under the same id."""

    id: str  #: "" while it is not read: it is asked about first
    rows: tuple[bytes, ...]
    size: int  #: bytes of all files
    source: str  #: where it is from, for people
    findings: tuple[Finding, ...] = ()  #: what to ask about before it leaves this machine
    notes: tuple[str, ...] = ()  #: what was left out though somebody may expect it


class Changing(Exception):
    """A file is being written just now."""


def take(path: Path, archive: Archive, environment: Mapping[str, str]) -> Snapshot:
    """Of a folder: what git would ship, as it is now, kept in the archive; Unfit where it can't."""
    with archive.writing():
        return taken(rooted(path), str(path), archive, environment)


def taken(root: Path, source: str, archive: Archive, environment: Mapping[str, str]) -> Snapshot:
    """The same; what is very much is not read unless that was agreed to."""
    now = archive.tick()
    before = archive.seen(root)
    last = archive.last.get(root)
    if last and last.seen is not before:
        last = None
    look = looked(root, before, archive, now, environment)
    if look.fresh and (unread := weighed(look.size, source, archive)):
        return unread
    with archive.blobs.held():
        idle = not look.fresh and len(look.seen) == len(before)
        if last and idle and archive.blobs.all(last.ids):
            archive.used(last.id)
            settle(root, before, look, archive)
            return snapshot(last, source, look.notes, archive)
        shot = kept(root, look, archive)
    if not shot.rows:
        hint = "is all of it ignored? herd ships what git would, and what .herdignore leaves"
        raise Unfit(f"{source} holds nothing to ship", hint=hint)
    if look.fresh or shot.seen.keys() != before.keys():
        young = now - RACY_NS
        before = {p: each for p, each in shot.seen.items() if max(each.signature[:2]) < young}
        archive.remember(root, before)
    if len(before) == len(shot.rows):
        listing = look.listing if look.names == len(shot.rows) else None
        archive.last[root] = shot._replace(seen=before, listing=listing)
    settle(root, before, look, archive)
    return snapshot(shot, source, look.notes, archive)


def settle(root: Path, seen: Mapping[bytes, Seen], look: Look, archive: Archive) -> None:
    """Remember how far git's word is good, now that these are its files; what has been read just
    now is doubted. Where that is most of them they are looked at once more.
    """
    archive.grounds.pop(root, None)
    if look.ground and 2 * len(look.fresh) <= len(seen):
        doubted = frozenset(seen.keys() & (look.ground.doubted | look.fresh.keys()))
        archive.grounds[root] = look.ground._replace(seen=seen, doubted=doubted)


def kept(root: Path, look: Look, archive: Archive) -> Shot:
    """What was looked at, with all contents in the archive."""
    seen = look.seen
    absent = archive.blobs.missing(each.row[-32:] for each in seen.values())
    lost = [path for path, each in seen.items() if each.row[-32:] in absent] if absent else []
    look.fresh.update(dict.fromkeys(lost, 0))
    with archive.blobs.writer() as pack:
        for path in sorted(look.fresh):
            try:
                seen[path] = read(root, path, pack)
            except FileNotFoundError:  # deleted just now
                seen.pop(path, None)
    bad = sorted(path for path, each in seen.items() if each.verdict)
    findings = (
        upload_check.finding(path, seen[path].verdict, seen[path].row[-32:]) for path in bad
    )
    return archive.add((one.row for one in seen.values()), tuple(findings), seen)


def weighed(size: int, source: str, archive: Archive) -> Snapshot | None:
    """What is to be asked about before so much is read; None where that needs no asking."""
    heavy = tuple(one for one in upload_check.heavy(size) if one.id not in archive.approved())
    return Snapshot(id="", rows=(), size=size, source=source, findings=heavy) if heavy else None


def snapshot(shot: Shot, source: str, notes: Iterable[str], archive: Archive) -> Snapshot:
    """The noun, with what has not been approved yet."""
    approved = archive.approved()
    asked = (*shot.findings, *upload_check.heavy(shot.size))
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
            if error.errno in FULL:  # that is of the archive
                raise
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
    verdict = upload_check.verdict(path, head[0][: upload_check.LOOKED_AT] if head else b"")
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
    source = f"{snapshot_git.shown(url)}@{commit[:12]}"
    entries = snapshot_git.tree(folder, commit, environment)
    inner = [os.fsdecode(one.path) for one in entries if one.mode == SUBMODULE]
    notes = [f"submodule {path} is left out: sync a checkout to ship it" for path in inner]
    entries = [one for one in entries if one.mode != SUBMODULE]
    if not entries:
        raise Unfit(f"{ref} of {snapshot_git.shown(url)} holds no files")
    if unread := weighed(sum(one.size for one in entries), source, archive):
        return unread
    rows, findings = [], []
    with archive.writing(), archive.blobs.held(), archive.blobs.writer() as pack:
        asked = [one.name for one in entries]
        with snapshot_git.contents(folder, asked, environment) as found:
            for one, content in zip(entries, found, strict=True):
                head: list[bytes] = []
                id, size = pack.add(begun(content, head))
                rows.append(row(one.path, as_shipped(one.mode), size, id))
                number = upload_check.verdict(
                    one.path, head[0][: upload_check.LOOKED_AT] if head else b""
                )
                if number and not stat.S_ISLNK(one.mode):
                    findings.append(upload_check.finding(one.path, number, id))
        return snapshot(archive.add(rows, tuple(findings)), source, notes, archive)


def begun(content: Iterator[bytes], head: list[bytes]) -> Iterator[bytes]:
    """The same; its first piece is put aside too."""
    for piece in content:
        if not head:
            head.append(piece)
        yield piece
