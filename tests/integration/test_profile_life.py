"""A JAX job on a pod of a world: its step, its stacks and its trace, as a user sees them."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jsonschema  # type: ignore[import-untyped]
import pytest
from json_schemas import SCHEMAS

from tests.conformance.world import client, until
from tests.integration.engines import Owner, owner

pytestmark = pytest.mark.real
SCRIPT = """
import os, threading, time
from tpuherd_host import train

def main():
    pod = train.init()
    import jax, jax.numpy as jnp
    work = jax.jit(lambda x: (x @ x) / 64.0)
    x, run = jnp.ones((64, 64)), train.Run()
    for step in run.steps(1 << 30):
        x = work(x).block_until_ready()
        time.sleep(0.02)
        if pod.index == 1 and os.path.exists("stuck"):
            read_slowly()
        run.keep(None, loss=1.0)

def read_slowly():
    time.sleep(600)

if __name__ == "__main__":
    main()
"""
#: Connects to the profiler by an address of the host's own, and by loopback.
PROBE = """
import socket, sys
for address in sys.argv[1:]:
    with socket.socket() as line:
        print(line.connect_ex((address, 9012)) == 0)
"""


@pytest.fixture(scope="module")
def user() -> Iterator[Owner]:
    with owner("--time-scale", "60", "--offer", str(client("inside").parents[1])) as found:
        yield found


def submit(user: Owner, name: str, **fields: Any) -> None:
    folder = user.home / name
    folder.mkdir()
    (folder / "train.py").write_text(SCRIPT)
    user.job(name, f"exec {client('inside')} train.py", workdir=str(folder), **fields)
    until(lambda: step_rates(user, name), f"{name} to report its pace", seconds=120)


def step_rates(user: Owner, name: str) -> list[float]:
    """The steps per second of each host, once all have told: a first report has a step only."""
    rows = json.loads(user.herd("smi", name, "--json").stdout or "[]")
    rates = {row["host"]: row["step_rate"] for row in rows}
    return [] if None in rates.values() else list(rates.values())


def test_a_job_is_traced_on_all_hosts_and_its_profiler_is_hidden(
    user: Owner, tmp_path: Path
) -> None:
    submit(user, "seen", profiler=True)
    rows = json.loads(user.herd("smi", "seen", "--json").stdout)
    assert {(row["slot"], row["attempt"]) for row in rows} == {("seen-0", 1)}
    assert all(0 < row["step_rate"] < 50 for row in rows)
    done = user.herd("profile", "seen", "--seconds", "4", "--json", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    jsonschema.validate(found, SCHEMAS["herd profile TARGET --json"])
    assert [one["host"] for one in found["hosts"]] == ["seen-0/w0", "seen-0/w1"]
    for one in found["hosts"]:
        content = Path(one["file"]).read_bytes()
        assert Path(one["file"]).parent.parent == tmp_path / "profile-seen/plugins/profile"
        assert len(content) == one["bytes"]
        assert b"/host:CPU" in content  # a plane of the trace
        assert 0.01 < one["step_s_before"] < 5
    hosts = json.loads(user.herd("hosts", "seen", "--json").stdout)
    address = hosts[0]["internal_ip"]
    for worker, reached in (("w0", "False\nTrue\n"), ("w1", "False\nTrue\n")):
        words = ("python3", "-c", PROBE, address, "127.0.0.1")
        assert (
            user.herd("exec", "-q", f"seen/{worker}", "--", *words).stdout.replace(
                f"seen-0/{worker}: ", ""
            )
            == reached
        )
    assert "herd-profile" not in user.herd("exec", "seen", "-c", "ls /tmp").stdout


def test_a_host_that_is_stuck_stands_out(user: Owner) -> None:
    submit(user, "odd")
    equal = user.herd("stacks", "odd")
    assert equal.returncode == 0, equal.stderr
    assert "train.py" in equal.stdout
    assert user.herd("exec", "odd", "-c", "touch herd/odd/stuck").returncode == 0

    def stuck() -> str:
        said = user.herd("stacks", "odd").stdout
        return said if "in read_slowly" in said else ""

    text = until(stuck, "worker 1 to be stuck", seconds=60)
    head, _, rest = text.partition("in read_slowly")
    assert "odd-0/w1 (1 of 2 hosts)" in head.splitlines()[-3]
    assert "read_slowly" not in rest
    rows = json.loads(user.herd("stacks", "odd", "--json").stdout)
    jsonschema.validate(rows, SCHEMAS["herd profile TARGET --stacks --json"])
    assert {row["host"] for row in rows} == {"odd-0/w0", "odd-0/w1"}
    refused = user.herd("profile", "odd", "--seconds", "1")
    assert refused.returncode == 2
    assert "its script runs without a profiler; herd set odd profiler=true" in refused.stderr


def test_without_an_attempt_there_is_nothing_to_see(user: Owner) -> None:
    user.job("bare", "exit 0", node={"done": "keep"})
    user.happened("slot.done")
    for words in (("stacks", "bare"), ("profile", "bare")):
        done = user.herd(*words)
        assert done.returncode == 4, done.stdout
        assert "no attempt of a job runs" in done.stderr
