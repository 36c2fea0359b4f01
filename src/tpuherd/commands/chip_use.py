"""Parses what an agent says of its host's chips and machine: typed, bounded, or refused. Pure.

`herd smi --processes` and `herd smi` both read who holds the chips here.
"""

from collections.abc import Mapping
from typing import Annotated, Any, TypeVar

import msgspec
from msgspec import Meta, Struct

from tpuherd.engine.host_messages import (
    ATTEMPTS_MAX,
    NOTICES,
    Count,
    Few,
    Short,
    Text,
    Time,
)
from tpuherd.errors import OperationFailed
from tpuherd.model.chip_readings import MachineReading

ROWS_MAX = 4096
DEVICES_MAX = 256
PORTS_MAX = 64
NONSENSE = "its agent's answer makes no sense: {}"
NOTHING_TO_SAY = ("", "FALSE", "NONE")  #: values of notices when all is well
Rate = Annotated[float, Meta(ge=0, le=1e15)]
Pid = Annotated[int, Meta(ge=0, le=1 << 31)]
Parsed = TypeVar("Parsed")


class ChipHolder(Struct, frozen=True, kw_only=True):
    """A process that has a chip or a lock of libtpu's open."""

    device: Text
    pid: Pid | None = None  #: None: hidden from the login
    user: Short = ""
    command: Text = ""
    since: Time | None = None
    ours: bool = False  #: of the agent that answers
    work: Short = ""  #: its task


class ChipUse(Struct, frozen=True, kw_only=True):
    """The answer to `holders`."""

    holders: Annotated[tuple[ChipHolder, ...], Meta(max_length=ROWS_MAX)] = ()
    devices: Annotated[tuple[Text, ...], Meta(max_length=DEVICES_MAX)] = ()


class MemoryFacts(Struct, frozen=True, kw_only=True):
    total: Count | None = None
    available: Count | None = None


class FreeDisk(Struct, frozen=True, kw_only=True):
    total: Count
    free: Count


class ChipFacts(Struct, frozen=True, kw_only=True):
    generation: Short = ""


class MetricsServer(Struct, frozen=True, kw_only=True):
    """A port of the host where libtpu's values may be read."""

    port: Annotated[int, Meta(ge=1, le=65535)]
    pid: Pid | None = None  #: None: hidden from the login


class HostUsage(ChipUse, frozen=True, kw_only=True):
    """The answer to `usage`."""

    cpu_percent: Annotated[float, Meta(ge=0, le=101)] | None = None
    net_in: Rate | None = None
    net_out: Rate | None = None
    metrics: Annotated[tuple[MetricsServer, ...], Meta(max_length=PORTS_MAX)] = ()


class BasicFacts(Struct, frozen=True, kw_only=True):
    """What `herd smi` needs of the answer to `facts`."""

    time: Time
    cores: Few | None = None
    load: Annotated[tuple[Annotated[float, Meta(ge=0, le=1e6)], ...], Meta(max_length=3)] = ()
    memory: MemoryFacts = MemoryFacts()
    disk: FreeDisk | None = None
    chips: Annotated[tuple[ChipFacts, ...], Meta(max_length=DEVICES_MAX)] = ()

    def machine_reading(self, usage: HostUsage) -> MachineReading:
        total, free = self.memory.total, self.memory.available
        return MachineReading(
            load=self.load[0] if self.load else None,
            cores=self.cores,
            ram_used=None if total is None or free is None else max(0, total - free),
            ram_total=total,
            disk_free=self.disk.free if self.disk else None,
            disk_total=self.disk.total if self.disk else None,
            cpu_percent=usage.cpu_percent,
            net_in=usage.net_in,
            net_out=usage.net_out,
        )

    @property
    def generation(self) -> str:
        """The chips' generation, as the PCI bus tells it; "": unknown."""
        return self.chips[0].generation if self.chips else ""


class HostTasks(Struct, frozen=True, kw_only=True):
    """What `herd smi` needs of the answer to `attempts`."""

    notices: Annotated[dict[Short, Short], Meta(max_length=64)] = {}
    attempts: Annotated[list[Any], Meta(max_length=ATTEMPTS_MAX)] = []

    @property
    def notice(self) -> str:
        """What the cloud has announced; "": nothing."""
        return ", ".join(
            "preempted" if what == "preempted" else f"{what}: {value}"
            for what, value in sorted(self.notices.items())
            if what in NOTICES and value not in NOTHING_TO_SAY
        )


def parse_answer(kind: type[Parsed], content: Mapping[str, Any]) -> Parsed:
    """Return an agent's answer; OperationFailed if it makes no sense."""
    try:
        return msgspec.convert(content, kind)
    except (msgspec.ValidationError, RecursionError) as error:
        raise OperationFailed(NONSENSE.format(str(error)[:300])) from error


def plain_chip_use(content: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return who holds the chips as plain values; OperationFailed if it makes no sense."""
    found: Mapping[str, Any] = msgspec.to_builtins(parse_answer(ChipUse, content))
    return found
