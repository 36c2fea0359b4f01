"""Taking a snapshot: of a folder as it is now, or of a commit."""

import os
import stat
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from tpuherd.errors import InvalidInput
from tpuherd.sync import snapshot_git, upload_check
from tpuherd.sync.snapshot_store import FULL, Archive, FileStamp, StoredSnapshot
from tpuherd.sync.tree_scan import TreeScan, scan_tree, signature
from tpuherd.sync.upload_check import Finding
from tpuherd_host.agent.snapshots.blobs import PIECE, PackWriter
from tpuherd_host.agent.snapshots.manifest import pack_row

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


class FileChanged(Exception):
    """A file is being written just now."""


def snapshot_folder(path: Path, archive: Archive, environment: Mapping[str, str]) -> Snapshot:
    """Of a folder: what git would ship, as it is now, kept in the archive; Unfit where it can't."""
    with archive.handle_full_disk():
        return scan_and_store(resolve_root(path), str(path), archive, environment)


def scan_and_store(
    root: Path, source: str, archive: Archive, environment: Mapping[str, str]
) -> Snapshot:
    """The same; what is very much is not read unless that was agreed to."""
    now = archive.file_system_time()
    before = archive.known_files(root)
    last = archive.last.get(root)
    if last and last.seen is not before:
        last = None
    look = scan_tree(root, before, archive, now, environment)
    if look.fresh and (unread := oversize_snapshot(look.size, source, archive)):
        return unread
    with archive.blobs.shared_lock():
        idle = not look.fresh and len(look.seen) == len(before)
        if last and idle and archive.blobs.has_all(last.ids):
            archive.mark_used(last.id)
            remember_git_trust(root, before, look, archive)
            return make_snapshot(last, source, look.notes, archive)
        shot = store_contents(root, look, archive)
    if not shot.rows:
        hint = "is all of it ignored? herd ships what git would, and what .herdignore leaves"
        raise InvalidInput(f"{source} holds nothing to ship", hint=hint)
    if look.fresh or shot.seen.keys() != before.keys():
        young = now - RACY_NS
        before = {p: each for p, each in shot.seen.items() if max(each.signature[:2]) < young}
        archive.remember_files(root, before)
    if len(before) == len(shot.rows):
        listing = look.listing if look.names == len(shot.rows) else None
        archive.last[root] = shot._replace(seen=before, listing=listing)
    remember_git_trust(root, before, look, archive)
    return make_snapshot(shot, source, look.notes, archive)


def remember_git_trust(
    root: Path, seen: Mapping[bytes, FileStamp], look: TreeScan, archive: Archive
) -> None:
    """Remember how far git's word is good, now that these are its files; what has been read just
    now is doubted. Where that is most of them they are looked at once more.
    """
    archive.grounds.pop(root, None)
    if look.ground and 2 * len(look.fresh) <= len(seen):
        doubted = frozenset(seen.keys() & (look.ground.doubted | look.fresh.keys()))
        archive.grounds[root] = look.ground._replace(seen=seen, doubted=doubted)


def store_contents(root: Path, look: TreeScan, archive: Archive) -> StoredSnapshot:
    """What was looked at, with all contents in the archive."""
    seen = look.seen
    absent = archive.blobs.missing_ids(each.row[-32:] for each in seen.values())
    lost = [path for path, each in seen.items() if each.row[-32:] in absent] if absent else []
    look.fresh.update(dict.fromkeys(lost, 0))
    with archive.blobs.new_pack() as pack:
        for path in sorted(look.fresh):
            try:
                seen[path] = read_file(root, path, pack)
            except FileNotFoundError:  # deleted just now
                seen.pop(path, None)
    bad = sorted(path for path, each in seen.items() if each.verdict)
    findings = (
        upload_check.make_finding(path, seen[path].verdict, seen[path].row[-32:]) for path in bad
    )
    return archive.add((one.row for one in seen.values()), tuple(findings), seen)


def oversize_snapshot(size: int, source: str, archive: Archive) -> Snapshot | None:
    """What is to be asked about before so much is read; None where that needs no asking."""
    heavy = tuple(
        one for one in upload_check.size_findings(size) if one.id not in archive.approved_ids()
    )
    return Snapshot(id="", rows=(), size=size, source=source, findings=heavy) if heavy else None


def make_snapshot(
    shot: StoredSnapshot, source: str, notes: Iterable[str], archive: Archive
) -> Snapshot:
    """The noun, with what has not been approved yet."""
    approved = archive.approved_ids()
    asked = (*shot.findings, *upload_check.size_findings(shot.size))
    return Snapshot(
        id=shot.id,
        rows=shot.rows,
        size=shot.size,
        source=source,
        findings=tuple(finding for finding in asked if finding.id not in approved),
        notes=tuple(notes),
    )


def load_snapshot(id: str, archive: Archive) -> Snapshot | None:
    """One that was taken before; None when it is here no more."""
    rows = archive.load_rows(id)
    if rows is None:
        return None
    ids = [each[-32:] for each in rows]
    if archive.blobs.missing_ids(ids):
        archive.blobs.reload_indexes()  # another process has taken it since we looked last
    if archive.blobs.missing_ids(ids):
        return None
    return make_snapshot(archive.add(rows), id[:12], (), archive)


def resolve_root(path: Path) -> Path:
    """The folder itself; Unfit when it is none."""
    try:
        root = path.resolve(strict=True)
        os.scandir(root).close()
    except FileNotFoundError:
        raise InvalidInput(f"{path} is not there") from None
    except NotADirectoryError:
        raise InvalidInput(f"{path} is no folder", hint=f"herd cp {path} … copies a file") from None
    except OSError as error:
        raise InvalidInput(f"{path} cannot be read: {error.strerror}") from None
    return root


def read_file(root: Path, path: bytes, pack: PackWriter) -> FileStamp:
    """A file's content into the archive, again where it changes meanwhile."""
    for _ in range(TRIES):
        try:
            return read_once(os.fsencode(root) + b"/" + path, path, pack)
        except FileChanged:
            continue
        except FileNotFoundError:
            raise
        except OSError as error:
            if error.errno in FULL:  # that is of the archive
                raise
            raise InvalidInput(f"{os.fsdecode(path)} cannot be read: {error.strerror}") from None
    raise InvalidInput(
        f"{os.fsdecode(path)} changes while it is read; sync again when it is at rest"
    )


def read_once(whole: bytes, path: bytes, pack: PackWriter) -> FileStamp:
    """The same, once; Changing if it did."""
    found = os.lstat(whole)
    if stat.S_ISLNK(found.st_mode):
        id, size = pack.add([os.readlink(whole)])  # noqa: PTH115 - a Path would tidy it up
        if signature(os.lstat(whole)) != signature(found):
            raise FileChanged
        return FileStamp(signature(found), pack_row(path, LINK, size, id), 0)
    head: list[bytes] = []
    file = os.open(whole, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        found = os.fstat(file)
        id, size = pack.add(read_pieces(file, head))
        if signature(os.fstat(file)) != signature(found) or size != found.st_size:
            raise FileChanged
    finally:
        os.close(file)
    mode = shipped_mode(found.st_mode)
    verdict = upload_check.reason_number(path, head[0][: upload_check.LOOKED_AT] if head else b"")
    return FileStamp(signature(found), pack_row(path, mode, size, id), verdict)


def shipped_mode(mode: int) -> int:
    """Of a mode, what git would keep."""
    if stat.S_ISLNK(mode):
        return LINK
    return EXECUTABLE if mode & 0o100 else PLAIN


def read_pieces(file: int, head: list[bytes]) -> Iterator[bytes]:
    """What a file holds; its first piece is put aside too."""
    while piece := os.read(file, PIECE):
        if not head:
            head.append(piece)
        yield piece


def snapshot_commit(
    url: str, ref: str, archive: Archive, environment: Mapping[str, str]
) -> Snapshot:
    """Of a commit in somebody's repository; who asks for it, and how, stays on this machine."""
    folder, commit = snapshot_git.fetch_commit(url, ref, archive.repositories, environment)
    source = f"{snapshot_git.redact_url(url)}@{commit[:12]}"
    entries = snapshot_git.list_commit(folder, commit, environment)
    inner = [os.fsdecode(one.path) for one in entries if one.mode == SUBMODULE]
    notes = [f"submodule {path} is left out: sync a checkout to ship it" for path in inner]
    entries = [one for one in entries if one.mode != SUBMODULE]
    if not entries:
        raise InvalidInput(f"{ref} of {snapshot_git.redact_url(url)} holds no files")
    if unread := oversize_snapshot(sum(one.size for one in entries), source, archive):
        return unread
    rows, findings = [], []
    with archive.handle_full_disk(), archive.blobs.shared_lock(), archive.blobs.new_pack() as pack:
        asked = [one.name for one in entries]
        with snapshot_git.read_contents(folder, asked, environment) as found:
            for one, content in zip(entries, found, strict=True):
                head: list[bytes] = []
                id, size = pack.add(keep_first_piece(content, head))
                rows.append(pack_row(one.path, shipped_mode(one.mode), size, id))
                number = upload_check.reason_number(
                    one.path, head[0][: upload_check.LOOKED_AT] if head else b""
                )
                if number and not stat.S_ISLNK(one.mode):
                    findings.append(upload_check.make_finding(one.path, number, id))
        return make_snapshot(archive.add(rows, tuple(findings)), source, notes, archive)


def keep_first_piece(content: Iterator[bytes], head: list[bytes]) -> Iterator[bytes]:
    """The same; its first piece is put aside too."""
    for piece in content:
        if not head:
            head.append(piece)
        yield piece
