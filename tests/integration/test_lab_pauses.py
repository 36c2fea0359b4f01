"""Leaders on one PostgreSQL that are paused at chosen moments, with clocks that are an hour wrong.

The leader is stopped within a write, or between two, as the server's own list of sessions shows it.
The other must lead within the lease plus two seconds, and the first steps back when it goes on.
HERD_LAB_PAUSES=50 for many pauses.
"""

import os
import random
import signal
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing, contextmanager, suppress
from dataclasses import dataclass, replace
from functools import partial
from subprocess import Popen
from threading import Timer
from typing import Any

import psycopg
import pytest

from tests.conformance.postgres import started_postgres
from tests.conformance.world import started, until
from tests.integration.lab_members import Member, members
from tpuherd.model.slots_and_plan import HistoryEvent
from tpuherd.store.open_database import open_database

pytestmark = [pytest.mark.real, pytest.mark.timeout(1200)]
PAUSES = int(os.environ.get("HERD_LAB_PAUSES", "3"))
TTL_S = 3.0
#: Beyond the lease, where the machine is not busy.
TAKEOVER_S = 2.0 * max(1.0, os.getloadavg()[0] / (os.cpu_count() or 1))
AHEAD_S = {"ann": 3600.0, "bob": -3600.0}
#: herd with a short lease and a wrong clock.
PROGRAM = """#!{python}
import time
from tpuherd import clock
from tpuherd.engine import engine_process, loop
from tpuherd.launcher import main
from tpuherd.store import postgres
engine_process.TTL_S, loop.RENEW_S = {ttl_s}, 1.0
postgres.SETTINGS = postgres.SETTINGS.replace("lock_timeout = '10s'", "lock_timeout = '1s'")
clock.WallClock.now = lambda self: time.time() + {ahead_s}
main()
"""
#: Tables that the leader writes; "" for a moment without a transaction.
MOMENTS = ("events", "lease", "", "states")
#: Have writes of one session take a while, so that it can be stopped within its transaction.
SLOW = """
CREATE OR REPLACE FUNCTION slow() RETURNS trigger AS $$ BEGIN
IF pg_backend_pid() = {session} AND TG_TABLE_NAME = '{table}' THEN PERFORM pg_sleep(0.5); END IF;
RETURN NULL; END $$ LANGUAGE plpgsql
"""
LEASE = "SELECT epoch, split_part(who, '@', 1), taken_at, until FROM lease"
SESSION = "SELECT pid FROM pg_locks WHERE locktype = 'advisory' AND objsubid = 2 AND objid = %s"
SESSIONS = "SELECT count(*) FROM pg_stat_activity WHERE application_name = 'tpuherd'"
STATE = "SELECT state, wait_event, query FROM pg_stat_activity WHERE pid = %s"


@dataclass(frozen=True)
class Lab:
    """A database that is looked at from outside, and the engines that stand by."""

    rows: psycopg.Connection[tuple[Any, ...]]
    users: dict[str, Member]
    engines: "dict[str, Popen[bytes]]"

    def ask(self, sql: str, *values: object) -> tuple[Any, ...] | None:
        return self.rows.execute(sql, values).fetchone()

    def lease(self) -> tuple[int, str, float, float]:
        row = self.ask(LEASE)
        return row or (0, "", 0.0, 0.0)

    def session(self) -> int:
        """The session of the engine that leads."""
        row = self.ask(SESSION, self.lease()[0] & 0x7FFFFFFF)
        return 0 if row is None else int(row[0])

    def state(self, session: int) -> tuple[str, str, str]:
        return self.ask(STATE, session) or ("", "", "")

    def said(self, name: str) -> bytes:
        return (self.users[name].home / "stand-by.out").read_bytes()


@pytest.fixture
def lab() -> Iterator[Lab]:
    with (
        started_postgres() as server,
        started("--time-scale", "60") as world,
        members(server, world, "pauses") as both,
        ExitStack() as stack,
    ):
        engines = {}
        for user in both:
            program = user.home / "herd"
            program.write_text(
                PROGRAM.format(python=sys.executable, ttl_s=TTL_S, ahead_s=AHEAD_S[user.name])
            )
            program.chmod(0o700)
            wrong = replace(user, program=program)
            engines[user.name] = stack.enter_context(wrong.standing_by())
        rows = stack.enter_context(psycopg.connect(server.url("pauses"), autocommit=True))
        rows.execute(f'SET search_path TO "{both[0].store_folder.name}"'.encode())
        rows.execute(SLOW.format(session=0, table="").encode())
        for table in filter(None, MOMENTS):
            rows.execute(
                f"CREATE TRIGGER slow AFTER INSERT OR UPDATE ON {table} FOR EACH STATEMENT"
                " EXECUTE FUNCTION slow()".encode()
            )
        found = Lab(rows, {user.name: user for user in both}, engines)
        yield found
        for name in AHEAD_S:
            print(f"{name} said:", found.said(name).decode()[-3000:])  # shown if it has failed


def find_soon(ask: Callable[[], bool], what: str) -> None:
    """Wait without a pause between looks: a moment is short."""
    end = time.monotonic() + 60
    while not ask():
        assert time.monotonic() < end, f"waited for {what}"


@contextmanager
def paused_leader(lab: Lab, table: str) -> Iterator[tuple[str, int]]:
    """Stop the leader within a write of this table, or between two; yield its name and epoch."""
    stopped = 0
    try:
        while True:
            session = until(lab.session, "a leader's session", seconds=60)
            epoch, name, *_ = lab.lease()
            stopped = lab.engines[name].pid
            lab.rows.execute(SLOW.format(session=session, table=table).encode())
            find_soon(partial(has_come, lab, session, table), f"a write of {table}")
            os.kill(stopped, signal.SIGSTOP)
            find_soon(partial(is_settled, lab, session), "the end of its statements")
            state, _, query = lab.state(session)
            right = state == "idle in transaction" and table in query if table else state == "idle"
            if right and lab.lease()[0] == epoch:
                break
            os.kill(stopped, signal.SIGCONT)  # the moment has passed
        yield name, epoch
    finally:
        with suppress(ProcessLookupError):
            os.kill(stopped, signal.SIGCONT)


def has_come(lab: Lab, session: int, table: str) -> bool:
    """Whether the moment is there, or this session's engine no longer leads."""
    state, waits_for, _ = lab.state(session)
    return (waits_for == "PgSleep" if table else state == "idle") or lab.session() != session


def both_look(lab: Lab) -> bool:
    """Whether the one that was replaced has connected again, without the lease."""
    return bool((lab.ask(SESSIONS) or (0,))[0] >= len(lab.engines))


def is_settled(lab: Lab, session: int) -> bool:
    return lab.state(session)[0] != "active"


def test_a_paused_leader_is_replaced_within_its_lease_plus_two_seconds(lab: Lab) -> None:
    dice, ann = random.Random(7), lab.users["ann"]
    ann.job("job0", "echo begin", accelerator="v4-8")
    ann.happened("slot.done", seconds=120)
    for number in range(1, PAUSES + 1):
        table = MOMENTS[number - 1] if number <= len(MOMENTS) else dice.choice(MOMENTS)
        with submitting_again(ann, number), paused_leader(lab, table) as (name, epoch):
            (paused_at,) = lab.ask("SELECT extract(epoch FROM clock_timestamp())::float8") or (0.0,)
            find_soon(partial(lambda old: lab.lease()[0] != old, epoch), f"a takeover ({table})")
            _, other, taken_at, until_s = lab.lease()
            assert other != name
            assert taken_at <= paused_at + TTL_S + TAKEOVER_S, f"in a write of {table!r}"
            assert until_s <= taken_at + 2 * TTL_S + TAKEOVER_S, "by the server's clock"
        until(partial(both_look, lab), "it to stand by again", seconds=60)
        assert lab.lease()[1] == other
    ann.happened("slot.done", many=PAUSES + 1, seconds=240)
    launched = [event.slot for event in ann.events("attempt.launched")]
    assert sorted(launched) == sorted(f"job{number}-0" for number in range(PAUSES + 1))


@contextmanager
def submitting_again(user: Member, number: int) -> Iterator[None]:
    """Write another job like the first one in a while: a command would start an engine as well."""

    def submit() -> None:
        name = f"job{number}"
        with closing(open_database(user._scope, time.time())) as store:
            first = store.stored_jobs()["job0"]
            document = {**first.document, "name": name}
            event = HistoryEvent(at=first.made_at, kind="job.submitted", job=name)
            store.add_jobs([replace(first, job=name, document=document, revision=0)], [event])

    timer = Timer(0.3, submit)
    timer.start()
    yield
    timer.join()
