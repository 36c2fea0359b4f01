"""Reads what the host and its chips do at one moment, for series over time."""

import time
from math import isfinite
from typing import Any, Dict, List, NamedTuple, Optional, Tuple

from tpuherd_host.agent.host import loopback_grpc, runtime_metrics
from tpuherd_host.agent.host.chip_users import chip_devices
from tpuherd_host.agent.host.host_facts import disk_space, list_chips, parse_meminfo, read_text

METRICS_S = 3.0
CHIPS_MAX = 64
HBM_MAX = 1 << 50
PERCENT_MAX = 100.5  #: libtpu rounds
TWO_DEVICES = ("v2", "v3", "v7x")  #: generations whose chips have two devices each
#: Network devices whose traffic is counted elsewhere, or never leaves the host.
INNER = ("lo", "docker", "veth", "br-", "virbr")
NO_SERVICE = "no program serves metrics of the chips on port {}"


class Counters(NamedTuple):
    """The kernel's counters at one moment; None: not known."""

    at: float
    ticks: Optional[Tuple[int, int]]  #: busy, and all
    network: Optional[Tuple[int, int]]  #: bytes received and sent


def parse_ticks(stat: str) -> Optional[Tuple[int, int]]:
    """Return the busy and all ticks of /proc/stat."""
    words = stat.partition("\n")[0].split()
    if words[:1] != ["cpu"] or len(words) < 6:
        return None
    ticks = [int(word) for word in words[1:9]]  # the guests' are among the user's
    return sum(ticks) - ticks[3] - ticks[4], sum(ticks)


def parse_network(devices: str) -> Optional[Tuple[int, int]]:
    """Return the bytes of /proc/net/dev that the host received and sent."""
    received = sent = 0
    rows = [line.partition(":") for line in devices.splitlines() if ":" in line]
    for name, _, numbers in rows:
        words = numbers.split()
        if len(words) >= 9 and not name.strip().startswith(INNER):
            received, sent = received + int(words[0]), sent + int(words[8])
    return (received, sent) if rows else None


def read_counters() -> Counters:
    return Counters(
        time.monotonic(),
        parse_ticks(read_text("/proc/stat")),
        parse_network(read_text("/proc/net/dev")),
    )


def compare_counters(before: Counters, after: Counters) -> Dict[str, Any]:
    """Return the load and the rates between two moments; a counter that went back is not known."""
    found: Dict[str, Any] = {}
    seconds = after.at - before.at
    if before.ticks and after.ticks:
        busy, whole = after.ticks[0] - before.ticks[0], after.ticks[1] - before.ticks[1]
        if whole > 0:
            found["cpu"] = round(min(max(100.0 * busy / whole, 0.0), 100.0), 1)
    if before.network and after.network and seconds > 0:
        grown = [now - then for now, then in zip(after.network, before.network)]
        if min(grown) >= 0:
            found["net"] = [round(one / seconds) for one in grown]
    return found


def read_memory() -> Optional[List[int]]:
    """Return used and total bytes."""
    found = parse_meminfo(read_text("/proc/meminfo"))
    if len(found) < 2:
        return None
    return [max(0, found["total"] - found["available"]), found["total"]]


def read_disk(home: str) -> Optional[List[int]]:
    """Return free and total bytes."""
    try:
        found = disk_space(home)
    except OSError:
        return None
    return [found["free"], found["total"]]


def chip_values(metrics: List[Optional[bytes]], chips: int, each: int) -> List[List[Any]]:
    """Return used and total HBM and the duty cycle of each chip; None for what can't be true."""
    rows: List[List[Any]] = [[None, None, None] for _ in range(chips)]
    for place, content in enumerate(metrics):
        if content is None:
            continue
        is_duty = place == 2
        found = runtime_metrics.parse_device_values(content).values
        parts = runtime_metrics.split_by_chip(found, chips=chips, devices_per_chip=each)
        for row, values in zip(rows, parts):
            most = PERCENT_MAX if is_duty else HBM_MAX
            if values and all(isfinite(one) and 0 <= one <= most for one in values):
                whole = sum(values)
                row[place] = min(round(whole / len(values), 1), 100.0) if is_duty else int(whole)
    for row in rows:
        if None not in row[:2] and row[0] > row[1]:
            row[0] = None
    return rows


def read_chips(port: int = runtime_metrics.PORT) -> Tuple[List[List[Any]], str]:
    """Return the values of each chip, and why some are missing."""
    chips = min(len(chip_devices()), CHIPS_MAX)
    nothing: List[List[Any]] = [[None, None, None]] * chips
    if not chips:
        return [], "this host has no chips in /dev"
    wanted = (runtime_metrics.HBM_USED, runtime_metrics.HBM_TOTAL, runtime_metrics.DUTY)
    requests = [runtime_metrics.metric_request(name) for name in wanted]
    kinds = {chip["generation"] for chip in list_chips()}
    try:
        metrics = loopback_grpc.call_method(port, runtime_metrics.SERVICE, requests, METRICS_S)
        rows = chip_values(metrics, chips, 2 if kinds & set(TWO_DEVICES) else 1)
    except loopback_grpc.NothingServes:
        return nothing, NO_SERVICE.format(port)
    except (loopback_grpc.CallFailed, runtime_metrics.InvalidMetrics) as error:
        return nothing, f"port {port} tells nothing of the chips: {error}"
    known = sum(None not in row for row in rows)
    return rows, "" if known == chips else f"libtpu tells all values of {known} of {chips} chips"


class HostSampler:
    """Reads samples; remembers the counters of the last one."""

    def __init__(self, home: str) -> None:
        self.home = home
        self.before = read_counters()

    def read_sample(self) -> Dict[str, Any]:
        after = read_counters()
        chips, why = read_chips()
        sample = {
            **compare_counters(self.before, after),
            "ram": read_memory(),
            "disk": read_disk(self.home),
            "chips": chips,
            "why": why,
        }
        self.before = after
        return sample
