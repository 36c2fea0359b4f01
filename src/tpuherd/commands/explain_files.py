"""Explains logs that are files, folders of files, or given as standard input."""

import gzip
import zlib
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from tpuherd.commands.log_windows import LogWindow, large_notices
from tpuherd.diagnosis.explain import explain_hosts
from tpuherd.diagnosis.log_scanner import HostScan
from tpuherd.diagnosis.match_line import RuleBook
from tpuherd.diagnosis.scan_text import scan_text
from tpuherd.errors import InvalidInput, NotAllowed, NotFound, OperationFailed
from tpuherd.views.finding_lines import Explanation

PIECE = 1 << 18
FILES_MAX = 1000
GZIP = b"\x1f\x8b"
BINARY_SHARE = 0.1  #: of the first bytes: more control characters, and it is no text
CONTROLS = bytes(range(8)) + bytes(range(14, 27)) + bytes(range(28, 32))


@dataclass(slots=True)
class ScannedFiles:
    """The scans of all files, and what is to be said of some."""

    scans: list[HostScan] = field(default_factory=list)
    notices: list[str] = field(default_factory=list)
    empty: list[str] = field(default_factory=list)  #: files
    skipped: dict[str, int] = field(default_factory=dict)  #: bytes of large files

    def all_notices(self) -> list[str]:
        """What is to be said, many files of a kind in one sentence."""
        told = list(self.notices)
        if self.empty:
            more = f", and {len(self.empty) - 1} more" if len(self.empty) > 1 else ""
            told.append(f"{self.empty[0]} is empty{more}")
        return told + large_notices(self.skipped)


def explain_path(path: Path, book: RuleBook) -> tuple[Explanation, list[str]]:
    """Explain a file or a folder; return notices about what was left out, too."""
    found = ScannedFiles()
    if path.is_dir():
        scan_folder(path, book, found)
    else:
        scan_file(path, "", book, found)
    return explain_scans(path.name or str(path), found.scans, book), found.all_notices()


def explain_window(window: LogWindow, book: RuleBook) -> tuple[Explanation, list[str]]:
    """Explain standard input."""
    found = ScannedFiles()
    scan_window(window, "standard input", "", book, found)
    return explain_scans("standard input", found.scans, book), found.all_notices()


def explain_scans(subject: str, scans: list[HostScan], book: RuleBook) -> Explanation:
    findings = explain_hosts(scans, book)
    alarms = [scan.alarm for scan in scans if scan.alarm]
    return Explanation(
        subject=subject,
        findings=findings,
        healthy=f"Nothing in {subject} points to a known failure.",
        alarm="" if findings or not alarms else alarms[0],
    )


def scan_folder(folder: Path, book: RuleBook, found: ScannedFiles) -> None:
    """Scan the logs of a folder, one host a file; what is no log is left out and named."""
    try:
        files = sorted(path for path in folder.rglob("*") if path.is_file())
    except OSError as error:
        raise NotAllowed(f"{folder} can't be read: {error.strerror}") from error
    odd: list[str] = []
    for path in files[:FILES_MAX]:
        try:
            scan_file(path, str(path.relative_to(folder)), book, found)
        except (InvalidInput, NotAllowed, OperationFailed) as error:
            odd.append(error.sentence)
    if len(files) > FILES_MAX:
        found.notices.append(
            f"{folder} has {len(files)} files; only the first {FILES_MAX} were read"
        )
    if odd:
        more = f", and {len(odd) - 1} more like it" if len(odd) > 1 else ""
        found.notices.append(f"left out: {odd[0]}{more}")
    if not found.scans:
        raise NotFound(f"there is no log in {folder}")


def scan_file(path: Path, host: str, book: RuleBook, found: ScannedFiles) -> None:
    """Scan a file; an error says in a sentence why that can't be done."""
    if not path.exists():
        raise NotFound(f"there is no file {path}")
    if not path.is_file():
        raise InvalidInput(
            f"{path} is no file; give what it has as standard input: herd explain - < {path}"
        )
    window = LogWindow()
    try:
        window.add_all(read_pieces(path))
    except (gzip.BadGzipFile, EOFError, zlib.error) as error:
        if not window.size:
            raise OperationFailed(f"{path} is damaged: it can't be unpacked: {error}") from error
        found.notices.append(f"{path} is damaged: only its first {window.size} bytes were read")
    except OSError as error:
        raise NotAllowed(f"{path} can't be read: {error.strerror}") from error
    scan_window(window, str(path), host, book, found)


def read_pieces(path: Path) -> Iterator[bytes]:
    """The contents of a file, unpacked if it is compressed with gzip."""
    with path.open("rb") as stream:
        packed = stream.read(len(GZIP)) == GZIP
    with gzip.open(path) if packed else path.open("rb") as stream:
        while piece := stream.read(PIECE):
            yield piece


def scan_window(
    window: LogWindow, name: str, host: str, book: RuleBook, found: ScannedFiles
) -> None:
    if is_binary(window.head[:PIECE]):
        raise InvalidInput(f"{name} is no text")
    if not window.size:
        found.empty.append(name)
    if window.skipped:
        found.skipped[name] = window.skipped
    found.scans += scan_text(window.text_parts(), host, book)


def is_binary(first: bytes) -> bool:
    odd = len(first) - len(first.translate(None, CONTROLS))
    return odd > BINARY_SHARE * len(first) or b"\0" in first[:1024]
