"""What a bug report contains, as its user and its reader see it."""

import shlex
from collections.abc import Mapping, Sequence
from typing import Protocol

from tpuherd.views.format_text import format_bytes, format_table

FOLDER_FILES = 4  #: more files than this of one folder are shown as one line


class ReportEntry(Protocol):
    """A file of a report."""

    @property
    def name(self) -> str: ...

    @property
    def text(self) -> str: ...

    @property
    def about(self) -> str: ...


def report_contents(files: Sequence[ReportEntry]) -> str:
    """Return a line per file, with many files of one folder as one."""
    folders: dict[str, list[ReportEntry]] = {}
    for file in files:
        folders.setdefault(file.name.rpartition("/")[0], []).append(file)
    rows = []
    for folder, inside in folders.items():
        if folder and len(inside) > FOLDER_FILES:
            rows.append((f"{folder}/ ({len(inside)} files)", entry_size(inside), inside[0].about))
            continue
        rows += [(file.name, entry_size([file]), file.about) for file in inside]
    return format_table(rows, right=(1,))


def entry_size(files: Sequence[ReportEntry]) -> str:
    return format_bytes(sum(len(file.text.encode(errors="replace")) for file in files))


def hidden_summary(hidden: Mapping[str, int]) -> str:
    """secret 3×, e-mail address 1×"""
    return ", ".join(f"{kind} {many}×" for kind, many in sorted(hidden.items())) or "nothing"


def report_readme(
    files: Sequence[ReportEntry], hidden: Mapping[str, int], problems: Sequence[str]
) -> str:
    """Return the first file of a report."""
    lines = [
        "A bug report of herd. Every file is text.",
        "",
        report_contents(files),
        "",
        f"Hidden: {hidden_summary(hidden)}.",
        "The same <email:…> or <address:…> is the same value in all files.",
    ]
    if problems:
        lines += ["", "What could not be read:", *(f"- {one}" for one in problems)]
    return "\n".join(lines) + "\n"


def report_summary(
    files: Sequence[ReportEntry], hidden: Mapping[str, int], problems: Sequence[str], *, path: str
) -> str:
    """Return what `herd bug-report` prints."""
    lines = [report_contents(files), "", f"Hidden: {hidden_summary(hidden)}."]
    lines += [f"Not in it: {one}" for one in problems]
    lines += [
        "",
        f"Wrote {path}. Nothing was sent. Look at what you share:",
        f"  tar -xzOf {shlex.quote(path)} | less",
    ]
    return "\n".join(lines)
