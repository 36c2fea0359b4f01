"""Unmodified programs that talk to Google Cloud: only their environment differs."""

import json
from pathlib import Path

import pytest

from tests.conformance.world import World, client, run

SCRIPT = Path(__file__).parent / "clients" / "run_as_is.py"

pytestmark = pytest.mark.real


def test_googles_libraries_over_tls(world: World) -> None:
    """REST and googleapiclient, discovery of both kinds, Compute, Storage, a service account."""
    env = {name: value for name, value in world.proxy_env.items() if "EMULATOR" not in name}
    done = run([client("light"), SCRIPT, "demo-us-central2"], env)
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert found["state"] == "READY"
    assert found["project"] == "demo"
    assert found["bucket"] == "US-CENTRAL2"
    node = "projects/demo/locations/us-central2-b/nodes/as-is"
    assert found["v2 static"] == found["v2alpha1 static"] == found["v2 dynamic"] == [node]
    assert "default-allow-ssh" in found["firewall"]
