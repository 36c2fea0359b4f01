"""The engine as a process: killed at any moment, started twice, ended, and what remains of it."""

import os
import random
import signal
import socket
import sqlite3
import subprocess
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from tests.conformance.world import until
from tests.integration.engines import Owner, begin, once_each, owner
from tpuherd.exit_status import ReaderGone
from tpuherd.jobs import engine_control
from tpuherd.settings import project_access
from tpuherd.store.database import Database

pytestmark = pytest.mark.real
KILLS = int(os.environ.get("HERD_KILLS", "10"))
COUNTING = "echo begin-$HERD_WORK; for i in $(seq 30); do sleep 0.3; done; echo end-$HERD_ATTEMPT"


@pytest.fixture
def user() -> Iterator[Owner]:
    with owner() as found:
        yield found


def gone(user: Owner) -> bool:
    """Whether nothing is left in the cloud."""
    return not user.all_there_is()


def test_an_attempt_outlives_its_engine_and_is_not_started_again(user: Owner) -> None:
    user.job("gpt", COUNTING)
    user.happened("attempt.started")
    assert user.kill_engine()
    assert user.herd("engine", "start").returncode == 0
    user.happened("slot.done")
    assert [event.facts["number"] for event in user.events("attempt.launched")] == [1]
    said = user.said()
    assert sorted(said) == sorted(f"{user.events('attempt.launched')[0].facts['attempt']}/{w}"
                                  for w in (0, 1))  # fmt: skip
    assert all(lines[-1] == "end-1" for lines in said.values()), said
    assert not once_each(said, next(iter(said.values()))[0])
    until(lambda: gone(user), "nothing to be left", seconds=60)


@pytest.mark.timeout(300 + 60 * KILLS)
@pytest.mark.parametrize("seed", [1])
def test_an_engine_is_killed_again_and_again(user: Owner, seed: int) -> None:
    """HERD_KILLS=200 for the whole of it."""
    dice = random.Random(seed)
    killed = 0
    many = 0
    while killed < KILLS:
        many += 1
        user.job(f"job{many}", COUNTING)
        while killed < KILLS and len(user.events("slot.done")) < many:
            time.sleep(dice.choice([0.05, 0.3, 1.0, 2.0, 4.0]))
            killed += user.kill_engine()
            assert user.herd("engine", "start").returncode == 0
        user.happened("slot.done", many=many, seconds=120)
    launched = [event.facts["attempt"] for event in user.events("attempt.launched")]
    assert len(set(launched)) == many, launched  # sent again, but not executed again
    for log, lines in user.said().items():
        assert lines[0] == f"begin-{log.partition('/')[0]}"
        assert lines.count(lines[0]) == 1, log
        assert lines[-1] == "end-1", log
    until(lambda: gone(user), "nothing to be left", seconds=60)


def test_of_two_engines_started_at_once_one_remains(user: Owner) -> None:
    several = [begin(user, "engine", "start") for _ in range(4)]
    assert [one.wait(60) for one in several] == [0, 0, 0, 0]
    (started,) = user.events("engine.started")
    first = user.engine()
    assert (started.facts["pid"], started.facts["host"]) == (first, socket.gethostname())
    assert user.herd("engine", "start").returncode == 0
    assert user.engine() == first


def set_least_leader(user: Owner, version: int) -> None:
    with closing(sqlite3.connect(user.store_folder / "store.db")) as store, store:
        store.execute("UPDATE lease SET least_leader = ?", (version,))


def test_an_engine_below_the_least_version_waits_or_ends_with_its_sentence(user: Owner) -> None:
    user.job("gpt", "sleep 1000")
    user.happened("attempt.started")
    assert user.herd("engine", "stop").returncode == 0
    set_least_leader(user, 99)
    for how in ("run", "start"):
        done = user.herd("engine", how)
        assert done.returncode != 0
        assert "were led by an engine of a newer herd" in done.stderr
        assert "upgrade: pip install --upgrade tpuherd" in done.stderr
    assert user.herd("ls").returncode == 0
    done = user.herd("stop", "gpt")  # it is stored, and the user hears why nothing happens
    assert done.returncode != 0
    assert "start the engine of the newer one" in done.stderr
    with user.begun("engine", "run", "--stand-by", stderr=subprocess.PIPE) as waiting:
        assert waiting.stderr is not None
        assert "were led by an engine of a newer herd" in waiting.stderr.readline()
        assert user.engine() is None
        set_least_leader(user, 0)
        until(lambda: user.engine() == waiting.pid, "the engine to lead", seconds=30)
        waiting.terminate()
    assert len(user.events("attempt.launched")) == 1


def test_term_ends_the_engine_at_once_and_nothing_else(user: Owner) -> None:
    user.job("gpt", COUNTING)
    user.happened("attempt.started")
    pid = user.engine()
    assert pid is not None
    begun = time.monotonic()
    os.kill(pid, signal.SIGTERM)
    until(lambda: user.engine() is None, "the engine to end")
    assert time.monotonic() - begun < 5
    assert user.events("engine.stopped")[-1].facts["why"] == "stopped"
    assert user.herd("engine", "start").returncode == 0
    user.happened("slot.done")
    assert len(user.events("attempt.launched")) == 1


def test_a_failing_setup_is_reported_with_its_host_and_last_lines(user: Owner) -> None:
    user.job("gpt", "true", setup=["echo E: No space left on device; echo all is lost; exit 3"])
    event = user.happened("slot.setup_failed")
    assert event.facts["finding"] == "disk-full"
    assert {host["exit"] for host in event.facts["hosts"]} == {3}
    assert {host["tail"][-1] for host in event.facts["hosts"]} == {"all is lost"}
    assert event.facts["why"].startswith("gpt-0/w[0-1]: setup step 1 (echo E: No space")
    assert event.facts["why"].endswith(
        "ended with status 3: E: No space left on device / all is lost"
    )


def test_a_running_setup_is_shown_and_can_be_replaced(user: Owner) -> None:
    """On the same node, also where it hangs; one that was changed is done again."""
    user.job("gpt", "cat ~/made; exec sleep 1000", setup=["echo begun; exec sleep 1000", "true"])
    until(lambda: ": begun" in user.herd("logs", "gpt").stdout, "the setup's word", seconds=90)
    user.job("gpt", "cat ~/made; exec sleep 1000", setup=["echo one >> ~/made"])
    user.happened("attempt.started")
    for host in (0, 1):
        assert user.herd("exec", f"gpt/w{host}", "--", "pgrep", "-c", "sleep").stdout == "1\n"
    user.job("gpt", "cat ~/made; exec sleep 1000", setup=["echo two >> ~/made"])
    user.happened("attempt.started", many=2)
    until(lambda: len(said := user.said()) == 4 and all(said.values()), "words", seconds=30)
    assert sorted(user.said().values()) == [["one"], ["one"], ["one", "two"], ["one", "two"]]
    assert len(user.events("bid.granted")) == 1


def test_outputs_are_collected_before_the_node_goes(user: Owner) -> None:
    work = user.home / "code"
    work.mkdir()
    (work / "make.sh").write_text("mkdir -p out; echo result-$HERD_WORKER >out/r.txt\n")
    user.job("gpt", "sh make.sh", workdir=str(work), outputs=["out"])
    event = user.happened("slot.collected", seconds=90)
    found = sorted(user.store_folder.glob("outputs/gpt-0/*/*/out/r.txt"))
    assert [file.read_text() for file in found] == ["result-0\n", "result-1\n"], event.facts
    until(lambda: gone(user), "nothing to be left", seconds=60)


def test_secrets_reach_setup_and_command_and_no_log(user: Owner) -> None:
    word = "hush-hush-7361"
    (user.home / "key").write_text(word)
    secrets = {"API_KEY": {"file": str(user.home / "key")}}
    wants = 'test "$API_KEY" = hush-hush-7361 && echo right'
    user.job("gpt", wants, setup=['test "${#API_KEY}" = 14'], secrets=secrets)
    user.happened("slot.done", seconds=90)
    assert {lines[-1] for lines in user.said().values()} == {"right"}
    told = "".join(str(event.facts) for event in user.events())
    assert word not in told.replace("$API_KEY", "").replace('"$API_KEY" = hush-hush-7361', "")


def test_a_lost_store_is_rebuilt_from_the_cloud(user: Owner) -> None:
    user.job("gpt", COUNTING)
    attempt = user.happened("attempt.started").facts["attempt"]
    assert user.kill_engine()
    for file in user.store_folder.glob("store.db*"):
        file.unlink()
    assert user.herd("engine", "start").returncode == 0
    user.happened("bid.adopted")
    user.happened("slot.done")
    assert {event.facts["attempt"] for event in user.events("attempt.launched")} == {attempt}
    assert all(lines[-1] == "end-1" for lines in user.said().values())
    until(lambda: gone(user), "nothing to be left", seconds=60)


def test_the_stacks_of_a_hanging_command_are_saved(user: Owner) -> None:
    user.job("gpt", "sleep 1000", stall={"step": "10s", "first": "10s"}, retry={"stalls": 0})
    event = user.happened("attempt.stacks", seconds=120)
    text = Path(event.facts["file"]).read_text()
    assert "== gpt-0-g1" in text
    assert "sleep 1000" in text
    assert "thread" in text


def test_an_engine_is_started_though_nobody_reads_what_a_command_prints(user: Owner) -> None:
    user.job("gpt", COUNTING)
    assert user.herd("engine", "stop").returncode == 0
    place = project_access.resolve_access(user.env, world=user.world.folder)
    store = Database(user.store_folder, time.time())
    with pytest.raises(ReaderGone), engine_control.starting_engine(store, place, user.env):
        raise ReaderGone  # by the first line that a command prints for `| true`
    until(lambda: store.lease_holder(time.time()), "an engine", seconds=30)
    store.close()
