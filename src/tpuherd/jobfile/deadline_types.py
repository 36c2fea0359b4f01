"""How a job states until when it is to be done."""

import re
from calendar import monthrange, timegm
from math import inf
from typing import Any

from tpuherd.jobfile.value_types import (
    DURATION,
    DURATION_MAX_S,
    ReportMistake,
    ValueType,
    format_duration,
    parse_duration,
    show_value,
)

LEAST_S = 60.0
#: A day and a time, with their distance from Greenwich: whose clock counts is then plain.
INSTANT = (
    r"([0-9]{4})-([0-9]{2})-([0-9]{2})[T ]([0-9]{2}):([0-9]{2})(?::([0-9]{2}))?"
    r" ?(Z|[+-][0-9]{2}(?::?[0-9]{2})?)"
)
ZONELESS = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}([T ][0-9]{2}:[0-9]{2}(:[0-9]{2})?)?")
EXAMPLES = "2026-11-27T18:00Z, 2026-11-27T18:00+01:00, or 48h after its submission"


def read_deadline(value: Any, wrong: ReportMistake) -> str | None:
    """Accept a time with its time zone, or a duration from the submission on."""
    duration_s = parse_duration(value)
    if duration_s is not None:
        if LEAST_S <= duration_s <= DURATION_MAX_S:
            return format_duration(duration_s)
        wrong(f"{show_value(value)} is out of range: at least a minute, at most ten years", ())
        return None
    text = value.strip() if isinstance(value, str) else ""
    if parse_instant(text) is not None:
        return text
    lacks = " with a time and a time zone" if ZONELESS.fullmatch(text) else ""
    wrong(f"{show_value(value)} is not a deadline{lacks}: write {EXAMPLES}", ())
    return None


def parse_instant(text: str) -> float | None:
    """Return the seconds since 1970, or None if it is not a time with its time zone."""
    match = re.fullmatch(INSTANT, text)
    if match is None:
        return None
    year, month, day, hour, minute, second = (int(part or 0) for part in match.groups()[:6])
    if not 1 <= month <= 12 or not 1 <= day <= monthrange(max(1, year), month)[1]:
        return None
    if year < 1970 or hour > 23 or minute > 59 or second > 59:
        return None
    return timegm((year, month, day, hour, minute, second)) - parse_offset(match[7])


def parse_offset(text: str) -> float:
    """Return the seconds by which clocks there are ahead of Greenwich."""
    if text == "Z":
        return 0.0
    digits = text[1:].replace(":", "").ljust(4, "0")
    ahead_s = int(digits[:2]) * 3600.0 + int(digits[2:]) * 60.0
    return -ahead_s if text[0] == "-" else ahead_s


def deadline_time(text: str, submitted_at: float) -> float:
    """When a job is to be done; infinite if that is not a deadline."""
    duration_s = parse_duration(text)
    if duration_s is not None:
        return submitted_at + duration_s
    at = parse_instant(text)
    return inf if at is None else at


DEADLINE = ValueType(
    read=read_deadline,
    schema={"anyOf": [
        {"type": "string", "pattern": f"^({DURATION.pattern}|{INSTANT})$"},
        {"type": "number", "minimum": LEAST_S},
    ]},
)  # fmt: skip
