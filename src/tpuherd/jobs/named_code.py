"""Reads the files of the code that a job's command names, to see what they say."""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from tpuherd.jobfile.bucket_scan import FILES_MAX, BucketUse, candidate_files, scan_file
from tpuherd.jobs import via_parcel
from tpuherd.jobs.open_project import Session
from tpuherd.sync.snapshot_store import Archive, open_archive
from tpuherd_host.agent.snapshots.manifest import parse_row

FILE_BYTES_MAX = 1 << 20  #: longer files are data, not settings


def scan_code(content: Mapping[str, Any], base: Path, here: Session) -> Iterator[BucketUse]:
    """Yield each bucket that the named files of the workdir name."""
    carried = via_parcel.carried_snapshot(here.prompter.environ)
    workdir = content.get("workdir")
    if content.get("repo") or not isinstance(workdir, str):
        return
    if carried:
        yield from scan_snapshot(content, carried, open_archive(here.place.folders.state))
        return
    folder = base / Path(workdir).expanduser()
    many = 0
    for path in candidate_files(content):
        text = read_text(folder / path)
        if text is not None and many < FILES_MAX:
            many += 1
            yield from scan_file(path, text, content)


def scan_snapshot(content: Mapping[str, Any], id: str, archive: Archive) -> Iterator[BucketUse]:
    """Yield each bucket that the named files of a snapshot name."""
    named = {path.encode() for path in candidate_files(content)}
    rows = [row for row in map(parse_row, archive.load_rows(id) or ()) if row.path in named]
    for row in rows[:FILES_MAX]:
        if row.is_folder or row.is_link or row.size > FILE_BYTES_MAX:
            continue
        text = decode_text(b"".join(archive.blobs.read_pieces(row.id)))
        if text is not None:
            yield from scan_file(row.path.decode(errors="replace"), text, content)


def read_text(file: Path) -> str | None:
    """Return the text; None if it is not a text file of bounded size that we may read."""
    try:
        if not file.is_file() or file.stat().st_size > FILE_BYTES_MAX:
            return None
        with file.open("rb") as stream:
            return decode_text(stream.read(FILE_BYTES_MAX))
    except (OSError, ValueError):
        return None


def decode_text(content: bytes) -> str | None:
    if b"\0" in content:
        return None
    try:
        return content.decode()
    except UnicodeDecodeError:
        return None
