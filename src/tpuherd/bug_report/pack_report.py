"""Removes secrets from the files of a bug report and packs them into one archive."""

import errno
import io
import os
import re
import tarfile
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from tpuherd.bug_report.report_file import ReportFile
from tpuherd.errors import HerdError, InvalidInput, NotAllowed, OperationFailed
from tpuherd.transcripts.placeholders import Placeholders
from tpuherd.transcripts.redact_text import KnownValue, redact_text

KEY_BYTES = 32  #: of the placeholders' key, which nobody keeps
MODE = 0o600
BUCKET = re.compile(r"\bgs://([a-z0-9][a-z0-9._-]{1,220})")


@dataclass(frozen=True, kw_only=True, slots=True)
class PackedReport:
    """The archive, and what the user is told about it."""

    content: bytes
    files: Sequence[ReportFile]  #: as they are in it
    hidden: Mapping[str, int]  #: how much was hidden, by kind
    problems: Sequence[str]  #: what is missing in it, and why


def redact_files(
    files: Iterable[ReportFile], known: Sequence[KnownValue]
) -> tuple[list[ReportFile], Counter[str]]:
    """Return the files without secrets, in their texts and their names."""
    hide = Placeholders(key=os.urandom(KEY_BYTES))
    counts: Counter[str] = Counter()
    shown = []
    for file in files:
        name = redact_text(file.name, known, hide)
        text = redact_text(file.text, known, hide)
        counts.update(text.hidden)
        shown.append(ReportFile(name=name.text, text=text.text, about=file.about))
    return shown, counts


def pack_files(files: Sequence[ReportFile], *, folder: str, now: float) -> bytes:
    """Return a compressed archive with one folder, and nothing of this user in its headers."""
    whole = io.BytesIO()
    with tarfile.open(fileobj=whole, mode="w:gz", format=tarfile.PAX_FORMAT) as archive:
        for file in files:
            content = file.text.encode(errors="replace")
            entry = tarfile.TarInfo(f"{folder}/{file.name}")
            entry.size, entry.mode, entry.mtime = len(content), 0o644, int(now)
            archive.addfile(entry, io.BytesIO(content))
    return whole.getvalue()


def choose_output(output: str | None, folder: Path, now: float) -> Path:
    """Return where to write the report; raises InvalidInput if something is there."""
    path = folder / (output or f"{report_name(now)}.tar.gz")
    if path.exists():
        raise InvalidInput(f"{path} exists already", hint="name another file with --output")
    if not path.parent.is_dir():
        raise InvalidInput(f"there is no folder {path.parent}")
    return path


def report_name(now: float) -> str:
    when = datetime.fromtimestamp(now, UTC).strftime("%Y%m%dT%H%M%SZ")
    return f"herd-bug-report-{when}"


def bucket_names(files: Iterable[ReportFile]) -> set[KnownValue]:
    """Return the names of buckets, which `--hide-project` hides."""
    names = {name for file in files for name in BUCKET.findall(file.text)}
    return {KnownValue(value=name, kind="bucket name", shown="<bucket>") for name in names}


def write_report(path: Path, content: bytes) -> None:
    """Write a new file that only its user can read; nothing is left of one that did not fit."""
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
    try:
        file = os.open(path, flags, MODE)
    except OSError as error:
        raise explain_write_error(path, error) from error
    try:
        with open(file, "wb") as stream:
            stream.write(content)
    except OSError as error:
        path.unlink(missing_ok=True)
        raise explain_write_error(path, error) from error


def explain_write_error(path: Path, error: OSError) -> HerdError:
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        return OperationFailed(
            f"the disk is full: {path} can't be written", hint="name another disk with --output"
        )
    return NotAllowed(f"{path} can't be written ({error.strerror})")
