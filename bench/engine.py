"""How soon the engine reacts, and how fast it requests nodes.

    .venv/bin/python bench/engine.py [--parts react,start,ramp] [--hosts 64]

react   in a world with real hosts: from a preemption until the cloud accepts the request for a
        replacement: by the hosts' notice, by their links, and by surveys of the cloud alone (the
        links broke long before); at moments spread evenly between two surveys
start   in a world with real hosts that were set up before: from the changed job until its command
        runs on all of them; and from READY on new hosts
ramp    in virtual time: many slots at once, with 60 creates per minute

What many nodes cost: bench/size.py.
"""

import argparse
import os
import sys
import time
from collections.abc import Callable
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))
from bench.rigs.figures import own_row, write_figures

from tests.integration.engines import owner
from tests.simulated.engine_harness import EngineHarness, SimJob, perform
from tests.simulated.engine_programs import Script
from tpuherd.planner.bidding import FELL_SILENT_S

CORES_OF_A_HOST = 8  #: of v4, as its types count
LOOK_S = 5.0  #: as the engine does while it holds nodes
SLEEP = "sleep 100000"
SUDDEN: dict[str, object] = {"notice_s": 0, "flag": False, "acpi": False}
#: How the engine learns of it, the preemption, and whether the hosts' links broke long before.
REACTIONS: tuple[tuple[str, dict[str, object], bool], ...] = (
    ("with notice", {}, False),
    ("hosts gone", SUDDEN, False),
    ("cloud only", SUDDEN, True),
)


Rows = list[dict[str, object]]


def react(rounds: int) -> Rows:
    """Measure the time from a preemption to the request for the next node."""
    rows = []
    for title, said, mute in REACTIONS:
        with owner("--time-scale", "60") as user:
            user.job("gpt", SLEEP)
            user.happened("attempt.started")
            found = []
            for number in range(1, rounds + 1):
                attempt = user.happened("attempt.started", many=number)
                ready_at, node = user.events("bid.ready")[-1].at, str(attempt.facts["bid"])
                past_s = LOOK_S * (1.5 + (number - 0.5) / rounds)  # the moments between two looks
                if mute:
                    target = {"target": f"{node}/*", "state": "down"}
                    user.world.ask("POST", "sim/v1/weather/network", target)
                    past_s += FELL_SILENT_S
                time.sleep(max(0.0, ready_at + past_s - time.time()))
                begun = time.time()
                user.world.ask("POST", "sim/v1/weather/preempt", {"target": node, **said})
                taken = user.happened("bid.accepted", many=number + 1)
                found.append(taken.at - begun)
                user.happened("attempt.started", many=number + 1)
            times = ", ".join(f"{one:.2f}" for one in found)
            print(f"preemption → replacement asked for, {title}: {times} s", flush=True)
            rows.append(
                own_row(f"preemption to the request for a replacement, {title}", "s", found)
            )
    return rows


def start(hosts: int) -> Rows:
    """Measure the time from prepared hosts until the command runs on all of them."""
    with owner("--time-scale", "60") as user:
        kind = f"v4-{CORES_OF_A_HOST * hosts}"
        step = "test -e ready || sleep 1; touch ready"
        user.job("gpt", SLEEP, accelerator=kind, setup=[step])
        first = user.happened("attempt.started", seconds=600)
        ready = user.events("bid.ready")[-1]
        prepared = user.events("slot.prepared")[-1]
        whole, after = first.at - ready.at, first.at - prepared.at
        print(f"{hosts} hosts never seen: READY → running {whole:.2f} s, {after:.2f} s after setup")
        user.job("gpt", f"{SLEEP}1", accelerator=kind, setup=[step])
        ended = user.happened("attempt.ended", seconds=120)
        again = user.happened("attempt.started", many=2, seconds=120)
        prepared = user.events("slot.prepared")[-1]
        ready_s, running_s = prepared.at - ended.at, again.at - prepared.at
        print(
            f"{hosts} hosts set up before: prepared in {ready_s:.2f} s, running {running_s:.2f} s"
        )
    told = {
        "new hosts: READY to running": whole,
        "hosts with a finished setup, changed job: to prepared": ready_s,
        "the same, prepared to running": running_s,
    }
    return [{**own_row(figure, "s", [one]), "at": hosts} for figure, one in told.items()]


def ramp(slots: int) -> Rows:
    """Measure how fast many slots are requested."""

    async def plot(play: EngineHarness) -> float:
        play.submit(SimJob(copies=slots, zones=("us-east5-a",), setup=False))
        begun = play.sim.now()
        asked = lambda: sum(one.creates for one in play.sim.asked) >= slots  # noqa: E731
        await play.until(asked, 4 * 3600.0)
        return play.sim.now() - begun

    seconds = perform(plot, scripts=long_ones())
    least = (slots - 1) // 60 * 60
    print(f"{slots} slots asked for in {seconds:.0f} s of virtual time; 60 a minute need {least} s")
    row = own_row("slots until all are requested, in virtual time", "s", [seconds])
    return [{**row, "at": slots, "note": f"60 requests a minute need {least} s"}]


def long_ones() -> dict[str, Script]:
    """Return a world whose commands do not end."""
    script = Script(steps=1_000_000, step_s=30.0, setup_s=1.0)
    return {"*": script}


def main() -> None:
    """Run the chosen parts, each in its own process."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--parts", default="react,start,ramp")
    parser.add_argument("--hosts", type=int, default=64)
    parser.add_argument("--json", type=Path)
    said = parser.parse_args()
    parts: dict[str, Callable[[], Rows]] = {
        "react": lambda: react(5),
        "start": lambda: start(said.hosts),
        "ramp": lambda: ramp(256),
    }
    rows: Rows = []
    for name in said.parts.split(","):
        rows += parts[name]()
        sys.stdout.flush()
    if said.json:
        write_figures(said.json, "The engine", rows)
    sys.stdout.flush()
    os._exit(0)  # nothing of a virtual world is worth tidying up


if __name__ == "__main__":
    main()
