"""A file of a bug report, and the text files that are read for it."""

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any


@dataclass(frozen=True, kw_only=True, slots=True)
class ReportFile:
    """A file as it was read; secrets are removed when it is packed."""

    name: str  #: its path in the report
    text: str
    about: str  #: what it is, for the list that the user sees


def json_file(name: str, content: Any, about: str) -> ReportFile:
    text = json.dumps(content, indent=2, ensure_ascii=False, default=str)
    return ReportFile(name=name, text=f"{text}\n", about=about)


def lines_file(name: str, rows: Iterable[Mapping[str, Any]], about: str) -> ReportFile:
    """Return a file with one JSON object a line."""
    lines = (json.dumps(row, ensure_ascii=False, default=str) for row in rows)
    return ReportFile(name=name, text="".join(f"{line}\n" for line in lines), about=about)


def read_tail(file: Path, most: int) -> str:
    """Return the last whole lines of a file, at most this many bytes."""
    with file.open("rb") as stream:
        size = stream.seek(0, 2)
        stream.seek(max(0, size - most))
        piece = stream.read(most)
    if size > most:
        piece = piece[piece.find(b"\n") + 1 :]
    return piece.decode(errors="replace")
