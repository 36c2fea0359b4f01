"""What 100 to 5,000 nodes cost one engine, and whether anything grows with time.

    .venv/bin/python bench/size.py [--nodes 100,300,1000,3000,5000] [--days 30] [--json FILE]

For each number of nodes, a process of its own runs the real engine with its store, a world, and
four agents per node at the other end of real links, in virtual time. After all run, two minutes are
measured: each node is lost once in eight hours and saves each ten minutes, and every host sends a
heartbeat and a sample each ten seconds. Then 30 nodes are preempted one after another. What is not
measured: SSH (see bench/exec.py), and a disk (the store is in memory where /dev/shm is). Garbage is
collected as in the engine's process, but that of the world and the agents, too. With
--days, two slots lose their nodes every two hours for so long, and what is held is measured.
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
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))

from bench.rigs.deep_size import measure_objects
from bench.rigs.figures import write_figures
from bench.rigs.large_fleet import Fleet, run_fleet
from bench.rigs.long_storm import run_storm
from bench.rigs.used_time import SampledTime

WINDOW_S = 120.0
LIFE_S = 8 * 3600.0  #: of a node
LOSSES, BETWEEN_S = 30, 4.0  # each is requested in three zones, and 60 a minute may be
SETTLE_S, REACTED_S = 20.0, 30.0
OTHERS = ("tests.", "tpuherd_sim.", "tpuherd_host.", "bench.")


async def measure_fleet(fleet: Fleet, used: SampledTime) -> dict[str, Any]:
    """Measure the fleet that runs."""
    sim = fleet.play.sim
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
    """Preempt nodes with notice, and return the seconds until each replacement was requested.

    Only nodes on which an attempt runs: one that lost the race to READY needs no replacement.
    """
    sim, found = fleet.play.sim, []
    await asyncio.sleep(SETTLE_S)
    nodes = sorted(running_nodes(fleet))
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


def running_nodes(fleet: Fleet) -> Iterator[str]:
    """The nodes that are not lost on which attempts have started and not ended."""
    for slot_history in fleet.play.folded_history().slots.values():
        attempt = slot_history.attempt
        if attempt is None or attempt.started_at is None or attempt.ended_at is not None:
            continue
        bid = slot_history.bids.get(attempt.bid)
        if bid is not None and bid.lost_at is None:  # its replacement was requested long ago
            yield attempt.bid


def measure_memory(fleet: Fleet) -> dict[str, Any]:
    """What the engine holds, without the world and the agents, and what the process takes."""
    begun = time.process_time()
    gc.collect()
    collect_s, engine = time.process_time() - begun, fleet.play.engine
    total, kinds = measure_objects([engine], belongs_to_others)
    return {
        "collect_s": collect_s,
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


#: The rows of the figures page: a title, a unit, and a key of what was measured.
FIGURES = (
    ("engine against nodes: share of a core", "%", "core_percent"),
    ("engine against nodes: processor time per hour", "s", "cpu_s_an_hour"),
    ("engine against nodes: memory of the engine's objects", "MiB", "engine_mib"),
    ("engine against nodes: reads of the cloud per minute", "1/min", "reads_a_minute"),
    ("engine against nodes: writes to the cloud per minute", "1/min", "writes_a_minute"),
    (
        "engine against nodes: transactions per minute",
        "1/min",
        "transactions_a_minute",
    ),
    ("engine against nodes: notice of a loss to the request, p50", "s", "reaction_p50_s"),
    ("engine against nodes: notice of a loss to the request, p99", "s", "reaction_p99_s"),
    ("engine against nodes: collecting garbage, each 15 min", "s", "collect_s"),
)


def figure_rows(found: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    return [
        {"figure": title, "unit": unit, "at": one["nodes"], "ours": [one[key]],
         "note": f"{one['nodes']} nodes, four hosts each"}
        for title, unit, key in FIGURES for one in found
    ]  # fmt: skip


#: What is held while two nodes are lost every two hours: a title, a unit, a key, its scale, a note.
HELD = (
    ("memory of the engine's objects", "kB", "engine_bytes", 1e3, "two slots"),
    ("memory of the world's objects", "kB", "world_bytes", 1e3, "its log keeps 20,000 lines"),
    ("events that are not packed", "events", "unpacked", 1, ""),
)


def storm_rows(found: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    return [
        {"figure": f"{what}, after {one['day']:.0f} days", "unit": unit,
         "ours": [one[key] / scale], "note": note}
        for what, unit, key, scale, note in HELD for one in found
    ]  # fmt: skip


def measure_sizes(nodes: Iterable[int], jobs: int) -> list[dict[str, Any]]:
    """Measure each number of nodes in a process of its own."""
    found = []
    for many in nodes:
        words = [sys.executable, __file__, "--one", str(many), "--jobs", str(jobs)]
        one = json.loads(subprocess.run(words, check=True, stdout=subprocess.PIPE).stdout)
        one["cpu_s_an_hour"] = one["core_percent"] * 36.0
        found.append(one)
        print_one(one)
    return found


def print_one(one: Mapping[str, Any]) -> None:
    shown = (f"{title.partition(': ')[2]} {one[key]:.3g} {unit}" for title, unit, key in FIGURES)
    print(f"{one['nodes']} nodes: {'; '.join(shown)}")
    print(
        f"    {one['rounds_a_second']:.2f} rounds a second of {one['round_ms']:.1f} ms,"
        f" {one['events_a_minute']:.0f} events a minute, {one['process_mib']:.0f} MiB with world"
        f" and agents; measured in {one['whole_s']:.0f} s",
        flush=True,
    )


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--nodes", default="100,300,1000,3000,5000", help='"" for none')
    parser.add_argument("--jobs", type=int, default=200)
    parser.add_argument("--days", type=float, default=0.0, help="of preemptions, for two slots")
    parser.add_argument("--json", type=Path)
    parser.add_argument("--one", type=int, help=argparse.SUPPRESS)
    said = parser.parse_args()
    if said.one:
        print(json.dumps(measure_one(said.one, said.jobs)))
        sys.stdout.flush()
        return 0
    rows = figure_rows(measure_sizes(map(int, filter(None, said.nodes.split(","))), said.jobs))
    if said.days:
        rows += storm_rows(run_storm(2, said.days, said.days / 10, print_held))
    if said.json:
        write_figures(said.json, "Size", rows)
    return 0


def print_held(held: Mapping[str, Any]) -> None:
    kept = ("engine_bytes", "world_bytes", "events", "unpacked", "history_bytes")
    print(f"day {held['day']:.1f}: {', '.join(f'{key} {held[key]:,}' for key in kept)}", flush=True)


if __name__ == "__main__":
    sys.exit(main())
