"""The real gcloud: ssh and scp to hosts, and what a script on a host does with it."""

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


#: How many packets have left a host, and how many names it has looked up.
LEFT = "awk '/eth0:/ {print $11}' /proc/net/dev; awk '/^Udp: [0-9]/ {print $3}' /proc/net/snmp"
SCRIPT = """
set -e
gcloud auth list --format='value(account,status)'
gcloud config get project 2>/dev/null
gcloud auth print-access-token | cut -d. -f1
echo hello > f
gcloud storage cp f gs://there/d/f
gcloud storage ls gs://there/d
if command -v gsutil >/dev/null; then gsutil cp gs://there/d/f g; cat g; else echo hello; fi
gcloud storage rm gs://there/d/f
meta() { curl -s -H Metadata-Flavor:Google http://metadata.google.internal/computeMetadata/v1/$1; }
me=$(meta instance/attributes/instance-id) zone=$(basename $(meta instance/zone))
gcloud compute tpus tpu-vm list --zone $zone --filter name~$me --format 'value(name)'
gcloud compute tpus tpu-vm describe $me --zone $zone --format 'value(state)'
"""


@pytest.mark.needs("curl")
def test_a_script_on_a_host_is_the_nodes_account_and_asks_nobody_else(login: Login) -> None:
    world = login.world
    world.ask("POST", "storage/v1/b?project=demo", {"name": "there"})
    world.node(ZONE, "self", acceleratorType="v4-8", metadata={"ssh-keys": login.line})
    address = login.addresses(ZONE, "self")[0]

    def said(script: str) -> list[str]:
        return run([*login.ssh(address), script], login.env).stdout.split()

    before = said(LEFT)
    account = f"{world.facts['project_number']}-compute@developer.gserviceaccount.com"
    assert said(SCRIPT) == [
        account, "*", "demo", "world", "gs://there/d/f", "hello", "self", "READY",
    ]  # fmt: skip
    assert said(LEFT) == before
    said("curl -m 1 https://tpu.googleapis.com; curl -m 1 http://203.0.113.1")
    assert all(now != then for now, then in zip(said(LEFT), before, strict=True)), "both are seen"
    said(f"gcloud compute tpus tpu-vm delete self --zone {ZONE} --quiet --async")
    nodes = world.ask("GET", f"v2/projects/demo/locations/{ZONE}/nodes")["nodes"]
    assert not [one for one in nodes if one["name"].endswith("/self") and one["state"] == "READY"]
