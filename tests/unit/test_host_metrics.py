"""The load of chips, computed from the processes that use them, and its encoding."""

import struct

import pytest

from tpuherd_sim.host_services.libtpu_metrics import measure_load
from tpuherd_sim.host_services.protobuf import (
    double_field,
    encode_varint,
    message_field,
    number_field,
    parse_fields,
    string_field,
)
from tpuherd_sim.hosts.host_protocols import ChipHolder

CHIP = 1000


def holder(device: str, pid: int, resident: int, cpu_s: float) -> ChipHolder:
    return ChipHolder(device=device, pid=pid, resident_bytes=resident, cpu_s=cpu_s)


def test_memory_is_spread_over_the_chips_of_a_process() -> None:
    holders = [holder(f"/dev/accel{n}", 7, 800, 0.0) for n in range(2)]
    holders.append(holder("/dev/accel1", 8, 300, 0.0))
    seen = measure_load(holders, None, 10.0, 4, CHIP)
    assert [load.used_bytes for load in seen.loads] == [400, 700, 0, 0]
    full = measure_load([holder("/dev/vfio/0", 7, 5000, 0.0)], None, 10.0, 1, CHIP)
    assert full.loads[0].used_bytes == CHIP


def test_duty_cycle_is_processor_time_since_the_last_look() -> None:
    first = measure_load([holder("/dev/vfio/0", 7, 1, 2.0)], None, 10.0, 2, CHIP)
    assert [load.duty_percent for load in first.loads] == [0.0, 0.0]
    second = measure_load([holder("/dev/vfio/0", 7, 1, 3.0)], first, 14.0, 2, CHIP)
    assert [load.duty_percent for load in second.loads] == [25.0, 0.0]
    third = measure_load([holder("/dev/vfio/0", 7, 1, 90.0)], second, 16.0, 2, CHIP)
    assert third.loads[0].duty_percent == 100.0
    assert [load.idle_s for load in third.loads] == [0.0, 6.0]
    # A new process is no load until it was seen twice.
    fourth = measure_load([holder("/dev/vfio/0", 9, 1, 50.0)], third, 20.0, 2, CHIP)
    assert [(load.duty_percent, load.idle_s) for load in fourth.loads] == [(0.0, 4.0), (0.0, 10.0)]


def test_users_of_other_devices_do_not_count() -> None:
    seen = measure_load(
        [holder("/dev/vfio/vfio", 7, 9, 1.0), holder("/dev/accel9", 8, 9, 1.0)], None, 1.0, 2, CHIP
    )
    assert [load.used_bytes for load in seen.loads] == [0, 0]


@pytest.mark.parametrize(
    ("value", "wire"), [(0, b"\0"), (1, b"\1"), (300, b"\xac\2"), (-1, b"\xff" * 9 + b"\1")]
)
def test_varints(value: int, wire: bytes) -> None:
    assert encode_varint(value) == wire


def test_fields_are_decoded_as_encoded() -> None:
    data = (
        number_field(1, 150)
        + string_field(2, "hé")
        + double_field(3, 1.5)
        + message_field(4, number_field(1, 1))
    )
    assert list(parse_fields(data)) == [
        (1, 150), (2, "hé".encode()), (3, struct.pack("<d", 1.5)), (4, b"\x08\x01"),
    ]  # fmt: skip


@pytest.mark.parametrize("data", [b"\x80", b"\x0a\x05abc", b"\x0b", b"\x09\0"])
def test_no_messages(data: bytes) -> None:
    with pytest.raises(ValueError):
        list(parse_fields(data))
