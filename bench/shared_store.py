"""A lab on one PostgreSQL: how soon the engine reacts, and how soon another one takes over.

    .venv/bin/python bench/shared_store.py [--parts reaction,failover] [--rounds 3] [--json FILE]

reaction    20 users with 10 jobs each: from a preemption, and from a submitted job, to the engine's
            request in the cloud, with the store in PostgreSQL and in SQLite by turns
failover    engines of two accounts stand by on a real PostgreSQL and a world: from kill -9 of the
            leader, seven times a round
"""

import argparse
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))
from bench.rigs.figures import write_figures
from bench.rigs.lab_failover import measure_failover
from bench.rigs.lab_reactions import measure_reactions


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--parts", default="reaction,failover")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--json", type=Path)
    said = parser.parse_args()
    parts: dict[str, Callable[[], list[dict[str, Any]]]] = {
        "reaction": lambda: measure_reactions(said.rounds),
        "failover": lambda: measure_failover(7 * said.rounds),
    }
    rows = [row for name in said.parts.split(",") for row in parts[name]()]
    if said.json:
        write_figures(said.json, "A lab", rows)
    return 0


if __name__ == "__main__":
    sys.exit(main())
