"""How long planning a large fleet takes: `.venv/bin/python bench/plan.py [--json FILE]`."""

import argparse
import sys
import time
from dataclasses import replace
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))
from bench.rigs.figures import own_row, write_figures

from tests.unit.toy_cloud import Toy, slot
from tpuherd.model.slots_and_plan import Limits
from tpuherd.planner.plan import plan

SLOTS, ROUNDS = 1000, 40


def measure(toy: Toy, what: str, rows: list[dict[str, object]]) -> None:
    """Note the milliseconds of several rounds, and print the fastest."""
    observed, history, desired, now = toy.observed(), toy.history, toy.desired, toy.now
    took = []
    for _ in range(ROUNDS):
        begun = time.process_time()
        plan(desired, observed, history, now)
        took.append(1000 * (time.process_time() - begun))
    print(f"{what:<45} {min(took):6.1f} ms")
    rows.append({**own_row(f"planning {what}", "ms", took), "note": "processor time"})


def main() -> None:
    """Plan slots that run, that wait in three zones, and that have no request yet."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", type=Path)
    asked, rows = parser.parse_args(), list[dict[str, object]]()
    slots = [slot(f"gpt-{number}", limits=Limits(lifetime_s=1e6)) for number in range(SLOTS)]
    toy = Toy(*slots)
    toy.desired = replace(toy.desired, creates_per_min=10**6)
    measure(toy, f"{SLOTS} slots, nothing requested yet", rows)
    toy.grants = lambda zone: 1e9
    toy.tick()
    toy.tick()
    measure(toy, f"{SLOTS} slots, queued in three zones", rows)
    toy.lasts = 1e9
    toy.grants = lambda zone: 20.0
    for _ in range(24):
        toy.tick()
    running = sum(slot_history.attempt is not None for slot_history in toy.history.slots.values())
    measure(toy, f"{running} slots that run, 2 hosts each", rows)
    if asked.json:
        write_figures(asked.json, "The planner", rows)


if __name__ == "__main__":
    main()
