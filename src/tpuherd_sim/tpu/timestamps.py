"""Times and durations in the API's format."""

import re
from datetime import UTC, datetime
from functools import lru_cache

DURATION = re.compile(r"(-?[0-9]{1,12})(\.[0-9]{1,9})?s")
TIME = re.compile(
    r"[0-9]{4}-[0-9]{2}-[0-9]{2}[Tt][0-9]{2}:[0-9]{2}:[0-9]{2}(\.[0-9]{1,9})?([Zz]|[+-][0-9]{2}:[0-9]{2})"
)

#: The years 1 and 9999, the range of timestamps.
EARLIEST, LATEST = -62135596800.0, 253402300799.0


@lru_cache(maxsize=4096)
def format_timestamp(at: float) -> str:
    """Return RFC 3339 in UTC with nine decimals: clients fail on fewer than six."""
    at = min(max(at, EARLIEST), LATEST)
    whole = int(at // 1)
    # A float of the current time has only microsecond precision.
    micros = round((at - whole) * 1e6)
    if micros == 1_000_000:
        whole, micros = whole + 1, 0
    day = datetime.fromtimestamp(whole, UTC).replace(tzinfo=None).isoformat(timespec="seconds")
    return f"{day}.{micros:06d}000Z"


def parse_time(text: str) -> float | None:
    """Return the seconds since 1970 of a timestamp, or None if it is malformed."""
    if not TIME.fullmatch(text):
        return None
    try:
        at = datetime.fromisoformat(text.upper()).timestamp()
    except (ValueError, OverflowError):
        return None
    return min(max(at, EARLIEST), LATEST)


def parse_duration(text: str) -> float | None:
    """Return the seconds of a duration such as `3600s`, or None if it is malformed."""
    return float(text[:-1]) if DURATION.fullmatch(text) else None
