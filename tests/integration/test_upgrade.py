"""What stands lives on: programs of an earlier commit are replaced by today's while jobs run."""

import json
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from tests.conformance.earlier_commit import install_commit
from tests.conformance.postgres import started_postgres
from tests.conformance.world import HERD, started, until
from tests.integration.engines import Owner
from tests.integration.lab_members import members
from tests.integration.nfs_stand_ins import EXPORTFS, MOUNT_NFS

pytestmark = [pytest.mark.real, pytest.mark.needs("git")]

#: The last commit before the store's format 7: it has the head start of Python, and NFS in agents.
BEFORE = "50d10c3b9a33a808449c24784dcebd6bdafdff80"
TRIALS = 3
UNTIL_GO = "echo $$ >> ~/lives; until [ -e ~/go ]; do sleep 0.2; done; echo over"
WAIT_PY = """\
import os, pathlib, time
home = pathlib.Path.home()
with (home / "lives").open("a") as lives:
    print(os.getpid(), file=lives)
while not (home / "go").exists():
    time.sleep(0.2)
print("over", flush=True)
"""
JOBS = ("plain", "ahead", "shared", "try")
STILL_RUNS = "kill -0 $(cat ~/lives) && cat ~/lives"  #: a second start would have added a line


@pytest.fixture(scope="module")
def before(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The `herd` of that commit, which uses the libraries of this environment."""
    program = install_commit(BEFORE, tmp_path_factory.mktemp("before"))
    if program is None:
        pytest.skip(f"needs the commit {BEFORE[:8]} in this clone (git fetch --unshallow)")
    return program


@pytest.fixture
def user(before: Path) -> Iterator[Owner]:
    """A user of that version, in a world of that version."""
    with started("--time-scale", "60", program=before) as world:
        found = Owner(world.home, world, program=before)
        try:
            yield found
        except AssertionError as error:
            error.add_note("The cloud has: " + " ".join(found.all_there_is()))
            raise
        finally:
            replace(found, program=HERD).leave_all()


def jobs_with(user: Owner, kind: str) -> set[str]:
    """The jobs with such an event, by the user's own program: reading here migrates the store."""
    lines = user.herd("events", "--json").stdout.splitlines()
    return {one["job"] for one in map(json.loads, lines) if one["kind"] == kind}


def submit_jobs(user: Owner) -> None:
    """Start what the old version has and today's has not, or spells otherwise."""
    assert user.herd("up", "--name", "shared", "--accelerator", "v4-16", "--yes").returncode == 0
    user.job("plain", UNTIL_GO, deadline="48h", tier=["spot", "on-demand"],
             first_step="2h", stall="1h", tags=["ours"])  # fmt: skip
    code = user.home / "code"
    code.mkdir()
    (code / "wait.py").write_text(WAIT_PY)
    user.job("ahead", "python3 wait.py", accelerator="v4-8", head_start=["boot", "python"],
             workdir="code")  # fmt: skip
    sweep = {"method": "grid", "metric": "loss", "parameters": {"lr": [*range(TRIALS)]}}
    fields = {"name": "try", "accelerator": "v4-8", "zones": "any", "workdir": "code",
              "run": f"{UNTIL_GO}; python3 -m tpuherd_host.report step=1 loss=1; "
                     "python3 -m tpuherd_host.report complete", "sweep": sweep}  # fmt: skip
    file = user.home / "try.yaml"
    file.write_text(json.dumps(fields))
    done = user.herd("sweep", file, "--detach", "--yes")
    assert done.returncode == 0, done.stderr
    assert user.herd("wait", "shared", "--timeout", "60s").returncode == 0
    for name, text in (("exportfs", EXPORTFS), ("mount.nfs", MOUNT_NFS)):
        shell = f"sudo tee /usr/sbin/{name} > /dev/null && sudo chmod 755 /usr/sbin/{name}"
        done = user.herd("exec", "shared", "-c", shell, input=text)
        assert done.returncode == 0, done.stderr
    user.job("shared", UNTIL_GO, nfs={"/data": "w0"})


def look_at_hosts(user: Owner, shell: str) -> dict[str, list[str]]:
    """What a command prints on the hosts of each job; it must succeed on all of them."""
    found = {}
    for job in JOBS:
        done = user.herd("exec", "--output", "stream", job, "-c", shell)
        assert done.returncode == 0, done.stderr
        found[job] = sorted(done.stdout.splitlines())
    return found


def count_by_job(user: Owner, kind: str) -> dict[str, int]:
    return dict(Counter(one.job for one in user.events(kind)))


def test_jobs_outlive_the_replacement_of_all_programs(user: Owner) -> None:
    new = replace(user, program=HERD)
    submit_jobs(user)
    until(lambda: jobs_with(user, "attempt.started") >= set(JOBS), "all jobs to run", seconds=90)
    processes = look_at_hosts(user, STILL_RUNS)
    old = user.engine()
    assert old is not None
    assert new.herd("ls").returncode == 0  # migrates the store
    until(lambda: not Path(f"/proc/{old}").exists(), "the old engine to end", seconds=60)
    done = user.herd("ls")
    assert done.returncode != 0 and "the store was written by a newer herd" in done.stderr

    for job in JOBS:  # the same files again change nothing
        verb = "sweep" if job == "try" else "run"
        done = new.herd(verb, new.home / f"{job}.yaml", "--detach", "--yes")
        assert done.returncode == 0, done.stderr
        warning = "python was withdrawn and is ignored: the command's Python starts with its"
        assert (warning in done.stderr) == (job == "ahead"), done.stderr
    new.happened("engine.started", many=2)
    assert look_at_hosts(new, STILL_RUNS) == processes
    look_at_hosts(new, "touch ~/go")
    for job in JOBS:
        done = new.herd("wait", job, "--timeout", "120s", seconds=150)
        assert done.returncode == 0, done.stderr
    once = dict.fromkeys(JOBS, 1)
    assert count_by_job(new, "bid.requested") == once
    for kind in ("attempt.started", "attempt.ended"):
        assert count_by_job(new, kind) == {**once, "try": TRIALS}, kind
    assert [one.facts["outcome"] for one in new.events("trial.ended")] == ["complete"] * TRIALS
    assert all(lines.count("over") == 1 for lines in new.said().values())
    assert not new.events("engine.crashed")


def test_a_lab_of_two_engines_on_postgresql_outlives_it(before: Path) -> None:
    with (
        started_postgres() as server,
        started("--time-scale", "60", program=before) as world,
        members(server, world, "upgrade") as (ann, bob),
    ):
        old_ann, old_bob = (replace(one, program=before) for one in (ann, bob))
        old_ann.job("gpt", UNTIL_GO)
        with old_bob.standing_by():
            until(lambda: "gpt" in jobs_with(old_ann, "attempt.started"), "the job", seconds=90)
            processes = old_ann.herd("exec", "--output", "stream", "gpt", "-c", STILL_RUNS).stdout
            assert bob.herd("ls").returncode == 0  # migrates the database
            out = bob.home / "stand-by.out"
            until(lambda: "by a newer herd" in out.read_text(), "Bob's sentence", seconds=60)
        with bob.standing_by():
            until(lambda: bob.leader() == "bob", "Bob's new engine to lead", seconds=60)
            done = bob.herd(
                "exec", "--output", "stream", "gpt", "-c", f"{STILL_RUNS} && touch ~/go"
            )
            assert sorted(done.stdout.splitlines()) == sorted(processes.splitlines()) != []
            done = ann.herd("wait", "gpt", "--timeout", "60s")
            assert done.returncode == 0, done.stderr
        for kind in ("bid.requested", "attempt.launched", "attempt.started", "attempt.ended"):
            assert count_by_job(ann, kind) == {"gpt": 1}, kind
        assert not ann.events("engine.crashed")
