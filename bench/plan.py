"""How long planning a large fleet takes: `.venv/bin/python bench/plan.py`."""

import sys
import time
from dataclasses import replace
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

from tests.unit.toy_cloud import Toy, slot
from tpuherd.model.slots_and_plan import Limits
from tpuherd.planner.plan import plan

SLOTS, ROUNDS = 1000, 40


def best(toy: Toy) -> float:
    """Return the milliseconds of the fastest of several rounds."""
    observed, history, desired, now = toy.observed(), toy.history, toy.desired, toy.now
    took = []
    for _ in range(ROUNDS):
        begun = time.process_time()
        plan(desired, observed, history, now)
        took.append(time.process_time() - begun)
    return min(took) * 1000


def main() -> None:
    """Plan slots that run, that wait in three zones, and that have no request yet."""
    slots = [slot(f"gpt-{number}", limits=Limits(lifetime_s=1e6)) for number in range(SLOTS)]
    toy = Toy(*slots)
    toy.desired = replace(toy.desired, creates_per_min=10**6)
    print(f"{SLOTS} slots, nothing asked for yet    {best(toy):6.1f} ms")
    toy.grants = lambda zone: 1e9
    toy.tick()
    toy.tick()
    print(f"{SLOTS} slots, waiting in three zones   {best(toy):6.1f} ms")
    toy.lasts = 1e9
    toy.grants = lambda zone: 20.0
    for _ in range(24):
        toy.tick()
    running = sum(slot_history.attempt is not None for slot_history in toy.history.slots.values())
    print(f"{running} slots, running, 2 hosts each      {best(toy):6.1f} ms")


if __name__ == "__main__":
    main()
