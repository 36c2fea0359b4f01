"""What users write for values: 30s, 5m, 10:15."""

import re

import click

UNITS = {"s": 1.0, "m": 60.0, "min": 60.0, "h": 3600.0, "d": 86400.0, "": 1.0}
DURATION = re.compile(r"([0-9]+(?:\.[0-9]+)?) ?([a-z]*)")


class Duration(click.ParamType[float]):
    """Seconds, or a number with its unit."""

    name = "duration"

    def convert(
        self, value: object, param: click.Parameter | None, ctx: click.Context | None
    ) -> float:
        if isinstance(value, float):
            return value
        seconds = duration(str(value))
        if seconds is None:
            self.fail(f"{value!r} is no duration: write 30s, 5m, 2h or 1d", param, ctx)
        return seconds


def duration(text: str) -> float | None:
    """Its seconds; None if it is none."""
    match = DURATION.fullmatch(text.strip())
    if match is None or match[2] not in UNITS:
        return None
    return float(match[1]) * UNITS[match[2]]
