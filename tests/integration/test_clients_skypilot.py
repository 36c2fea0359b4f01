"""SkyPilot's TPU provisioner, unmodified."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.conformance.world import World, client, run, started

SCRIPT = Path(__file__).parent / "clients" / "run_skypilot.py"

pytestmark = [pytest.mark.real, pytest.mark.heavy]


@pytest.fixture(scope="module")
def world() -> Iterator[World]:
    python = client("skypilot")
    with started("--hosts", "none", "--time-scale", "600") as world:
        world.proxy_env["SKYPILOT_DISABLE_USAGE_COLLECTION"] = "1"
        world.proxy_env["PYTHON_HERE"] = str(python)
        yield world


def said(world: World, what: str) -> Any:
    done = run([world.proxy_env["PYTHON_HERE"], SCRIPT, what], world.proxy_env)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.splitlines()[-1])


@pytest.mark.parametrize("what", ["node", "queued resource"])
def test_from_create_to_terminate(world: World, what: str) -> None:
    found = said(world, what)
    assert (found["errors"], found["states"], found["vpc"]) == (None, ["READY"], "default")
    assert found["ips"][0].startswith("127.")
    assert found["left"] == {}


def test_a_refused_type(world: World) -> None:
    (error, *_) = said(world, "refused")
    assert "v9-8" in error["message"]


def test_no_capacity(world: World) -> None:
    world.herd("weather", "capacity", "us-central2-b", "*", "0")
    try:
        (error,) = said(world, "no capacity")
    finally:
        world.herd("weather", "capacity", "us-central2-b", "*", "unlimited")
    assert error["code"] == 8
    assert "There is no more capacity in the zone" in error["message"]
