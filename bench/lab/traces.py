"""Reads folders of capacity traces: one file a zone, one folder a set."""

import re
from dataclasses import dataclass
from pathlib import Path

from tpuherd_sim.weather.traces import parse_trace

#: How a folder says how many nodes a job needs at once: aws-3-zones-16-nodes.
GANG_IN_NAME = re.compile(r"(\d+)-nodes?\b")
#: us-east-1a is a zone of us-east-1, us-central2-b of us-central2.
ZONE_END = re.compile(r"-?[a-z]$")
MOST_TICKS = 20_000_000


class TraceError(Exception):
    """One sentence about a folder or file that cannot be used."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Trace:
    """How many nodes a zone had at each tick."""

    zone: str
    region: str
    tick_s: float
    nodes: tuple[int, ...]

    @property
    def length_s(self) -> float:
        return self.tick_s * len(self.nodes)


@dataclass(frozen=True, kw_only=True, slots=True)
class TraceSet:
    """Zones that were watched at the same time."""

    name: str
    zones: tuple[Trace, ...]
    gang: int = 1  #: nodes that a job needs at once

    @property
    def length_s(self) -> float:
        """As long as all zones were watched."""
        return min(trace.length_s for trace in self.zones)


def read_trace_folder(folder: Path) -> tuple[TraceSet, ...]:
    """Return the sets in a folder: itself if it has traces, and each folder in it that has some.

    Raises TraceError.
    """
    try:
        inside = sorted(folder.iterdir())
        own = [file for file in inside if file.suffix == ".json" and file.is_file()]
        folders = [one for one in inside if one.is_dir() and any(one.glob("*.json"))]
    except OSError as error:
        raise TraceError(f"cannot read {folder}: {error.strerror or error}") from error
    sets = [read_trace_set(folder, own)] if own else []
    sets += [read_trace_set(one, sorted(one.glob("*.json"))) for one in folders]
    if not sets:
        raise TraceError(
            f"{folder} has no traces: it needs one .json file for each zone, or folders of them"
        )
    return tuple(sets)


def read_trace_set(folder: Path, files: list[Path]) -> TraceSet:
    names = [file.stem.split("_")[0] for file in files]
    traces = tuple(
        read_trace(file, file.stem if names.count(name) > 1 else name, region_name(name))
        for file, name in zip(files, names, strict=True)
    )
    most = max(max(trace.nodes) for trace in traces)
    return TraceSet(name=folder.resolve().name, zones=traces, gang=gang_size(folder.name, most))


def read_trace(file: Path, zone: str, region: str) -> Trace:
    try:
        tick_s, nodes = parse_trace(file.read_text(encoding="utf-8"))
    except OSError as error:
        raise TraceError(f"cannot read {file}: {error.strerror or error}") from error
    except UnicodeDecodeError as error:
        raise TraceError(f"{file} is not a trace: it is not text") from error
    except ValueError as error:
        raise TraceError(f"{file} is not a trace: {error}") from error
    if len(nodes) > MOST_TICKS:
        raise TraceError(f"{file} is too long: at most {MOST_TICKS:,} ticks are read")
    return Trace(zone=zone, region=region, tick_s=tick_s, nodes=nodes)


def region_name(zone: str) -> str:
    return ZONE_END.sub("", zone) if re.search(r"\d-?[a-z]$", zone) else zone


def gang_size(folder: str, most: int) -> int:
    """Return how many nodes a job needs; a trace that counts gangs instead of nodes has 0 and 1."""
    found = GANG_IN_NAME.search(folder)
    said = int(found[1]) if found else most
    return max(1, min(said, most))
