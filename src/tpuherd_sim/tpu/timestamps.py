"""Times and durations as the API writes and reads them."""

import re
from datetime import UTC, datetime
from functools import lru_cache

DURATION = re.compile(r"(-?[0-9]{1,12})(\.[0-9]{1,9})?s")
TIME = re.compile(
    r"[0-9]{4}-[0-9]{2}-[0-9]{2}[Tt][0-9]{2}:[0-9]{2}:[0-9]{2}(\.[0-9]{1,9})?([Zz]|[+-][0-9]{2}:[0-9]{2})"
)

#: The years 1 and 9999: there are no timestamps before and after.
EARLIEST, LATEST = -62135596800.0, 253402300799.0


@lru_cache(maxsize=4096)
def format_timestamp(at: float) -> str:
    """RFC 3339, UTC, with nine digits after the point: clients choke on fewer than six."""
    at = min(max(at, EARLIEST), LATEST)
    whole = int(at // 1)
    # A float of today's size has no more than microseconds to tell.
    micros = round((at - whole) * 1e6)
    if micros == 1_000_000:
        whole, micros = whole + 1, 0
    day = datetime.fromtimestamp(whole, UTC).replace(tzinfo=None).isoformat(timespec="seconds")
    return f"{day}.{micros:06d}000Z"


def parse_time(text: str) -> float | None:
    """Seconds since 1970 of a timestamp; None if it is none."""
    if not TIME.fullmatch(text):
        return None
    try:
        at = datetime.fromisoformat(text.upper()).timestamp()
    except (ValueError, OverflowError):
        return None
    return min(max(at, EARLIEST), LATEST)


def parse_duration(text: str) -> float | None:
    """Seconds of a duration such as `3600s`; None if it is none."""
    return float(text[:-1]) if DURATION.fullmatch(text) else None


def format_duration(seconds: float) -> str:
    """Seconds as the API writes them."""
    return f"{seconds:.9f}".rstrip("0").rstrip(".") + "s"
