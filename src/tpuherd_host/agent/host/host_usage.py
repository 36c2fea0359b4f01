"""Measures what a host does now: processors, network, who has the chips and serves metrics."""

import re
import time
from typing import Any, Dict, List, Optional, Sequence, Set, Tuple

from tpuherd_host.agent.host import chip_users, clean
from tpuherd_host.agent.host.host_facts import basic_facts, list_chips
from tpuherd_host.agent.host.host_sample import Counters, compare_counters, read_counters
from tpuherd_host.agent.host.listeners import read_listeners
from tpuherd_host.agent.metadata_requests import get_key, server_address
from tpuherd_host.agent.threaded_rpc import ThreadedCall

FIRST_LOOK_S = 0.2  #: between two looks, if there was none before
FRESH_S, STALE_S = 1.0, 60.0  #: an earlier look of this age is compared with
PORTS = tuple(range(8431, 8439))  #: of libtpu, one for each process that a host may run
PORTS_MAX = 16
PORTS_LINE = re.compile(r"^\s*TPU_RUNTIME_METRICS_PORTS\s*:\s*'?([0-9, ]*)'?\s*$", re.M)
PATIENCE_S = (1.0, 3.0)


class UsageMemory:
    """What later calls compare with."""

    last: Optional[Counters] = None
    ports: Tuple[int, ...] = ()
    chips: Sequence[Dict[str, str]] = ()


MEMORY = UsageMemory()


def measure_usage(call: ThreadedCall) -> Dict[str, Any]:
    """Return rates since an earlier call, or over a moment; the chips and their processes."""
    before, now = MEMORY.last, read_counters()
    if before is None or not 0 < now.at - before.at < STALE_S:
        before = now
        time.sleep(FIRST_LOOK_S)
        MEMORY.last = now = read_counters()
    elif now.at - before.at >= FRESH_S:
        MEMORY.last = now
    if not MEMORY.ports:
        MEMORY.ports = read_metrics_ports(server_address(call.paths.environment))
    MEMORY.chips = MEMORY.chips or list_chips()
    return {
        **basic_facts(call.paths.home),
        "chips": MEMORY.chips,
        **usage_rates(before, now),
        **list_chip_processes(call, MEMORY.ports),
    }


def usage_rates(before: Counters, now: Counters) -> Dict[str, Any]:
    """Return percent and bytes per second; None where a counter went backwards or stood still."""
    rates = compare_counters(before, now)
    net_in, net_out = rates.get("net", (None, None))
    return {
        "over_s": round(now.at - before.at, 3),
        "cpu_percent": rates.get("cpu"),
        "net_in": net_in,
        "net_out": net_out,
    }


def read_metrics_ports(where: Tuple[str, int]) -> Tuple[int, ...]:
    """Return the ports that the metadata server names for libtpu, or the usual ones."""
    try:
        answer = get_key("attributes/tpu-env", where, "", PATIENCE_S)
    except OSError:
        return PORTS
    return parse_metrics_ports(answer[0] if answer else "")


def parse_metrics_ports(tpu_env: str) -> Tuple[int, ...]:
    """Parse the line of tpu-env; a process may use another of the usual ports than it names."""
    found = PORTS_LINE.search(tpu_env)
    words = found[1].replace(",", " ").split() if found else []
    named = {int(word) for word in words if len(word) <= 5 and 0 < int(word) < 1 << 16}
    return tuple(sorted(named | set(PORTS)))[:PORTS_MAX]


def list_chip_processes(call: ThreadedCall, ports: Tuple[int, ...]) -> Dict[str, Any]:
    """Return who has the chips, as `holders` does, and which ports are open and whose they are.

    All is found in one look at the processes. Others than ours are asked for only if a chip seems
    free: sudo takes longer than all the rest, and writes into the host's log.
    """
    devices = chip_users.chip_devices()
    open_ports = {f"socket:[{one.inode}]": one.port for one in read_listeners(ports)}
    found = list(chip_users.find_openers([*devices, *open_ports]))
    pids: Dict[int, Optional[int]] = dict.fromkeys(open_ports.values())
    pids.update((open_ports[path], pid) for path, pid in found if path in open_ports)
    opened: Set[str] = {path for path, _ in found}
    if opened.issuperset(devices):
        locks = chip_users.find_lock_holders(call.paths.home)
        holders = [*(row for row in found if row[0] in devices), *locks]
        rows = chip_users.describe_users(holders)
    else:
        rows = chip_users.all_chip_users(call.paths.home)
    servers: List[Dict[str, Any]] = [
        {"port": port, "pid": pid} for port, pid in sorted(pids.items())
    ]
    return {**clean.mark_ours(rows, call), "devices": devices, "metrics": servers}
