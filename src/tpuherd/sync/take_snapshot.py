"""Takes a snapshot of a folder as it is now, or of a commit."""

import os
import stat
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from tpuherd.errors import InvalidInput
from tpuherd.sync import snapshot_git, upload_check
from tpuherd.sync.snapshot_store import FULL, Archive, FileStamp, StoredSnapshot
from tpuherd.sync.tree_scan import TreeScan, scan_tree, signature
from tpuherd.sync.upload_check import UploadRisk
from tpuherd_host.agent.snapshots.blobs import PIECE, PackWriter
from tpuherd_host.agent.snapshots.manifest import pack_row

TRIES = 3
RACY_NS = 2_000_000_000  #: a file may change twice within one tick of the file system's clock
EXECUTABLE, PLAIN, LINK = stat.S_IFREG | 0o755, stat.S_IFREG | 0o644, stat.S_IFLNK | 0o777
SUBMODULE = 0o160000


@dataclass(frozen=True, kw_only=True, slots=True)
class Snapshot:
    """Code to ship; its id is the hash of its rows."""

    id: str  #: "" if the files were not read yet because consent is needed first
    rows: tuple[bytes, ...]
    size: int  #: bytes of all files
    source: str  #: where it comes from, for people
    findings: tuple[UploadRisk, ...] = ()  #: what to ask the user about before shipping
    notes: tuple[str, ...] = ()  #: what was left out unexpectedly


class FileChanged(Exception):
    """A file changed while it was read."""


def snapshot_folder(path: Path, archive: Archive, environment: Mapping[str, str]) -> Snapshot:
    """Take a snapshot of the files in a folder that git does not ignore, and archive it."""
    with archive.handle_full_disk():
        return scan_and_store(resolve_root(path), str(path), archive, environment)


def scan_and_store(
    root: Path, source: str, archive: Archive, environment: Mapping[str, str]
) -> Snapshot:
    """Scan and archive a folder; an oversized one is not read until the user approved it."""
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
        hint = "herd ships files that neither git nor .herdignore ignores"
        raise InvalidInput(f"{source} contains nothing to ship", hint=hint)
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
    """Remember for which files git's answer can be trusted; files that were just read are doubted.
    If those are most files, remember nothing, so that the next scan compares all again.
    """
    archive.grounds.pop(root, None)
    if look.ground and 2 * len(look.fresh) <= len(seen):
        doubted = frozenset(seen.keys() & (look.ground.doubted | look.fresh.keys()))
        archive.grounds[root] = look.ground._replace(seen=seen, doubted=doubted)


def store_contents(root: Path, look: TreeScan, archive: Archive) -> StoredSnapshot:
    """Read changed files into the archive and add the snapshot."""
    seen = look.seen
    absent = archive.blobs.missing_ids(each.row[-32:] for each in seen.values())
    lost = [path for path, each in seen.items() if each.row[-32:] in absent] if absent else []
    look.fresh.update(dict.fromkeys(lost, 0))
    with archive.blobs.new_pack() as pack:
        for path in sorted(look.fresh):
            try:
                seen[path] = read_file(root, path, pack)
            except FileNotFoundError:  # deleted meanwhile
                seen.pop(path, None)
    bad = sorted(path for path, each in seen.items() if each.verdict)
    findings = (
        upload_check.make_finding(path, seen[path].verdict, seen[path].row[-32:]) for path in bad
    )
    return archive.add((one.row for one in seen.values()), tuple(findings), seen)


def oversize_snapshot(size: int, source: str, archive: Archive) -> Snapshot | None:
    """A snapshot that only asks about its size; None if the size is fine or approved."""
    heavy = tuple(
        one for one in upload_check.size_findings(size) if one.id not in archive.approved_ids()
    )
    return Snapshot(id="", rows=(), size=size, source=source, findings=heavy) if heavy else None


def make_snapshot(
    shot: StoredSnapshot, source: str, notes: Iterable[str], archive: Archive
) -> Snapshot:
    """The snapshot with the findings that are not approved yet."""
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
    """A snapshot from the archive; None if it is not complete there, or not what it was."""
    rows = archive.load_rows(id)
    if rows is None:
        return None
    ids = [each[-32:] for each in rows]
    if archive.blobs.missing_ids(ids):
        archive.blobs.reload_indexes()  # another process may have added it meanwhile
    if archive.blobs.missing_ids(ids):
        return None
    stored = archive.add(rows)
    return make_snapshot(stored, id[:12], (), archive) if stored.id == id else None


def resolve_root(path: Path) -> Path:
    """The resolved folder; InvalidInput if it is not a folder."""
    try:
        root = path.resolve(strict=True)
        os.scandir(root).close()
    except FileNotFoundError:
        raise InvalidInput(f"{path} does not exist") from None
    except NotADirectoryError:
        raise InvalidInput(
            f"{path} is not a folder", hint=f"to copy a file: herd cp {path} …"
        ) from None
    except OSError as error:
        raise InvalidInput(f"can't read {path}: {error.strerror}") from None
    return root


def read_file(root: Path, path: bytes, pack: PackWriter) -> FileStamp:
    """Read a file into the archive; retries if it changes meanwhile."""
    for _ in range(TRIES):
        try:
            return read_once(os.fsencode(root) + b"/" + path, path, pack)
        except FileChanged:
            continue
        except FileNotFoundError:
            raise
        except OSError as error:
            if error.errno in FULL:  # the archive's disk, not the file
                raise
            raise InvalidInput(f"can't read {os.fsdecode(path)}: {error.strerror}") from None
    raise InvalidInput(
        f"{os.fsdecode(path)} keeps changing while herd reads it; sync again when it is complete"
    )


def read_once(whole: bytes, path: bytes, pack: PackWriter) -> FileStamp:
    """Read a file once; raises FileChanged if it changed meanwhile."""
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
    """The mode reduced to what git stores."""
    if stat.S_ISLNK(mode):
        return LINK
    return EXECUTABLE if mode & 0o100 else PLAIN


def read_pieces(file: int, head: list[bytes]) -> Iterator[bytes]:
    """The content in pieces; the first piece is also added to `head`."""
    while piece := os.read(file, PIECE):
        if not head:
            head.append(piece)
        yield piece


def snapshot_commit(
    url: str, ref: str, archive: Archive, environment: Mapping[str, str]
) -> Snapshot:
    """Take a snapshot of a commit; credentials in the URL stay on this machine."""
    folder, commit = snapshot_git.fetch_commit(url, ref, archive.repositories, environment)
    source = f"{snapshot_git.redact_url(url)}@{commit[:12]}"
    entries = snapshot_git.list_commit(folder, commit, environment)
    inner = [os.fsdecode(one.path) for one in entries if one.mode == SUBMODULE]
    notes = [f"submodule {path} is left out: sync a checkout to ship it" for path in inner]
    entries = [one for one in entries if one.mode != SUBMODULE]
    if not entries:
        raise InvalidInput(f"{ref} of {snapshot_git.redact_url(url)} contains no files")
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
    """The same pieces; the first piece is also added to `head`."""
    for piece in content:
        if not head:
            head.append(piece)
        yield piece
