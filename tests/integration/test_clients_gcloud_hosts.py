"""The real gcloud's ssh and scp, on one worker and on all, of nodes and of queued resources."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.conformance.login import Login, logged_in
from tests.conformance.world import run, started

ZONE = "us-central2-b"
TPU_VM = "compute tpus tpu-vm"
QUEUE = "compute tpus queued-resources"

pytestmark = [pytest.mark.real, pytest.mark.needs("gcloud", "ssh", "scp", "ssh-agent")]


@pytest.fixture(scope="module")
def login() -> Iterator[Login]:
    options = ("--no-internet", "--time-scale", "600")
    with started(*options) as world, logged_in(world) as login:
        world.node(ZONE, "n1", acceleratorType="v4-32")
        yield login


def test_ssh_step_by_step(login: Login) -> None:
    words = ["gcloud", *TPU_VM.split(), "ssh", "n1", "--zone", ZONE, "--command"]
    first = run([*words, "hostname; exit 3", "--worker", "1-2"], login.env)
    assert first.returncode == 3
    assert sorted(name[-4:] for name in first.stdout.split()) == ["-w-1", "-w-2"]
    for said in (
        "Propagating SSH public key to all TPU workers",
        "Using ssh batch size of 1. Attempting to SSH into 1 nodes with a total of 2 workers.",
        "SSH: Attempting to connect to worker 1...",
        "##### Command execution on worker 2 failed with exit status 3. Continuing.",
    ):
        assert said in first.stderr
    one = run([*words, "id -un"], login.env)
    assert (one.returncode, one.stdout) == (0, "vlialin\n")
    assert "Propagating" not in one.stderr
    known = (login.key.parent / "google_compute_known_hosts").read_text()
    key = login.world.ask(
        "POST", f"v2/projects/demo/locations/{ZONE}/nodes/n1:getGuestAttributes", {}
    )
    for entry in key["guestAttributes"][1:3]:
        values = {item["key"]: item["value"] for item in entry["queryValue"]["items"]}
        assert values["ssh-ed25519"] in known
        assert f"-{values['ssh-ed25519'][-6:].lower()} ssh-ed25519 " in known
    far = run([*words, "true", "--worker", "9"], login.env)
    assert "worker index 9 is larger than the valid worker indexes" in far.stderr
    assert "in the range [0, 3], inclusive." in far.stderr


def test_a_project_key_works_for_every_node(login: Login) -> None:
    world = login.world
    project = world.ask("GET", "compute/v1/projects/demo")["commonInstanceMetadata"]
    items = [{"key": "ssh-keys", "value": login.line}]
    body = {"fingerprint": project["fingerprint"], "items": items}
    world.ask("POST", "compute/v1/projects/demo/setCommonInstanceMetadata", body)
    world.node(ZONE, "n2", acceleratorType="v4-8")
    words = [
        "gcloud",
        *TPU_VM.split(),
        "ssh",
        "ubuntu@n2",
        "--zone",
        ZONE,
        "--command",
        "id -un",
    ]
    done = run(words, login.env)
    assert done.returncode == 0, done.stderr


def test_scp_both_ways_and_queued_resources(login: Login, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("there and back\n")
    zone = ["--zone", ZONE]
    there = ["scp", "file", "n1:", "--worker", "all", *zone]
    done = run(["gcloud", *TPU_VM.split(), *there], login.env, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    back = ["scp", "n1:file", "back", "--worker", "3", *zone]
    done = run(["gcloud", *TPU_VM.split(), *back], login.env, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "back").read_text() == "there and back\n"
    create = ["create", "q1", "--node-id", "q1n", "--accelerator-type", "v4-16", *zone]
    runtime = ["--runtime-version", "tpu-ubuntu2204-base"]
    done = run(["gcloud", *QUEUE.split(), *create, *runtime], login.env)
    assert done.returncode == 0, done.stderr
    login.world.settled(ZONE, "q1n")
    every = ["--node", "all", "--worker", "all", *zone]
    done = run(
        ["gcloud", "alpha", *QUEUE.split(), "scp", "file", "q1:", *every],
        login.env,
        cwd=tmp_path,
    )
    assert done.returncode == 0, done.stderr
    done = run(
        ["gcloud", "alpha", *QUEUE.split(), "ssh", "q1", *every, "--command", "cat file"],
        login.env,
    )
    assert (done.returncode, done.stdout) == (0, "there and back\n" * 2), done.stderr
