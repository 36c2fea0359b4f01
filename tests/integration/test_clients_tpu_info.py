"""Google's tpu-info inside a host: chips, the processes that use them, and their memory.

`herd smi` reads the same service by code of its own, so the two must agree.
"""

import json
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.conformance.login import Login, logged_in
from tests.conformance.world import World, client, run, started, until
from tests.integration.users import User

pytestmark = [pytest.mark.real, pytest.mark.needs("ssh", "ssh-agent")]

GIB = 1 << 30
POINTS = 40.0  #: by which two looks at a busy process of a loaded machine may differ
ZONES = {"v6e-8": "us-central1-b", "v2-8": "us-central1-f"}


@pytest.fixture(scope="module")
def program() -> Path:
    return client("inside").with_name("tpu-info")


@pytest.fixture(scope="module")
def world(program: Path) -> Iterator[World]:
    venv = str(program.parents[1])
    with started("--no-internet", "--time-scale", "600", "--offer", venv) as world:
        yield world


@pytest.fixture(scope="module")
def user(world: World) -> Iterator[User]:
    user = User(world.home, world)
    yield user
    user.leave()


@pytest.fixture(scope="module")
def login(world: World) -> Iterator[Login]:
    with logged_in(world) as login:
        for kind, zone in ZONES.items():
            world.node(zone, kind, acceleratorType=kind, metadata={"ssh-keys": login.line})
        yield login


@pytest.mark.parametrize(
    ("kind", "devices", "file"),
    [("v6e-8", 8, "/dev/vfio/0"), ("v2-8", 8, "/dev/accel0")],  # two devices a chip on v2
)
def test_the_tables(
    login: Login, program: Path, user: User, kind: str, devices: int, file: str
) -> None:
    (ip,) = login.addresses(ZONES[kind], kind)
    idle = run([*login.ssh(ip), f"COLUMNS=160 {program}"], login.env).stdout
    assert "TPU Chips" in idle
    fill = "x = bytearray(700 << 20); import time; time.sleep(900)"
    hold = f"exec setsid nohup sudo python3 -c '{fill}' < {file} > /dev/null 2>&1 &"
    run([*login.ssh(ip), hold], login.env)

    def busy() -> str:
        said = run([*login.ssh(ip), f"COLUMNS=160 sudo -E {program}"], login.env).stdout
        return said if re.search(r"0\.[1-9]\d GiB /", said) else ""

    table = until(busy, "tpu-info to see the workload")
    assert table.count("GiB /") == devices
    held = run([*login.ssh(ip), f"sudo {program} --process"], login.env).stdout
    assert "python3" in held
    assert f"{file}" in held
    done = user.herd("smi", kind, "--json")
    assert done.returncode == 0, done.stderr
    chips = json.loads(done.stdout)
    each = devices // len(chips)
    assert re.findall(r"([\d.]+) GiB / ([\d.]+) GiB", table) == [
        (f"{one['hbm_used'] / each / GIB:.2f}", f"{one['hbm_total'] / each / GIB:.2f}")
        for one in chips
        for _ in range(each)
    ]
    assert [one["chip"] for one in chips if one["processes"]] == [file]
    assert all(one["duty_percent"] is not None for one in chips)


def test_several_programs_on_a_host_have_their_own_duty_cycles(
    login: Login, program: Path, user: User
) -> None:
    kind = "v6e-8"
    (ip,) = login.addresses(ZONES[kind], kind)
    for chip, work in ((2, "time.sleep(900)"), (3, "any(iter(int, 1))")):
        hold = f"exec setsid nohup python3 -c 'import time; {work}' < /dev/vfio/{chip}"
        run([*login.ssh(ip), f"{hold} > /dev/null 2>&1 &"], login.env)

    def look() -> list[float]:
        said = run([*login.ssh(ip), f"COLUMNS=160 {program}"], login.env).stdout
        return [float(word) for word in re.findall(r"GiB\s*\W\s*([\d.]+)%", said)]

    until(lambda: [one for one in look()[3:4] if one > 1], "tpu-info to see work", seconds=30)
    theirs = look()
    done = user.herd("smi", kind, "--json")
    ours = [one["duty_percent"] for one in json.loads(done.stdout)]
    assert ours[:3] == theirs[:3] == [0.0, 0.0, 0.0]
    assert ours[3] > 1
    assert ours[3] == pytest.approx(theirs[3], abs=POINTS)
    assert ours[4:] == theirs[4:] == [0.0] * 4
    held = {one["chip"] for one in json.loads(done.stdout) if one["processes"]}
    assert held >= {"/dev/vfio/2", "/dev/vfio/3"}
