"""What a preemption costs beyond the cloud's time and the script's own start.

    .venv/bin/python bench/recovery.py [--modes off,on,…] [--rounds 3] [--json FILE]

examples/charlm on a v5litepod-16 (four hosts) of a world with its engine and real JAX on CPUs is
preempted without notice, in each round once with each part of `head_start` alone, with none and
with all: the modes take turns, so that other work on the machine meets all alike. Of each recovery:

after READY  from READY on all hosts, by the world's own log, to the first new step, less the
             median of undisturbed starts of the same script on the same hosts, with everything
             that it compiles cached (`herd stop`, `herd resume`)
ours         from the loss to the first new step, less the time from the request to READY, which
             is the cloud's, and less the undisturbed start

`--modes flag,no-flag` preempts with a notice of 30 s, from which it counts: the host's metadata say
`preempted`, or nothing does, and the hosts are only shut down.

All hosts share this machine's cores, with the world and the engine; so one zone is asked, as a
second node that comes up and is given back would take half of them. Needs the environment inside of
tests/integration/clients/make_venv.sh.
"""

import argparse
import json
import os
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))
from bench.rigs.figures import write_figures

from tests.conformance.world import until
from tests.integration.engines import Owner, owner

ROOT = Path(__file__).parents[1]
INSIDE = (ROOT / ".venv-clients" / "inside").resolve()  #: hosts do not see links of this machine
STEPS, EVERY = 400, 100  #: of the job, and between two preemptions
GIVE_UP_S = 300.0
TIME_SCALE = "12"  #: a pod is READY after 8 to 25 s: later than its hosts answer, as in reality
PARTS = ("detect", "ask", "cloud", "notice READY", "set up", "launch", "start")
MODES: Mapping[str, Sequence[str]] = {
    "off": (), "on": ("boot", "checkpoint"), "boot": ("boot",), "checkpoint": ("checkpoint",),
}  # fmt: skip

NOTICES: Mapping[str, str] = {"flag": "true", "no-flag": "false"}  #: what `preempted` is set to


@dataclass(frozen=True)
class Recovery:
    """When one preemption's attempt came back, in seconds since 1970."""

    lost: float
    asked: float
    ready: float  #: on all hosts, by the world
    seen: float  #: READY, by the engine
    prepared: float
    launched: float
    stepped: float
    noticed: float  #: the engine knows of the loss
    startup: Mapping[str, float]

    def spans(self) -> dict[str, float]:
        """The parts that follow each other. A part that was done ahead of its turn takes 0 s."""
        points = [self.lost, self.noticed, self.asked, self.ready, self.seen,
                  self.prepared, self.launched, self.stepped]  # fmt: skip
        spans, at = {}, points[0]
        for name, point in zip(PARTS, points[1:], strict=True):
            spans[name] = max(0.0, point - at)
            at = max(at, point)
        return spans

    def after_ready(self, start_s: float) -> float:
        return self.stepped - self.ready - start_s

    def ours(self, start_s: float) -> float:
        return self.stepped - self.lost - (self.ready - self.asked) - start_s


@contextmanager
def user_of_world() -> Iterator[Owner]:
    with owner("--time-scale", TIME_SCALE, "--offer", str(INSIDE)) as user:
        user.bucket("charlm")
        yield user


def submit(user: Owner, name: str, steps: int, head_start: Sequence[str]) -> None:
    user.job(
        name, f"{INSIDE}/bin/python train.py --steps {steps}", accelerator="v5litepod-16",
        workdir=str(ROOT / "examples/charlm"), checkpoint=f"gs://charlm/{name}",
        zones="us-west4-a", head_start=list(head_start),
    )  # fmt: skip


def says(user: Owner, name: str, word: str) -> bool:
    logs = [said for about, said in user.said().items() if about.startswith(f"{name}-0-")]
    return any(line.startswith(word) for said in logs for line in said)


def undisturbed(user: Owner, times: int) -> list[float]:
    """Seconds from the launch to the first step, of attempts on hosts that have everything."""
    submit(user, "calm", 100_000, ())
    user.happened("attempt.first_step", GIVE_UP_S)
    for number in range(1, times + 1):
        for word in ("stop", "resume"):
            done = user.herd(word, "calm")
            assert done.returncode == 0, done.stderr
            if word == "stop":
                user.happened("attempt.ended", GIVE_UP_S, number)
        user.happened("attempt.first_step", GIVE_UP_S, number + 1)
    launches = {one.facts["attempt"]: one.at for one in user.events("attempt.launched")}
    steps = user.events("attempt.first_step")[1:]
    found = [one.at - launches[one.facts["attempt"]] for one in steps]
    done = user.herd("down", "calm", "--yes")
    assert done.returncode == 0, done.stderr
    return found


def preempt(user: Owner, node: str, mode: str) -> float:
    """Preempt a node, and return when that began, by the world's log."""
    if mode not in NOTICES:
        user.world.herd("preempt", node, "--no-notice")
        return last_in_log(user, "node.preempted")
    user.world.herd("weather", "preempt", node, f"flag={NOTICES[mode]}")
    return last_in_log(user, "node.warned")


def storm(user: Owner, name: str, strokes: int, mode: str) -> list[Recovery]:
    """Preempt a job in its steps; return how it came back each time."""
    submit(user, name, EVERY * (strokes + 1), MODES.get(mode, ()))
    lost = []
    for stroke in range(1, strokes + 1):
        said = f"step {stroke * EVERY:4}  loss"
        until(partial(says, user, name, said), said, seconds=GIVE_UP_S)
        lost.append(preempt(user, f"{name}-0-*", mode))
    done = user.herd("wait", name, seconds=GIVE_UP_S)
    assert done.returncode == 0, done.stderr
    found = [recovery(user, name, at, number) for number, at in enumerate(lost, 2)]
    done = user.herd("down", name, "--yes")
    assert done.returncode == 0, done.stderr
    return found


def world_log(user: Owner) -> list[dict[str, Any]]:
    return [json.loads(line) for line in user.world.herd("log", "--json").splitlines()]


def last_in_log(user: Owner, kind: str) -> float:
    return float([one["at"] for one in world_log(user) if one["name"] == kind][-1])


def print_between(events: Sequence[Any], start: float, end: float) -> None:
    """What happened while an attempt was launched in vain: such a recovery asks to be read."""
    print("an attempt made no step:")
    for one in events:
        if start <= one.at <= end:
            print(f"  {one.at - start:7.3f}  {one.kind:<26} {dict(one.facts)}"[:300])


def recovery(user: Owner, name: str, lost: float, number: int) -> Recovery:
    """Of the attempt with this number, from the engine's events and the world's log."""
    events = [one for one in user.events() if one.job == name]
    step = next(one for one in events if one.kind == "attempt.first_step" and one.at > lost)
    attempt = step.facts["attempt"]
    launch = next(
        one for one in events
        if one.kind == "attempt.launched" and one.facts["attempt"] == attempt
    )  # fmt: skip
    bid = launch.facts["bid"]
    if launch.facts["number"] != number:
        print_between(events, lost, step.at)

    def first(kind: str, **facts: Any) -> Any:
        return next(
            one for one in events
            if one.kind == kind and facts.items() <= one.facts.items() and one.at >= lost - 1
        )  # fmt: skip

    ready = [one["at"] for one in world_log(user) if one["name"] == "node.ready"
             and one["facts"]["node"].endswith(bid)]  # fmt: skip
    noticed = min(
        one.at for one in events
        if one.kind in ("bid.lost", "bid.notice_received") and one.at >= lost
    )  # fmt: skip
    return Recovery(
        lost=lost, asked=first("bid.requested", bid=bid).at, ready=float(ready[0]),
        seen=first("bid.ready", bid=bid).at, prepared=first("slot.prepared", bid=bid).at,
        launched=launch.at, stepped=step.at, noticed=noticed,
        startup={**step.facts.get("startup", {}), "restore_s": step.facts.get("restore_s", 0.0)},
    )  # fmt: skip


def spread(values: Sequence[float]) -> str:
    return f"{median(values):6.2f} s  ({min(values):.2f} to {max(values):.2f})"


def report(mode: str, found: Sequence[Recovery], start_s: float) -> list[dict[str, Any]]:
    """Print a mode's figures; return them as rows."""
    figures = {
        "after READY": [one.after_ready(start_s) for one in found],
        "ours": [one.ours(start_s) for one in found],
    }
    what, how = f"head start {mode}", "without notice"
    if mode in NOTICES:
        what, how = f"preempted, {mode}", "30 s of notice"
    print(f"\n{what}")
    for name, values in figures.items():
        print(f"  {name:<13} {spread(values)}")
    for part in PARTS:
        print(f"    {part:<13} {spread([one.spans()[part] for one in found])}")
    for part in found[0].startup:
        print(f"      {part:<13} {spread([one.startup.get(part, 0.0) for one in found])}")
    sys.stdout.flush()
    return [
        {"figure": f"recovery, {name}, {what}", "unit": "s",
         "ours": [round(value, 3) for value in values], "note": f"charlm, 4 hosts, {how}"}
        for name, values in figures.items()
    ]  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--modes", default=",".join(MODES))
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--json", type=Path)
    asked = parser.parse_args()
    if not (INSIDE / "bin" / "python").exists():
        print("recovery: no .venv-clients/inside here: make_venv.sh inside")
        return
    print(f"load {os.getloadavg()[0]:.1f}", flush=True)
    found: dict[str, list[Recovery]] = {mode: [] for mode in asked.modes.split(",")}
    with user_of_world() as user:
        starts = undisturbed(user, asked.rounds)
        print(f"undisturbed start  {spread(starts)}", flush=True)
        for turn in range(1, asked.rounds + 1):
            for mode, recoveries in found.items():
                recoveries += storm(user, f"{mode}{turn}", 1, mode)
                after_s = recoveries[-1].after_ready(median(starts))
                load = os.getloadavg()[0]
                print(f"round {turn}  {mode:<10} {after_s:6.2f} s  load {load:.1f}", flush=True)
    rows = [row for mode, one in found.items() for row in report(mode, one, median(starts))]
    if asked.json:
        write_figures(asked.json, "Recovery", rows)


if __name__ == "__main__":
    main()
