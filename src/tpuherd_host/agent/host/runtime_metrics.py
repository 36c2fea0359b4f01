"""Parses the metrics that libtpu serves while a program uses the chips. Pure.

They are protocol buffers with these fields: MetricResponse{metric=1}, TPUMetric{name=1, metrics=3},
Metric{attribute=1, timestamp=2, gauge=3}, Attribute{key=1, value=2}, AttrValue{int_attr=3},
Gauge{as_double=1, as_int=2}, Timestamp{seconds=1}.
"""

import struct
from typing import Dict, Iterator, List, Mapping, NamedTuple, Optional, Tuple, Union

SERVICE = "/tpu.monitoring.runtime.RuntimeMetricService/GetRuntimeMetric"
PORT = 8431
HBM_TOTAL = "tpu.runtime.hbm.memory.total.bytes"
HBM_USED = "tpu.runtime.hbm.memory.usage.bytes"
DUTY = "tpu.runtime.tensorcore.dutycycle.percent"
VARINT, FIXED64, BYTES, FIXED32 = 0, 1, 2, 5
DEVICES_MAX = 4096
SIGN = 1 << 63
Number = Union[int, float]


class InvalidMetrics(ValueError):
    """Bytes that are no metrics."""


class DeviceValues(NamedTuple):
    """One metric's value of each device, by libtpu's number of it."""

    values: Mapping[int, Number]
    measured_at: Optional[float] = None  #: the oldest of them, by the host's clock


def metric_request(name: str) -> bytes:
    """Return the MetricRequest for this metric."""
    text = name.encode()
    return bytes((1 << 3 | BYTES, len(text))) + text


def read_varint(data: bytes, at: int) -> Tuple[int, int]:
    """Return a number and where it ends."""
    result = 0
    for place in range(at, min(at + 10, len(data))):
        result |= (data[place] & 0x7F) << 7 * (place - at)
        if data[place] < 0x80:
            return result, place + 1
    raise InvalidMetrics("a number has no end")


def iterate_fields(data: bytes) -> Iterator[Tuple[int, int, Union[int, bytes]]]:
    """Yield number, wire type and content of every field."""
    at = 0
    while at < len(data):
        key, at = read_varint(data, at)
        field, kind = key >> 3, key & 7
        if kind == VARINT:
            number, at = read_varint(data, at)
            yield field, kind, number
            continue
        if kind == BYTES:
            length, at = read_varint(data, at)
        elif kind in (FIXED64, FIXED32):
            length = 8 if kind == FIXED64 else 4
        else:
            raise InvalidMetrics(f"a field has the unknown type {kind}")
        if at + length > len(data):
            raise InvalidMetrics("a field has no end")
        yield field, kind, data[at : at + length]
        at += length


def last_part(data: bytes, field: int) -> Optional[bytes]:
    """Return the content of a nested message or text."""
    found = None
    for number, kind, content in iterate_fields(data):
        if number == field and kind == BYTES and isinstance(content, bytes):
            found = content
    return found


def signed(number: int) -> int:
    """Read a varint as int64."""
    number &= (1 << 64) - 1
    return number - (1 << 64) if number & SIGN else number


def parse_gauge(data: bytes) -> Optional[Number]:
    """Return the number that a Gauge holds; None if it is no number."""
    found: Optional[Number] = None
    for field, kind, content in iterate_fields(data):
        if (field, kind) == (1, FIXED64) and isinstance(content, bytes):
            found = struct.unpack("<d", content)[0]
        elif (field, kind) == (2, VARINT) and isinstance(content, int):
            found = signed(content)
    return found


def parse_integer(data: bytes, field: int) -> Optional[int]:
    found = None
    for number, kind, content in iterate_fields(data):
        if (number, kind) == (field, VARINT) and isinstance(content, int):
            found = signed(content)
    return found


def parse_device_values(response: bytes) -> DeviceValues:
    """Return what a MetricResponse says of each device; InvalidMetrics if it says nothing."""
    metric = last_part(response, 1)
    if metric is None:
        raise InvalidMetrics("a metric is missing")
    values: Dict[int, Number] = {}
    times: List[float] = []
    for field, kind, one in iterate_fields(metric):
        if (field, kind) != (3, BYTES) or not isinstance(one, bytes):
            continue
        value = parse_gauge(last_part(one, 3) or b"")
        named = last_part(last_part(one, 1) or b"", 2)
        device = None if named is None else parse_integer(named, 3)
        if value is None or device is None:
            continue
        values[device] = value
        if len(values) > DEVICES_MAX:
            raise InvalidMetrics(f"more than {DEVICES_MAX} devices")
        at = parse_integer(last_part(one, 2) or b"", 1)
        if at is not None:
            times.append(at)
    return DeviceValues(values, min(times, default=None))


def split_by_chip(
    values: Mapping[int, Number], *, chips: int, devices_per_chip: int
) -> List[List[Number]]:
    """Return the values of each chip, in their order; [] where one of its devices is missing.

    Some metrics are per chip and some per device, of which v2, v3 and 7x have two a chip. A host's
    first device need not be number 0: if all are there, only their order counts.
    """
    found: List[List[Number]] = [[] for _ in range(chips)]
    ids = sorted(values)
    each = devices_per_chip if len(ids) > chips else 1
    if len(ids) == chips * each:
        for place, device in enumerate(ids):
            found[place // each].append(values[device])
        return found
    for device in ids:
        if 0 <= device < chips * each:
            found[device // each].append(values[device])
    return [mine if len(mine) == each else [] for mine in found]
