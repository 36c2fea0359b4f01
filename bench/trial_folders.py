"""What a trial's folder costs compared with a copy of the folder by `cp -r`.

The folder has code and what a setup made: Python's own sources, twice. The agent's methods run in
this process, on this machine's file system (TMPDIR). Each round has a new folder: the copy of what
the setup made, once a node; then folders for trials after one that left all as it was, that changed
a file in a hundred, and that changed all. `cp -r` copies the whole folder in the same rounds.
"""

import argparse
import asyncio
import os
import shutil
import subprocess
import sys
import tempfile
from collections import defaultdict
from collections.abc import Callable
from functools import partial
from pathlib import Path
from time import perf_counter

sys.path.insert(0, str(Path(__file__).parents[1]))

from bench.rigs.figures import find_version, pair_row, write_figures

from tests.simulated.sync_hosts import NearHost, ShipRig, herd
from tpuherd.ports import RpcRequest

CODE = 800
#: What the last trial wrote: every nth file of the setup's; 0: nothing.
WRITES = {"trial after one that wrote nothing": 0, "after one that changed 1 %": 100,
          "after one that changed all": 1}  # fmt: skip


def main() -> None:
    """Measure in rounds, and print or write the figures."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--json", type=Path)
    asked = parser.parse_args()
    ours: dict[str, list[float]] = defaultdict(list)
    theirs: list[float] = []
    for _ in range(asked.rounds):
        with tempfile.TemporaryDirectory() as place:
            theirs.append(run_round(Path(place), ours))
    rows = [pair_row(figure, "s", took, "cp -r", theirs) for figure, took in ours.items()]
    for row in rows:
        print(row["figure"], row["ours"], row["theirs"])
    if asked.json:
        write_figures(asked.json, "A trial's folder", rows, {"cp": find_version("cp", "--version")})


def run_round(place: Path, ours: dict[str, list[float]]) -> float:
    """Measure each figure once; return how long `cp -r` takes."""
    rig, (host,) = ShipRig(place), herd(place, 1)
    library = [file for file in Path(os.__file__).parent.rglob("*.py") if is_source(file)]
    fill(rig.code, library[:CODE])
    rig.ship([host])
    folder = host.home / "c"
    fill(folder / "venv", library)
    made = sorted((folder / "venv").iterdir())
    os.sync()
    took = measure(lambda: subprocess.run(["cp", "-r", folder, place / "copy"], check=True))
    shutil.rmtree(place / "copy")
    ours["the copy of what the setup made"].append(measure(lambda: call(host, "trial.keep")))
    call(host, "trial.begin", trial="t0")
    for number, (figure, every) in enumerate(WRITES.items(), 1):
        for file in made[::every] if every else ():
            file.write_text("changed")
        ours[figure].append(measure(partial(call, host, "trial.begin", trial=f"t{number}")))
    return took


def is_source(file: Path) -> bool:
    return "site-packages" not in file.parts


def fill(folder: Path, files: list[Path]) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for number, file in enumerate(files):
        shutil.copyfile(file, folder / f"m{number}.py")


def call(host: NearHost, verb: str, **arguments: str) -> None:
    asked = {"dest": "c", "slot": "lr-0", **arguments}
    asyncio.run(host.call(RpcRequest(name=verb, arguments=asked)))


def measure(work: Callable[[], object]) -> float:
    begun = perf_counter()
    work()
    return perf_counter() - begun


if __name__ == "__main__":
    main()
