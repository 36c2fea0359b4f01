"""A small fleet through weeks of preemptions in virtual time, and what is held in memory and store.

Heartbeats come every ten minutes, looks at the cloud every minute: their number changes nothing of
how much is held.
"""

import asyncio
import gc
import sqlite3
from collections.abc import Callable
from contextlib import ExitStack, closing
from pathlib import Path
from typing import Any
from unittest.mock import patch

from bench.rigs import light_agents
from bench.rigs.deep_size import measure_objects
from bench.rigs.large_fleet import NearHosts
from bench.rigs.light_agents import LightMachine

from tests.simulated import engine_harness, engine_world
from tests.simulated.engine_harness import EngineHarness, perform
from tests.simulated.engine_jobs import SimJob
from tpuherd.engine import informer, loop
from tpuherd_sim.model.world_codec import dump_world

DAY_S = 86_400.0
NODE_LIFE_S = 2 * 3600.0
OTHERS = ("tests.", "tpuherd_host.", "bench.")
Held = dict[str, Any]


def run_storm(
    slots: int, days: float, every_days: float, note: Callable[[Held], None] = lambda held: None
) -> list[Held]:
    """Preempt each node every two hours, and return what is held each so many days."""

    async def plot(play: EngineHarness) -> list[Held]:
        play.sim.watchers.clear()  # they look at processes, which light hosts do not have
        play.submit(SimJob(copies=slots, type="v5p-8", setup=False))
        play.sim.calm()
        found = []
        storm = asyncio.create_task(strike(play, slots))
        for number in range(1, round(days / every_days) + 1):
            await asyncio.sleep(max(0.0, number * every_days * DAY_S - play.sim.now()))
            assert await play.until(lambda: is_whole(play, slots), DAY_S)
            found.append(measure_held(play))
            note(found[-1])
        storm.cancel()
        assert play.troubles == [], play.troubles[:3]
        return found

    with ExitStack() as stack:
        stack.enter_context(patch.object(engine_harness, "Hosts", NearHosts))
        stack.enter_context(patch.object(engine_world, "Machine", LightMachine))
        stack.enter_context(patch.object(light_agents, "BEAT_S", 600.0))
        stack.enter_context(patch.object(informer, "PERIOD_S_MIN", 60.0))
        stack.enter_context(patch.object(loop, "POLL_S", 20.0))
        held: list[Held] = perform(plot)
    return held


def is_whole(play: EngineHarness, slots: int) -> bool:
    """Whether every slot trains on a node of its own, and no other node is left."""
    history = play.folded_history()
    attempts = [one.attempt for one in history.slots.values()]
    run = [one for one in attempts if one is not None and one.started_at and one.ended_at is None]
    return len(run) == slots and [*play.sim.nodes().values()] == ["READY"] * slots


async def strike(play: EngineHarness, slots: int) -> None:
    """Preempt one node after another, some of them with notice."""
    number = 0
    while True:
        await asyncio.sleep(NODE_LIFE_S / slots)
        nodes = sorted(name for name, state in play.sim.nodes().items() if state == "READY")
        if nodes:
            number += 1
            said = {} if number % 2 else {"notice_s": 0, "flag": False, "acpi": False}
            play.sim.weather("preempt", target=nodes[number * 7919 % len(nodes)], **said)
        play.sim.asked.clear()
        play.sim.fleet.gangs.clear()


def measure_held(play: EngineHarness) -> Held:
    gc.collect()
    mine = (*OTHERS, "tpuherd_sim.")
    engine, kinds = measure_objects([play.engine], lambda one: starts_with(one, mine))
    world, world_kinds = measure_objects([play.sim.world], lambda one: starts_with(one, OTHERS))
    seq = max((seq for seq, _ in play.store.read_events(limit=1, newest=True)), default=0)
    with closing(sqlite3.connect(play.folder / "store.db")) as connection:
        unpacked = connection.execute("SELECT count(*) FROM events").fetchone()[0]
    return {
        "unpacked": unpacked,
        "day": play.sim.now() / DAY_S,
        "engine_bytes": engine,
        "world_bytes": world,
        "store_bytes": folder_bytes(play.folder),
        "events": seq,
        "world_log": len(play.sim.world.log),
        "operations": len(play.sim.world.operations),
        "history_bytes": len((play.store.load_history() or (0, b""))[1]),
        "world_json": len(str(dump_world(play.sim.world))),
        "kinds": kinds,
        "world_kinds": world_kinds,
    }


def starts_with(one: Any, names: tuple[str, ...]) -> bool:
    return type(one).__module__.startswith(names)


def folder_bytes(folder: Path) -> int:
    return sum(file.stat().st_size for file in folder.rglob("*") if file.is_file())
