"""One program written for TPU Care, on TPU Care as published and on herd: what a preemption costs.

    .venv/bin/python bench/launchers.py [--rounds 2] [--json FILE]

Its `start_fn` runs a command on the node. Measured are the seconds from the program's start until
that has run, and from each preemption, with notice, until it has run on the next node. Both wait
for the same simulated cloud; TPU Care uses the real gcloud. The world runs six times as fast as
reality, no faster: TPU Care looks at a list of nodes that is up to ten seconds old, and a creation
that is faster drives it in circles. Needs gcloud and .venv-clients/tpucare: make_venv.sh tpucare.
"""

import argparse
import shutil
import sys
from pathlib import Path
from time import perf_counter

sys.path.insert(0, str(Path(__file__).parents[1]))
from bench.rigs.figures import find_version, pair_row, write_figures

from tests.conformance.world import CLIENTS, started
from tests.integration.engines import Owner
from tests.integration.test_clients_old_tools import program, said

TIME_SCALE = "6"
TOOLS = ("herd", "tpucare")


def measure(owner: Owner, tool: str, rounds: int) -> tuple[float, list[float]]:
    """Return the seconds of the first start, and of each recovery."""
    out = owner.home / f"out-{tool}"
    out.touch()
    begun, recoveries = perf_counter(), []
    with program(owner, tool, out):
        said(out, "started", 1)
        first = perf_counter() - begun
        print(f"{tool}: first start after {first:.1f} s", flush=True)
        for number in range(1, rounds + 1):
            begun = perf_counter()
            owner.world.herd("preempt", "pod*")
            said(out, "started", number + 1)
            recoveries.append(perf_counter() - begun)
            print(f"{tool}: preempted; started again after {recoveries[-1]:.1f} s", flush=True)
    owner.herd("down", "--all", "--yes", seconds=120)
    owner.world.clear()
    return first, recoveries


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--json", type=Path)
    asked = parser.parse_args()
    if not (shutil.which("gcloud") and (CLIENTS / "tpucare/bin/python").exists()):
        print("launchers: needs gcloud, and make_venv.sh tpucare")
        return 1
    with started("--time-scale", TIME_SCALE) as world:
        owner = Owner(world.home, world)
        times = {tool: measure(owner, tool, asked.rounds) for tool in TOOLS}
        owner.leave_all()
    (first, again), (their_first, their_again) = (times[tool] for tool in TOOLS)
    rows = [
        pair_row("start of the program to its first start_fn", "s", [first], "tpucare",
                 [their_first]),
        pair_row("preemption to start_fn on the next node", "s", again, "tpucare", their_again),
    ]  # fmt: skip
    note = f"with the time of the cloud, {TIME_SCALE} × as fast as reality"
    if asked.json:
        versions = {"tpucare": "0.5.0", "gcloud": find_version("gcloud", "--version")}
        write_figures(
            asked.json, "A program of TPU Care's", [{**row, "note": note} for row in rows], versions
        )
    return 0


if __name__ == "__main__":
    sys.exit(main())
