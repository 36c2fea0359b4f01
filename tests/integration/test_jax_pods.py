"""JAX on simulated pods: a bare `jax.distributed.initialize()` finds its own pod only."""

import json
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from tests.conformance.login import Login, logged_in
from tests.conformance.world import client, run, started

PROGRAM = Path(__file__).parent / "clients" / "run_pod.py"
ZONE = "us-central1-a"

pytestmark = [pytest.mark.real, pytest.mark.needs("ssh", "scp", "ssh-agent")]


@pytest.fixture(scope="module")
def python() -> Path:
    return client("inside")


@pytest.fixture(scope="module")
def login(python: Path) -> Iterator[Login]:
    options = ("--no-internet", "--time-scale", "600", "--offer", str(python.parents[1]))
    with started(*options) as world, logged_in(world) as login:
        yield login


@pytest.fixture(autouse=True)
def tidy(login: Login) -> Iterator[None]:
    yield
    login.world.clear()


def together(login: Login, python: Path, ips: list[str]) -> list[dict[str, Any]]:
    """What the program says on each of these hosts, all started at once."""
    source = PROGRAM.read_text()

    def on(ip: str) -> dict[str, Any]:
        words = [*login.ssh(ip), f"cat > program.py && exec {python} program.py"]
        done = run(words, login.env, input=source, seconds=150)
        assert done.returncode == 0, done.stderr[-3000:]
        # Gloo says on the same stream, and not always before, whom it met.
        ours = [line for line in done.stdout.splitlines() if line.startswith("{")]
        said: dict[str, Any] = json.loads(ours[-1])
        return said

    with ThreadPoolExecutor(len(ips)) as pool:
        return list(pool.map(on, ips))


def names(login: Login, ips: list[str]) -> list[str]:
    return [run([*login.ssh(ip), "hostname"], login.env).stdout.strip() for ip in ips]


def test_two_pods_side_by_side_do_not_meet(login: Login, python: Path) -> None:
    pods = {}
    for pod in ("a", "b"):
        keys = {"ssh-keys": login.line}
        login.world.node(ZONE, pod, acceleratorType="v5litepod-16", metadata=keys)
        pods[pod] = login.addresses(ZONE, pod)
    said = together(login, python, pods["a"] + pods["b"])
    for answers, ips in ((said[:4], pods["a"]), (said[4:], pods["b"])):
        assert [one["process"] for one in answers] == [0, 1, 2, 3]
        assert {one["processes"] for one in answers} == {4}
        assert {one["platform"] for one in answers} == {"cpu"}
        everyone = names(login, ips)
        assert all(one["met"] == everyone for one in answers)


def test_a_multislice_of_two_is_one_program(login: Login, python: Path) -> None:
    where = f"projects/demo/locations/{ZONE}"
    node = {
        "acceleratorType": "v5litepod-16",
        "runtimeVersion": "v2-alpha-tpuv5-lite",
        "networkConfig": {"enableExternalIps": True},
        "metadata": {"ssh-keys": login.line},
    }
    slices = {"nodeCount": 2, "nodeIdPrefix": "ms"}
    body = {"tpu": {"nodeSpec": [{"parent": where, "multisliceParams": slices, "node": node}]}}
    login.world.ask("POST", f"v2/{where}/queuedResources?queuedResourceId=q1", body)
    login.world.settled(ZONE, "ms-0")
    login.world.settled(ZONE, "ms-1")
    ips = login.addresses(ZONE, "ms-0") + login.addresses(ZONE, "ms-1")
    said = together(login, python, ips)
    assert [one["process"] for one in said] == list(range(8))
    assert {one["processes"] for one in said} == {8}
    assert all(one["met"] == names(login, ips) for one in said[:1])
