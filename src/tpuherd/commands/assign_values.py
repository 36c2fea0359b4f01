"""Assigns libtpu's values and the processes to a host's chips, and says what is missing. Pure."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from tpuherd.catalogue import generations
from tpuherd.commands.chip_use import ChipUse
from tpuherd.commands.runtime_metrics import METRICS, combine_values
from tpuherd.model.chip_readings import ChipProcess, ChipReading
from tpuherd.targets import natural_key
from tpuherd_host.agent.host.runtime_metrics import PORT, DeviceValues, split_by_chip

RENAMED = {"v7x": "tpu7x"}  #: generations that agents call otherwise


@dataclass(frozen=True, kw_only=True, slots=True)
class ReadMetrics:
    """What libtpu said on one port of a host."""

    port: int = PORT
    pid: int | None = None  #: the process that serves it; None: hidden
    values: Mapping[str, DeviceValues] = field(default_factory=dict)  #: by the field of a reading
    absent: tuple[str, ...] = ()  #: titles of the metrics that this libtpu does not have
    is_silent: bool = False  #: nothing answers
    trouble: str = ""  #: why there are no values, if something answers

    @property
    def devices(self) -> int:
        """How many devices it tells of."""
        return max((len(one.values) for one in self.values.values()), default=0)


@dataclass(frozen=True, kw_only=True, slots=True)
class ToldValues:
    """What is known of one chip."""

    values: Mapping[str, Any]
    invalid: frozenset[str] = frozenset()


def list_chip_readings(
    use: ChipUse, metrics: Sequence[ReadMetrics], generation: str
) -> tuple[ChipReading, ...]:
    """Return a reading for each device file, in the order of libtpu's devices.

    A program that has some of the chips tells their values on a port of its own, counted from its
    first chip. If it is hidden which program serves a port, it is taken to tell of the whole host.
    """
    devices = sorted(set(use.devices), key=natural_key)
    known = generations().get(RENAMED.get(generation, generation))
    each = known.devices_per_chip if known else 1
    found = [ToldValues(values={}) for _ in devices]
    narrow, wide = split_sources(use, metrics, devices, each)
    sure: set[int] = set()
    for one, places in narrow:
        for place, values in read_places(one, places, each).items():
            found[place] = values
            sure.add(place)
    told: set[int] = set()
    for one in wide:
        for place, values in read_places(one, range(len(devices)), each).items():
            if place not in sure:  # of two that tell of a chip, neither is to be trusted
                found[place] = ToldValues(values={}) if place in told else values
                told.add(place)
    return tuple(
        ChipReading(
            device=device,
            processes=tuple(
                ChipProcess(pid=it.pid, user=it.user, command=it.command, task=it.work)
                for it in use.holders
                if it.device == device
            ),
            invalid=values.invalid,
            **values.values,
        )
        for device, values in zip(devices, found, strict=True)
    )


def split_sources(
    use: ChipUse, metrics: Sequence[ReadMetrics], devices: Sequence[str], each: int
) -> tuple[list[tuple[ReadMetrics, Sequence[int]]], list[ReadMetrics]]:
    """Return the ports of programs whose chips are known, with these chips, and the others."""
    narrow: list[tuple[ReadMetrics, Sequence[int]]] = []
    wide: list[ReadMetrics] = []
    for one in metrics:
        mine = {it.device for it in use.holders if one.pid is not None and it.pid == one.pid}
        places = [place for place, device in enumerate(devices) if device in mine]
        if places and one.devices <= len(places) * each:
            narrow.append((one, places))
        else:
            wide.append(one)
    return narrow, wide


def read_places(one: ReadMetrics, places: Sequence[int], each: int) -> dict[int, ToldValues]:
    """Return what a port tells of these chips; those of which it tells nothing are left out."""
    fields: dict[int, dict[str, Any]] = {}
    invalid: dict[int, set[str]] = {place: set() for place in places}
    for kind in METRICS:
        if kind.field not in one.values:
            continue
        told = one.values[kind.field].values
        parts = split_by_chip(told, chips=len(places), devices_per_chip=each)
        for place, mine in zip(places, parts, strict=True):
            if not mine:
                continue
            value = combine_values(kind, mine)
            fields.setdefault(place, {})[kind.field] = value
            if value is None:
                invalid[place].add(kind.field)
    for place, found in fields.items():
        used, total = found.get("hbm_used"), found.get("hbm_total")
        if used is not None and total is not None and used > total:
            found["hbm_used"] = None
            invalid[place].add("hbm_used")
    return {
        place: ToldValues(values=found, invalid=frozenset(invalid[place]))
        for place, found in fields.items()
    }


def why_missing(use: ChipUse, metrics: Sequence[ReadMetrics], chips: Sequence[ChipReading]) -> str:
    """Say in a few words why values are missing; "": none is."""
    if not chips:
        return "this host has no chips in /dev"
    answering = [one for one in metrics if not one.is_silent]
    if not answering:
        if not any(chip.processes for chip in chips):
            return "no program uses the chips"
        return "its program serves no metrics: it is starting, or its libtpu is old"
    several = len(answering) > 1
    reasons = [
        f"port {one.port}: {one.trouble}" if several else one.trouble
        for one in answering
        if one.trouble
    ]
    if len(reasons) == len(answering):
        return "; ".join(reasons)
    absent = list(dict.fromkeys(title for one in answering for title in one.absent))
    if absent:
        reasons.append(f"this libtpu does not tell {', '.join(absent)}")
    wrong = [kind.title for kind in METRICS if any(kind.field in one.invalid for one in chips)]
    if wrong:
        reasons.append(f"what libtpu says of {', '.join(wrong)} can't be true")
    told = [kind for kind in METRICS if any(kind.field in one.values for one in answering)]
    full = [
        one
        for one in chips
        if all(getattr(one, kind.field) is not None or kind.field in one.invalid for kind in told)
    ]
    if len(full) < len(chips):
        reasons.append(f"libtpu tells all values of {len(full)} of {len(chips)} chips only")
    return "; ".join(reasons)
