"""What travels when a fleet's engine moves: store, secrets, logs, and the code of what is wished.

One tar, written and read from front to back. Code goes by its ids, and is checked by them.
"""

import io
import shutil
import tarfile
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import IO

from tpuherd.errors import OperationFailed
from tpuherd.model.stored_job import StoredJob
from tpuherd.settings.project_access import ProjectAccess
from tpuherd.store import moved_marker
from tpuherd.sync.snapshot_store import Archive, open_archive
from tpuherd_host.agent.snapshots.blobs import CorruptBlob, PackWriter
from tpuherd_host.agent.snapshots.manifest import pack_rows, unpack_rows

STORE, SECRETS, LOGS, BLOBS, ROWS, END = "store.db", "secrets", "logs", "blobs", "rows", "end"
DRAFT = "move.db"


def part_folders(place: ProjectAccess) -> dict[str, Path]:
    """Where the parts are on this machine."""
    return {
        STORE: place.store_folder,
        SECRETS: place.store_folder / SECRETS,
        LOGS: place.logs_folder,
    }


def pack_transfer(place: ProjectAccess, into: IO[bytes], wishes: list[StoredJob]) -> None:
    """All of it, of a place that no engine works on and no command can open."""
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
            for wish in wishes:
                for name, content in snapshot_entries(wish.snapshot, archive):
                    add_tar_file(tar, name, content)
            add_tar_file(tar, END, b"")
    finally:
        draft.unlink(missing_ok=True)


def snapshot_contents(id: str, archive: Archive) -> frozenset[bytes]:
    """The ids of what the files of a snapshot hold."""
    return frozenset(row[-32:] for row in archive.load_rows(id) or ())


def missing_contents(ids: Iterable[bytes], archive: Archive) -> frozenset[bytes]:
    """Those of them that are not here."""
    with archive.blobs.shared_lock():
        return frozenset(archive.blobs.missing_ids(ids))


def snapshot_entries(
    id: str, archive: Archive, *, only: Callable[[bytes], bool] = bool
) -> Iterator[tuple[str, bytes]]:
    """Contents, then rows; nothing of what is not here whole: a host may have it."""
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
    """A file that is in memory."""
    about = tarfile.TarInfo(name)
    about.size, about.mode = len(content), 0o600
    tar.addfile(about, io.BytesIO(content))


def unpack_transfer(place: ProjectAccess, source: IO[bytes], token: str) -> None:
    """Take it over. Nothing counts before all is here."""
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
        raise OperationFailed(f"what came is not whole ({error})") from error
    if not whole:
        raise OperationFailed("what came is not whole: it was cut")
    moved_marker.install_copy(parts[STORE], draft, token)


def read_tar_files(source: IO[bytes]) -> Iterator[tuple[str, bytes]]:
    """What is in a tar; a name that leads elsewhere is an error."""
    with tarfile.open(fileobj=source, mode="r|") as tar:
        for about in tar:
            if about.name.startswith("/") or ".." in Path(about.name).parts:
                raise OperationFailed(f"{about.name!r} leads elsewhere")
            piece = tar.extractfile(about)
            yield about.name, b"" if piece is None else piece.read()


def store_code(archive: Archive, fresh: PackWriter, file: str, content: bytes) -> None:
    """Code goes into the archive: contents first, then the rows that need them."""
    top, _, name = file.partition("/")
    if top == ROWS:
        archive.add(unpack_rows(content))
    else:
        fresh.add([content], bytes.fromhex(name))


def write_private_file(file: Path, content: bytes) -> None:
    """Only we may read it."""
    file.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    file.touch(mode=0o600)
    file.write_bytes(content)
