"""What `herd smi` reads in libtpu's bytes, how it assigns that to chips, and what it shows."""

import asyncio
import csv
import io
import math
import struct
from collections.abc import Mapping
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as some

from tpuherd.commands.assign_values import ReadMetrics, list_chip_readings, why_missing
from tpuherd.commands.chip_use import (
    BasicFacts,
    ChipHolder,
    ChipUse,
    HostTasks,
    HostUsage,
    parse_answer,
)
from tpuherd.commands.read_chips import ask_usage
from tpuherd.commands.running_attempts import find_training
from tpuherd.commands.runtime_metrics import METRICS
from tpuherd.errors import NotFound, OperationFailed
from tpuherd.model.chip_readings import ChipReading, HostReading, TrainingReading
from tpuherd.ports import RpcRequest
from tpuherd.views.smi_table import csv_text, fit_screen, list_chip_objects, smi_text
from tpuherd_host.agent.host.runtime_metrics import (
    DeviceValues,
    InvalidMetrics,
    metric_request,
    parse_device_values,
    split_by_chip,
)

GIB = 1 << 30


def varint(number: int) -> bytes:
    number &= (1 << 64) - 1
    out = bytearray()
    while number > 0x7F:
        out.append(number & 0x7F | 0x80)
        number >>= 7
    return bytes([*out, number])


def part(field: int, *content: bytes) -> bytes:
    text = b"".join(content)
    return varint(field << 3 | 2) + varint(len(text)) + text


def metric(device: int, gauge: bytes, at: int | None = None) -> bytes:
    stamp = b"" if at is None else part(2, b"\x08" + varint(at))
    named = part(1, part(1, b"device-id"), part(2, b"\x18" + varint(device)))
    return part(3, named, stamp, part(3, gauge))


def whole(number: int) -> bytes:
    return b"\x10" + varint(number)


def real(number: float) -> bytes:
    return b"\x09" + struct.pack("<d", number)


def response(*metrics: bytes) -> bytes:
    return part(1, part(1, b"some.metric"), *metrics)


def test_a_request_is_what_tpu_info_sends() -> None:
    assert metric_request("a.b") == b"\x0a\x03a.b"


def test_numbers_come_out_as_they_went_in() -> None:
    found = parse_device_values(
        response(metric(1, real(97.5), at=1000), metric(0, whole(-5), at=990), metric(2, real(0)))
    )
    assert found == DeviceValues(values={0: -5, 1: 97.5, 2: 0.0}, measured_at=990)


def test_what_is_no_number_of_a_device_is_left_out() -> None:
    text = part(3, part(1, part(1, b"k"), part(2, part(1, b"zero"))), part(3, whole(1)))
    assert parse_device_values(response(text, metric(1, part(3, b"idle")))).values == {}


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"\x0a",
        b"\x0a\x05ab",
        b"\xff" * 12,
        b"\x0b",
        response(part(3, part(3, b"\x10"))),
        b"\x08\x01",
    ],
)
def test_bytes_that_are_no_metrics_are_refused(content: bytes) -> None:
    with pytest.raises(InvalidMetrics):
        parse_device_values(content)


@given(some.binary(max_size=200))
def test_any_bytes_are_parsed_or_refused(content: bytes) -> None:
    try:
        parse_device_values(part(1, content))
    except InvalidMetrics:
        pass


@pytest.mark.parametrize(
    ("values", "devices", "found"),
    [
        ({0: 1, 1: 2}, 1, [[1], [2]]),
        ({4: 1, 5: 2}, 1, [[1], [2]]),  # the second host of a pod
        ({0: 1, 1: 2, 2: 3, 3: 4}, 2, [[1, 2], [3, 4]]),  # v2: HBM for each core
        ({0: 1, 1: 2}, 2, [[1], [2]]),  # v2: one duty cycle a chip
        ({1: 7}, 1, [[], [7]]),
        ({0: 1, 1: 2, 2: 3}, 2, [[1, 2], []]),
        ({9: 7}, 1, [[], []]),
        ({-1: 7}, 1, [[], []]),
        ({}, 1, [[], []]),
    ],
)
def test_values_of_devices_go_to_their_chips(
    values: dict[int, float | int], devices: int, found: list[list[float | int]]
) -> None:
    assert split_by_chip(values, chips=2, devices_per_chip=devices) == found


def use(*holders: ChipHolder, devices: int = 2) -> ChipUse:
    return ChipUse(holders=holders, devices=tuple(f"/dev/accel{at}" for at in range(devices)))


def told(**fields: dict[int, float | int]) -> ReadMetrics:
    absent = tuple(kind.title for kind in METRICS if kind.field not in fields)
    values = {name: DeviceValues(values=one) for name, one in fields.items()}
    return ReadMetrics(values=values, absent=absent)


HOLDER = ChipHolder(device="/dev/accel1", pid=42, user="ann", command="/opt/bin/python3 train.py")
ALL: dict[str, dict[int, float | int]] = {
    "hbm_total": {0: 16 * GIB, 1: 16 * GIB}, "hbm_used": {0: 4 * GIB, 1: 8 * GIB},
    "duty_percent": {0: 50.0, 1: 99.6}, "bandwidth_percent": {0: 1.0, 1: 2.0},
    "idle_s": {0: 0.0, 1: 3.0},
}  # fmt: skip


def replace_values(field: str, values: dict[int, float | int]) -> dict[str, dict[int, float | int]]:
    return {**ALL, field: values}


def test_a_chip_has_its_values_and_its_process() -> None:
    chips = list_chip_readings(use(HOLDER), [told(**ALL)], "v4")
    assert [(chip.device, chip.hbm_used, chip.duty_percent) for chip in chips] == [
        ("/dev/accel0", 4 * GIB, 50.0),
        ("/dev/accel1", 8 * GIB, 99.6),
    ]
    assert [len(chip.processes) for chip in chips] == [0, 1]
    assert why_missing(use(HOLDER), [told(**ALL)], chips) == ""


def test_on_v2_a_chip_is_two_devices() -> None:
    each: dict[int, float | int] = {0: 1, 1: 2, 2: 3, 3: 4}
    chips = list_chip_readings(use(), [told(hbm_used=each, duty_percent={0: 5, 1: 6})], "v2")
    assert [(chip.hbm_used, chip.duty_percent) for chip in chips] == [(3, 5), (7, 6)]


@pytest.mark.parametrize("value", [math.nan, math.inf, -1, 1 << 60, -(1 << 63), 1e308])
@pytest.mark.parametrize("field", ["hbm_used", "hbm_total", "duty_percent", "idle_s"])
def test_a_value_that_cannot_be_true_is_invalid_and_no_number(field: str, value: float) -> None:
    hostile = told(**replace_values(field, {0: value, 1: 0}))
    chips = list_chip_readings(use(), [hostile], "v4")
    assert getattr(chips[0], field) is None
    assert chips[0].invalid == {field}
    assert "can't be true" in why_missing(use(), [hostile], chips)
    host = HostReading(host="h", node="h", zone="z", read_at=0, chips=chips)
    assert "invalid" in smi_text([host], 0).splitlines()[1]
    assert "invalid" in csv_text([host], 0, heading=False).splitlines()[0]
    assert list_chip_objects([host], 0)[0][field] is None


def test_more_in_use_than_there_is_can_not_be_true() -> None:
    told_more = told(**replace_values("hbm_used", {0: 17 * GIB, 1: 1}))
    chips = list_chip_readings(use(), [told_more], "v4")
    assert [(chip.hbm_used, chip.invalid) for chip in chips] == [
        (None, {"hbm_used"}),
        (1, frozenset()),
    ]


@pytest.mark.parametrize(
    ("chip_use", "metrics", "why"),
    [
        (use(devices=0), ReadMetrics(is_silent=True), "this host has no chips in /dev"),
        (use(), ReadMetrics(is_silent=True), "no program uses the chips"),
        (
            use(HOLDER),
            ReadMetrics(is_silent=True),
            "its program serves no metrics: it is starting, or its libtpu is old",
        ),
        (use(HOLDER), ReadMetrics(trouble="no answer"), "no answer"),
        (
            use(HOLDER),
            told(**{name: one for name, one in ALL.items() if name != "idle_s"}),
            "this libtpu does not tell the idle time",
        ),
        (
            use(HOLDER),
            told(**replace_values("hbm_used", {0: 1})),
            "libtpu tells all values of 1 of 2 chips only",
        ),
    ],
)
def test_a_missing_value_has_its_reason(chip_use: ChipUse, metrics: ReadMetrics, why: str) -> None:
    chips = list_chip_readings(chip_use, [metrics], "v4")
    assert why_missing(chip_use, [metrics], chips) == why


def program(pid: int, chip: int) -> ChipHolder:
    return ChipHolder(device=f"/dev/accel{chip}", pid=pid, user="ann", command="python3 eval.py")


def served(port: int, pid: int | None, **fields: dict[int, float | int]) -> ReadMetrics:
    values = {name: DeviceValues(values=one) for name, one in fields.items()}
    return ReadMetrics(port=port, pid=pid, values=values)


@pytest.mark.parametrize(
    ("ports", "duty"),
    [
        # Each program counts its own chips from 0.
        ([(8431, 7, {0: 10.0}), (8432, 8, {0: 20.0})], [20.0, 10.0]),
        # Each program uses the host's numbers.
        ([(8431, 7, {1: 10.0}), (8432, 8, {0: 20.0})], [20.0, 10.0]),
        # The first one tells of the whole host.
        ([(8431, 7, {0: 20.0, 1: 10.0})], [20.0, 10.0]),
        ([(8431, None, {0: 20.0, 1: 10.0})], [20.0, 10.0]),
        # Only one of two answers.
        ([(8432, 8, {0: 20.0})], [20.0, None]),
        # Hidden programs, with numbers that do not meet.
        ([(8431, None, {0: 20.0}), (8432, None, {1: 10.0})], [20.0, 10.0]),
        # Hidden programs that both claim chip 0: none is believed.
        ([(8431, None, {0: 20.0}), (8432, None, {0: 10.0})], [None, None]),
        # What a known program says of its chip counts more.
        ([(8431, None, {0: 99.0, 1: 98.0}), (8432, 8, {0: 20.0})], [20.0, 98.0]),
    ],
)
def test_several_programs_on_a_host_each_tell_of_their_own_chips(
    ports: list[tuple[int, int | None, dict[int, float | int]]], duty: list[float | None]
) -> None:
    two = use(program(7, chip=1), program(8, chip=0))
    metrics = [served(port, pid, duty_percent=values) for port, pid, values in ports]
    chips = list_chip_readings(two, metrics, "v4")
    assert [chip.duty_percent for chip in chips] == duty
    assert bool(why_missing(two, metrics, chips)) == (None in duty)


def test_a_port_that_fails_is_named_if_others_answer() -> None:
    two = use(program(7, chip=0), program(8, chip=1))
    metrics = [served(8431, 7, duty_percent={0: 5.0}), ReadMetrics(port=8432, trouble="no gRPC")]
    chips = list_chip_readings(two, metrics, "v4")
    assert why_missing(two, metrics, chips).startswith("port 8432: no gRPC; ")


def reading(host: str = "gpt-0/w0", **more: object) -> HostReading:
    chips = list_chip_readings(use(HOLDER), [told(**ALL)], "v4")
    facts = parse_answer(
        BasicFacts,
        {
            "time": 1000.0, "cores": 240, "load": [12.34, 1.0, 1.0],
            "memory": {"total": 400 * 10**9, "available": 300 * 10**9},
            "disk": {"total": 100 * 10**9, "free": 80 * 10**9, "files_free": 3},
        },
    )  # fmt: skip
    usage = HostUsage(cpu_percent=31.4, net_in=1.5e6, net_out=2e3)
    machine = facts.machine_reading(usage)
    fields = {"node": "n", "zone": "z", "read_at": 1000.0, "machine": machine, "chips": chips}
    return HostReading(host=host, **{**fields, **more})  # type: ignore[arg-type]


DEAD = HostReading(host="gpt-1/w0", node="m", zone="z", read_at=1000.0, why="no answer in 4 s")


def test_the_tables() -> None:
    assert smi_text([reading(notice="preempted"), DEAD], 1002.0).splitlines() == [
        "HOST      CHIP             HBM   DUTY  BAND   IDLE  PROCESS",
        "gpt-0/w0  accel0  4.0/16.0 GiB   50 %   1 %    0 s  -",
        "gpt-0/w0  accel1  8.0/16.0 GiB  100 %   2 %  3.0 s  42 ann python3 train.py",
        "",
        "HOST      STEP  STEPS/S   CPU         RAM  DISK FREE    NET IN  NET OUT    AGE",
        "gpt-0/w0     -        -  31 %  100/400 GB  80/100 GB  1.5 MB/s   2 kB/s  2.0 s",
        "gpt-1/w0     -        -     -           -          -         -        -      -",
        "",
        "gpt-0/w0: PREEMPTED",
        "gpt-1/w0: no answer in 4 s",
    ]


def test_the_step_and_what_is_odd_about_a_host() -> None:
    training = TrainingReading(slot="gpt-0", attempt=2, step=1200, step_s=0.12, age_s=600.0)
    odd = reading(training=training, clock_ahead_s=-7200.0, late_s=90.0)
    same = reading("gpt-0/w1", late_s=90.0)
    _, hosts, notes = smi_text([odd, same], 1000.0).split("\n\n")
    assert hosts.splitlines()[1].split()[:4] == ["gpt-0/w0", "1200", "8.33", "31"]
    assert notes.splitlines() == [
        "gpt-0/w[0-1]: libtpu's values are 1 m 30 s old",
        "gpt-0/w0: its clock is 2 h 00 m behind this machine's",
        "gpt-0/w0: gpt-0 has reported no step for 10 m 00 s",
    ]
    row = list_chip_objects([odd], 1000.0)[0]
    assert (row["step"], row["attempt"], row["slot"]) == (1200, 2, "gpt-0")
    assert row["step_rate"] == pytest.approx(8.33, rel=0.01)


def test_the_attempt_that_reported_last_tells_the_step() -> None:
    def attempt(id: str, phase: str = "running", **report: object) -> dict[str, object]:
        return {"id": id, "kind": "attempt", "phase": phase, "slot": "gpt-0", "report": report}

    found = find_training(
        [
            attempt("a", step=5, time=900.0),
            attempt("b", step=9, step_s=0.5, time=990.0),
            attempt("c", step=99, time=999.0, phase="ended"),
            attempt("d"),
        ],
        1000.0,
    )
    assert found is not None
    assert (found.step, found.step_rate, found.age_s) == (9, 2.0, 10.0)
    assert find_training([], 1000.0) is None
    with pytest.raises(OperationFailed, match="makes no sense"):
        find_training([{"id": "\x1b", "phase": "running"}], 1000.0)


@pytest.mark.parametrize("step_s", [math.nan, -1.0, 1e300, 0.0, "x"])
def test_a_step_time_that_cannot_be_true_gives_no_rate(step_s: object) -> None:
    one = {
        "id": "a",
        "kind": "attempt",
        "phase": "running",
        "report": {"step": 1, "step_s": step_s},
    }
    found = find_training([one], 1000.0)
    assert found is not None
    assert (found.step, found.step_rate) == (1, None)


def test_a_screen_begins_with_what_is_wrong() -> None:
    parts = smi_text([reading(), DEAD], 1002.0).split("\n\n")
    assert smi_text([reading(), DEAD], 1002.0, top=True).split("\n\n") == parts[::-1]
    assert parts[-1] == "gpt-1/w0: no answer in 4 s"


def test_an_unknown_value_is_a_dash_and_never_a_zero() -> None:
    bare = reading(chips=(ChipReading(device="/dev/vfio/0"),), machine=None)
    lines = smi_text([bare], 1000.0).splitlines()
    assert lines[1].split() == ["gpt-0/w0", "vfio/0", "-", "-", "-", "-", "-"]
    assert "0" not in lines[-1].replace("gpt-0/w0", "")


def test_a_narrow_terminal_cuts_the_process_only() -> None:
    long = ChipHolder(device="/dev/accel0", pid=1, user="ann", command="python3 " + "x" * 300)
    chips = list_chip_readings(use(long), [told(**ALL)], "v4")
    text = smi_text([reading(chips=chips)], 1000.0, 80).split("\n\n")[0]
    assert max(map(len, text.splitlines())) <= 80
    assert "1 ann python3 x" in text


def test_escapes_in_names_are_shown_and_have_no_effect() -> None:
    bad = ChipHolder(device="/dev/accel0", pid=1, user="\x1b[2J", command="a\nb\x07 \u202ec")
    chips = list_chip_readings(use(bad), [told(**ALL)], "v4")
    hostile = reading(chips=chips, why="\x1b]0;x\x07\nnext")
    for text in (smi_text([hostile], 1000.0), csv_text([hostile], 1000.0, heading=True)):
        assert not set(text) & {"\x1b", "\x07", "\u202e"}
    assert "1 \\x1b[2J a b\\x07 \\u202ec" in smi_text([hostile], 1000.0)


def test_csv_has_a_row_for_each_chip_and_each_dead_host() -> None:
    rows = list(csv.DictReader(io.StringIO(csv_text([reading(), DEAD], 1000.0, heading=True))))
    assert [(row["host"], row["chip"], row["hbm_used"], row["pids"]) for row in rows] == [
        ("gpt-0/w0", "/dev/accel0", str(4 * GIB), ""),
        ("gpt-0/w0", "/dev/accel1", str(8 * GIB), "42"),
        ("gpt-1/w0", "", "", ""),
    ]
    assert [row["answered"] for row in rows] == ["true", "true", "false"]


def test_a_screen_that_is_too_small_says_what_it_leaves_out() -> None:
    assert fit_screen("1\n2\n3", rows=5, width=80) == ["1", "2", "3"]
    assert fit_screen("1\n2\n3\n4\n5", rows=5, width=80) == [
        "1", "2", "3", "… 2 more lines: make the window taller, or name fewer hosts",
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("notices", "sentence"),
    [
        ({}, ""),
        ({"preempted": "FALSE", "maintenance-event": "NONE", "unheard-of": "X"}, ""),
        ({"preempted": "TRUE"}, "preempted"),
        (
            {"maintenance-event": "TERMINATE_ON_HOST_MAINTENANCE"},
            "maintenance-event: TERMINATE_ON_HOST_MAINTENANCE",
        ),
    ],
)
def test_notices(notices: dict[str, str], sentence: str) -> None:
    assert parse_answer(HostTasks, {"notices": notices}).notice == sentence


@pytest.mark.parametrize(
    "content",
    [{}, {"time": math.nan}, {"time": 1, "cores": -1}, {"time": 1, "load": ["x"]}],
)
def test_an_agent_that_talks_nonsense_is_refused(content: dict[str, object]) -> None:
    with pytest.raises(OperationFailed, match="makes no sense"):
        parse_answer(BasicFacts, content)


@pytest.mark.parametrize(
    "content",
    [
        {"cpu_percent": math.nan}, {"cpu_percent": 101.5}, {"net_in": -1.0}, {"net_out": 1e300},
        {"metrics": [{"port": 0}]}, {"metrics": [{"port": 8431, "pid": -1}]},
        {"metrics": [{"port": 8431}] * 65},
    ],
)  # fmt: skip
def test_rates_and_ports_that_cannot_be_true_are_refused(content: dict[str, object]) -> None:
    with pytest.raises(OperationFailed, match="makes no sense"):
        parse_answer(HostUsage, content)


def test_an_older_agent_has_no_rates_and_one_port_is_tried() -> None:
    class OldAgent:
        async def call(self, verb: RpcRequest) -> Mapping[str, Any]:
            if verb.name == "usage":
                raise NotFound("this agent does not know the verb 'usage'")
            facts = {"time": 1000.0, "cores": 8}
            return facts if verb.name == "facts" else {"devices": ["/dev/accel0"]}

    link: Any = OldAgent()
    facts, usage = asyncio.run(ask_usage(link))
    assert facts.cores == 8
    assert usage.devices == ("/dev/accel0",)
    assert [one.port for one in usage.metrics] == [8431]
    assert usage.cpu_percent is None
