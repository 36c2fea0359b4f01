"""How a job states where its data is, how fast it is read, and what that may cost."""

import re
from decimal import Decimal
from math import inf
from typing import Any

from tpuherd.jobfile.bucket_scan import IGNORED
from tpuherd.jobfile.data_egress import is_known_location
from tpuherd.jobfile.value_types import MONEY, ReportMistake, ValueType, read_money, show_value

UNLIMITED = "unlimited"
PER_DAY = re.compile(r" ?(?:/ ?|per |a )day$")
SPEED = re.compile(r"([0-9]+(?:\.[0-9]+)?) ?(B|kB|MB|GB|KiB|MiB|GiB)(?:/s)?")
UNITS = {"B": 1.0, "kB": 1e3, "MB": 1e6, "GB": 1e9, "KiB": 2.0**10, "MiB": 2.0**20, "GiB": 2.0**30}


def read_location(value: Any, wrong: ReportMistake) -> str | None:
    """Accept a location that the catalogue knows, in Cloud Storage's spelling."""
    text = str(value)
    if text == IGNORED:
        return text
    if not isinstance(value, str) or not is_known_location(text):
        wrong(
            f"{show_value(value)} is not a location that herd knows: write a region such as"
            f" us-central1, US, EU, ASIA, NAM4, or {IGNORED}",
            (),
        )
        return None
    return text.upper()


def read_rate(value: Any, wrong: ReportMistake) -> float | None:
    match = SPEED.fullmatch(value.strip()) if isinstance(value, str) else None
    rate = float(match[1]) * UNITS[match[2]] if match else 0.0
    if rate <= 0:
        wrong(f"{show_value(value)} is not a rate: write 100MB/s or 1.5GB/s", ())
        return None
    return rate


def write_rate(rate: float) -> str:
    """Return the rate as text that reads back as the same number."""
    if rate % 1e6 == 0:
        return f"{rate / 1e6:.0f}MB/s"
    return f"{Decimal(repr(rate)):f}B/s"


def read_daily(value: Any, wrong: ReportMistake) -> float | None:
    if value == UNLIMITED:
        return inf
    return read_money(PER_DAY.sub("", value) if isinstance(value, str) else value, wrong)


def write_daily(value: float) -> Any:
    return UNLIMITED if value == inf else value or None


LOCATION = ValueType(read=read_location, schema={"type": "string"})
RATE = ValueType(
    read=read_rate,
    schema={"type": "string", "pattern": f"^{SPEED.pattern}$"},
    write=write_rate,
)
DAILY = ValueType(
    read=read_daily,
    schema={"anyOf": [
        {"type": "number", "exclusiveMinimum": 0},
        {"type": "string", "pattern": f"^({MONEY.pattern}({PER_DAY.pattern[:-1]})?|{UNLIMITED})$"},
    ]},
    write=write_daily,
)  # fmt: skip
