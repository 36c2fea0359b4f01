"""What crosses TCP: lost answers, keep-alive, the proxy that stands in for Google, the sign-in."""

import http.client
import json
import shutil
import socket
import ssl
import subprocess
from collections.abc import Iterator

import httpx2
import pytest

from tests.integration.worlds import HERD, NODE, ZONE, Running, environment, running, until

pytestmark = pytest.mark.real
SIM = [*HERD, "sim"]
NODES = f"/v2/projects/demo/locations/{ZONE}/nodes"


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    with running(tmp_path_factory.mktemp("front") / "world") as world:
        yield world


@pytest.fixture
def proxied(world: Running) -> Iterator[httpx2.Client]:
    """A client that knows only Google's addresses, in the environment of `herd sim env --proxy`."""
    trust = ssl.create_default_context(cafile=str(world.folder / "tls" / "ca.pem"))
    proxy = f"http://127.0.0.1:{world.facts['tunnel_port']}"
    with httpx2.Client(proxy=proxy, verify=trust, trust_env=False) as client:
        yield client


def test_a_lost_answer_cuts_the_connection_after_the_effect(world: Running) -> None:
    world.ask("POST", "/sim/v1/weather/lost-response", {"times": 1, "method": "nodes.create"})
    connection = http.client.HTTPConnection("127.0.0.1", world.facts["port"], timeout=60)
    with pytest.raises((http.client.RemoteDisconnected, ConnectionResetError)):
        connection.request("POST", f"{NODES}?nodeId=lost", json.dumps(NODE))
        connection.getresponse()
    connection.close()
    assert "lost" in world.nodes()


def test_one_connection_serves_many_requests(world: Running) -> None:
    connection = http.client.HTTPConnection("127.0.0.1", world.facts["port"], timeout=60)
    connection.connect()
    first = connection.sock
    for method, path, body in (
        ("GET", NODES, None),
        ("POST", f"{NODES}/nobody:stop", b""),
        ("DELETE", f"{NODES}/nobody", None),
        ("GET", "/nonsense", None),
        ("GET", "/", None),
    ):
        connection.request(method, path, body)
        answer = connection.getresponse()
        assert answer.headers["content-length"] == str(len(answer.read()))
        assert connection.sock is first, (method, path)
    connection.close()


@pytest.mark.parametrize(
    "nonsense",
    [b"\r\n\r\n", b"GET\r\n\r\n", b"GET /\xff HTTP/1.1\r\n\r\n", b"GET * HTTP/1.1\r\n\r\n"],
    ids=["empty", "half a line", "bytes", "star"],
)
def test_invalid_http_is_harmless(world: Running, nonsense: bytes) -> None:
    with socket.create_connection(("127.0.0.1", world.facts["port"]), 10) as client:
        client.sendall(nonsense)
        client.shutdown(socket.SHUT_WR)
        while client.recv(4096):
            pass
    assert world.ask("GET", NODES)[0] == 200


def test_googleapis_names_lead_to_the_world(world: Running, proxied: httpx2.Client) -> None:
    world.ask("POST", f"{NODES}?nodeId=proxied", NODE)
    answer = proxied.get(f"https://tpu.googleapis.com{NODES}/proxied")
    assert answer.json()["name"].endswith("/nodes/proxied")
    assert answer.http_version == "HTTP/1.1"
    grant = {"grant_type": "refresh_token", "refresh_token": "x"}
    token = proxied.post("https://oauth2.googleapis.com/token", data=grant)
    assert token.json()["token_type"] == "Bearer"


def test_many_proxied_requests_at_once(world: Running, proxied: httpx2.Client) -> None:
    body = {**NODE, "metadata": {"long": "x" * 200_000}}
    for number in range(5):
        answer = proxied.post(f"https://tpu.googleapis.com{NODES}?nodeId=big{number}", json=body)
        assert answer.status_code == 200
        read = proxied.get(f"https://tpu.googleapis.com{NODES}/big{number}")
        assert read.json()["metadata"] == body["metadata"]


@pytest.mark.parametrize("host", ["packages.example", "googleapis.com.evil.example", "127.0.0.1"])
def test_nothing_else_is_reached_through_the_proxy(proxied: httpx2.Client, host: str) -> None:
    with pytest.raises(httpx2.ProxyError, match="serves only the simulated world"):
        proxied.get(f"https://{host}/")


@pytest.mark.needs("curl")
def test_a_refusal_is_a_sentence(world: Running) -> None:
    proxy = f"http://127.0.0.1:{world.facts['tunnel_port']}"
    done = subprocess.run(
        ["curl", "-sS", "--proxy", proxy, "http://example.org/"], capture_output=True, text=True
    )
    assert done.stdout.startswith(
        "This is the proxy of a simulated Cloud TPU world; it serves only"
    )
    assert "example.org" in done.stdout


def test_http2_is_not_offered(world: Running) -> None:
    trust = ssl.create_default_context(cafile=str(world.folder / "tls" / "ca.pem"))
    trust.set_alpn_protocols(["h2", "http/1.1"])
    with socket.create_connection(("127.0.0.1", world.facts["tunnel_port"]), 10) as plain:
        plain.sendall(b"CONNECT tpu.googleapis.com:443 HTTP/1.1\r\n\r\n")
        assert plain.recv(4096).startswith(b"HTTP/1.1 200")
        with trust.wrap_socket(plain, server_hostname="tpu.googleapis.com") as inside:
            assert inside.selected_alpn_protocol() == "http/1.1"


def test_the_certificate_authority_can_sign_no_other_names(world: Running) -> None:
    kept = {file.name for file in (world.folder / "tls").iterdir()}
    assert kept == {"ca.pem", "server.pem"}
    assert "PRIVATE KEY" not in (world.folder / "tls" / "ca.pem").read_text()


def test_a_sign_in_asks_the_metadata_server(world: Running) -> None:
    connection = http.client.HTTPConnection("127.0.0.1", world.facts["port"], timeout=60)

    def ask(path: str, **headers: str) -> tuple[int, str | None, str]:
        connection.request("GET", path, headers=headers)
        answer = connection.getresponse()
        return answer.status, answer.headers["Metadata-Flavor"], answer.read().decode()

    flavor = {"Metadata-Flavor": "Google"}
    project = "/computeMetadata/v1/project/project-id"
    account = "/computeMetadata/v1/instance/service-accounts/default"
    assert ask("/", **flavor)[:2] == (200, "Google")
    assert ask(project, **flavor) == (200, "Google", "demo")
    assert ask(project)[0] == 403
    assert ask("/computeMetadata/v1/nothing", **flavor)[0] == 404
    whole = json.loads(ask(f"{account}/?recursive=true", **flavor)[2])
    assert whole["email"].endswith("-compute@developer.gserviceaccount.com")
    token = json.loads(ask(f"{account}/token?scopes=a,b", **flavor)[2])
    assert token["token_type"] == "Bearer"
    connection.close()


@pytest.mark.needs("bash", "ssh")
def test_the_environment_takes_one_line(world: Running) -> None:
    words = f'eval "$({" ".join(SIM)} env --state-dir "{world.folder}")"'
    shells = [name for name in ("sh", "bash", "zsh", "dash") if shutil.which(name)]
    for shell in shells:
        done = subprocess.run(
            [
                shell,
                "-c",
                f'{words}; {words}; printf %s "$PATH"; ssh -G 127.{world.facts["network"]}.1.2',
            ],
            env=environment(world.folder.parent, {}),
            capture_output=True,
            text=True,
        )
        assert done.returncode == 0, done.stderr
        path, _, config = done.stdout.partition(f"{world.folder}/bin:")
        assert path == ""
        assert f"{world.folder}/bin" not in config.split("\n")[0]  # once is enough
        assert f"port {world.facts['ssh_port']}\n" in config


def test_ssh_to_other_hosts_uses_the_users_settings(world: Running) -> None:
    if not shutil.which("ssh"):
        pytest.skip("needs ssh on PATH")
    config = world.folder / "ssh_config"
    done = subprocess.run(
        ["ssh", "-F", str(config), "-G", "example.org"], capture_output=True, text=True, check=True
    )
    assert "port 22\n" in done.stdout
    assert "stricthostkeychecking accept-new" not in done.stdout


def test_the_log_can_be_followed(world: Running) -> None:
    follow = subprocess.Popen(
        [*SIM, "log", "-f", "--json", "--state-dir", str(world.folder)],
        env=environment(world.folder.parent, {}),
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        assert follow.stdout is not None
        world.ask("POST", "/sim/v1/weather/delay", {"seconds": 0.01, "node": "followed"})
        stream = iter(follow.stdout.readline, "")
        until(lambda: "followed" in next(stream), "the line to come")
    finally:
        follow.kill()
        follow.communicate()
