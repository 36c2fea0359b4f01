"""Two slices are one program that meets by MEGASCALE_*; one is preempted, both restart."""

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.conformance.world import client, until
from tests.integration.engines import Owner, owner

PROGRAM = Path(__file__).parent / "clients" / "train_slices.py"

pytestmark = [pytest.mark.real, pytest.mark.heavy, pytest.mark.timeout(600)]


@pytest.fixture(scope="module")
def user() -> Iterator[Owner]:
    with owner("--time-scale", "60", "--offer", str(client("inside").parents[1])) as found:
        found.bucket("slices")
        yield found
        found.herd("down", "--all", "--yes", seconds=120)


def begun(user: Owner, name: str, *words: str) -> None:
    """Two slices of one host with eight chips each."""
    code = user.home / name
    code.mkdir()
    (code / "train.py").write_text(PROGRAM.read_text())
    command = " ".join([str(client("inside")), "train.py", *words])
    more = {"slices": 2, "workdir": str(code), "checkpoint": "gs://slices", "zones": ["us-west4-a"]}
    user.job(name, command, accelerator="v5litepod-8", **more)


def said(user: Owner, job: str, number: int, beginning: str) -> list[str]:
    """What follows these words in the lines of an attempt."""
    lines = user.herd("logs", job, "--attempt", str(number)).stdout.splitlines()
    found = [re.search(rf"/w0: {beginning}(.*)", line) for line in lines]
    return [one[1] for one in found if one]


def met(user: Owner, job: str, number: int) -> list[str]:
    """The hosts of each slice that found each other, as the first process tells."""
    (words,) = said(user, job, number, "2 processes, 16 chips, slices and hosts: ")
    return words.split()


def slices(user: Owner, job: str) -> list[str]:
    listed = user.world.ask("GET", "v2/projects/demo/locations/-/nodes").get("nodes", [])
    names = [node["name"].rpartition("/")[2] for node in listed]
    return sorted(name for name in names if name.startswith(f"{job}-0-"))


def test_one_slice_is_preempted_and_both_restart(user: Owner) -> None:
    begun(user, "two", "megascale")
    until(lambda: "10" in said(user, "two", 1, "step "), "ten steps", seconds=240)
    first = slices(user, "two")
    assert [name[-2:] for name in first] == ["-0", "-1"]
    user.world.herd("preempt", first[1])
    begun(user, "calm")
    for job in ("two", "calm"):
        done = user.herd("wait", job, seconds=300)
        assert done.returncode == 0, done.stderr + user.herd("logs", job).stdout
    (resumed,) = said(user, "two", 2, "herd: resumed at step ")
    assert int(resumed.partition(",")[0]) >= 10
    hosts = [met(user, *one) for one in (("two", 1), ("two", 2), ("calm", 1))]
    assert [[name[:2] for name in each] for each in hosts] == [["0:", "1:"]] * 3
    assert set(hosts[0]).isdisjoint(hosts[1]), "an old slice took part"
    verdicts = [event.facts["verdict"] for event in user.events("attempt.ended")]
    assert sorted(verdicts) == ["preempted", "success", "success"]
    bits = [said(user, *one, "finished: ") for one in (("two", 2), ("calm", 1))]
    assert bits[0] == bits[1] != []
