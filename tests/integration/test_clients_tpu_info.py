"""Google's tpu-info inside a host: chips, the processes that use them, and their memory."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.conformance.login import Login, logged_in
from tests.conformance.world import client, run, started, until

pytestmark = [pytest.mark.real, pytest.mark.needs("ssh", "ssh-agent")]

ZONES = {"v6e-8": "us-central1-b", "v2-8": "us-central1-f"}


@pytest.fixture(scope="module")
def program() -> Path:
    return client("inside").with_name("tpu-info")


@pytest.fixture(scope="module")
def login(program: Path) -> Iterator[Login]:
    venv = str(program.parents[1])
    options = ("--no-internet", "--time-scale", "600", "--offer", venv)
    with started(*options) as world, logged_in(world) as login:
        for kind, zone in ZONES.items():
            world.node(zone, kind, acceleratorType=kind, metadata={"ssh-keys": login.line})
        yield login


@pytest.mark.parametrize(
    ("kind", "devices", "file"),
    [("v6e-8", 8, "/dev/vfio/0"), ("v2-8", 8, "/dev/accel0")],  # two devices a chip on v2
)
def test_the_tables(login: Login, program: Path, kind: str, devices: int, file: str) -> None:
    (ip,) = login.addresses(ZONES[kind], kind)
    idle = run([*login.ssh(ip), f"COLUMNS=160 {program}"], login.env).stdout
    assert "TPU Chips" in idle
    hold = f"exec setsid nohup sudo sleep 900 < {file} > /dev/null 2>&1 &"
    run([*login.ssh(ip), hold], login.env)

    def busy() -> str:
        said = run([*login.ssh(ip), f"COLUMNS=160 sudo -E {program}"], login.env).stdout
        return said if "GiB" in said else ""

    table = until(busy, "tpu-info to see the workload", seconds=20)
    assert table.count("GiB /") == devices
    held = run([*login.ssh(ip), f"sudo {program} --process"], login.env).stdout
    assert "sleep" in held
    assert f"{file}" in held
