"""The runtime metrics that libtpu serves on port 8431 while a program uses the chips."""

import socket
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from tpuherd.catalogue import accelerators, generations
from tpuherd.clock import Clock
from tpuherd_sim.host_services.grpc import (
    INVALID_ARGUMENT,
    NOT_FOUND,
    UNAVAILABLE,
    GrpcConnection,
    GrpcError,
    Methods,
)
from tpuherd_sim.host_services.protobuf import (
    double_field,
    message_field,
    number_field,
    parse_fields,
    string_field,
)
from tpuherd_sim.hosts.host_protocols import ChipHolder, Host

ADDRESS = ("127.0.0.1", 8431)
SERVICE = "/tpu.monitoring.runtime.RuntimeMetricService/"
GIB = 1 << 30
USABLE = {"v6e": 33_550_229_504}  #: usable bytes of a chip, where less than its memory
FIRST_LOOK_S = 0.2  #: for measuring the load if there was no earlier sample
FRESH_S = 1.0  #: a sample serves all metrics for this long
BUSY_S = 0.01  #: processor time in a sample above which a chip was busy
TENSOR_CORE = 1


@dataclass(frozen=True, kw_only=True, slots=True)
class ChipLoad:
    """The load on one chip."""

    used_bytes: int
    duty_percent: float
    idle_s: float


@dataclass(frozen=True, kw_only=True, slots=True)
class LoadSample:
    """A measurement at one moment."""

    at: float
    cpu_s: dict[int, float]  #: by process
    busy_at: dict[int, float]  #: when each chip was last busy
    loads: tuple[ChipLoad, ...]


def measure_load(
    holders: Sequence[ChipHolder],
    before: LoadSample | None,
    now: float,
    chips: int,
    chip_bytes: int,
) -> LoadSample:
    """Return the load of each chip, derived from memory and processor time of the processes using
    it.
    """
    chips_of: dict[int, set[int]] = {}
    for holder in holders:
        digits = "".join(filter(str.isdecimal, holder.device))
        if digits and int(digits) < chips:
            chips_of.setdefault(holder.pid, set()).add(int(digits))
    cpu_s = {holder.pid: holder.cpu_s for holder in holders}
    resident = {holder.pid: holder.resident_bytes for holder in holders}
    busy_at = {}
    loads = []
    for chip in range(chips):
        mine = [pid for pid, held in chips_of.items() if chip in held]
        used = sum(resident[pid] // len(chips_of[pid]) for pid in mine)
        since = before.cpu_s if before else {}
        spent = sum(max(0.0, cpu_s[pid] - since.get(pid, cpu_s[pid])) for pid in mine)
        passed = now - before.at if before else 0.0
        last = before.busy_at.get(chip, now) if before else now
        busy_at[chip] = now if spent > BUSY_S else last
        loads.append(
            ChipLoad(
                used_bytes=min(used, chip_bytes),
                duty_percent=min(100.0, 100.0 * spent / passed) if passed > 0 else 0.0,
                idle_s=now - busy_at[chip],
            )
        )
    return LoadSample(at=now, cpu_s=cpu_s, busy_at=busy_at, loads=tuple(loads))


class RuntimeMetrics:
    def __init__(self, host: Host, clock: Clock) -> None:
        self.host = host
        self.clock = clock
        self.chips = host.view.chips
        generation = generations()[accelerators()[host.view.accelerator].generation]
        built_in = generation.hbm_gib_per_chip * GIB
        self.chip_bytes = USABLE.get(generation.name, built_in)
        self.devices_per_chip = generation.devices_per_chip
        self.last: LoadSample | None = None
        self.met: Sequence[ChipHolder] = ()  #: when a client connected; used once

    async def serve_connection(self, end: socket.socket) -> None:
        """Serve one connection; refuse it if no program uses a chip, because libtpu would not be
        loaded.
        """
        if await self.has_holder():  # what it found serves the first sample, too
            await GrpcConnection(self.rpc_methods()).serve_calls(end)
        else:
            end.close()

    async def has_holder(self) -> bool:
        """Whether a program uses a chip."""
        try:
            self.met = await self.host.chip_holders()
        except OSError:
            self.met = []
        return bool(self.met)

    def rpc_methods(self) -> Methods:
        return {
            SERVICE + "GetRuntimeMetric": self.get_metric,
            SERVICE + "ListSupportedMetrics": self.list_metrics,
            SERVICE + "GetTpuRuntimeStatus": self.get_status,
        }

    async def get_metric(self, request: bytes) -> bytes:
        try:
            asked = next((value for field, value in parse_fields(request) if field == 1), b"")
        except ValueError as error:
            raise GrpcError(INVALID_ARGUMENT, str(error)) from error
        name = asked.decode("utf-8", "replace") if isinstance(asked, bytes) else ""
        measure = METRICS.get(name)
        if measure is None:
            raise GrpcError(NOT_FOUND, f"unknown metric {name!r}")
        metrics = [message_field(3, one) for one in measure(self, await self.sample_load())]
        return message_field(1, string_field(1, name), *metrics)

    async def list_metrics(self, request: bytes) -> bytes:
        return b"".join(message_field(1, string_field(1, name)) for name in METRICS)

    async def get_status(self, request: bytes) -> bytes:
        """Answer GetTpuRuntimeStatusRequest: cores that run no program."""
        await self.sample_load()
        cores = [
            message_field(
                2, number_field(1, core), message_field(2, core_state(core, self.devices_per_chip))
            )
            for core in range(self.chips * self.devices_per_chip)
        ]
        return string_field(1, self.host.view.name) + b"".join(cores)

    async def sample_load(self) -> LoadSample:
        """Return the load; the first call waits a moment to measure it."""
        now = self.clock.now()
        if self.last is not None and 0 <= now - self.last.at < FRESH_S:
            return self.last
        if self.last is None:
            self.last = await self.sample_once(None)
            await self.clock.sleep(FIRST_LOOK_S)
        self.last = await self.sample_once(self.last)
        return self.last

    async def sample_once(self, before: LoadSample | None) -> LoadSample:
        met, self.met = self.met, ()
        holders = met or await self.host.chip_holders()
        if not holders:
            raise GrpcError(UNAVAILABLE, "no program uses a chip")
        return measure_load(holders, before, self.clock.now(), self.chips, self.chip_bytes)

    def per_device(self, gauge: Callable[[ChipLoad], bytes], seen: LoadSample) -> list[bytes]:
        """Return a value for each device as JAX counts them: two per chip on v2 and v3."""
        each = [load for load in seen.loads for _ in range(self.devices_per_chip)]
        return [
            device_attribute(index) + message_field(3, gauge(load))
            for index, load in enumerate(each)
        ]

    def per_chip(self, gauge: Callable[[ChipLoad], bytes], seen: LoadSample) -> list[bytes]:
        """Return a value for each chip."""
        return [
            device_attribute(index) + message_field(3, gauge(load))
            for index, load in enumerate(seen.loads)
        ]

    def per_core(self, part: bytes) -> list[bytes]:
        """Return the same value for every core, with libtpu's core names."""
        names = [string_field(1, "core_type") + message_field(2, string_field(1, "tensorcore"))]
        return [
            metric_attribute(
                "attributes",
                message_field(6, *(message_field(1, one) for one in (*names, ordinal_value(i)))),
            )
            + part
            for i in range(self.chips * self.devices_per_chip)
        ]


def metric_attribute(key: str, value: bytes) -> bytes:
    """Return the attribute that identifies the subject of a metric."""
    return message_field(1, string_field(1, key), message_field(2, value))


def device_attribute(index: int) -> bytes:
    """Return the attribute of a device, as a number."""
    return metric_attribute("device-id", number_field(3, index))


def ordinal_value(index: int) -> bytes:
    """Return a device number as a string value."""
    return string_field(1, "device_ordinal") + message_field(2, string_field(1, str(index)))


def core_state(core: int, devices_per_chip: int) -> bytes:
    """Return the CoreStateSummary of a core."""
    on_chip = number_field(1, TENSOR_CORE) + number_field(2, core % devices_per_chip)
    return message_field(
        1,
        number_field(1, core),
        number_field(2, core // devices_per_chip),
        message_field(3, on_chip),
    )


#: An empty distribution, because no XLA program runs on these chips.
EMPTY = message_field(
    5,
    message_field(
        6, message_field(2, number_field(1, 1), double_field(2, 2.0), double_field(3, 1.0))
    ),
    message_field(7, bytes(3)),
)

#: Every supported metric and how to compute its values.
METRICS: dict[str, Callable[[RuntimeMetrics, LoadSample], list[bytes]]] = {
    "tpu.runtime.hbm.memory.total.bytes": lambda it, seen: it.per_device(
        lambda load: number_field(2, it.chip_bytes // it.devices_per_chip), seen
    ),
    "tpu.runtime.hbm.memory.usage.bytes": lambda it, seen: it.per_device(
        lambda load: number_field(2, load.used_bytes // it.devices_per_chip), seen
    ),
    "tpu.runtime.tensorcore.dutycycle.percent": lambda it, seen: it.per_chip(
        lambda load: double_field(1, load.duty_percent), seen
    ),
    "tpu.runtime.hbm.utilization.percent": lambda it, seen: it.per_device(
        lambda load: double_field(1, load.duty_percent), seen
    ),
    "tpu.runtime.tensorcore.idle_duration.seconds": lambda it, seen: it.per_device(
        lambda load: double_field(1, load.idle_s), seen
    ),
    "hlo.queue.size.gauge": lambda it, seen: it.per_core(message_field(3, number_field(2, 0))),
    "hlo.execution.timing.distribution.microseconds": lambda it, seen: it.per_core(EMPTY),
    **{
        f"megascale.{name}.cumulative.distribution": lambda it, seen: []
        for name in (
            "dcn_transfer_latencies.microsecond",
            "dcn_inbound_transfer_latencies.microsecond",
            "host_to_device_transfer_latencies.microsecond",
            "device_to_host_transfer_latencies.microsecond",
            "collective_end_to_end_latencies.microsecond",
            "mxla_compute_latencies.microsecond",
            "grpc_tcp_min_rtt.microsecond",
            "grpc_tcp_delivery_rate.Mbps",
        )
    },
}
