"""Moves an engine's data to another machine: store, secrets, logs and the code of its jobs.

The data is one tar that is written and read sequentially. Code is stored under its content ids
and checked against them.
"""

import io
import shutil
import tarfile
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import IO

from tpuherd.errors import InvalidInput, OperationFailed
from tpuherd.model.stored_job import StoredJob
from tpuherd.settings.project_access import ProjectAccess
from tpuherd.store import moved_marker
from tpuherd.sync.snapshot_store import Archive, open_archive
from tpuherd_host.agent.snapshots.blobs import CorruptBlob, PackWriter
from tpuherd_host.agent.snapshots.manifest import pack_rows, unpack_rows

STORE, SECRETS, LOGS, BLOBS, ROWS, END = "store.db", "secrets", "logs", "blobs", "rows", "end"
DRAFT = "move.db"


def part_folders(place: ProjectAccess) -> dict[str, Path]:
    return {
        STORE: place.store_folder,
        SECRETS: place.store_folder / SECRETS,
        LOGS: place.logs_folder,
    }


def refuse_shared_store(place: ProjectAccess) -> None:
    """Raise InvalidInput if the jobs are where the engine of any machine finds them."""
    if place.database is not None:
        raise InvalidInput(
            f"the jobs are in the {place.database.title}: an engine on any machine can lead them",
            hint="start one there, then stop this one: herd engine run --stand-by",
        )


def pack_transfer(place: ProjectAccess, into: IO[bytes], jobs: list[StoredJob]) -> None:
    """Write everything of a project. No engine may run on it, and no command may have it open."""
    parts = part_folders(place)
    draft = parts[STORE] / DRAFT
    moved_marker.copy_store(parts[STORE], draft)
    archive = open_archive(place.folders.state)
    try:
        with tarfile.open(fileobj=into, mode="w|") as tar:
            tar.add(draft, STORE)
            for name in (SECRETS, LOGS):
                for file in sorted(parts[name].rglob("*")) if parts[name].exists() else ():
                    if file.is_file() and not file.is_symlink():
                        tar.add(file, f"{name}/{file.relative_to(parts[name])}")
            for stored in jobs:
                for name, content in snapshot_entries(stored.snapshot, archive):
                    add_tar_file(tar, name, content)
            add_tar_file(tar, END, b"")
    finally:
        draft.unlink(missing_ok=True)


def snapshot_contents(id: str, archive: Archive) -> frozenset[bytes]:
    """Return the content ids of a snapshot's files."""
    return frozenset(row[-32:] for row in archive.load_rows(id) or ())


def missing_contents(ids: Iterable[bytes], archive: Archive) -> frozenset[bytes]:
    """Return the ids that the archive lacks."""
    with archive.blobs.shared_lock():
        return frozenset(archive.blobs.missing_ids(ids))


def snapshot_entries(
    id: str, archive: Archive, *, only: Callable[[bytes], bool] = bool
) -> Iterator[tuple[str, bytes]]:
    """Yield contents, then rows; nothing for an incomplete snapshot, which a host may have."""
    rows = archive.load_rows(id) if id else None
    if rows is None:
        return
    with archive.blobs.shared_lock():
        wanted = snapshot_contents(id, archive)
        if archive.blobs.missing_ids(wanted):
            return
        for each in sorted(filter(only, wanted)):
            yield f"{BLOBS}/{each.hex()}", b"".join(archive.blobs.read_pieces(each))
    yield f"{ROWS}/{id}", pack_rows(rows)


def add_tar_file(tar: tarfile.TarFile, name: str, content: bytes) -> None:
    about = tarfile.TarInfo(name)
    about.size, about.mode = len(content), 0o600
    tar.addfile(about, io.BytesIO(content))


def unpack_transfer(place: ProjectAccess, source: IO[bytes], token: str) -> None:
    """Take over a project; it takes effect only when everything has arrived."""
    parts = part_folders(place)
    parts[STORE].mkdir(parents=True, exist_ok=True, mode=0o700)
    whole, draft = False, parts[STORE] / DRAFT
    archive = open_archive(place.folders.state)
    if parts[SECRETS].exists():
        shutil.rmtree(parts[SECRETS])
    try:
        with archive.blobs.shared_lock(), archive.blobs.new_pack() as fresh:
            for file, content in read_tar_files(source):
                top, _, name = file.partition("/")
                if top in (BLOBS, ROWS):
                    store_code(archive, fresh, file, content)
                elif top == STORE:
                    write_private_file(draft, content)
                elif top in (SECRETS, LOGS):
                    write_private_file(parts[top] / name, content)
                whole = whole or top == END
    except (tarfile.TarError, CorruptBlob, ValueError) as error:
        raise OperationFailed(f"the transferred data is incomplete ({error})") from error
    if not whole:
        raise OperationFailed("the transferred data is incomplete")
    moved_marker.install_copy(parts[STORE], draft, token)


def read_tar_files(source: IO[bytes]) -> Iterator[tuple[str, bytes]]:
    """Yield the files of a tar; a name that leads outside is an error."""
    with tarfile.open(fileobj=source, mode="r|") as tar:
        for about in tar:
            if about.name.startswith("/") or ".." in Path(about.name).parts:
                raise OperationFailed(f"{about.name!r} leads out of the folder")
            piece = tar.extractfile(about)
            yield about.name, b"" if piece is None else piece.read()


def store_code(archive: Archive, fresh: PackWriter, file: str, content: bytes) -> None:
    """Store code in the archive: contents first, then the rows that refer to them."""
    top, _, name = file.partition("/")
    if top == ROWS:
        archive.add(unpack_rows(content))
    else:
        fresh.add([content], bytes.fromhex(name))


def write_private_file(file: Path, content: bytes) -> None:
    file.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    file.touch(mode=0o600)
    file.write_bytes(content)
