"""What 100 to 5,000 nodes cost one engine, and whether anything grows with time.

    .venv/bin/python bench/size.py [--nodes 100,300,1000,3000,5000] [--jobs 200] [--json FILE]

For each number of nodes, a process of its own runs the real engine with its store on disk, a
world, and the decisions of four agents per node, in virtual time. After all run, five minutes are
measured: each node is lost once in four hours, saves each ten minutes, and every host sends a
heartbeat and a sample each ten seconds. Then 60 nodes are preempted one after another. What is not
measured: SSH (see bench/exec.py), and disks other than this one's.
"""

import argparse
import asyncio
import gc
import json
import resource
import statistics
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))

from bench.rigs.deep_size import measure_objects
from bench.rigs.large_fleet import Fleet, run_fleet
from bench.rigs.used_time import SampledTime

WINDOW_S = 300.0
LIFE_S = 4 * 3600.0  #: of a node
LOSSES, BETWEEN_S = 60, 3.0
REACTED_S = 60.0
OTHERS = ("tests.", "tpuherd_sim.", "tpuherd_host.", "bench.")


async def measure_fleet(fleet: Fleet, used: SampledTime) -> dict[str, Any]:
    """Measure the fleet that runs."""
    play, sim = fleet.play, fleet.play.sim
    losing = asyncio.create_task(lose_nodes(fleet, WINDOW_S, LIFE_S))
    mark, commits = len(sim.asked), fleet.commits
    events, begun_at, rounds = last_event(fleet), sim.now(), len(fleet.rounds)
    begun, wall = time.process_time(), time.time()
    with used.counting():
        await asyncio.sleep(WINDOW_S)
    cpu_s, minutes = time.process_time() - begun, (sim.now() - begun_at) / 60.0
    asked = sim.asked[mark:]
    await losing
    found = {
        "wall_s": time.time() - wall,
        "all_cpu_s": cpu_s,
        "shares": {who: used.share(who) for who in ("engine", "world", "agents")},
        "core_percent": 100.0 * cpu_s * used.share("engine") / (minutes * 60.0),
        "reads_a_minute": sum(one.reads for one in asked) / minutes,
        "creates_a_minute": sum(one.creates for one in asked) / minutes,
        "writes_a_minute": sum(not one.reads for one in asked) / minutes,
        "transactions_a_minute": (fleet.commits - commits) / minutes,
        "events_a_minute": (last_event(fleet) - events) / minutes,
        "rounds_a_second": (len(fleet.rounds) - rounds) / minutes / 60.0,
        "round_ms": 1000.0 * statistics.fmean(fleet.rounds[rounds:]),
    }
    reactions = await measure_reactions(fleet)
    found |= {
        "reaction_p50_s": statistics.median(reactions),
        "reaction_p99_s": statistics.quantiles(reactions, n=100)[98],
        "reactions": len(reactions),
    }
    return found | measure_memory(fleet)


def last_event(fleet: Fleet) -> int:
    return max((seq for seq, _ in fleet.play.store.read_events(limit=1, newest=True)), default=0)


async def lose_nodes(fleet: Fleet, seconds: float, life_s: float) -> None:
    """Preempt nodes evenly, without notice, as many as so short lives mean."""
    nodes = sorted(fleet.play.sim.nodes())
    many = max(1, round(len(nodes) * seconds / life_s))
    for number in range(many):
        await asyncio.sleep(seconds / many)
        node = nodes[(number * 7919) % len(nodes)]
        fleet.play.sim.weather("preempt", target=node, notice_s=0, flag=False, acpi=False)


async def measure_reactions(fleet: Fleet) -> list[float]:
    """Preempt nodes with notice, and return the seconds until each replacement was requested."""
    sim, found = fleet.play.sim, []
    await asyncio.sleep(120.0)
    nodes = [name for name, state in sorted(sim.nodes().items()) if state == "READY"]
    marks: list[tuple[str, float]] = []
    for node in nodes[:: max(1, len(nodes) // LOSSES)][:LOSSES]:
        marks.append((node.rpartition("-g")[0], sim.clock.now()))
        sim.weather("preempt", target=node)
        await asyncio.sleep(BETWEEN_S)
    await asyncio.sleep(REACTED_S)
    for slot, lost_at in marks:
        later = [at for at in fleet.asked_at.get(slot, ()) if at > lost_at]
        found.append(min(later) - lost_at if later else float("inf"))
    return found


def measure_memory(fleet: Fleet) -> dict[str, Any]:
    """What the engine holds, without the world and the agents, and what the process takes."""
    gc.collect()
    engine = fleet.play.engine
    total, kinds = measure_objects([engine], belongs_to_others)
    return {
        "engine_mib": total / 2**20,
        "process_mib": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024,
        "kinds": dict(kinds.most_common(12)),
    }


def belongs_to_others(one: Any) -> bool:
    return type(one).__module__.startswith(OTHERS)


def measure_one(nodes: int, jobs: int) -> dict[str, Any]:
    begun = time.time()
    found: dict[str, Any] = run_fleet(nodes, min(jobs, nodes), measure_fleet)
    return {"nodes": nodes, **found, "whole_s": time.time() - begun}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--nodes", default="100,300,1000,3000,5000")
    parser.add_argument("--jobs", type=int, default=200)
    parser.add_argument("--json", type=Path)
    parser.add_argument("--one", type=int, help=argparse.SUPPRESS)
    said = parser.parse_args()
    if said.one:
        print(json.dumps(measure_one(said.one, said.jobs)))
        sys.stdout.flush()
        return 0
    for nodes in map(int, said.nodes.split(",")):
        words = [sys.executable, __file__, "--one", str(nodes), "--jobs", str(said.jobs)]
        found = json.loads(subprocess.run(words, check=True, stdout=subprocess.PIPE).stdout)
        print(json.dumps(found), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
