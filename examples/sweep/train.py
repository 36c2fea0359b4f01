"""Fits a curve with a small network in plain Python, as a target for `herd sweep`."""

import argparse
import json
import math
import os
import random

from tpuherd_host.report import report
from tpuherd_host.train.storage import Place, place

POINTS = [(x / 10, math.sin(0.3 * x)) for x in range(-20, 21)]
FILE, TOLD, SAVED = "state.json", 250, 1000

Weights = list[list[float]]  #: of each unit: slope, position and weight


def main() -> None:
    """Run one trial, from its start or from where its last node stopped."""
    asked = arguments()
    own = os.environ.get("HERD_CHECKPOINT")  # in a sweep, the trial's own folder
    where = place(own) if own else None
    start, weights, speed = resumed(where) or begun(asked.width)
    print(f"begins at step {start}", flush=True)
    loss = math.inf
    for step in range(start + 1, asked.steps + 1):
        loss, slope = judged(weights)
        for unit, moving, down in zip(weights, speed, slope, strict=True):
            for at in range(3):
                moving[at] = asked.momentum * moving[at] - asked.lr * down[at]
                unit[at] += moving[at]
        if step % TOLD == 0:
            report(step=step, loss=loss)
        if where is not None and step % SAVED == 0:
            where.write(FILE, [json.dumps([step, weights, speed]).encode()])
    print(f"finished: loss {loss:.6g}", flush=True)
    report(step=asked.steps, loss=loss)
    report(complete=True)


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--lr", type=float, default=0.1)
    parser.add_argument("--width", type=int, default=8)
    parser.add_argument("--momentum", type=float, default=0.0)
    parser.add_argument("--steps", type=int, default=30_000)
    return parser.parse_args()


def begun(width: int) -> tuple[int, Weights, Weights]:
    """Return the initial weights: the same for all trials of a width."""
    chance = random.Random(7)
    weights = [[chance.gauss(0, 1) for _ in range(3)] for _ in range(width)]
    return 0, weights, [[0.0] * 3 for _ in weights]


def resumed(where: Place | None) -> tuple[int, Weights, Weights] | None:
    """Return what an earlier attempt of this trial saved."""
    try:
        return tuple(json.loads(where.read(FILE))) if where is not None else None
    except FileNotFoundError:
        return None


def judged(weights: Weights) -> tuple[float, Weights]:
    """Return the mean squared error and its gradient."""
    loss, slope = 0.0, [[0.0] * 3 for _ in weights]
    for x, wanted in POINTS:
        bent = [math.tanh(steep * x + shift) for steep, shift, _ in weights]
        missed = sum(unit[2] * it for unit, it in zip(weights, bent, strict=True)) - wanted
        loss += missed * missed / len(POINTS)
        for unit, it, down in zip(weights, bent, slope, strict=True):
            back = 2 * missed / len(POINTS)
            inner = back * unit[2] * (1 - it * it)
            down[0] += inner * x
            down[1] += inner
            down[2] += back * it
    return loss, slope


if __name__ == "__main__":
    main()
