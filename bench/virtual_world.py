"""How much faster than real time a world of 300 nodes runs, listed every ten seconds.

    .venv/bin/python bench/virtual_world.py [--nodes 300] [--hours 24] [--every 10]

One client, through the ASGI app in this process, requests one list of every zone each time. Two
runs must have equal digests of every byte of the responses. A third run also parses the JSON with
the standard library, which then takes most of the time.
"""

import argparse
import asyncio
import hashlib
import json
import sys
import time
from pathlib import Path

import httpx2

sys.path.insert(0, str(Path(__file__).parents[1]))
from bench.rigs.figures import own_row, write_figures

from tests.simulated import virtual_loop
from tpuherd.clock import LoopClock
from tpuherd_sim.handle import new_world
from tpuherd_sim.http.app import create_app
from tpuherd_sim.live_world import LiveWorld
from tpuherd_sim.model.world_codec import world_digest
from tpuherd_sim.model.world_parts import Settings

START = 1_800_000_000.0
ZONES = ("us-central2-b", "europe-west4-a", "us-east1-d")
TYPES = {"us-central2-b": "v4-8", "europe-west4-a": "v6e-8", "us-east1-d": "v6e-8"}
RUNTIMES = {"v4-8": "tpu-ubuntu2204-base", "v6e-8": "v2-alpha-tpuv6e"}


async def tend(nodes: int, seconds: float, every: float, *, read: bool) -> tuple[str, int]:
    """Create the nodes, list them until the time is over; gives a digest of all that was seen."""
    world = new_world(Settings(seed=7, created=START))
    clock = LoopClock(START)
    live_world = LiveWorld(world, clock)
    passing = asyncio.create_task(live_world.run())
    seen, calls = hashlib.sha256(), 0
    transport = httpx2.ASGITransport(app=create_app(live_world, clock))
    async with httpx2.AsyncClient(transport=transport, base_url="http://world") as client:
        place = "/v2/projects/demo/locations"
        for number in range(nodes):
            zone = ZONES[number % len(ZONES)]
            body = {
                "acceleratorType": TYPES[zone],
                "runtimeVersion": RUNTIMES[TYPES[zone]],
                "schedulingConfig": {"spot": True},
            }
            answer = await client.post(f"{place}/{zone}/nodes?nodeId=n{number}", json=body)
            answer.raise_for_status()
            await asyncio.sleep(1)
        until = asyncio.get_running_loop().time() + seconds
        while asyncio.get_running_loop().time() < until:
            answer = await client.get(f"{place}/-/nodes?pageSize=500")
            seen.update(answer.content)
            if read and len(json.loads(answer.content)["nodes"]) > nodes:
                raise SystemExit("more nodes than were made")
            calls += 1
            await asyncio.sleep(every)
    passing.cancel()
    seen.update(world_digest(world).encode())
    return seen.hexdigest(), calls


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--nodes", type=int, default=300)
    parser.add_argument("--hours", type=float, default=24.0)
    parser.add_argument("--every", type=float, default=10.0)
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    rates: dict[str, list[float]] = {}
    digests, virtual_s = set(), options.hours * 3600 + options.nodes
    for read in (False, False, True):
        began = time.process_time()
        run = tend(options.nodes, options.hours * 3600, options.every, read=read)
        found, calls = virtual_loop.run(run)
        took = time.process_time() - began
        digests.add(found)
        rates.setdefault("JSON read" if read else "bytes only", []).append(virtual_s / took)
        print(
            f"{calls} lists of {options.nodes} nodes{', JSON read,' if read else ''} "
            f"in {took:.1f} s: {virtual_s / took:,.0f} x real time"
        )
    print(f"digests {'equal' if len(digests) == 1 else 'DIFFER'}")
    if options.json:
        rows = [
            {**own_row(f"virtual time to processor time, {what}", "×", values),
             "at": options.nodes, "more_is_better": True}
            for what, values in rates.items()
        ]  # fmt: skip
        write_figures(options.json, "A world in virtual time", rows)
    return 0 if len(digests) == 1 else 1


if __name__ == "__main__":
    sys.exit(main())
