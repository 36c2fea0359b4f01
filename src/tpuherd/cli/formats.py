"""Durations and times as users write and read them: 30s, 5m, 10:15."""

import re
from datetime import UTC, datetime

import click

UNITS = {"s": 1.0, "m": 60.0, "min": 60.0, "h": 3600.0, "d": 86400.0, "": 1.0}
LONG_AGO = 1e9  #: a larger number is a time since 1970
DURATION = re.compile(r"([0-9]+(?:\.[0-9]+)?) ?([a-z]*)")


class Duration(click.ParamType[float]):
    """Seconds, or a number with its unit."""

    name = "duration"

    def convert(
        self, value: object, param: click.Parameter | None, ctx: click.Context | None
    ) -> float:
        if isinstance(value, float):
            return value
        seconds = parse_duration(str(value))
        if seconds is None:
            self.fail(f"{value!r} is not a duration: write 30s, 5m, 2h or 1d", param, ctx)
        return seconds


class Moment(click.ParamType[float]):
    """Seconds since 1970, from a time ago, a time of today, or a date."""

    name = "when"

    def convert(
        self, value: object, param: click.Parameter | None, ctx: click.Context | None
    ) -> float:
        from tpuherd.clock import WallClock

        text, now = str(value), WallClock().now()
        age = parse_duration(text)
        if age is not None:
            return now - age if age < LONG_AGO else age
        try:
            if re.fullmatch(r"[0-9]{1,2}:[0-9]{2}(:[0-9]{2})?", text):
                today = datetime.fromtimestamp(now, UTC).astimezone().date()
                text = f"{today} {text.rjust(5, '0')}"
            return datetime.fromisoformat(text).astimezone().timestamp()
        except ValueError:
            self.fail(f"{value!r} is not a time: write 10m, 12:30 or 2026-01-31T12:30", param, ctx)


def parse_duration(text: str) -> float | None:
    """Return the seconds; None if the text is not a duration."""
    match = DURATION.fullmatch(text.strip())
    if match is None or match[2] not in UNITS:
        return None
    return float(match[1]) * UNITS[match[2]]


def clock_text(at: float) -> str:
    """Return the local time of day."""
    return datetime.fromtimestamp(at, UTC).astimezone().strftime("%H:%M:%S")
