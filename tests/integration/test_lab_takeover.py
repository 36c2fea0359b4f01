"""Engines of two accounts on one PostgreSQL: one dies in the middle, and the other continues.

Ann and Bob have homes, SSH keys and local names of their own; they share a world and a database.
HERD_LAB_KILLS=100 for many kills at random moments.
"""

import os
import random
import re
import signal
import subprocess
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.conformance.postgres import Postgres, started_postgres
from tests.conformance.world import World, started, until
from tests.integration.engines import once_each
from tests.integration.lab_members import Member, members

pytestmark = pytest.mark.real
KILLS = int(os.environ.get("HERD_LAB_KILLS", "40"))
#: Kill the leader once this was recorded: asking, preparing, running, collecting, withdrawing.
MOMENTS = ("bid.requested", "bid.ready", "attempt.started", "attempt.ended", "bid.withdrawn")
TRAIN = """\
echo words; until [ -e ~/finish ]; do sleep 0.1; done; rm ~/finish; mkdir -p out
echo result-$HERD_WORKER >out/r; echo end-$HERD_ATTEMPT
"""


@pytest.fixture(scope="module")
def server() -> Iterator[Postgres]:
    with started_postgres() as found:
        yield found


@pytest.fixture(scope="module")
def world() -> Iterator[World]:
    with started("--time-scale", "60") as found:
        yield found


@pytest.fixture
def lab(
    server: Postgres, world: World, request: pytest.FixtureRequest
) -> Iterator[tuple[Member, Member]]:
    name = "".join(one for one in request.node.name.lower() if one.isalnum())[-40:]
    with members(server, world, f"d{name}") as found:
        yield found


def submit_training(user: Member, **fields: object) -> None:
    """A job with code and outputs, which goes on until somebody says finish."""
    code = user.home / "code"
    code.mkdir()
    (code / "train.sh").write_text(TRAIN)
    user.job("gpt", "sh train.sh", workdir=str(code), outputs=["out"], **fields)


def finish_training(user: Member) -> None:
    done = user.herd("exec", "gpt", "-c", "touch ~/finish")
    assert done.returncode == 0, done.stderr


def check_once(user: Member) -> str:
    """The job was launched once, and nothing is left; returns its attempt."""
    user.happened("slot.done")
    until(lambda: not user.all_there_is(), "nothing to be left", seconds=60)
    launched = {event.facts["attempt"] for event in user.events("attempt.launched")}
    assert len(launched) == 1, launched
    return str(launched.pop())


def outputs_of(user: Member) -> list[str]:
    found = sorted(user.store_folder.glob("outputs/gpt-0/*/*/out/r"))
    return [file.read_text().strip() for file in found]


def test_another_account_continues_a_running_job(lab: tuple[Member, Member]) -> None:
    ann, bob = lab
    submit_training(ann)
    with bob.standing_by():
        ann.happened("attempt.started")
        assert ann.kill_engine()
        until(lambda: bob.leader() == "bob", "bob to lead", seconds=60)
        finish_training(bob)
        attempt = check_once(bob)
    assert bob.said() == {f"{attempt}/{worker}": ["words", "end-1"] for worker in (0, 1)}
    assert "words" in bob.herd("logs", "gpt").stdout
    assert outputs_of(bob) == ["result-0", "result-1"]


def test_killed_in_the_middle_of_everything(lab: tuple[Member, Member]) -> None:
    ann, bob = lab
    with ExitStack() as engines:
        running = {user.name: engines.enter_context(user.standing_by()) for user in lab}
        submit_training(ann, setup=["sleep 1; echo once >> ~/setups"])
        for moment in MOMENTS:
            if moment == "attempt.ended":
                finish_training(bob)
            ann.happened(moment)
            leader = until(ann.leader, "a leader", seconds=60)
            running[leader].kill()
            other = next(name for name in running if name != leader)
            until(lambda name=other: ann.leader() == name, "the other", seconds=60)  # type: ignore[misc]
            user = next(user for user in lab if user.name == leader)
            running[leader] = engines.enter_context(user.standing_by())
        attempt = check_once(ann)
    both = [*ann.said().items(), *bob.said().items()]
    assert not [log for user in lab for log in once_each(user.said(), "words")]
    ends = {log for log, lines in both if lines and lines[-1] == "end-1"}
    assert ends == {f"{attempt}/0", f"{attempt}/1"}
    assert {*outputs_of(ann), *outputs_of(bob)} == {"result-0", "result-1"}


def test_the_server_crashes_while_an_engine_commits(
    lab: tuple[Member, Member], server: Postgres
) -> None:
    """Nobody can tell what became of the write: the engine starts anew from what is recorded."""
    ann, _ = lab
    submit_training(ann)
    ann.happened("attempt.started")
    slow = (
        "CREATE FUNCTION {0}.slow() RETURNS trigger AS $$ BEGIN PERFORM pg_sleep(60); RETURN NULL;"
        " END $$ LANGUAGE plpgsql; CREATE CONSTRAINT TRIGGER slow AFTER INSERT ON {0}.events"
        " DEFERRABLE INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION {0}.slow()"
    )
    database, schema = ann.database, f'"{ann.store_folder.name}"'
    pid = ann.engine()
    server.ask(slow.format(schema), database)
    finish_training(ann)
    asleep = "SELECT 1 FROM pg_stat_activity WHERE wait_event = 'PgSleep'"
    until(lambda: server.ask(asleep), "a slow commit", seconds=60)
    server.stop("immediate")
    try:
        refused = ann.herd("ls")
    finally:
        server.start()
    assert refused.returncode == 7, refused.stderr
    assert "can't be reached (connection" in refused.stderr
    assert refused.stderr.count("\n") == 1
    server.ask(f"DROP TRIGGER slow ON {schema}.events", database)
    check_once(ann)
    assert {event.facts["pid"] for event in ann.events("engine.started")} == {pid}
    assert outputs_of(ann) == ["result-0", "result-1"]


def test_a_restarted_server_finds_one_leader(lab: tuple[Member, Member], server: Postgres) -> None:
    ann, bob = lab
    with ann.standing_by(), bob.standing_by():
        submit_training(ann)
        ann.happened("attempt.started")
        for pause_s in (0.0, 3.0):
            server.stop("immediate")
            time.sleep(pause_s)  # the server is gone for so long
            server.start()
            until(ann.leader, "a leader", seconds=60)
        finish_training(bob)
        check_once(ann)


def test_an_engine_that_was_stopped_for_longer_than_its_lease_writes_nothing(
    lab: tuple[Member, Member], server: Postgres
) -> None:
    ann, bob = lab
    schema = f'"{ann.store_folder.name}"'
    with ann.standing_by() as of_ann, bob.standing_by() as of_bob:
        submit_training(ann)
        ann.happened("attempt.started")
        sleeper, other = (ann, bob) if ann.leader() == "ann" else (bob, ann)
        pid = (of_ann if sleeper is ann else of_bob).pid
        os.kill(pid, signal.SIGSTOP)
        server.ask(f"UPDATE {schema}.lease SET until = 0", ann.database)  # its 30 s are over
        until(lambda: other.leader() == other.name, "the other to lead", seconds=60)
        other.job("late", "true", accelerator="v4-8")  # news that the sleeper has not seen
        before = len(other.events("engine.started"))
        out = sleeper.home / "stand-by.out"
        said = len(out.read_bytes())
        os.kill(pid, signal.SIGCONT)

        def stands_by() -> bool:
            """The second words come if it was stopped within a write."""
            new = out.read_bytes()[said:]
            return b"standing by again: outdated" in new or b"another engine runs" in new

        until(stands_by, "it to step back", seconds=60)
        assert other.leader() == other.name
        assert len(other.events("engine.started")) == before
        finish_training(other)
        other.happened("slot.done", many=2)
        until(lambda: not other.all_there_is(), "nothing to be left", seconds=60)
    slots = [event.slot for event in ann.events("attempt.launched")]
    assert sorted(slots) == ["gpt-0", "late-0"]


@pytest.mark.root
def test_a_full_disk_of_the_server_stops_nothing_for_good(
    lab: tuple[Member, Member], server: Postgres, tmp_path: Path
) -> None:
    """The store's tables are on a file system of 24 MB, which is filled and freed."""
    ann, _ = lab
    disk = server.folder / "disk"
    disk.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=24m,mode=777", "none", disk], check=True)
    try:
        (disk / "space").mkdir()
        os.chown(disk / "space", server.folder.stat().st_uid, server.folder.stat().st_gid)
        server.ask(f"CREATE TABLESPACE small LOCATION '{disk}/space'")
        server.ask(f"ALTER DATABASE {ann.database} SET TABLESPACE small")
        submit_training(ann)
        ann.happened("attempt.started")
        fill = disk / "filler"
        fill_disk(fill)
        many = {f"V{number}": random.Random(number).randbytes(500).hex() for number in range(99)}
        file = ann.home / "other.yaml"
        file.write_text(f'{{"name": "other", "accelerator": "v4-8", "run": "x", "env": {many}}}')
        refused = ann.herd("run", file, "--detach", "--yes")
        assert refused.returncode == 1, refused.stdout
        assert "is full" in refused.stderr, refused.stderr
        finish_training(ann)
        fill.unlink()
        check_once(ann)
        assert ann.herd("run", file, "--detach", "--yes").returncode == 0
        assert ann.herd("down", "other", "--yes").returncode == 0
        ann.leave_all()
    finally:
        server.ask(f"DROP DATABASE IF EXISTS {ann.database} WITH (FORCE)")
        server.ask("DROP TABLESPACE IF EXISTS small")
        subprocess.run(["umount", disk], check=True)


def fill_disk(file: Path) -> None:
    with file.open("wb", buffering=0) as stream:
        try:
            while True:
                stream.write(bytes(1 << 12))
        except OSError:
            return


def test_what_only_the_first_account_has_is_named_by_the_second(lab: tuple[Member, Member]) -> None:
    ann, bob = lab
    (ann.home / "token").write_text("k1")
    secrets = {"TOKEN": {"file": str(ann.home / "token")}}
    ann.job("gpt", 'echo "has-$TOKEN"; sleep 1000', accelerator="v4-8", secrets=secrets)
    started_at = ann.happened("attempt.started")
    with bob.standing_by():
        assert ann.kill_engine()
        until(lambda: bob.leader() == "bob", "bob to lead", seconds=60)
        ann.world.herd("preempt", started_at.facts["bid"])
        told = bob.happened("slot.setup_failed").facts["why"]
        assert "there is no value for the secret TOKEN in the account of bob@" in told
        assert "in the account of bob@" in ann.herd("why", "gpt").stdout
    missing = bob.herd("logs", "nothing")
    assert missing.returncode == 4
    assert re.search(r"each account keeps .*: ann@.*, bob@", missing.stderr), missing.stderr


@pytest.mark.heavy
@pytest.mark.timeout(1200)
def test_leaders_are_killed_again_and_again(lab: tuple[Member, Member]) -> None:
    ann, bob = lab
    dice = random.Random(1)
    killed = many = 0
    with ExitStack() as engines:
        running = {user.name: engines.enter_context(user.standing_by()) for user in lab}
        while killed < KILLS:
            many += 1
            user = dice.choice(lab)
            user.job(f"job{many}", "echo begin; sleep 3; echo end", accelerator="v4-8")
            while killed < KILLS and len(ann.events("slot.done")) < many:
                time.sleep(dice.choice([0.05, 0.3, 1.0, 2.0]))
                leader = ann.leader()
                if leader:
                    running[leader].kill()
                    killed += 1
                    again = ann if leader == "ann" else bob
                    running[leader] = engines.enter_context(again.standing_by())
            ann.happened("slot.done", many=many, seconds=240)
        until(lambda: not ann.all_there_is(), "nothing to be left", seconds=60)
    launched = {event.facts["attempt"] for event in ann.events("attempt.launched")}
    assert len(launched) == many
    for user in lab:
        assert not once_each(user.said(), "begin")
