"""A world with running hosts: they start with their nodes, and again with the world."""

import json
import subprocess
from pathlib import Path

import pytest

from tests.integration.worlds import HERD, NODE, ZONE, Running, environment, herd, running, until

pytestmark = [pytest.mark.real, pytest.mark.needs("ssh", "ssh-keygen")]
WHERE = f"/v2/projects/demo/locations/{ZONE}/nodes"


def key(folder: Path) -> Path:
    """A user's key."""
    file = folder / "key"
    subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(file)], check=True)
    return file


def pod(world: Running, public: str) -> str:
    """A node of one host that `ann` may enter; its external address."""
    body = {
        **NODE,
        "networkConfig": {"enableExternalIps": True},
        "metadata": {"ssh-keys": f"ann:{public}"},
    }
    status, answer = world.ask("POST", f"{WHERE}?nodeId=pod", body)
    assert status == 200, answer
    return ready(world)


def ready(world: Running) -> str:
    """The address of the node's host once it is there."""

    def look() -> str | None:
        _, node = world.ask("GET", f"{WHERE}/pod")
        if node["state"] != "READY":
            return None
        return str(node["networkEndpoints"][0]["accessConfig"]["externalIp"])

    return until(look, "the node to be READY")


def say(world: Running, secret: Path, address: str, command: str) -> str | None:
    """What a command says over the plain ssh of `herd sim env`; None where it can't get in."""
    line = (
        f'eval "$({" ".join([*HERD, "sim", "env", "--state-dir", str(world.folder)])})"; exec "$@"'
    )
    ssh = ["ssh", "-i", str(secret), "-o", "BatchMode=yes", f"ann@{address}", command]
    done = subprocess.run(
        ["sh", "-c", line, "sh", *ssh],
        env=environment(world.folder.parent, {}),
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=30,
    )
    return done.stdout.strip() if done.returncode == 0 else None


def test_hosts_start_with_their_node_and_again_with_the_world(tmp_path: Path) -> None:
    secret, folder = key(tmp_path), tmp_path / "w"
    boot_id = "cat /proc/sys/kernel/random/boot_id"
    with running(folder, "--time-scale", "100", hosts="auto") as world:
        address = pod(world, secret.with_suffix(".pub").read_text().strip())
        first = until(lambda: say(world, secret, address, f"{boot_id}; echo kept > mine"), "ssh")
        status = json.loads(
            herd("sim", "status", "--json", "--state-dir", str(folder), home=tmp_path).stdout
        )
        assert status["hosts"] in ("namespaces-root", "namespaces-user", "processes")
        assert status["hosts_on"] == 1
        assert world.stop() == 0
        assert say(world, secret, address, "true") is None
    with running(folder, hosts="auto") as world:
        again = until(lambda: say(world, secret, address, boot_id), "ssh after the start")
        assert ready(world) == address
        log = herd("sim", "log", "--state-dir", str(folder), home=tmp_path).stdout
        assert "us-central2-b/pod/w0 reboots" in log
        if status["hosts"] != "processes":
            assert again != first


def test_a_preempted_node_loses_its_host(tmp_path: Path) -> None:
    secret = key(tmp_path)
    with running(tmp_path / "w", "--time-scale", "100", hosts="auto") as world:
        address = pod(world, secret.with_suffix(".pub").read_text().strip())
        assert until(lambda: say(world, secret, address, "echo here"), "ssh") == "here"
        words = ["preempt", "pod", "--no-notice", "--state-dir", str(tmp_path / "w")]
        assert herd("sim", *words, home=tmp_path).returncode == 0
        until(lambda: say(world, secret, address, "true") is None, "its end")


def test_every_reset_request_returns(tmp_path: Path) -> None:
    """Hosts stop and start at the same moment; half of the new ones never reported."""
    place = f"/v2/projects/demo/locations/{ZONE}"
    names = [f"q{number}" for number in range(6)]
    with running(tmp_path / "w", "--time-scale", "100", hosts="auto") as world:

        def are_active() -> bool:
            _, found = world.ask("GET", f"{place}/queuedResources")
            states = [one["state"]["state"] for one in found["queuedResources"]]
            return states == ["ACTIVE"] * len(names)

        for name in names:
            node = {"parent": place.removeprefix("/v2/"), "nodeId": f"{name}-node", "node": NODE}
            body = {"tpu": {"nodeSpec": [node]}, "spot": {}}
            status, answer = world.ask(
                "POST", f"{place}/queuedResources?queuedResourceId={name}", body
            )
            assert status == 200, answer
        until(are_active, "all requests to be ACTIVE", seconds=60)
        for name in names:
            status, answer = world.ask("POST", f"{place}/queuedResources/{name}:reset", {})
            assert status == 200, answer
        assert not are_active()
        until(are_active, "all requests to be ACTIVE again", seconds=60)


def test_missing_namespaces_are_a_sentence(tmp_path: Path) -> None:
    """If they are required but impossible, the message says why."""
    words = ["--hosts", "namespaces", "--detach", "--state-dir", str(tmp_path / "w")]
    done = herd("sim", "start", *words, home=tmp_path)
    if done.returncode == 0:
        assert "isolated by namespaces" in done.stdout
        assert (
            herd("sim", "stop", "--state-dir", str(tmp_path / "w"), home=tmp_path).returncode == 0
        )
    else:
        assert done.returncode == 2
        assert done.stderr.startswith("herd sim start: namespaces are not available (")
        assert done.stderr.count("\n") == 1
