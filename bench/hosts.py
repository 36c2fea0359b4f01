"""How fast 64 simulated hosts start, what they cost while idle, and how fast they stop."""

import argparse
import asyncio
import os
import resource
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from time import perf_counter
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))
from bench.rigs.figures import own_row, write_figures

from tests.integration.running_hosts import ReportLog
from tpuherd_sim.hosts.host_pool import HostPool, PoolSettings
from tpuherd_sim.hosts.isolation_modes import MODES
from tpuherd_sim.hosts.syscalls import child_processes
from tpuherd_sim.model.host_view import HostView

HOSTS, PER_NODE, IDLE_S = 64, 16, 3.0


def view(index: int, **fields: Any) -> HostView:
    """One of the hosts, of one of the nodes."""
    node, worker = divmod(index, PER_NODE)
    peers = [(f"t1v-n-{node}-w-{each}", f"10.128.{node}.{each + 2}") for each in range(PER_NODE)]
    return HostView(
        key=f"{node}-{worker}",
        zone="us-central2-b",
        node=f"n{node}",
        worker=worker,
        name=peers[worker][0],
        uid=index,
        image="tpu-ubuntu2204-base",
        accelerator="v5litepod-64",
        chips=4,
        device="vfio",
        pci="0x0063",
        internal_ip=peers[worker][1],
        external_ip=f"127.67.{node}.{worker + 2}",
        segment=f"n{node}",
        peers=tuple(peers),
        **{"on": True, "boot": 0, **fields},
    )


def memory_kib(pids: Sequence[int], kind: str) -> int:
    """The sum of a line of smaps_rollup."""
    total = 0
    for pid in pids:
        for line in Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines():
            if line.startswith(f"{kind}:"):
                total += int(line.split()[1])
    return total


def available_kib() -> int:
    """What the machine has left."""
    lines = Path("/proc/meminfo").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("MemAvailable"))


async def measure(mode: str, folder: Path) -> list[dict[str, object]]:
    """Return all figures of one mode."""
    pool = HostPool(ReportLog(), folder, PoolSettings(mode=mode))
    start = perf_counter()
    await pool.start()
    started = perf_counter() - start
    assert pool.zygote is not None
    before = available_kib()
    start = perf_counter()
    await pool.apply_views({f"{index}": view(index) for index in range(HOSTS)})
    up = perf_counter() - start
    assert len(pool.hosts) == HOSTS
    inits = child_processes(pool.zygote.pid)
    pss, rss = (memory_kib(inits, kind) / HOSTS / 1024 for kind in ("Pss", "Rss"))
    kernel = (before - available_kib()) / HOSTS / 1024
    used = resource.getrusage(resource.RUSAGE_SELF).ru_utime
    await asyncio.sleep(IDLE_S)
    idle = (resource.getrusage(resource.RUSAGE_SELF).ru_utime - used) / IDLE_S
    start = perf_counter()
    await pool.apply_views({f"{index}": view(index, on=False) for index in range(HOSTS)})
    gone = perf_counter() - start
    await pool.close()
    print(f"{mode}: ready in {started:.2f} s; {HOSTS} hosts up in {up:.2f} s, gone in {gone:.2f} s")
    print(
        f"  a host idles at PSS {pss:.1f} MB (RSS {rss:.1f} MB), {kernel:.1f} MB of the machine's"
    )
    print(f"  controller while idle: {idle * 100:.1f} % of a core")
    found = {
        "hosts up": (up, "s"),
        "hosts gone": (gone, "s"),
        "memory of an idle host, PSS": (pss, "MB"),
        "memory of the machine for an idle host": (kernel, "MB"),
        "processor time of their server while idle": (idle * 100, "% of a core"),
    }  # fmt: skip
    return [
        {**own_row(f"{what}, {mode}", unit, [value]), "at": HOSTS}
        for what, (value, unit) in found.items()
    ]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", type=Path)
    asked, rows = parser.parse_args(), list[dict[str, object]]()
    for mode in MODES:
        if mode == "namespaces-root" and os.getuid() != 0:
            print(f"{mode}: needs root")
            continue
        with tempfile.TemporaryDirectory(prefix="bench-hosts-") as folder:
            try:
                rows += asyncio.run(measure(mode, Path(folder)))
            except OSError as error:
                print(f"{mode}: {error}")
    if asked.json:
        write_figures(asked.json, "Simulated hosts", rows)


if __name__ == "__main__":
    main()
