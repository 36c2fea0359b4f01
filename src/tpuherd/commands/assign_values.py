"""Assigns libtpu's values and the processes to a host's chips, and says what is missing. Pure."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from tpuherd.catalogue import generations
from tpuherd.commands.chip_use import ChipUse
from tpuherd.commands.runtime_metrics import (
    METRICS,
    PORT,
    DeviceValues,
    combine_values,
    split_by_chip,
)
from tpuherd.model.chip_readings import ChipProcess, ChipReading
from tpuherd.targets import natural_key

RENAMED = {"v7x": "tpu7x"}  #: generations that agents call otherwise


@dataclass(frozen=True, kw_only=True, slots=True)
class ReadMetrics:
    """What libtpu on a host said."""

    values: Mapping[str, DeviceValues] = field(default_factory=dict)  #: by the field of a reading
    absent: tuple[str, ...] = ()  #: titles of the metrics that this libtpu does not have
    is_silent: bool = False  #: nothing answers on its port
    trouble: str = ""  #: why there are no values, if something answers


def list_chip_readings(
    use: ChipUse, metrics: ReadMetrics, generation: str
) -> tuple[ChipReading, ...]:
    """Return a reading for each device file, in the order of libtpu's devices."""
    known = generations().get(RENAMED.get(generation, generation))
    devices = sorted(set(use.devices), key=natural_key)
    fields: list[dict[str, Any]] = [{} for _ in devices]
    invalid: list[set[str]] = [set() for _ in devices]
    for kind in METRICS:
        if kind.field not in metrics.values:
            continue
        parts = split_by_chip(
            metrics.values[kind.field].values,
            chips=len(devices),
            devices_per_chip=known.devices_per_chip if known else 1,
        )
        for place, mine in enumerate(parts):
            value = combine_values(kind, mine) if mine else None
            fields[place][kind.field] = value
            if mine and value is None:
                invalid[place].add(kind.field)
    readings = []
    for device, found, wrong in zip(devices, fields, invalid, strict=True):
        used, total = found.get("hbm_used"), found.get("hbm_total")
        if used is not None and total is not None and used > total:
            found["hbm_used"] = None
            wrong.add("hbm_used")
        held = [one for one in use.holders if one.device == device]
        processes = tuple(
            ChipProcess(pid=one.pid, user=one.user, command=one.command, task=one.work)
            for one in held
        )
        readings.append(
            ChipReading(device=device, processes=processes, invalid=frozenset(wrong), **found)
        )
    return tuple(readings)


def why_missing(use: ChipUse, metrics: ReadMetrics, chips: Sequence[ChipReading]) -> str:
    """Say in a few words why values are missing; "": none is."""
    if not chips:
        return "this host has no chips in /dev"
    if metrics.is_silent:
        if not any(chip.processes for chip in chips):
            return "no program uses the chips"
        return f"its program serves no metrics on port {PORT}: it is starting, or its libtpu is old"
    if metrics.trouble:
        return metrics.trouble
    reasons = []
    if metrics.absent:
        reasons.append(f"this libtpu does not tell {', '.join(metrics.absent)}")
    wrong = [kind.title for kind in METRICS if any(kind.field in one.invalid for one in chips)]
    if wrong:
        reasons.append(f"what libtpu says of {', '.join(wrong)} can't be true")
    told = [kind for kind in METRICS if kind.field in metrics.values]
    full = [
        one
        for one in chips
        if all(getattr(one, kind.field) is not None or kind.field in one.invalid for kind in told)
    ]
    if len(full) < len(chips):
        reasons.append(f"libtpu tells all values of {len(full)} of {len(chips)} chips only")
    return "; ".join(reasons)
