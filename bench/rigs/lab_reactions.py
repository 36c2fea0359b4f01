"""A lab of 20 users with 10 jobs each: how soon one engine reacts on PostgreSQL and on SQLite.

The engine, the world and the agents' ends are those of large_fleet.py, in virtual time, which a
round of the engine advances by as long as it takes here, its waits for the database included. Both
stores spare the disk: SQLite is in memory, PostgreSQL on this machine does not wait for its disk.
The two take turns, each time with a process of its own.
"""

import asyncio
import json
import statistics
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from bench.rigs.figures import pair_row
from bench.rigs.large_fleet import Fleet, FleetKind, run_fleet
from bench.rigs.used_time import SampledTime

from tests.conformance.postgres import started_postgres
from tests.simulated.engine_jobs import SimJob
from tests.simulated.engine_world import ZONES
from tpuherd.model.lab_shares import LabShares, SharedQuota
from tpuherd.model.slots_and_plan import HistoryEvent
from tpuherd.settings.store_address import parse_store_url
from tpuherd.store.connection import Driver
from tpuherd.store.postgres import PostgresServer

USERS, JOBS = 20, 200
TYPE, CHIPS = "v5p-8", 4  #: one host
WINDOW_S = 60.0
LOSSES, BETWEEN_S = 60, 4.3  #: no multiple of a poll
SUBMITTED, REACTED_S = 30, 30.0
#: What is measured: a title, its unit, and its key.
FIGURES = (
    ("lab: preemption to the request for a replacement, p50", "s", "lost_p50_s"),
    ("lab: preemption to the request for a replacement, p99", "s", "lost_p99_s"),
    ("lab: submitted job to its request, p50", "s", "submitted_p50_s"),
    ("lab: submitted job to its request, p99", "s", "submitted_p99_s"),
    ("lab: a round of the engine", "ms", "round_ms"),
    ("lab: the engine's share of a core", "%", "core_percent"),
)
SERVER = "PostgreSQL on this machine by a Unix socket; 20 users, 200 jobs of one node"


def measure_reactions(rounds: int) -> list[dict[str, Any]]:
    """The rows: ours on PostgreSQL, theirs on SQLite, in turns."""
    found: dict[str, list[Mapping[str, float]]] = {"PostgreSQL": [], "SQLite": []}
    with started_postgres() as server:
        for number in range(rounds):
            server.create_database(f"lab{number}")
            for title, url in (("SQLite", ""), ("PostgreSQL", server.url(f"lab{number}"))):
                words = [sys.executable, "-m", "bench.rigs.lab_reactions", url]
                done = subprocess.run(
                    words, check=True, stdout=subprocess.PIPE, cwd=Path(__file__).parents[2]
                )
                found[title].append(one := json.loads(done.stdout))
                shown = ", ".join(f"{key} {value:.3g}" for key, value in one.items())
                print(f"{title}: {shown}", flush=True)
    return [
        {**pair_row(figure, unit, take(found["PostgreSQL"], key),
                    "the same engine on SQLite", take(found["SQLite"], key)), "note": SERVER}
        for figure, unit, key in FIGURES
    ]  # fmt: skip


def take(rounds: Sequence[Mapping[str, float]], key: str) -> list[float]:
    return [one[key] for one in rounds]


def measure_store(url: str) -> dict[str, float]:
    """One round on the store at this URL; "": a file."""

    def connect() -> Driver:
        return PostgresServer(parse_store_url(url, {}, origin="the URL"), "lab")

    quotas = (SharedQuota(zone=zone, type="v5p", tier="spot", chips=2 * JOBS * CHIPS)
              for zone in ZONES)  # fmt: skip
    kind = FleetKind(
        type=TYPE,
        users=USERS,
        shares=LabShares(quotas=tuple(quotas)),
        driver=connect if url else None,
        clock=time.perf_counter,
    )
    found: dict[str, float] = run_fleet(JOBS, JOBS, measure_fleet, kind)
    return found


async def measure_fleet(fleet: Fleet, used: SampledTime) -> dict[str, float]:
    sim, rounds = fleet.play.sim, len(fleet.rounds)
    fleet.creates_per_min = 10_000  # what is measured is the engine, not its budget
    begun, begun_at = time.process_time(), sim.now()
    with used.counting():
        lost = await lose_nodes(fleet, LOSSES)
    engine_s = (time.process_time() - begun) * used.share("engine")
    submitted = await submit_jobs(fleet, SUBMITTED)
    return {
        "lost_p50_s": statistics.median(lost),
        "lost_p99_s": statistics.quantiles(lost, n=100)[98],
        "submitted_p50_s": statistics.median(submitted),
        "submitted_p99_s": statistics.quantiles(submitted, n=100)[98],
        "round_ms": 1000.0 * statistics.fmean(fleet.rounds[rounds:]),
        "core_percent": 100.0 * engine_s / (sim.now() - begun_at),
    }


async def lose_nodes(fleet: Fleet, many: int) -> list[float]:
    """Preempt nodes with notice; the seconds until each replacement was requested."""
    sim, marks = fleet.play.sim, list[tuple[str, float]]()
    nodes = [name for name, state in sorted(sim.nodes().items()) if state == "READY"]
    for node in nodes[:: len(nodes) // many][:many]:
        marks.append((node.rpartition("-g")[0], sim.clock.now()))
        sim.weather("preempt", target=node)
        await asyncio.sleep(BETWEEN_S)
    await asyncio.sleep(REACTED_S)
    return [first_request(fleet, slot, at) for slot, at in marks]


async def submit_jobs(fleet: Fleet, many: int) -> list[float]:
    """Submit jobs one after another; the seconds until the node of each was requested."""
    play, marks = fleet.play, list[tuple[str, float]]()
    for number in range(many):
        now = play.clock.now()
        one = SimJob(job=f"late{number}", type=TYPE, setup=False, user=f"user{number % USERS}")
        event = HistoryEvent(at=now, kind="job.submitted", job=one.job, facts={"who": "me"})
        play.store.put_job(one.to_stored_job(now), [event])
        marks.append((f"{one.job}-0", now))
        await asyncio.sleep(BETWEEN_S)
    await asyncio.sleep(REACTED_S)
    return [first_request(fleet, slot, at) for slot, at in marks]


def first_request(fleet: Fleet, slot: str, since: float) -> float:
    later = [at for at in fleet.asked_at.get(slot, ()) if at > since]
    assert later, f"{slot} was not requested"
    return min(later) - since


if __name__ == "__main__":
    print(json.dumps(measure_store(sys.argv[1])))
