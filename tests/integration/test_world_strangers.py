"""Who may use a world: its owner freely; other users and web pages are refused with a sentence."""

import http.client
import json
import os
import socket
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.integration.worlds import NODE, ZONE, Running, running
from tpuherd import peer_uid
from tpuherd_sim.hosts.isolation_modes import HOSTS_UID

pytestmark = pytest.mark.real
NODES = f"/v2/projects/demo/locations/{ZONE}/nodes"
STRANGER = 65534
ASK = {
    "by netlink": peer_uid.ask_kernel,
    "by the tables": peer_uid.look_up_owner,
}


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    with running(tmp_path_factory.mktemp("visitors") / "world") as world:
        yield world


def ask(world: Running, method: str = "GET", path: str = NODES, **headers: str) -> tuple[int, str]:
    """One request with these headers: the status and the error's sentence."""
    connection = http.client.HTTPConnection("127.0.0.1", world.facts["port"], timeout=60)
    try:
        body = json.dumps(NODE) if method == "POST" else None
        connection.request(method, path, body, headers)
        answer = connection.getresponse()
        content = answer.read()
        error = json.loads(content)["error"] if answer.status >= 400 else {}
        assert error.get("code", answer.status) == answer.status
        return answer.status, error.get("message", "")
    finally:
        connection.close()


def foreign_socket() -> socket.socket:
    """A socket of another user of this machine, in this process."""
    os.seteuid(STRANGER)
    try:
        return socket.socket()
    finally:
        os.seteuid(0)


def curl(*words: str, uid: int) -> str:
    """What curl says to another user of this machine."""
    done = subprocess.run(
        ["curl", "--silent", "--show-error", "--max-time", "10", *words],
        user=uid,
        group=uid,
        extra_groups=[],
        cwd="/",
        env={"PATH": os.environ["PATH"], "HOME": "/nonexistent"},
        capture_output=True,
        text=True,
        timeout=20,
    )
    return done.stdout + done.stderr


@pytest.mark.root
@pytest.mark.needs("curl")
def test_another_user_gets_a_sentence_and_changes_nothing(world: Running) -> None:
    url = f"http://127.0.0.1:{world.facts['port']}{NODES}?nodeId=theirs"
    said = curl("-X", "POST", "-H", "Content-Type: application/json", "-d", json.dumps(NODE),
                "-w", "%{http_code}", url, uid=STRANGER)  # fmt: skip
    assert said.endswith("401"), said
    assert "This world belongs to user 0 of this machine, and you are user 65534" in said
    assert "herd sim start" in said
    assert "theirs" not in world.nodes()
    assert curl("-w", "%{http_code}", url.partition("?")[0], uid=0).endswith("200")


@pytest.mark.root
@pytest.mark.needs("curl")
def test_another_user_cannot_use_the_proxy(world: Running) -> None:
    """It calls the world's port itself, and would be taken for the world's owner."""
    proxy = f"http://127.0.0.1:{world.facts['tunnel_port']}"
    words = ["--insecure", "--verbose", "--proxy", proxy, "https://tpu.googleapis.com/"]
    theirs = curl(*words, uid=STRANGER)
    assert "403" in theirs and "simulated Cloud TPU" not in theirs, theirs
    assert "simulated Cloud TPU" in curl(*words, uid=0)


@pytest.mark.root
@pytest.mark.needs("curl")
def test_services_for_hosts_without_isolation_refuse_other_users(tmp_path: Path) -> None:
    """Its metadata have start-up scripts and tokens; in this mode they are on the loopback."""
    with running(tmp_path / "w", "--time-scale", "100", hosts="processes") as world:
        status, answer = world.ask(
            "POST", f"{NODES}?nodeId=n", {**NODE, "networkConfig": {"enableExternalIps": True}}
        )
        assert status == 200, answer
        node: dict[str, object] = {}
        while node.get("state") != "READY":
            node = world.ask("GET", f"{NODES}/n")[1]
        ends: list[dict[str, dict[str, str]]] = node["networkEndpoints"]  # type: ignore[assignment]
        place = f"http://{ends[0]['accessConfig']['externalIp']}:8080/computeMetadata/v1/"
        words = ["-H", "Metadata-Flavor: Google", place]
        assert "instance/" in curl(*words, uid=0)
        assert "instance/" not in curl(*words, uid=STRANGER)
        assert "instance/" in curl(*words, uid=HOSTS_UID)
        assert "demo" in curl(f"http://127.0.0.1:{world.facts['port']}/", uid=HOSTS_UID)


@pytest.mark.parametrize(
    "host", ["evil.example", "evil.example:80", "127.0.0.1.evil.example", "googleapis.com.evil", ""]
)
def test_a_foreign_host_header_is_refused(world: Running, host: str) -> None:
    status, sentence = ask(world, Host=host)
    assert (status, sentence.startswith("A simulated world accepts requests for")) == (403, True)


@pytest.mark.root
def test_an_idle_connection_of_another_user_is_closed(world: Running) -> None:
    with foreign_socket() as idle:
        idle.settimeout(30)
        idle.connect(("127.0.0.1", world.facts["port"]))
        assert idle.recv(1) == b""


@pytest.mark.parametrize(
    "origin",
    ["https://evil.example", "null", "http://localhost:1", "https://tpu.googleapis.com.evil.de"],
)
def test_a_web_page_creates_nothing(world: Running, origin: str) -> None:
    """A page may send this without asking first: a form, or plain text that is JSON."""
    status, sentence = ask(world, "POST", f"{NODES}?nodeId=page", Origin=origin)
    assert (status, "web pages may not use it" in sentence) == (403, True)
    assert "page" not in world.nodes()


@pytest.mark.parametrize(
    "host",
    ["127.0.0.1", "localhost", "LOCALHOST:9", "[::1]:80", "tpu.googleapis.com",
     "us-east1-tpu.googleapis.com:443", "metadata.google.internal"],
)  # fmt: skip
def test_host_names_of_the_world_and_of_google_are_accepted(world: Running, host: str) -> None:
    assert ask(world, Host=host)[0] == 200
    assert ask(world, Host=host, Origin=f"http://{host}")[0] == 200


@pytest.mark.parametrize("way", ASK)
@pytest.mark.parametrize("family", [socket.AF_INET, socket.AF_INET6])
def test_the_owner_of_a_connection(way: str, family: socket.AddressFamily) -> None:
    if not peer_uid.can_tell():
        pytest.skip("this machine does not tell whose a connection is")
    find = ASK[way]
    with socket.create_server(("127.0.0.1", 0)) as listener:
        here = listener.getsockname()
        client = socket.socket(family)
        try:
            client.connect((f"{'::ffff:' * (family == socket.AF_INET6)}127.0.0.1", here[1]))
            end, peer = listener.accept()
        except OSError as error:
            client.close()
            pytest.skip(f"no IPv6 here: {error}")
        with end:
            assert find(peer, here) == os.getuid()
            client.shutdown(socket.SHUT_WR)
            assert find(peer, here) == os.getuid(), "it only said that it has no more to say"
            client.close()
            assert find(peer, here) is None, "a socket without an owner seems to be root's"
