"""Carries the code of jobs to the machine of a context's `via`, as files of a tar.

Code is stored under its content ids and checked against them.
"""

import io
import tarfile
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import IO

from tpuherd.errors import OperationFailed
from tpuherd.files import make_private_folder
from tpuherd.sync.snapshot_store import Archive
from tpuherd_host.agent.snapshots.blobs import PackWriter
from tpuherd_host.agent.snapshots.manifest import pack_rows, unpack_rows

BLOBS, ROWS = "blobs", "rows"


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


def pack_tar(bundle: Mapping[str, bytes]) -> bytes:
    whole = io.BytesIO()
    with tarfile.open(fileobj=whole, mode="w|") as tar:
        for name, content in bundle.items():
            about = tarfile.TarInfo(name)
            about.size, about.mode = len(content), 0o600
            tar.addfile(about, io.BytesIO(content))
    return whole.getvalue()


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
    make_private_folder(file.parent)
    file.touch(mode=0o600)
    file.write_bytes(content)
