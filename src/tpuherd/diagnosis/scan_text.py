"""Scans a text that may be the log of one host or, each line named, of many."""

import re
from collections.abc import Iterable, Iterator

from tpuherd.diagnosis.log_scanner import LINE_CHARS_MAX, HostScan, LogScanner, cut_line
from tpuherd.diagnosis.match_line import BOOK, RuleBook

#: What stands before the lines of hosts: in `herd logs`, `herd exec` and Ray.
LABEL = re.compile(
    r"(?:(?P<h>\d\d):(?P<m>\d\d):(?P<s>\d\d) )?"
    r"(?P<host>[A-Za-z0-9_.~+%-]+(?:/[A-Za-z0-9_.~+%-]+)*/w(?:\d+|\[[\d,-]+\])): "
    r"|\((?P<ray>\w+(?:\([^)]*\))? pid=\d+(?:, ip=[\d.]+)?)\) "
)
LOOKED_AT = 40  #: first lines by which it is decided


def scan_text(
    parts: Iterable[tuple[int, str]], host: str = "", book: RuleBook = BOOK
) -> list[HostScan]:
    """The scans of all hosts in a text; each part has the number of its first line."""
    parts = list(parts)
    if not has_labels(parts[0][1] if parts else ""):
        scanner = LogScanner(host, book)
        for number, text in parts:
            scanner.feed_text(text, number=number)
        return [scanner.finish()]
    scanners: dict[str, LogScanner] = {}
    for number, text in parts:
        for place, line in enumerate(text.split("\n"), number):
            label, at, said = split_label(line)
            if label:
                scanner = scanners.setdefault(label, LogScanner(label, book))
                scanner.feed(cut_line(said), at=at, number=place)
    return [scanner.finish() for scanner in scanners.values()]


def has_labels(text: str) -> bool:
    """Whether most of the first lines begin with the name of a host."""
    first = list(first_lines(text))
    return 2 * sum(LABEL.match(line) is not None for line in first) > len(first)


def first_lines(text: str) -> Iterator[str]:
    lines = (line for line in text[: LOOKED_AT * LINE_CHARS_MAX].split("\n") if line.strip())
    yield from (line for _, line in zip(range(LOOKED_AT), lines, strict=False))


def split_label(line: str) -> tuple[str, float | None, str]:
    """The host of a line, the second of the day if it says so, and the rest; "" if it has none."""
    found = LABEL.match(line)
    if found is None:
        return "", None, line
    at = None
    if found["h"] is not None:
        at = float((int(found["h"]) * 60 + int(found["m"])) * 60 + int(found["s"]))
    return found["host"] or found["ray"], at, line[found.end() :]
