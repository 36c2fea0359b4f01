"""What travels when a fleet's engine moves: store, secrets, logs, and the code of what is wished.

One tar, written and read from front to back. Code goes by its ids, and is checked by them.
"""

import io
import shutil
import tarfile
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import IO

from tpuherd.errors import Broken
from tpuherd.model.stored_job import Wish
from tpuherd.settings.project_access import Place
from tpuherd.store import moved_marker
from tpuherd.sync.snapshot_store import Archive, archived
from tpuherd_host.agent.blobs import Pack, Spoiled
from tpuherd_host.agent.snapshots_rows import packed, unpacked

STORE, SECRETS, LOGS, BLOBS, ROWS, END = "store.db", "secrets", "logs", "blobs", "rows", "end"
DRAFT = "move.db"


def folders(place: Place) -> dict[str, Path]:
    """Where the parts are on this machine."""
    return {STORE: place.store, SECRETS: place.store / SECRETS, LOGS: place.logs}


def pack(place: Place, into: IO[bytes], wishes: list[Wish]) -> None:
    """All of it, of a place that no engine works on and no command can open."""
    parts = folders(place)
    draft = parts[STORE] / DRAFT
    moved_marker.copied(parts[STORE], draft)
    archive = archived(place.folders.state)
    try:
        with tarfile.open(fileobj=into, mode="w|") as tar:
            tar.add(draft, STORE)
            for name in (SECRETS, LOGS):
                for file in sorted(parts[name].rglob("*")) if parts[name].exists() else ():
                    if file.is_file() and not file.is_symlink():
                        tar.add(file, f"{name}/{file.relative_to(parts[name])}")
            for wish in wishes:
                for name, content in code(wish.snapshot, archive):
                    put(tar, name, content)
            put(tar, END, b"")
    finally:
        draft.unlink(missing_ok=True)


def contents(id: str, archive: Archive) -> frozenset[bytes]:
    """The ids of what the files of a snapshot hold."""
    return frozenset(row[-32:] for row in archive.rows(id) or ())


def lacking(ids: Iterable[bytes], archive: Archive) -> frozenset[bytes]:
    """Those of them that are not here."""
    with archive.blobs.held():
        return frozenset(archive.blobs.missing(ids))


def code(
    id: str, archive: Archive, *, only: Callable[[bytes], bool] = bool
) -> Iterator[tuple[str, bytes]]:
    """Contents, then rows; nothing of what is not here whole: a host may have it."""
    rows = archive.rows(id) if id else None
    if rows is None:
        return
    with archive.blobs.held():
        wanted = contents(id, archive)
        if archive.blobs.missing(wanted):
            return
        for each in sorted(filter(only, wanted)):
            yield f"{BLOBS}/{each.hex()}", b"".join(archive.blobs.pieces(each))
    yield f"{ROWS}/{id}", packed(rows)


def put(tar: tarfile.TarFile, name: str, content: bytes) -> None:
    """A file that is in memory."""
    about = tarfile.TarInfo(name)
    about.size, about.mode = len(content), 0o600
    tar.addfile(about, io.BytesIO(content))


def unpack(place: Place, source: IO[bytes], token: str) -> None:
    """Take it over. Nothing counts before all is here."""
    parts = folders(place)
    parts[STORE].mkdir(parents=True, exist_ok=True, mode=0o700)
    whole, draft = False, parts[STORE] / DRAFT
    archive = archived(place.folders.state)
    if parts[SECRETS].exists():
        shutil.rmtree(parts[SECRETS])
    try:
        with archive.blobs.held(), archive.blobs.writer() as fresh:
            for file, content in files(source):
                top, _, name = file.partition("/")
                if top in (BLOBS, ROWS):
                    keep(archive, fresh, file, content)
                elif top == STORE:
                    write(draft, content)
                elif top in (SECRETS, LOGS):
                    write(parts[top] / name, content)
                whole = whole or top == END
    except (tarfile.TarError, Spoiled, ValueError) as error:
        raise Broken(f"what came is not whole ({error})") from error
    if not whole:
        raise Broken("what came is not whole: it was cut")
    moved_marker.settle(parts[STORE], draft, token)


def files(source: IO[bytes]) -> Iterator[tuple[str, bytes]]:
    """What is in a tar; a name that leads elsewhere is an error."""
    with tarfile.open(fileobj=source, mode="r|") as tar:
        for about in tar:
            if about.name.startswith("/") or ".." in Path(about.name).parts:
                raise Broken(f"{about.name!r} leads elsewhere")
            piece = tar.extractfile(about)
            yield about.name, b"" if piece is None else piece.read()


def keep(archive: Archive, fresh: Pack, file: str, content: bytes) -> None:
    """Code goes into the archive: contents first, then the rows that need them."""
    top, _, name = file.partition("/")
    if top == ROWS:
        archive.add(unpacked(content))
    else:
        fresh.add([content], bytes.fromhex(name))


def write(file: Path, content: bytes) -> None:
    """Only we may read it."""
    file.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    file.touch(mode=0o600)
    file.write_bytes(content)
