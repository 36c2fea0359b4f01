"""The collective of `herd check`: when it may run, and what its output means."""

import json
from dataclasses import replace
from typing import Any

import pytest

from tests.unit.check_scenes import make_host
from tpuherd.checks.check_results import CheckStatus
from tpuherd.checks.collective import (
    ProbeOutput,
    common_python,
    find_obstacle,
    judge_collective,
    parse_report,
)
from tpuherd.checks.expectations import describe_job
from tpuherd.checks.known_hosts import find_other_keys
from tpuherd.model.slots_and_plan import Goal
from tpuherd.model.stored_job import StoredJob

GANG = [make_host(0, {}), make_host(1, {})]
GOOD = {
    "devices": 8, "local": 4, "processes": 2, "platform": "tpu", "kind": "TPU v4",
    "right": True, "bytes": 1 << 26, "seconds": 0.001,
}  # fmt: skip


def said(**changes: Any) -> ProbeOutput:
    return ProbeOutput(text=f"noise of gloo\n\nherd-check: {json.dumps({**GOOD, **changes})}\n")


def failed(text: str, status: int) -> ProbeOutput:
    return ProbeOutput(text=text, status=status)


def test_a_right_sum_prints_the_bandwidth_of_the_slowest_host() -> None:
    found = judge_collective(GANG, {"pod/w0": said(), "pod/w1": said(seconds=0.002)})
    assert (found.status, found.found) == (
        CheckStatus.OK,
        "the sum over 8 devices of 2 hosts is right: 64 MiB in 2 ms, 58.7 GB/s for each device",
    )


@pytest.mark.parametrize(
    ("second", "words"),
    [
        (said(right=False), "a sum over all chips is wrong on pod/w1"),
        (failed("ModuleNotFoundError: No module named 'jaxlib'\n", 1), "fails on pod/w1: Module"),
        (failed("The TPU is already in use by process with pid 7\n", 1), "with pid 7"),
        (failed("what is this\n", 3), "fails on pod/w1: what is this"),
        (failed("", 5), "fails on pod/w1: it ends with status 5 and says nothing"),
        (said(seconds=0), "fails on pod/w1"),
        (failed("herd-check: {}", 0), "fails on pod/w1"),
        (failed("herd-check: {", 0), "fails on pod/w1"),
        (said(devices=4), "2 of 2 hosts found each other"),
    ],
)
def test_what_one_host_says_is_a_problem(second: ProbeOutput, words: str) -> None:
    found = judge_collective(GANG, {"pod/w0": said(), "pod/w1": second})
    assert found.status is CheckStatus.PROBLEM
    assert words in found.found and found.remedy


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"processes": 1}, "1 of 2 hosts found each other"),
        ({"local": 3, "devices": 6}, "JAX counts 3 devices on a host of 4 chips"),
        ({"platform": "cpu"}, "JAX finds no TPU and takes CPUs"),
    ],
)
def test_what_all_hosts_say_is_a_problem(changes: dict[str, Any], words: str) -> None:
    text = said(**changes)
    found = judge_collective(GANG, {"pod/w0": text, "pod/w1": text})
    assert (found.status, words in found.found) == (CheckStatus.PROBLEM, True), found


def test_cpus_are_right_where_the_login_asks_for_them() -> None:
    row = {"name": "JAX_PLATFORMS", "value": "cpu", "where": "login"}
    gang = [make_host(at, {"facts": {"settings": {"variables": [row]}}}) for at in range(2)]
    text = said(platform="cpu")
    found = judge_collective(gang, {"pod/w0": text, "pod/w1": text})
    assert found.status is CheckStatus.OK and "on CPUs as JAX_PLATFORMS says" in found.found


def test_it_uses_the_first_python_that_has_jax_everywhere() -> None:
    def rows(*names: str) -> dict[str, Any]:
        some = [{"name": n, "path": n, "version": "3.11", "packages": {"jax": "1"}} for n in names]
        return {"facts": {"pythons": some}}

    assert common_python([make_host(0, rows("a", "b")), make_host(1, rows("c", "b"))]) == "b"
    assert common_python([make_host(0, rows("a")), make_host(1, rows("c"))]) is None
    assert common_python([make_host(0, {"facts": {"pythons": []}})]) is None


def test_it_takes_no_chips_that_somebody_has() -> None:
    task = {"id": "gpt-0-a2", "kind": "attempt"}
    command = {"id": "x", "kind": "command"}
    user = {"device": "/dev/accel0", "pid": 7, "user": "a", "command": "c", "work": "", "parent": 1}
    port = {"port": 8476, "address": "::", "pid": 7}
    for facts, words in (
        ({"tasks": [task]}, "gpt-0-a2 runs there"),
        ({"holders": [user]}, "the chips of pod/w1 are in use"),
        ({"ports": [port]}, "port 8476 of pod/w1 is in use"),
        ({"tasks": [command, {"id": "check-a7q", "kind": "command"}]}, "another herd check"),
        ({"tasks": [command]}, ""),
    ):
        found = find_obstacle([make_host(0, {}), make_host(1, {"facts": facts})])
        assert found.startswith(words) and bool(found) == bool(words)


def test_a_report_of_rubbish_is_no_report() -> None:
    assert parse_report(said().text) is not None
    rubbish = (said(devices=-1).text, said(platform="x" * 999).text)
    for text in ("", "herd-check: ", "herd-check: []", *rubbish):
        assert parse_report(text) is None


def stored(goal: Goal, **fields: Any) -> StoredJob:
    return StoredJob(job="gpt", goal=goal, document=fields, made_at=0, changed_at=0)


def test_what_a_check_takes_from_a_job() -> None:
    runs = stored(Goal.RUN, run="~/venv/bin/python train.py", secrets={"WANDB_API_KEY": "env:K"})
    job = describe_job(runs, over=False)
    assert (job.wants_chips, job.pythons, job.has_wandb_key) == (
        True, ("~/venv/bin/python",), True,
    )  # fmt: skip
    assert not describe_job(runs, over=True).wants_chips
    assert not describe_job(replace(runs, goal=Goal.IDLE), over=False).wants_chips
    code = replace(stored(Goal.RUN, run=[".venv/bin/python", "train.py"]), snapshot="ab12")
    assert describe_job(code, over=False).pythons == (
        "herd/gpt/.venv/bin/python", "herd/gpt/venv/bin/python",
    )  # fmt: skip
    other = describe_job(stored(Goal.RUN, run=["python3", "-m", "x"], env={"A": "b"}), over=False)
    assert (other.wants_chips, other.pythons, other.has_wandb_key) == (True, (), False)


KNOWN = """\
# 34.1.2.3 ssh-ed25519 OLD
34.1.2.3,host ssh-ed25519 OLD
[34.1.2.5]:2222 ssh-ed25519 OLD
34.1.2.4 ssh-ed25519 MINE
34.1.2.6 ssh-rsa OTHERKIND
|1|c2FsdHNhbHQ=|broken ssh-ed25519 OLD
|1|F1E1KeoE/eEWhi10WpGv4OdiO6Y=|3988QV0VE8wmZL7suNrYQLITLCg= ssh-ed25519 HASHED
"""


def test_addresses_that_ssh_knows_by_another_key() -> None:
    keys = ["ssh-ed25519 MINE"]
    hosts = {f"34.1.2.{at}": keys for at in (3, 4, 5, 6, 7)} | {
        "192.168.1.61": keys,
        "34.1.2.8": [],
    }
    assert find_other_keys(KNOWN, hosts) == {
        "34.1.2.3": "OLD", "34.1.2.5": "OLD", "192.168.1.61": "HASHED",
    }  # fmt: skip
    assert find_other_keys("", hosts) == {}
