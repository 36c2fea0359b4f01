"""Hosts behind a jump host or a proxy command, and hosts with odd shells, homes and keys."""

import asyncio
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.conformance.host_backends import opened, ping
from tests.conformance.hosts_sshd import SshdHosts, missing_programs, sshd_hosts
from tests.conformance.iap_relay import stand_in
from tests.conformance.test_iap_tunnel import give_token
from tests.conformance.tiny_agent import small
from tpuherd.errors import HerdError, IdentityMismatch, NotAllowed, NotReached, OperationFailed
from tpuherd.ports import Host
from tpuherd.remote import fanout
from tpuherd.remote.connection_pool import ConnectionPool
from tpuherd.remote.host_key_pins import Pins
from tpuherd.remote.iap_tunnel import IapRelay
from tpuherd.settings import host_routes

pytestmark = [pytest.mark.real, pytest.mark.root]

PROXY = """
import os, socket, sys, threading
line = socket.create_connection((sys.argv[1], int(sys.argv[2])))
def back():
    while piece := line.recv(65536):
        os.write(1, piece)
    os._exit(0)
threading.Thread(target=back, daemon=True).start()
while piece := os.read(0, 65536):
    line.sendall(piece)
"""


@pytest.fixture(scope="module")
def place() -> Iterator[SshdHosts]:
    if why := missing_programs():
        pytest.skip(f"real sshd: {why}")
    with sshd_hosts() as place:
        yield place


def home_of(place: SshdHosts, host: Host) -> Path:
    return place.machine(host).folder / "home"


def test_ssh_itself_gets_through_a_jump_host(place: SshdHosts, tmp_path: Path) -> None:
    (bastion,) = place.node("gate")
    (host,) = place.node("yard")
    key = tmp_path / "key"
    words = ["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(key)]
    subprocess.run(words, check=True)
    with place.keys.open("a") as keys:
        keys.write((tmp_path / "key.pub").read_text())
    known = tmp_path / "known"
    known.write_text(f"{bastion.internal_ip} {place.machine(bastion).key}\n")
    way = host_routes.parse_route(f"jump:root@{bastion.internal_ip}:{bastion.ssh_port}")
    program, *rest = host_routes.connection_words(way, host, "")
    options = ("-F", "none", "-i", str(key), "-o", f"UserKnownHostsFile={known}")
    with subprocess.Popen(
        [program, *options, *rest], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline().startswith(b"SSH-2.0-OpenSSH")
        process.kill()


def test_a_route_by_a_jump_host(
    place: SshdHosts, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (bastion,) = place.node("bastion")
    hosts = place.node("behind", 4)
    mine = tmp_path / "home" / ".ssh"
    mine.mkdir(parents=True)
    words = ["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", f"{mine}/id_ed25519"]
    subprocess.run(words, check=True)
    with place.keys.open("a") as keys:
        keys.write((mine / "id_ed25519.pub").read_text())
    (mine / "known_hosts").write_text(f"{bastion.internal_ip} {place.machine(bastion).key}\n")
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.delenv("SSH_AUTH_SOCK", raising=False)
    way = host_routes.parse_route(f"jump:root@{bastion.internal_ip}")

    async def work(connections: ConnectionPool) -> list[fanout.FanoutResult[object]]:
        return await fanout.run_on_all(hosts, lambda host: ping(connections, host))

    assert fanout.failure_lines(opened(place, tmp_path, routes=(way,)).run(work)) == []
    nowhere = host_routes.parse_route("jump:root@bastion.invalid")
    said = fanout.failure_lines(opened(place, tmp_path, routes=(nowhere,)).run(work))
    assert len(said) == 1
    assert said[0].startswith("behind/w[0-3]: can't connect to the jump host root@bastion.invalid")


def test_a_route_by_a_proxy_command(place: SshdHosts, tmp_path: Path) -> None:
    (host,) = place.node("proxied")
    script = tmp_path / "proxy.py"
    script.write_text(PROXY)
    way = host_routes.parse_route(f"command:{sys.executable} {script} %h %p")
    opened(place, tmp_path, routes=(way,)).run(lambda connections: ping(connections, host))


def test_a_route_by_identity_aware_proxy(place: SshdHosts, tmp_path: Path) -> None:
    hosts = place.node("inside", 2)
    place.names = True

    async def main() -> list[str]:
        addresses = {f"t1v-{host.name}": (host.internal_ip, host.ssh_port) for host in hosts}
        async with stand_in(addresses) as found:
            relay = IapRelay(url=found.url, project="demo", auth_headers=give_token)
            routes = (host_routes.parse_route("iap"),)
            opened_by_relay = opened(place, tmp_path, routes=routes, relay=relay)
            async with opened_by_relay.connections() as connections:
                done = await fanout.run_on_all(hosts, lambda host: ping(connections, host))
                found.instances = {}
                connections.drop_connection(hosts[0])
                done += await fanout.run_on_all(hosts, lambda host: ping(connections, host))
            return fanout.failure_lines(done)

    assert asyncio.run(main()) == ["inside/w0: IAP can't find t1v-inside/w0 (is the node READY?)"]
    place.names = False


def test_routes_are_tried_in_order(place: SshdHosts, tmp_path: Path) -> None:
    (host,) = place.node("ordered")
    ordered = (host_routes.parse_route("command:false"), host_routes.parse_route("internal"))
    opened(place, tmp_path, routes=ordered).run(lambda connections: ping(connections, host))
    with pytest.raises(NotReached):
        opened(place, tmp_path, routes=ordered[:1]).run(lambda connections: ping(connections, host))


def test_a_shell_that_prints_does_not_disturb(place: SshdHosts, tmp_path: Path) -> None:
    (host,) = place.node("talker")
    noise = "echo Welcome; printf 'no newline'; echo trouble >&2\n"
    (home_of(place, host) / ".bashrc").write_text(noise)
    for _ in range(2):
        opened(place, tmp_path).run(lambda connections: ping(connections, host))


def test_a_shell_that_never_stops_printing_is_abandoned(place: SshdHosts, tmp_path: Path) -> None:
    (host,) = place.node("flooder")
    (home_of(place, host) / ".bashrc").write_text("yes | head -c 300000\n")
    with pytest.raises(OperationFailed, match="prints too much"):
        opened(place, tmp_path).run(lambda connections: ping(connections, host))


def test_a_read_only_home(place: SshdHosts, tmp_path: Path) -> None:
    (host,) = place.node("stubborn")
    (home_of(place, host) / ".tpuherd").write_text("a file")
    with pytest.raises(HerdError, match=r"the agent cannot be written to /root/\.tpuherd"):
        opened(place, tmp_path).run(lambda connections: ping(connections, host))


def test_an_agent_of_another_protocol(place: SshdHosts, tmp_path: Path) -> None:
    (host,) = place.node("newer")
    other = small("", protocol=99)
    with pytest.raises(OperationFailed, match="speaks protocol 99, we speak 1") as caught:
        opened(place, tmp_path, other).run(lambda connections: ping(connections, host))
    assert "newer" in caught.value.hint


def test_without_published_keys_the_first_one_is_pinned(place: SshdHosts, tmp_path: Path) -> None:
    (host,) = place.node("trusted")
    place.nodes["trusted"].publishes_keys = False
    opened(place, tmp_path).run(lambda connections: ping(connections, host))
    machine = place.machine(host)
    assert Pins(tmp_path / "pins").pinned_keys(host) == (machine.key,)
    place.off(machine)
    place.new_key(machine)
    place.on(machine)
    place.listens(machine)
    with pytest.raises(IdentityMismatch, match="the host key at its address does not match"):
        opened(place, tmp_path).run(lambda connections: ping(connections, host))
    place.nodes["trusted"].publishes_keys = True  # the cloud vouches for the new one
    opened(place, tmp_path).run(lambda connections: ping(connections, host))
    assert Pins(tmp_path / "pins").pinned_keys(host) == (machine.key,)


def test_a_key_that_is_never_accepted(
    place: SshdHosts, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (host,) = place.node("fortress")
    monkeypatch.setattr("tpuherd.remote.connection_pool.ADMISSION_S", 1.0)

    async def admit(host: Host, login: str, public: str) -> None:
        place.admitted.append(public)

    monkeypatch.setattr(place, "install_key", admit)
    with pytest.raises(NotAllowed, match="rejects our SSH key for root"):
        opened(place, tmp_path).run(lambda connections: ping(connections, host))
    assert place.admitted
