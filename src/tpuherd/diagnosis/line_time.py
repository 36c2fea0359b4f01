"""Finds the time of day in a line of a log, to tell which host failed first."""

import re

#: As glog and absl write it: F1120 11:42:53.324336; and as most others do: 2026-11-20 11:42:53,324.
GLOG = re.compile(r"(?:^|\s)[IWEF](\d\d)(\d\d) (\d\d):(\d\d):(\d\d(?:\.\d+)?)\s")
ISO = re.compile(r"\b\d{4}-(\d\d)-(\d\d)[T ](\d\d):(\d\d):(\d\d(?:[.,]\d+)?)")


def find_line_time(line: str) -> float | None:
    """Seconds since the year's begin, roughly: for comparing hosts; None if the line has none."""
    found = GLOG.search(line) or ISO.search(line)
    if found is None:
        return None
    month, day, hour, minute, second = (float(part.replace(",", ".")) for part in found.groups())
    return (((month * 31 + day) * 24 + hour) * 60 + minute) * 60 + second
