"""Turns samples into rows, and rows into columns. Pure.

Values that fluctuate are rounded to what a chart can show, because noise is what takes room.
"""

import struct
from collections.abc import Mapping, Sequence
from itertools import zip_longest
from math import isfinite

from tpuherd.model.samples import CHIP_VALUES, HOST_VALUES, HostSample
from tpuherd.store.thin_series import careful_mean, without_nan

MIB = 1 << 20
#: To what a value is rounded; others stay as they are.
UNITS = {"ram_used": MIB, "disk_free": MIB, "hbm_used": MIB, "net_in": 1000, "net_out": 1000}
PERCENT = frozenset({"cpu", "duty"})  #: rounded to a tenth

HostRow = list[float | None]
SlotRow = dict[str, float]
#: Lowest, mean and highest value by column.
CoarseRow = dict[str, tuple[float, float, float]]
Columns = dict[str, list[list[float | None]]]


def round_value(name: str, value: float | None) -> float | None:
    if value is None or not isfinite(value):
        return value
    if name in PERCENT:
        return round(value, 1)
    unit = UNITS.get(name)
    return value if unit is None else round(value / unit) * unit


def round_single(value: float) -> float:
    """Round to single precision, unless the number is too large for that."""
    try:
        single: float = struct.unpack("<f", struct.pack("<f", value))[0]
    except OverflowError:
        return value
    return single


def host_row(sample: HostSample) -> HostRow:
    """Return the values of a host, then those of each chip."""
    values: list[float | None] = [
        sample.cpu_percent, sample.ram_used, sample.ram_total, sample.disk_free,
        sample.disk_total, sample.net_in, sample.net_out,
    ]  # fmt: skip
    row = [round_value(name, value) for name, value in zip(HOST_VALUES, values, strict=True)]
    for chip in sample.chips:
        used, duty = round_value("hbm_used", chip.hbm_used), round_value("duty", chip.duty_percent)
        row += (used, chip.hbm_total, duty)
    return row


def host_columns(width: int) -> list[str]:
    """Return the names of a host row's values: `cpu`, …, `0/hbm_used`, …"""
    chips = max(0, width - len(HOST_VALUES)) // len(CHIP_VALUES)
    return [*HOST_VALUES, *(f"{chip}/{name}" for chip in range(chips) for name in CHIP_VALUES)]


def split_column(column: str, host: str) -> tuple[int | None, str]:
    """Return the chip and the name of a column; a slot's names may contain anything."""
    chip, slash, name = column.partition("/")
    return (int(chip), name) if host and slash and chip.isdecimal() else (None, column)


def rows_to_columns(rows: Sequence[HostRow | SlotRow]) -> Columns:
    """Return the columns of fine rows, with None where a row has no value."""
    lists = [row for row in rows if isinstance(row, list)]
    if len(lists) == len(rows):
        values = [list(column) for column in zip_longest(*lists)]
        return {
            name: [column] for name, column in zip(host_columns(len(values)), values, strict=False)
        }
    named: list[Mapping[str, float | None]] = [
        row if isinstance(row, dict) else dict(zip(host_columns(len(row)), row, strict=False))
        for row in rows
    ]
    names = dict.fromkeys(name for row in named for name in row)
    return {name: [[row.get(name) for row in named]] for name in names}


def coarse_to_columns(rows: Sequence[CoarseRow]) -> Columns:
    """Return the columns of coarse rows, of three lists each."""
    names = dict.fromkeys(name for row in rows for name in row)
    nothing = (None, None, None)
    return {
        name: [
            list(values) for values in zip(*(row.get(name, nothing) for row in rows), strict=True)
        ]
        for name in names
    }


def summarize_columns(
    columns: Mapping[str, Sequence[Sequence[float | None]]], host: str
) -> CoarseRow:
    """Return the coarse row of fine columns."""
    found = {}
    for column, (values, *_) in columns.items():
        numbers = [value for value in values if value is not None]
        if not numbers:
            continue
        real = without_nan(numbers)
        low, high = min(real), max(real)
        mean = numbers[0] if low == high and len(real) == len(numbers) else careful_mean(numbers)
        if host:
            rounded = round_value(split_column(column, host)[1], mean)
            found[column] = (low, mean if rounded is None else rounded, high)
        else:
            found[column] = (round_single(low), round_single(mean), round_single(high))
    return found
