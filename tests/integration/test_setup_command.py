"""`herd setup gcp` as typed: what it shows, asks, refuses and survives."""

import json
from collections.abc import Iterator
from typing import Any

import jsonschema  # type: ignore[import-untyped]
import pytest
from json_schemas import SCHEMAS

from tests.conformance.world import started, until
from tests.integration.users import Terminal, User
from tpuherd.exit_status import ABORTED

pytestmark = pytest.mark.real
FIREWALLS = "compute/v1/projects/demo/global/firewalls"


@pytest.fixture(scope="module")
def user() -> Iterator[User]:
    with started("--time-scale", "60") as world:
        user = User(world.home, world)
        try:
            yield user
        finally:
            user.leave()


@pytest.fixture
def empty(user: User) -> User:
    """The project has nothing that a setup makes, and neither has the user's folder."""
    if journal(user):
        user.herd("setup", "gcp", "--undo", "--yes")
    for name in ("tpu", "compute"):
        user.world.ask("POST", f"v1/projects/demo/services/{name}.googleapis.com:enable", {})
    until(lambda: rules(user) is not None, "Compute")
    for name in rules(user) or ():
        user.world.ask("DELETE", f"{FIREWALLS}/{name}")
    return user


def rules(user: User) -> dict[str, Any] | None:
    try:
        found = user.world.ask("GET", FIREWALLS)
    except OSError:
        return None
    return {one["name"]: one for one in found.get("items", ())}


def journal(user: User) -> list[dict[str, Any]]:
    folder = user.home / ".config/tpuherd/setup"
    files = sorted(folder.glob("*.json"))
    return [] if not files else list(json.loads(files[0].read_text())["changes"])


def test_a_newcomer_sees_it_first_and_takes_it_back(empty: User) -> None:
    words = ("setup", "gcp", "--from", "203.0.113.7", "--mosh", "--way", "external")
    refused = empty.herd(*words)
    assert refused.returncode == 2
    assert refused.stderr.endswith("without a terminal, confirm with --yes\n")
    plan = refused.stdout.splitlines()
    assert "network default, way external" in plan[0]
    assert "  ✓ tpu.googleapis.com is enabled" in plan
    assert "  + Let tcp:22, udp:60000-61000 from 203.0.113.7/32 reach the network default" in plan
    dry = empty.herd(*words, "--dry-run")
    assert (dry.returncode, dry.stdout.splitlines()[-1]) == (0, "Nothing was changed")
    assert (rules(empty), journal(empty)) == ({}, [])
    done = empty.herd(*words, "--yes", "--json")
    assert done.returncode == 0, done.stderr
    content = json.loads(done.stdout)
    jsonschema.validate(content, SCHEMAS["herd setup gcp --json"])
    made = {one["kind"] for one in content["steps"] if one["state"] == "made"}
    assert made == {"firewall", "key", "way"}
    (rule,) = (rules(empty) or {}).values()
    assert rule["sourceRanges"] == ["203.0.113.7/32"]
    contexts = json.loads((empty.home / ".config/tpuherd/contexts.json").read_text())
    assert contexts["contexts"]["demo"]["ways"] == ["external"]
    back = empty.herd("setup", "gcp", "--undo", "--yes", "--json")
    assert back.returncode == 0, back.stderr
    jsonschema.validate(json.loads(back.stdout), SCHEMAS["herd setup gcp --undo --json"])
    assert (rules(empty), journal(empty)) == ({}, [])


def test_the_whole_internet_is_asked_for_twice(empty: User) -> None:
    words = ("setup", "gcp", "--from", "anywhere", "--keys", "node")
    refused = empty.herd(*words, "--yes")
    assert refused.returncode == 2
    assert "let every address on the Internet try to log in" in refused.stderr
    assert rules(empty) == {}
    window = Terminal(empty, *words)
    window.expect(rb"Let tcp:22 from 0\.0\.0\.0/0 reach the network default")
    window.expect(rb"make 1 change, as shown above")
    window.expect(rb"\[y/n\]")
    window.type(b"y\n")
    window.expect(rb"every address on the Internet")
    window.expect(rb"\[y/n\]")
    window.type(b"n\n")
    assert window.end() == ABORTED
    assert rules(empty) == {}
    done = empty.herd(*words, "--yes", "--open-to-internet")
    assert done.returncode == 0, done.stderr
    assert [one["sourceRanges"] for one in (rules(empty) or {}).values()] == [["0.0.0.0/0"]]


def test_a_killed_command_leaves_its_record_and_a_second_run_completes(empty: User) -> None:
    late = {"seconds": 20, "method": "firewalls.create", "times": 1}
    empty.world.ask("POST", "sim/v1/weather/delay", late)
    words = ("setup", "gcp", "--from", "203.0.113.7", "--yes")
    with empty.begun(*words) as process:
        until(lambda: bool(rules(empty)), "the rule")
        process.kill()
        process.wait(60)
    (change,) = journal(empty)
    assert (change["kind"], change["settled"]) == ("firewall", False)
    done = empty.herd(*words)
    assert done.returncode == 0, done.stderr
    assert [(one["kind"], one["settled"]) for one in journal(empty)] == [
        ("firewall", True), ("key", True),
    ]  # fmt: skip
    assert empty.herd("setup", "gcp", "--undo", "--yes").returncode == 0
    assert rules(empty) == {}


def test_a_refusal_in_the_middle_says_what_to_do(empty: User) -> None:
    denied = {"http": 403, "method": "firewalls.create", "times": 1}
    empty.world.ask("POST", "sim/v1/weather/http-error", denied)
    words = ("setup", "gcp", "--from", "203.0.113.7", "--yes")
    done = empty.herd(*words)
    assert done.returncode == 1
    assert "✗ Let tcp:22 from 203.0.113.7/32 reach the network default: " in done.stdout
    assert "roles/compute.securityAdmin" in done.stdout
    assert done.stdout.endswith("herd setup gcp --undo; see what stands at ✗\n")
    assert [one["kind"] for one in journal(empty)] == ["key"]
    assert empty.herd(*words).returncode == 0
