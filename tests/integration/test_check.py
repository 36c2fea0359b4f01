"""`herd check` as a newcomer types it: without anything, in a world, and with what it mends."""

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from time import monotonic
from typing import Any

import pytest

from tests.conformance.world import HERD, World, started
from tests.integration.users import User

pytestmark = pytest.mark.real
FIELDS = ["check", "where", "status", "found", "matters", "remedy", "fix"]


@pytest.fixture(scope="module")
def world() -> Iterator[World]:
    with started("--hosts", "none", "--time-scale", "60") as made:
        yield made


@pytest.fixture
def user(world: World, tmp_path: Path) -> User:
    return User(tmp_path, world)


def results(user: User, *words: str) -> list[dict[str, Any]]:
    done = user.herd("check", "--json", *words)
    found: list[dict[str, Any]] = json.loads(done.stdout)
    assert done.returncode == int(any(one["status"] == "problem" for one in found)), done.stderr
    return found


def test_an_empty_home_without_a_login(tmp_path: Path) -> None:
    home = tmp_path / "home"
    home.mkdir()
    environ = {"HOME": str(home), "PATH": str(tmp_path), "NO_GCE_CHECK": "true"}  # without gcloud
    began = monotonic()
    done = subprocess.run([HERD, "check"], env=environ, capture_output=True, text=True, timeout=60)
    assert monotonic() - began < 10
    assert (done.returncode, done.stderr) == (1, "")
    assert "✗ login: " in done.stdout
    assert "herd sim start" in done.stdout
    assert done.stdout.splitlines()[-1].endswith("2 problems, 1 warning, 11 not looked at")
    assert not any(home.iterdir()), "a look changes nothing"


def test_a_new_world_is_fine(user: User) -> None:
    found = results(user)
    assert [one for one in found if one["status"] != "ok"] == []
    assert {one["where"] for one in found} == {"this machine", "project demo (simulated)"}
    assert all(list(one) == FIELDS for one in found)
    done = user.herd("check")
    assert done.stdout.splitlines()[-1] == f"{len(found)} checks: {len(found)} fine"


def test_fix_mends_and_checks_again(user: User) -> None:
    config = user.home / ".config/tpuherd"
    (user.home / ".ssh").mkdir(mode=0o700)
    (user.home / ".ssh/config").write_text("Nonsense yes\n")
    user.herd("hosts", "nothing")  # creates the key
    (config / "id_ed25519").chmod(0o644)
    bad = {one["check"]: one["status"] for one in results(user) if one["status"] != "ok"}
    assert bad == {"ssh-key": "warning", "ssh-config": "problem"}
    done = user.herd("check", "--fix")
    assert done.returncode == 1, "nobody but the user can correct the line"
    assert f"changed the mode of {config}/id_ed25519 from 644 to 600" in done.stderr
    assert "✗ ssh-config: ssh refuses" in done.stdout
    assert "line 1: Bad configuration option: nonsense" in done.stdout
    (user.home / ".ssh/config").write_text("Host *\n")
    done = user.herd("check", "--fix")
    assert (done.returncode, done.stderr) == (
        0,
        "herd check: nothing found that --fix can repair safely\n",
    )
    user.leave()


OLDER = """
import sys
from tpuherd import _version
_version.__version__ = "99.0"
from tpuherd.launcher import main
main()
"""


def test_an_idle_daemon_of_another_version_is_replaced(user: User) -> None:
    user.herd("hosts", "nothing")
    assert user.daemon_pid() is not None
    try:
        words = [sys.executable, "-c", OLDER, "check", "--fix"]
        done = subprocess.run(words, env=user.env, capture_output=True, text=True, timeout=60)
        assert "stopped the old daemon" in done.stderr, done.stdout
        assert "✓ daemon: none runs" in done.stdout
        assert user.daemon_pid() is None
    finally:
        user.leave()


def test_a_target_that_can_not_be_reached(user: User, tmp_path: Path) -> None:
    done = user.herd("--world", tmp_path / "w", "check", "gpt")
    assert done.returncode == 1
    assert f"there is no world in {tmp_path}/w" in done.stdout
    config = tmp_path / ".config/tpuherd"
    config.mkdir(parents=True, exist_ok=True)
    (config / "id_ed25519").write_text("nonsense")
    found = {one["check"]: one for one in results(user, "gpt")}
    assert found["ssh-key"]["status"] == "problem"
    assert found["reach"]["status"] == "skipped"
    assert found["apis"]["status"] == "ok"


def test_what_the_project_lacks_is_found_and_setup_mends_it(user: User) -> None:
    path = "v1/projects/demo/services/compute.googleapis.com"
    user.world.ask("DELETE", "compute/v1/projects/demo/global/firewalls/default-allow-ssh")
    user.world.ask("POST", f"{path}:disable", {})
    found = {one["check"]: one for one in results(user)}
    assert (found["apis"]["status"], found["project"]["status"]) == ("problem", "ok")
    assert found["firewall"]["status"] == "skipped", "Compute does not answer"
    assert "herd setup gcp" in found["apis"]["remedy"]
    done = user.herd("setup", "gcp", "--yes", "--from", "198.51.100.7")
    assert done.returncode == 0, done.stdout
    found = {one["check"]: one for one in results(user)}
    assert {one["status"] for one in found.values()} == {"ok"}
    assert "from 198.51.100.7/32 only" in found["firewall"]["found"]
