"""Engines of two accounts on one PostgreSQL: how soon the other decides after a kill -9.

A real PostgreSQL, a real world, and engines that stand by. In each round the leader is halted, a
job is submitted that it does not see, and the leader is killed with kill -9. Times are those of the
events, on this machine's clock.
"""

import os
import signal
import subprocess
import time
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from typing import Any

from bench.rigs.figures import own_row

from tests.conformance.postgres import Postgres, started_postgres
from tests.conformance.world import started, until
from tests.integration.lab_members import Member, members
from tpuherd.views.job_cost_rows import quantile

GIVE_UP_S = 120.0
WRITING = "SELECT 1 FROM pg_stat_activity WHERE state = 'idle in transaction'"


def measure_failover(rounds: int) -> list[dict[str, Any]]:
    """The rows of figures."""
    leads: list[float] = []
    decides: list[float] = []
    with (
        started_postgres() as server,
        started("--time-scale", "60") as world,
        members(server, world, "failover") as lab,
        ExitStack() as engines,
    ):
        running = {user.name: engines.enter_context(user.standing_by()) for user in lab}
        for number in range(rounds):
            leader = until(lab[0].leader, "a leader", seconds=GIVE_UP_S)
            first, second = lab if leader == lab[0].name else (lab[1], lab[0])
            halt_between_writes(running[first.name], server)
            led, decided = kill_leader(running[first.name], second, f"job{number}")
            leads.append(led)
            decides.append(decided)
            running[first.name] = engines.enter_context(first.standing_by())
    figures: Mapping[str, Sequence[float]] = {
        "fail-over: kill -9 of the leader until another engine leads": leads,
        "fail-over: kill -9 of the leader until another engine's first request": decides,
    }
    return [
        {**own_row(f"{figure}, {name}", "s", [quantile(sorted(seconds), share)]), "at": rounds}
        for figure, seconds in figures.items()
        for name, share in (("p50", 0.5), ("p99", 0.99))
    ]


def halt_between_writes(leader: "subprocess.Popen[bytes]", server: Postgres) -> None:
    """Halt it where it holds no lock, so that others can write."""

    def is_halted() -> bool:
        os.kill(leader.pid, signal.SIGSTOP)
        if not server.ask(WRITING):
            return True
        os.kill(leader.pid, signal.SIGCONT)
        return False

    until(is_halted, "a moment between two writes", seconds=GIVE_UP_S)


def kill_leader(leader: "subprocess.Popen[bytes]", other: Member, job: str) -> tuple[float, float]:
    """Kill the halted leader; return the seconds until the other leads, and has decided."""
    starts = len(other.events("engine.started"))
    other.job(job, "sleep 1000", accelerator="v4-8")
    killed_at = time.time()
    leader.kill()
    started_at = other.happened("engine.started", GIVE_UP_S, starts + 1).at

    def requests() -> list[float]:
        return [event.at for event in other.events("bid.requested") if event.job == job]

    decided_at = until(requests, "a decision", seconds=GIVE_UP_S)[0]
    done = other.herd("down", job, "--yes", seconds=GIVE_UP_S)
    assert done.returncode == 0, done.stderr
    return started_at - killed_at, decided_at - killed_at
