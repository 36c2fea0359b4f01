"""The text of `herd check`, from the JSON that it prints."""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tpuherd.targets import fold_names
from tpuherd.views.format_text import wrap_text

MARKS: Mapping[str, tuple[str, int]] = {
    "ok": ("✓", 32), "warning": ("!", 33), "problem": ("✗", 31), "skipped": ("-", 2),
}  # fmt: skip
NUMBERED = re.compile(r".+/w[0-9]+")  #: the name of a host
INDENT = 6


@dataclass(frozen=True, kw_only=True, slots=True)
class CheckEntry:
    """Equal results: of several hosts, or of several checks that could not look."""

    places: tuple[str, ...]
    checks: tuple[str, ...]
    status: str
    found: str
    matters: str
    remedy: str

    @property
    def title(self) -> str:
        return fold_names(self.places)


def check_report(
    rows: Sequence[Mapping[str, Any]], *, colour: bool = False, width: int | None = None
) -> str:
    """Return all results by place, and how many of each kind there are."""
    blocks: dict[str, list[CheckEntry]] = {}
    for entry in fold_results(rows):
        blocks.setdefault(entry.title, []).append(entry)
    lines: list[str] = []
    for title, entries in blocks.items():
        lines.append(title)
        for entry in entries:
            lines += entry_lines(entry, colour=colour, width=width)
    return "\n".join([*lines, "", count_results(rows)])


def fold_results(rows: Sequence[Mapping[str, Any]]) -> list[CheckEntry]:
    """Return one entry for each group of equal results, in the order of the first ones."""
    groups: dict[tuple[str, ...], list[Mapping[str, Any]]] = {}
    for row in rows:
        groups.setdefault(group_key(row), []).append(row)
    return [fold_group(group) for group in groups.values()]


def group_key(row: Mapping[str, Any]) -> tuple[str, ...]:
    """Return a key that results share which are shown as one."""
    said = (row["status"], row["found"], row["remedy"])
    if row["status"] == "skipped" and not NUMBERED.fullmatch(row["where"]):
        return ("", row["where"], *said)
    if not NUMBERED.fullmatch(row["where"]):
        return (row["check"], row["where"], *said)
    return (row["check"], "", "ok") if row["status"] == "ok" else (row["check"], "", *said)


def fold_group(group: Sequence[Mapping[str, Any]]) -> CheckEntry:
    first = group[0]
    places = tuple(dict.fromkeys(row["where"] for row in group))
    same = len({row["found"] for row in group}) == 1
    return CheckEntry(
        places=places,
        checks=tuple(dict.fromkeys(row["check"] for row in group)),
        status=first["status"],
        found=first["found"] if same else f"fine on all {len(places)}",
        matters=first["matters"] if len({row["check"] for row in group}) == 1 else "",
        remedy=first["remedy"],
    )


def entry_lines(entry: CheckEntry, *, colour: bool, width: int | None) -> Iterator[str]:
    mark, tint = MARKS[entry.status]
    mark = f"\x1b[{tint}m{mark}\x1b[0m" if colour else mark
    yield from fit_line(f"  {mark} {', '.join(entry.checks)}: {entry.found}", width)
    for word, text in (("why", entry.matters), ("do", entry.remedy)):
        if text:
            yield from fit_line(f"{' ' * INDENT}{word}: {text}", width)


def fit_line(line: str, width: int | None) -> list[str]:
    return [line] if width is None else wrap_text(line, width).split("\n")


def count_results(rows: Sequence[Mapping[str, Any]]) -> str:
    """25 checks: 22 fine, 1 warning, 2 problems"""
    counts = {status: sum(row["status"] == status for row in rows) for status in MARKS}
    parts = [f"{counts['ok']} fine"]
    parts += [
        f"{many} {word}{'s' if many > 1 and plural else ''}"
        for status, word, plural in (
            ("problem", "problem", True), ("warning", "warning", True),
            ("skipped", "not looked at", False),
        )
        if (many := counts[status])
    ]  # fmt: skip
    return f"{len(rows)} check{'s' if len(rows) != 1 else ''}: {', '.join(parts)}"
