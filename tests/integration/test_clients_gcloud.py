"""The real gcloud, command by command: what it prints about a world, and about refusals."""

import json
from collections.abc import Callable, Iterator

import pytest

from tests.conformance.world import World, run

ZONE = "us-central2-b"
TPU_VM = "compute tpus tpu-vm"
QUEUE = "compute tpus queued-resources"

pytestmark = [pytest.mark.real, pytest.mark.needs("gcloud", "ssh")]


@pytest.fixture(autouse=True)
def tidy(world: World) -> Iterator[None]:
    yield
    world.clear()


Gcloud = Callable[..., str]


@pytest.fixture
def gcloud(world: World) -> Gcloud:
    """Run a command and give what it prints; with `fails`, what it complains of."""

    def gcloud(command: str, *more: str, fails: bool = False) -> str:
        done = run(["gcloud", *command.split(), *more], world.env)
        assert (done.returncode != 0) == fails, done.stdout + done.stderr
        return done.stderr if fails else done.stdout

    return gcloud


def test_a_tpu_vm_from_create_to_delete(gcloud: Gcloud) -> None:
    vm = f"n1 --zone {ZONE}"
    gcloud(f"{TPU_VM} create {vm} --accelerator-type v4-8 --version tpu-ubuntu2204-base")
    table = gcloud(f"{TPU_VM} list --zone {ZONE}").split("\n")
    assert table[0].split() == [
        "NAME", "ZONE", "ACCELERATOR_TYPE", "TYPE", "TOPOLOGY", "NETWORK", "RANGE", "STATUS",
    ]  # fmt: skip
    assert table[1].split()[:6] == ["n1", ZONE, "v4-8", "V4", "2x2x1", "default"]
    assert table[1].split()[-1] == "READY"
    node = json.loads(gcloud(f"{TPU_VM} describe {vm} --format json"))
    assert (node["state"], node["apiVersion"]) == ("READY", "V2")
    gcloud(f"{TPU_VM} update {vm} --update-labels a=b --description mine --add-tags t")
    node = json.loads(gcloud(f"{TPU_VM} describe {vm} --format json"))
    assert (node["labels"], node["description"], node["tags"]) == ({"a": "b"}, "mine", ["t"])
    gcloud(f"{TPU_VM} get-guest-attributes {vm}")
    gcloud(f"{TPU_VM} stop {vm}")
    assert gcloud(f"{TPU_VM} describe {vm} --format value(state)") == "STOPPED\n"
    said = gcloud(f"{TPU_VM} ssh {vm} --command true", fails=True)
    assert 'This TPU has state "STOPPED", so it cannot be currently connected to.' in said
    gcloud(f"{TPU_VM} start {vm}")
    gcloud(f"{TPU_VM} delete {vm}")
    said = gcloud(f"{TPU_VM} describe {vm}", fails=True)
    assert "NOT_FOUND: " in said
    assert "was not found" in said


def test_alpha_and_maintenance(gcloud: Gcloud) -> None:
    vm = f"n1 --zone {ZONE}"
    disk = f"source=projects/demo/zones/{ZONE}/disks/d1,mode=read-only"
    gcloud(
        f"alpha {TPU_VM} create {vm} --type v4 --topology 2x2x2 --version tpu-ubuntu2204-base",
        "--preemptible", "--labels", "a=b", "--data-disk", disk,
    )  # fmt: skip
    node = json.loads(gcloud(f"alpha {TPU_VM} describe {vm} --format json"))
    assert node["acceleratorType"] == "v4-16"
    assert node["schedulingConfig"]["preemptible"] is True
    assert node["dataDisks"][0]["mode"] == "READ_ONLY"
    gcloud(f"alpha {TPU_VM} simulate-maintenance-event {vm} --workers 0 --async")
    said = gcloud(f"{TPU_VM} stop {vm}", fails=True)
    assert "ERROR: (gcloud.compute.tpus.tpu-vm.stop) " in said


def test_queued_resources(gcloud: Gcloud) -> None:
    qr = f"q1 --zone {ZONE}"
    gcloud(
        f"{QUEUE} create {qr} --node-count 2 --node-prefix ms --accelerator-type v4-16 --spot",
        "--runtime-version", "tpu-ubuntu2204-base", "--valid-until-duration", "6h",
    )  # fmt: skip
    head, row = gcloud(f"{QUEUE} list --zone {ZONE}").strip().split("\n")
    assert head.split()[:4] == ["NAME", "ZONE", "NODE_COUNT", "ACCELERATOR_TYPE"]
    assert row.split()[:4] == ["q1", ZONE, "2", "v4-16"]
    found = json.loads(gcloud(f"{QUEUE} describe {qr} --format json"))
    assert [slot["nodeId"] for slot in found["tpu"]["nodeSpec"]] == ["ms-0", "ms-1"]
    assert "spot" in found
    gcloud(f"{QUEUE} delete {qr} --force")
    assert gcloud(f"alpha {QUEUE} list --zone {ZONE} --format value(name)") == ""


def test_types_and_runtimes(gcloud: Gcloud) -> None:
    zone = f"--zone {ZONE}"
    assert "tpu-ubuntu2204-base" in gcloud(f"{TPU_VM} versions list {zone}")
    gcloud(f"{TPU_VM} versions describe tpu-ubuntu2204-base {zone}")
    assert "v4-16" in gcloud(f"{TPU_VM} accelerator-types list {zone}")
    assert "2x2x2" in gcloud(f"{TPU_VM} accelerator-types describe v4-16 {zone}")
    assert "v4-16" in gcloud(f"compute tpus accelerator-types list {zone}")
    assert ZONE in gcloud("compute tpus locations list")
    assert "@cloud-tpu.iam." in gcloud(f"{TPU_VM} service-identity create {zone}")


def test_without_an_endpoint_override(world: World) -> None:
    """Over TLS at Google's own addresses, signed in as a service account."""
    env = {
        name: value for name, value in world.proxy_env.items() if "ENDPOINT_OVERRIDES" not in name
    }
    key = env["GOOGLE_APPLICATION_CREDENTIALS"]
    for words, said in (
        (["auth", "activate-service-account", "--key-file", key], "Activated service account"),
        (["compute", "firewall-rules", "list"], "default-allow-ssh"),
        (["compute", "tpus", "tpu-vm", "list", "--zone", ZONE], "Listed 0 items."),
    ):
        done = run(["gcloud", *words], env)
        assert done.returncode == 0, done.stderr
        assert said in done.stdout + done.stderr


def test_a_first_set_up_by_hand(gcloud: Gcloud) -> None:
    """Signed in as the world's user; no line goes anywhere else."""
    user = gcloud("auth list --format value(account)").strip()
    assert user.endswith("-compute@developer.gserviceaccount.com")
    assert gcloud("auth print-access-token").startswith("ya29.")
    said = gcloud(f"{TPU_VM} describe none --zone {ZONE}", fails=True)
    assert f"This command is authenticated as {user}" in said
    assert "tpu.googleapis.com" in gcloud("services list")
    gcloud("iam service-accounts create trainer")
    account = "trainer@demo.iam.gserviceaccount.com"
    assert account in gcloud("iam service-accounts list")
    granted = f"demo --member serviceAccount:{account} --role roles/iam.roleViewer"
    gcloud(f"projects add-iam-policy-binding {granted}")
    assert "roles/iam.roleViewer" in gcloud("projects get-iam-policy demo")
    gcloud(f"projects remove-iam-policy-binding {granted}")
    assert "roles/iam.roleViewer" not in gcloud("projects get-iam-policy demo")
    gcloud("logging read x", fails=True)
    for kind in ("instances", "disks", "addresses", "machine-types", "reservations"):
        assert gcloud(f"compute {kind} list") == ""
    assert "10.128.0.0/20" in gcloud("compute networks subnets list")


def test_the_text_of_a_refusal(world: World, gcloud: Gcloud) -> None:
    create = f"{TPU_VM} create n1 --zone {ZONE} --version tpu-ubuntu2204-base --accelerator-type"
    said = gcloud(f"{create} v9-8", fails=True)
    assert "ERROR: (gcloud.compute.tpus.tpu-vm.create) INVALID_ARGUMENT: Cloud TPU" in said
    world.herd("weather", "capacity", ZONE, "*", "0")
    try:
        said = gcloud(f"{create} v4-8", fails=True)
    finally:
        world.herd("weather", "capacity", ZONE, "*", "unlimited")
    assert "Create request issued for: [n1]" in said
    assert '"code": 8,' in said
    assert 'There is no more capacity in the zone \\"us-central2-b\\"' in said


def test_a_preempted_node_cannot_be_reached(world: World, gcloud: Gcloud) -> None:
    spot = {"acceleratorType": "v4-8", "schedulingConfig": {"spot": True}}
    world.node(ZONE, "n1", **spot)
    world.herd("preempt", "n1", "--no-notice")
    said = gcloud(f"{TPU_VM} ssh n1 --zone {ZONE} --command true", fails=True)
    assert 'This TPU has terminal state "PREEMPTED", so it cannot be used anymore.' in said
