"""Every row of docs/howto/lab.md about the jobs of others, as Bob types it against Ann's job.

Ann and Bob have accounts of their own, a PostgreSQL server and a world; Ann's job runs.
"""

import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing
from time import time

import pytest

from tests.conformance.postgres import started_postgres
from tests.conformance.world import started, until
from tests.integration.lab_members import Member, members
from tpuherd.store.open_database import open_database

PAGE = "name: gpt\naccelerator: v4-8\nzones: any\nrun: echo bob\n"
SWEEP = f"{PAGE}sweep:\n  method: grid\n  parameters:\n    LR: [1, 2]\n"
#: What the page says is refused, as Bob types it in a folder with these files.
REFUSED = (
    "run job.yaml --detach --yes",
    "up job.yaml --yes",
    "map job.yaml items.txt --yes -- echo {}",
    "map gpt items.txt --yes -- echo {}",
    "sweep sweep.yaml --yes",
    "stop gpt",
    "stop mine gpt",
    "resume gpt",
    "set gpt priority=low --yes",
    "set gpt copies=2 --yes",
    "down gpt --yes",
    "down mine gpt --yes",
    "sync code gpt",
)
#: What the page allows, on nodes that Bob may log in to.
ALLOWED = (
    "exec gpt -- true",
    "cp code/train.py gpt:bob.py",
    "sync code gpt:bob --yes",
    "ls --json",
    "status gpt",
    "why gpt",
    "cost gpt",
    "events gpt",
    "metrics gpt",
    "engine plan",
    "quota",
    "types --zones",
    "engine metrics",
    "export slurm gpt",
    "hosts gpt",
    "stacks gpt",
    "logs gpt",
    "chips gpt",
    "explain gpt",
)
#: What may find nothing: Ann's engine has the logs, no chip is in use, and no run has failed.
MAY_FIND_NOTHING = ("logs", "chips", "explain", "metrics", "stacks")
#: In Python, the refused calls; each prints the error.
CALLS = """
import tpuherd
from tpuherd.errors import InvalidInput
herd = tpuherd.Herd()
job = tpuherd.Job(name="gpt", accelerator="v4-8", zones="any", run="echo bob")
for call in (
    lambda: herd.stop("gpt"), lambda: herd.resume("gpt"), lambda: herd.scale("gpt", 2, yes=True),
    lambda: herd.change("gpt", max_cost=5, yes=True), lambda: herd.down("gpt", yes=True),
    lambda: herd.run(job, yes=True), lambda: herd.up(job, yes=True),
    lambda: herd.map("gpt", ["a"], "echo {}", yes=True), lambda: herd.sync("code", "gpt"),
):
    try:
        print("done", call())
    except InvalidInput as error:
        print(f"{error.sentence}; {error.hint}")
"""


@pytest.fixture(scope="module")
def lab() -> Iterator[tuple[Member, Member]]:
    with (
        started_postgres() as server,
        started("--time-scale", "60") as world,
        members(server, world, "lab") as found,
    ):
        ann, bob = found
        ann.job("gpt", "sleep 1000", accelerator="v4-8")
        ann.happened("attempt.started")
        bob.job("mine", "sleep 1000", accelerator="v4-8")
        ann.happened("attempt.started", many=2)
        (bob.home / "code").mkdir()
        (bob.home / "code/train.py").write_text("print(1)\n")
        for name, text in (("job.yaml", PAGE), ("sweep.yaml", SWEEP), ("items.txt", "a\nb\n")):
            (bob.home / name).write_text(text)
        yield found


def type_as(user: Member, line: str) -> "subprocess.CompletedProcess[str]":
    return user.herd(*line.split(), cwd=user.home)


def what_there_is(lab: tuple[Member, Member]) -> tuple[object, ...]:
    """The jobs, what happened to them, and the cloud's resources."""
    ann, _ = lab
    with closing(open_database(ann._scope, time())) as store:
        happened = [(one.kind, one.job, one.slot) for _, one in store.read_events()]
        return store.stored_jobs(), happened, sorted(ann.all_there_is())


@pytest.mark.parametrize("line", REFUSED)
def test_what_the_page_refuses_changes_nothing(lab: tuple[Member, Member], line: str) -> None:
    before = what_there_is(lab)
    done = type_as(lab[1], line)
    assert done.returncode == 2, done.stdout + done.stderr
    *_, told = done.stderr.splitlines()
    assert "gpt is ann@" in told, done.stderr
    assert "'s job; " in told, "it says what to do next"
    assert "Traceback" not in done.stderr
    assert what_there_is(lab) == before


@pytest.mark.parametrize("line", ALLOWED)
def test_what_the_page_allows_leaves_the_job_as_it_is(
    lab: tuple[Member, Member], line: str
) -> None:
    before = what_there_is(lab)
    done = type_as(lab[1], line)
    assert "'s job; " not in done.stderr
    assert "Traceback" not in done.stderr
    if not line.startswith(MAY_FIND_NOTHING):
        assert done.returncode == 0, done.stderr
    assert what_there_is(lab) == before


def test_a_node_of_another_users_job_is_not_adopted(lab: tuple[Member, Member]) -> None:
    before = what_there_is(lab)
    (lab[1].home / "other.yaml").write_text(PAGE.replace("gpt", "other"))
    node = str(lab[0].events("bid.ready")[0].facts["bid"])
    done = type_as(lab[1], f"engine adopt {node} --job other.yaml --yes")
    assert done.returncode == 2, done.stdout + done.stderr
    assert "gpt is ann@" in done.stderr
    assert what_there_is(lab) == before


def test_python_refuses_the_same_and_names_its_own_argument(lab: tuple[Member, Member]) -> None:
    before, bob = what_there_is(lab), lab[1]
    done = subprocess.run(
        [sys.executable, "-c", CALLS], env=bob.env, cwd=bob.home, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    assert len(lines) == 9, lines
    for line in lines:
        assert line.startswith("gpt is ann@"), lines
    for line in lines[:5]:
        assert "pass user='ann@" in line
    assert what_there_is(lab) == before


def test_down_all_leaves_the_jobs_of_others(lab: tuple[Member, Member]) -> None:
    ann, bob = lab
    done = type_as(bob, "down --all --yes")
    assert done.returncode == 0, done.stderr
    jobs, _, there = what_there_is(lab)
    assert isinstance(jobs, dict)
    assert list(jobs) == ["gpt"]
    assert [name for name in there if "/gpt-0-" in name] == there  # type: ignore[attr-defined]
    assert ann.herd("exec", "gpt", "--", "true").returncode == 0


def test_a_command_of_another_member_does_not_run(lab: tuple[Member, Member]) -> None:
    """Ann's engine leads: it runs her own command, and says in `herd why` that Bob's is not run."""
    ann, bob = lab
    for user in lab:
        note = {"run": f"echo $HERD_JOB >> {user.home}/ran", "on": ["done"], "digest": "0s"}
        mail = {"host": "127.0.0.1", "port": 1, "to": "a@example.com", "tls": "none"}
        user.job(f"of-{user.name}", "true", accelerator="v4-8", notify=[note, mail])
    until(lambda: (ann.home / "ran").exists(), "her command to run", seconds=120)
    done = until(
        lambda: "gets no messages" in (said := bob.herd("why", "of-bob").stdout) and said,
        "the reason", seconds=60,
    )  # fmt: skip
    assert "a command runs only in the account" in str(done)
    assert "herd notify allow" in str(done)
    until(lambda: "done" in bob.herd("ls").stdout, "his job to end", seconds=120)
    assert ann.herd("notify", "test", "of-bob").returncode == 1
    assert not (bob.home / "ran").exists()
    assert "gets no messages" not in ann.herd("why", "of-ann").stdout
    assert ann.herd("notify", "allow").returncode == 0
    until(lambda: "notify allow" not in bob.herd("why", "of-bob").stdout, "the consent", seconds=90)
    assert "a command runs only" in bob.herd("why", "of-bob").stdout
