"""Reads windows of capacity in which a task has a deadline.

Can't Be Late's windows are numbered files in a folder for each zone (or a .tar.gz of that), and
there 1 means that the zone had no spot. Other folders of traces are cut into windows.
"""

import json
import re
import tarfile
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path, PurePosixPath
from typing import Any

from tpuherd_lab.deadline_runs import DeadlineWindow
from tpuherd_lab.traces import TraceError, TraceSet, read_trace_folder

NUMBERED = re.compile(r"[0-9]{1,6}\.json")
CUT_MAX = 60  #: windows of one set
FILE_MAX = 16_000_000


def read_deadline_windows(folder: Path, length_s: float) -> tuple[DeadlineWindow, ...]:
    """Return the windows in a folder; longer traces are cut to `length_s`. Raises TraceError."""
    found: dict[int, dict[str, bytes]] = defaultdict(dict)
    try:
        for path, content in numbered_files(folder):
            found[int(path.stem)][path.parent.name] = content
    except (OSError, tarfile.TarError, EOFError) as error:
        raise TraceError(f"cannot read {folder}: {error}") from error
    if found:
        return tuple(join_window(number, found[number]) for number in sorted(found))
    sets = read_trace_folder(folder)
    windows = tuple(window for one in sets for window in cut_windows(one, length_s))
    if not windows:
        hours = length_s / 3600
        raise TraceError(f"the traces in {folder} are shorter than the {hours:g} h of the deadline")
    return windows


def numbered_files(folder: Path) -> Iterator[tuple[PurePosixPath, bytes]]:
    """Can't Be Late's files below a folder: how they are called, and what is in them."""
    for path in sorted(folder.rglob("*.json")):
        if NUMBERED.fullmatch(path.name) and path.parent != folder:
            yield PurePosixPath(path.as_posix()), path.read_bytes()
    for archive in sorted(folder.glob("*.tar.gz")):
        with tarfile.open(archive) as inside:
            for member in inside:
                file = inside.extractfile(member) if member.size <= FILE_MAX else None
                if file is not None and NUMBERED.fullmatch(PurePosixPath(member.name).name):
                    yield PurePosixPath(member.name), file.read()


def join_window(number: int, files: dict[str, bytes]) -> DeadlineWindow:
    zones, ticks = [], set()
    for zone in sorted(files):
        tick_s, lacks = parse_window(files[zone], f"{zone}/{number}.json")
        ticks.add(tick_s)
        zones.append(tuple(not one for one in lacks))
    if len(ticks) > 1:
        raise TraceError(f"the zones of window {number} have ticks of different lengths")
    return DeadlineWindow(name=str(number), tick_s=ticks.pop(), zones=tuple(zones))


def parse_window(content: bytes, name: str) -> tuple[float, list[Any]]:
    try:
        document = json.loads(content)
        tick_s, lacks = float(document["metadata"]["gap_seconds"]), document["data"]
    except (ValueError, KeyError, TypeError) as error:
        raise TraceError(f"{name} is not a window: it has no gap_seconds or no data") from error
    if not 1 <= tick_s <= 86_400 or not isinstance(lacks, list) or not set(lacks) <= {0, 1}:
        raise TraceError(f"{name} is not a window: its data are not 0 and 1, or its ticks too odd")
    return tick_s, lacks


def cut_windows(traces: TraceSet, length_s: float) -> Iterator[DeadlineWindow]:
    """Windows at even distances, at least a quarter of their length apart."""
    tick_s = traces.zones[0].tick_s
    if any(zone.tick_s != tick_s for zone in traces.zones):
        raise TraceError(f"the zones of {traces.name} have ticks of different lengths")
    ticks = min(len(zone.nodes) for zone in traces.zones)
    needed = -int(-length_s // tick_s)
    room = ticks - needed
    if room < 0:
        return
    count = max(1, min(CUT_MAX, room // max(1, needed // 4)))
    for number in range(count):
        start = number * room // max(1, count - 1) if count > 1 else 0
        yield DeadlineWindow(
            name=f"{traces.name} {start}",
            tick_s=tick_s,
            zones=tuple(
                tuple(many >= traces.gang for many in zone.nodes[start : start + needed])
                for zone in traces.zones
            ),
        )
