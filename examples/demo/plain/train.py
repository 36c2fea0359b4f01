"""Stands in for a training if JAX cannot be installed: fits a line in plain Python."""

import argparse
import json
import os
import random
import time
from contextlib import suppress

from tpuherd_host import train
from tpuherd_host.train.storage import Place, place

FILE = "line.json"
POINTS, RATE, SAVE_EVERY = 60_000, 0.01, 20


def main() -> None:
    """Train on the first host; the others wait for it, as they would in a collective."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=200)
    steps: int = parser.parse_args().steps
    where = place(os.environ["HERD_CHECKPOINT"])
    if os.environ.get("HERD_WORKER", "0") != "0":
        wait(where, steps)
        return
    run = train.Run()
    slope, shift = resumed(run, where)
    loss = 0.0
    for step in run.steps(steps):
        slope, shift, loss = better(slope, shift, step)
        if run.stopping or (step + 1) % SAVE_EVERY == 0:
            saved = {"step": step + 1, "line": [slope, shift]}
            where.write(FILE, [json.dumps(saved).encode()])
            run.saved(step + 1)
        if (step + 1) % 25 == 0:
            print(f"step {step + 1:4}  loss {loss:.3f}", flush=True)
    print(f"finished: {steps} steps, loss {loss:.3f}", flush=True)


def wait(where: Place, steps: int) -> None:
    """Wait until the first host has saved the last step."""
    done = 0
    while done < steps:
        time.sleep(1)
        with suppress(FileNotFoundError):
            done = json.loads(where.read(FILE))["step"]


def resumed(run: train.Run, where: Place) -> tuple[float, float]:
    """Return the line of the newest checkpoint."""
    try:
        saved = json.loads(where.read(FILE))
    except FileNotFoundError:
        return 0.0, 0.0
    run.start = saved["step"]
    print(f"herd: resumed at step {run.start}", flush=True)
    slope, shift = saved["line"]
    return slope, shift


def better(slope: float, shift: float, step: int) -> tuple[float, float, float]:
    """Do one gradient step on new points of 3x - 2."""
    chance = random.Random(step)
    off_slope = off_shift = loss = 0.0
    for _ in range(POINTS):
        x = chance.uniform(-1, 1)
        off = slope * x + shift - (3 * x - 2)
        off_slope += off * x
        off_shift += off
        loss += off * off
    return (
        slope - RATE * 6 * off_slope / POINTS,
        shift - RATE * 2 * off_shift / POINTS,
        loss / POINTS,
    )


if __name__ == "__main__":
    main()
