"""One engine through virtual months of storms: `python -m tests.simulated.engine_months --help`.

Thirty slots: a training without end, jobs that come every day and end, and nodes that are held.
Capacity changes as was measured, thirty kinds of weather strike, engines are killed, the user's
clock is set, hosts lose what they stored. What must hold is judged every day, and at the end.
Agents report, and the engine looks at the cloud, every few minutes: their number changes no law.
"""

import argparse
import sys
from collections import Counter
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass, replace
from functools import partial
from resource import RUSAGE_SELF, getrusage
from time import process_time
from unittest.mock import patch

from tests.simulated import engine_harness
from tests.simulated.engine_harness import EngineHarness, perform
from tests.simulated.engine_jobs import SimJob
from tests.simulated.engine_programs import Crash, Script
from tests.simulated.engine_storms import PLOTS_S, stroke
from tests.simulated.engine_world import ZONES
from tpuherd.engine import host_watcher, informer, loop
from tpuherd.model.slots_and_plan import Goal
from tpuherd_host.agent.state_machine import reducer
from tpuherd_sim.model.world_parts import Dice
from tpuherd_sim.weather.storm import storm_steps

TYPE = "v5p-8"  #: one host
STEP_S = 900.0
LIMITS = {"stall_s": 3600.0, "first_step_s": 3600.0, "stalls": None}
STRENGTH = 1.0
PERIOD_S = 300.0  #: between reports of agents, and between looks at the cloud
HISTORY_MAX = 2 << 20
GROWN_MAX_MB = 600


@dataclass(frozen=True, kw_only=True, slots=True)
class Calendar:
    """How much happens; thirty slots, as two days' jobs are there at once."""

    day_s: float = 86_400.0
    endless: int = 12  #: copies
    held: int = 4
    daily: int = 7

    @property
    def scripts(self) -> dict[str, Script]:
        """A daily job needs six tenths of a day."""
        long = Script(steps=1_000_000, step_s=STEP_S, save_s=20.0, save_every=1)
        steps = round(0.6 * self.day_s / STEP_S)
        return {"gpt": long, "*": replace(long, steps=steps, crashes={2: Crash(step=2)})}


MONTH = Calendar()


def live_through(
    seed: int, days: int, calendar: Calendar = MONTH, say: Callable[[str], None] | None = None
) -> list[str]:
    """What was wrong in so many days."""

    async def plot(play: EngineHarness) -> list[str]:
        dice = Dice(seed=seed)
        play.watch.spare_s = 3 * 3600.0  # zones that don't answer for long can't be cleared
        play.look_s = PERIOD_S
        play.submit(SimJob(job="gpt", copies=calendar.endless, type=TYPE, limits=LIMITS))
        play.submit(SimJob(job="held", copies=calendar.held, type=TYPE, goal=Goal.IDLE))
        found: list[str] = []
        mb_before = peak_mb()  # of the tests that this process ran before
        for day in range(days):
            play.submit(SimJob(job=f"d{day}", copies=calendar.daily, type=TYPE, limits=LIMITS))
            await live_a_day(play, dice, seed * 1000 + day, calendar.day_s)
            found += judge_day(play, day, peak_mb() - mb_before)
            if say is not None:
                say(describe_day(play, day))
        play.submit(SimJob(job="gpt", copies=calendar.endless, type=TYPE, goal=Goal.IDLE))
        return [*found, *await play.close(4 * calendar.day_s)]

    with ExitStack() as stack:
        stack.enter_context(patch.object(reducer, "BEAT_S", PERIOD_S))
        stack.enter_context(patch.object(informer, "PERIOD_S_MIN", 60.0))
        stack.enter_context(patch.object(host_watcher, "PROBE_S", 3 * PERIOD_S))
        stack.enter_context(patch.object(loop, "POLL_S", 20.0))
        stack.enter_context(patch.object(engine_harness, "LOOK_S", 60.0))
        result: list[str] = perform(plot, seed=seed, scripts=calendar.scripts)
    return result


async def live_a_day(play: EngineHarness, dice: Dice, seed: int, day_s: float) -> None:
    """Weather from a seed, and an accident every half an hour or so."""
    begun = play.sim.now()
    steps = storm_steps(seed, ZONES, day_s / 3600.0, STRENGTH, nodes=20)
    play.sim.scenario([{**step, "at_s": step["at_s"] + begun} for step in steps])
    while (left := begun + day_s - play.sim.now()) > 0:
        await play.advance(min(left, 5 * dice.random_between(*PLOTS_S)))
        await stroke(play, dice, {})


def judge_day(play: EngineHarness, day: int, grown_mb: int) -> list[str]:
    """What was wrong on this day; a job of two days ago is done, and its user drops it."""
    found = [f"day {day}: {said}" for said in (*play.watch.faults, *play.troubles)]
    play.watch.faults.clear()
    play.troubles.clear()
    old = f"d{day - 2}"
    if old in play.said:
        late = [slot for slot in play.watch.slots if slot.startswith(f"{old}-")
                and slot not in play.sim.fleet.bucket.finished]  # fmt: skip
        found += [f"day {day}: {slot} has not come to its end" for slot in late]
        play.down(old)
    history = len((play.store.load_history() or (0, b""))[1])
    if history > HISTORY_MAX:
        found.append(f"day {day}: the history has {history} bytes")
    if grown_mb > GROWN_MAX_MB:
        found.append(f"day {day}: this process grew by {grown_mb} MB")
    play.sim.asked.clear()
    return found


def describe_day(play: EngineHarness, day: int) -> str:
    kinds = Counter(event.kind for event in play.events("attempt.ended", "engine.started"))
    history = len((play.store.load_history() or (0, b""))[1])
    return (f"day {day}: {kinds['attempt.ended']} attempts ended, {kinds['engine.started']}"
            f" engines, history {history >> 10} KB, peak {peak_mb()} MB,"
            f" {process_time():.0f} s of a processor")  # fmt: skip


def peak_mb() -> int:
    return getrusage(RUSAGE_SELF).ru_maxrss >> 10


def main() -> int:
    parser = argparse.ArgumentParser(prog="engine_months", description=__doc__)
    parser.add_argument("--days", type=int, default=31)
    parser.add_argument("--seed", type=int, default=1)
    chosen = parser.parse_args()
    found = live_through(chosen.seed, chosen.days, say=partial(print, flush=True))
    print("\n".join(found) or "nothing was wrong")
    return bool(found)


if __name__ == "__main__":
    sys.exit(main())
