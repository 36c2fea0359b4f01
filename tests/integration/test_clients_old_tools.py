"""Unmaintained tools of the TPU community, as published."""

from collections.abc import Iterator

import pytest

from tests.conformance.world import World, client, run, started

ZONE = "europe-west4-a"

pytestmark = [pytest.mark.real, pytest.mark.heavy]


@pytest.fixture(scope="module")
def world() -> Iterator[World]:
    with started("--hosts", "none", "--time-scale", "600") as world:
        world.node(ZONE, "tpu-1", acceleratorType="v3-8", schedulingConfig={"preemptible": True})
        yield world


def test_tpunicorn_lists_nodes_with_their_age(world: World) -> None:
    """It reads the list of API v1, every zone in turn."""
    program = client("tpunicorn").with_name("pu")
    done = run([program, "list"], world.proxy_env)
    assert done.returncode == 0, done.stderr
    head, row = done.stdout.strip().splitlines()[-2:]
    assert head.split()[:4] == ["ZONE", "INDEX", "TYPE", "AGE"]
    assert row.split()[:3] == [ZONE, "1", "v3-8"]
    for word in ("tpu-1", "READY", "HEALTHY", "default", "yes"):
        assert word in row.split()


@pytest.mark.needs("gcloud")
def test_tpucare_finds_usable_nodes(world: World) -> None:
    """It asks gcloud for the project when imported, and for the list of a zone."""
    script = f"import tpucare; print(tpucare.PROJECT, tpucare.tpu_names({ZONE!r}))"
    done = run([client("tpucare"), "-c", script], world.env)
    assert (done.returncode, done.stdout) == (0, "demo ['tpu-1']\n"), done.stderr
