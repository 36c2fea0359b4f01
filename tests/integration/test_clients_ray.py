"""Ray on simulated hosts: its unmodified accelerator plug-in detects a TPU pod."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.conformance.login import Login, logged_in
from tests.conformance.world import client, run, started

SCRIPT = Path(__file__).parent / "clients" / "run_ray.py"
ZONE = "us-central1-b"

pytestmark = [pytest.mark.real, pytest.mark.heavy, pytest.mark.needs("ssh", "ssh-agent")]


@pytest.fixture(scope="module")
def login() -> Iterator[Login]:
    venv = client("ray").parents[1]
    options = ("--no-internet", "--time-scale", "600", "--offer", str(venv))
    with started(*options) as world, logged_in(world) as login:
        keys = {"ssh-keys": login.line}
        login.world.node(ZONE, "pod", acceleratorType="v6e-8", metadata=keys)
        yield login


def test_ray_sees_the_head_of_a_slice(login: Login) -> None:
    python = client("ray")
    (ip,) = login.addresses(ZONE, "pod")
    start = f"{python.with_name('ray')} start --head --port 6379 --include-dashboard false"
    begun = run([*login.ssh(ip), f"{start} --node-ip-address $(hostname -i)"], login.env)
    assert begun.returncode == 0, begun.stdout + begun.stderr
    words = [*login.ssh(ip), f"cat > ask.py && {python} ask.py"]
    asked = run(words, login.env, input=SCRIPT.read_text())
    assert asked.returncode == 0, asked.stderr
    found = json.loads(asked.stdout.splitlines()[-1])
    assert found["TPU"] == 8
    assert found["TPU-v6e-8-head"] == 1
    assert found["accelerator_type:TPU-V6E"] == 1
    assert found["pod"] == 1
