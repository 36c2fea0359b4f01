"""What a job's packages cost its nodes: the first one, each that replaces it, and a second job's.

    .venv/bin/python bench/environments.py [--rounds 3] [--json FILE]

A job with `requirements` (JAX and what it needs) runs on two hosts of a world, whose images have
nothing of it. On the first node it is installed. Then the node is preempted without notice, again
and again: each new one gets a copy. At last another job with the same requirements is submitted: as
nothing passes between jobs, its first host installs them again. Needs the package index.

first node  from READY on all hosts, by the world's log, until the command runs on all
recovery    from the loss until the command runs on all hosts of the next node, less the time from
            the request to READY, which is the cloud's
second job  as the first node
"""

import argparse
import sys
from pathlib import Path
from statistics import median

sys.path.insert(0, str(Path(__file__).parents[1]))
from bench.recovery import last_in_log
from bench.rigs.figures import own_row, write_figures

from tests.conformance.world import until
from tests.integration.engines import Owner, owner
from tests.integration.test_environment_life import wait_for_copy

ROOT = Path(__file__).parents[1]
REQUIREMENTS = ROOT / "tests/integration/clients/inside.txt"
RUN = "python3 -c 'import jax; print(\"jax\", jax.__version__, flush=True)'; exec sleep 100000"
WAIT_S = 400.0


def submit_job(user: Owner, name: str) -> None:
    folder = user.home / "code"
    folder.mkdir(exist_ok=True)
    (folder / "requirements.txt").write_text(REQUIREMENTS.read_text())
    user.job(name, RUN, workdir=str(folder), requirements="requirements.txt")


def wait_for_start(user: Owner, number: int) -> float:
    """Return when the attempt with this number ran on all hosts, once JAX was imported there."""
    started = user.happened("attempt.started", WAIT_S, number).at
    until(lambda: count_imports(user) == 2 * number, "JAX on both hosts", seconds=WAIT_S)
    return started


def count_imports(user: Owner) -> int:
    return sum(line.startswith("jax ") for lines in user.said().values() for line in lines)


def measure_recovery(user: Owner, number: int) -> float:
    """Preempt the node of attempt `number`, and return what of the recovery is not the cloud's."""
    user.world.herd("preempt", "gpt-0-*", "--no-notice")
    lost = last_in_log(user, "node.preempted")
    started = wait_for_start(user, number + 1)
    asked = next(one.at for one in user.events("bid.requested") if one.at > lost)
    return started - lost - (last_in_log(user, "node.ready") - asked)


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--json", type=Path)
    said = parser.parse_args()
    with owner("--time-scale", "12") as user:
        submit_job(user, "gpt")
        first = wait_for_start(user, 1) - last_in_log(user, "node.ready")
        print(f"first node, READY to running: {first:.1f} s", flush=True)
        wait_for_copy(user, user.happened("environment.installed").facts["environment"])
        found = []
        for number in range(1, said.rounds + 1):
            found.append(measure_recovery(user, number))
            print(f"recovery {number}: {found[-1]:.1f} s", flush=True)
        assert len(user.events("environment.installed")) == 1
        print(f"median {median(found):.1f} s")
        submit_job(user, "second")
        second = wait_for_start(user, said.rounds + 2) - last_in_log(user, "node.ready")
        installed = user.happened("environment.installed", many=2)
        print(f"second job, READY to running: {second:.1f} s: {installed.facts['why']}")
    rows = [
        own_row("first node, READY to running: packages are installed", "s", [first]),
        own_row("recovery less the cloud's time, packages are copied", "s", found),
        own_row("second job with the same requirements: they are installed again", "s", [second]),
    ]
    if said.json:
        write_figures(said.json, "Environments", rows)
    return 0


if __name__ == "__main__":
    sys.exit(main())
