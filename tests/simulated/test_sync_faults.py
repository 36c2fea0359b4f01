"""Shipping with faults: cut links, dead and hung hosts, strangers, two users at once."""

import asyncio
import random
import socket
import threading
from pathlib import Path

import pytest

from tests.simulated.sync_hosts import NearHost, ShipRig, herd, tree, write
from tpuherd.sync import transfer, upload_blocks
from tpuherd.sync.ship import ShipOptions, ship
from tpuherd.sync.shipment import Shipment
from tpuherd_host.agent.snapshots import relay, rpc_snapshots
from tpuherd_host.agent.snapshots.stream import BrokenStream

SHORT_S = 3.0
NOWHERE = "255.255.255.255"  # connecting to it fails at once


@pytest.fixture
def rig(tmp_path: Path) -> ShipRig:
    rig = ShipRig(tmp_path)
    write(rig.code, {f"d{n % 3}/f{n}": random.Random(n).randbytes(9000) for n in range(40)})
    return rig


@pytest.fixture
def hurry(monkeypatch: pytest.MonkeyPatch) -> None:
    """Shorter timeouts, for tests in which a timeout ends a wait. In all others none may end one,
    however busy this machine is."""
    for name in ("HAVE_S", "COMMIT_S", "PATIENCE_S", "GRACE_S"):
        monkeypatch.setattr(transfer, name, SHORT_S)
    monkeypatch.setattr(upload_blocks, "STALL_S", 1.5)
    monkeypatch.setattr(rpc_snapshots, "BEAT_S", 0.3)
    monkeypatch.setattr(relay, "STALL_S", 1.0)


def moved(host: NearHost, address: str) -> None:
    """Its internal address leads elsewhere."""
    fields = {name: getattr(host.host, name) for name in type(host.host).__slots__}
    host.host = type(host.host)(**{**fields, "internal_ip": address})


def test_hosts_unreachable_from_other_hosts_are_filled_directly(
    rig: ShipRig, tmp_path: Path
) -> None:
    hosts = herd(tmp_path, 9)
    for host in (hosts[1], hosts[6]):
        moved(host, NOWHERE)
    done = rig.ship(hosts)
    assert done.failed == {}
    assert set(done.slow) >= {"pod/w1", "pod/w6"}
    assert {done.slow["pod/w1"], done.slow["pod/w6"]} == {"over its own link"}
    assert all(tree(host.home / "c") == tree(rig.code) for host in hosts)
    assert [host.up > 0 for host in hosts] == [n in (0, 1, 6) for n in range(9)]


def pod(folder: Path, name: str, many: int, at: str = "127.0.0.1") -> list[NearHost]:
    """Hosts of another node, whose first is reached at that address by other hosts."""
    found = herd(folder / name, many)
    for host in found:
        fields = {field: getattr(host.host, field) for field in type(host.host).__slots__}
        host.host = type(host.host)(**{**fields, "node": name, "incarnation": f"{folder}"})
    moved(found[0], at)
    return found


def test_connected_nodes_use_the_uplink_once(rig: ShipRig, tmp_path: Path) -> None:
    pods = [pod(tmp_path, f"meet{n}", 3) for n in range(12)]
    hosts = [host for each in pods for host in each]
    done = rig.ship(hosts)
    assert (done.failed, done.slow) == ({}, {})
    assert [host.host.name for host in hosts if host.up] == ["meet0/w0"]
    assert all(tree(host.home / "c") == tree(rig.code) for host in hosts)


@pytest.mark.parametrize("many", [2, 3, 13])
def test_unconnected_nodes_use_it_once_each_and_are_remembered(
    rig: ShipRig, tmp_path: Path, many: int
) -> None:
    pods = [pod(tmp_path, f"far{n}", 3, at=NOWHERE) for n in range(many)]
    hosts = [host for each in pods for host in each]
    done = rig.ship(hosts)
    assert done.failed == {}
    assert [host.host.name for host in hosts if host.up] == [f"far{n}/w0" for n in range(many)]
    assert 300_000 * many < done.bytes_up < 40 * 9000 * 1.1 * many
    assert set(done.slow) <= {f"far{n}/w0" for n in range(1, many)}
    assert "far1/w0" in done.slow
    assert all(tree(host.home / "c") == tree(rig.code) for host in hosts)
    for turn in range(2):
        write(rig.code, {"d0/f0": f"edited {turn}"})
        done = rig.ship(hosts)
        assert done.failed == {}
        assert done.bytes_up < 700 * many
        assert all(tree(host.home / "c") == tree(rig.code) for host in hosts)
    assert many > 9 or done.slow == {}


@pytest.mark.usefixtures("hurry")
def test_without_the_first_host_of_a_far_node_none_switches_or_only_the_others(
    rig: ShipRig, tmp_path: Path
) -> None:
    near, far = pod(tmp_path, "near", 3), pod(tmp_path, "down", 3, at=NOWHERE)
    far[0].cut_after = 100_000
    done = rig.ship([*near, *far])
    assert (set(done.failed), done.got) == ({"down/w0"}, ())
    far[0].down, far[0].up = False, 0
    done = rig.ship([*near, *far], options=ShipOptions(partial=True))
    assert set(done.failed) == {"down/w0"}
    assert len(done.got) == 5
    assert all(tree(host.home / "c") == tree(rig.code) for host in (*near, *far[1:]))


def test_without_relay_each_host_uses_its_own_link(rig: ShipRig, tmp_path: Path) -> None:
    hosts, before = herd(tmp_path, 3), set(relay.LISTENERS)
    done = rig.ship(hosts, options=ShipOptions(relay=False))
    assert (done.failed, done.slow) == ({}, {})
    assert all(host.up > 300_000 for host in hosts)
    assert relay.LISTENERS.keys() <= before
    assert tree(hosts[2].home / "c") == tree(rig.code)


def test_with_one_host_down_none_switches_and_it_is_named(rig: ShipRig, tmp_path: Path) -> None:
    hosts = herd(tmp_path, 6)
    rig.ship(hosts)
    was = tree(rig.code)
    write(rig.code, {"d0/f0": "edited"})
    hosts[4].down = True
    done = rig.ship(hosts)
    assert done.failed == {"pod/w4": "pod/w4 is down"}
    assert done.got == ()
    assert all(tree(host.home / "c") == was for host in hosts)
    done = rig.ship(hosts, options=ShipOptions(partial=True))
    assert set(done.failed) == {"pod/w4"}
    assert len(done.got) == 5
    assert all(tree(hosts[n].home / "c") == tree(rig.code) for n in (0, 1, 2, 3, 5))


@pytest.mark.usefixtures("hurry")
def test_a_host_that_never_reports_its_files_is_named(rig: ShipRig, tmp_path: Path) -> None:
    hosts = herd(tmp_path, 3)
    hosts[2].dead = {"snapshot.have"}
    done = rig.ship(hosts)
    assert done.failed == {"pod/w2": f"did not answer within {SHORT_S:g} s"}
    assert not (hosts[0].home / "c").exists()


@pytest.mark.usefixtures("hurry")
def test_a_host_that_hangs_while_filling_delays_the_others_only_briefly(
    rig: ShipRig, tmp_path: Path
) -> None:
    hosts = herd(tmp_path, 5)
    hosts[2].dead = {"snapshot.relay", "snapshot.receive"}
    done = asyncio.run(asyncio.wait_for(shipped(rig, hosts), 20))
    assert set(done.failed) == {"pod/w2"}
    assert done.got == ()
    assert not (hosts[1].home / "c").exists()
    hosts[2].dead = {"snapshot.relay"}
    done = rig.ship(hosts)
    assert (done.failed, set(done.slow)) == ({}, {"pod/w2"})


async def shipped(rig: ShipRig, hosts: list[NearHost]) -> Shipment:
    options = ShipOptions()
    return await ship(rig.shot(), "c", hosts, archive=rig.archive, options=options)


@pytest.mark.usefixtures("hurry")
def test_when_the_first_host_is_cut_another_replaces_it(rig: ShipRig, tmp_path: Path) -> None:
    hosts = herd(tmp_path, 6)
    hosts[0].cut_after = 150_000
    done = rig.ship(hosts, options=ShipOptions(partial=True))
    assert done.failed.keys() == {"pod/w0"}, done.failed
    assert set(done.got) == {f"pod/w{n}" for n in range(1, 6)}
    assert all(tree(host.home / "c") == tree(rig.code) for host in hosts[1:])
    assert not (hosts[0].home / "c").exists()


@pytest.mark.parametrize("share", [0.0, 0.01, 0.3, 0.6, 0.9, 0.999])
def test_a_cut_anywhere_applies_nothing_and_received_data_is_not_resent(
    rig: ShipRig, tmp_path: Path, share: float
) -> None:
    hosts = herd(tmp_path, 1)
    write(rig.code, {"first": "x"})
    for file in sorted(rig.code.glob("d*/*")):
        file.rename(tmp_path / f"{file.parent.name}-{file.name}")
    rig.ship(hosts)
    was = tree(rig.code)
    for file in tmp_path.glob("d*-f*"):
        file.rename(rig.code / file.name)
    whole = 40 * 9000
    hosts[0].up = 0
    hosts[0].cut_after = int(whole * share)
    done = rig.ship(hosts)
    assert set(done.failed) == {"pod/w0"}
    assert tree(hosts[0].home / "c") == was
    came, hosts[0].up = hosts[0].up, 0
    hosts[0].cut_after, hosts[0].down = None, False
    done = rig.ship(hosts)
    assert done.failed == {}
    assert tree(hosts[0].home / "c") == tree(rig.code)
    assert hosts[0].up < whole - came + 2 * 9000 + 70_000


@pytest.mark.usefixtures("hurry")
def test_a_filled_host_that_is_silent_at_the_switch_is_reported(
    rig: ShipRig, tmp_path: Path
) -> None:
    hosts = herd(tmp_path, 2)
    hosts[1].dead = {"snapshot.commit"}
    done = rig.ship(hosts)
    assert done.got == ("pod/w0",)
    assert "may not have switched" in done.failed["pod/w1"]
    hosts[1].dead = set()
    assert rig.ship(hosts).failed == {}
    assert tree(hosts[1].home / "c") == tree(rig.code)


@pytest.mark.parametrize("verb", ["snapshot.receive", "snapshot.have"])
def test_a_single_host_with_a_lost_answer_is_asked_whether_it_switched(
    rig: ShipRig, tmp_path: Path, verb: str
) -> None:
    hosts = herd(tmp_path, 1)
    if verb == "snapshot.have":  # the next one goes along with the question
        assert rig.ship(hosts).failed == {}
        write(rig.code, {"d0/f0": "edited"})
    hosts[0].lost = {verb}
    done = rig.ship(hosts)
    assert (done.got, done.failed, done.unsure) == (("pod/w0",), {}, ())
    assert tree(hosts[0].home / "c") == tree(rig.code)
    write(rig.code, {"d0/f0": "edited again"})
    hosts[0].lost = {"snapshot.have", "snapshot.abandon"}
    done = rig.ship(hosts)
    assert (done.got, set(done.failed), done.unsure) == ((), {"pod/w0"}, ("pod/w0",))


def test_with_two_users_at_once_each_host_has_one_complete_snapshot(
    rig: ShipRig, tmp_path: Path
) -> None:
    (tmp_path / "other").mkdir()
    other = ShipRig(tmp_path / "other")
    write(other.code, {f"o{n}": f"{n}" for n in range(30)})
    hosts = herd(tmp_path, 4)

    async def both() -> None:
        done = await asyncio.gather(shipped(rig, hosts), shipped(other, hosts))
        assert [each.failed for each in done] == [{}, {}]

    asyncio.run(both())
    for host in hosts:
        assert tree(host.home / "c") in (tree(rig.code), tree(other.code))


@pytest.mark.usefixtures("hurry")
def test_a_cancelled_transfer_leaves_everything_unchanged(rig: ShipRig, tmp_path: Path) -> None:
    hosts = herd(tmp_path, 3)
    hosts[1].dead = {"snapshot.relay"}

    async def cancelled() -> None:
        task = asyncio.create_task(shipped(rig, hosts))
        async with asyncio.timeout(20):
            while not hosts[0].up:
                await asyncio.sleep(0.01)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(cancelled())
    assert not any((host.home / "c").exists() for host in hosts)


# ---- the relay itself ----------------------------------------------------------------------------


def test_strangers_at_the_port_get_nothing_and_delay_nothing() -> None:
    port = relay.listen_for_parent("right", "127.0.0.1")
    heard: list[object] = []

    def hear() -> None:
        with relay.receive_stream("right", lambda: None) as (read, plan):
            heard.extend([read(), plan])

    thread = threading.Thread(target=hear)
    thread.start()
    with socket.create_connection(("127.0.0.1", port)) as line:
        line.sendall(b"GET / HTTP/1.1\r\n\r\n" + bytes(99))
        line.settimeout(5)
        try:
            while line.recv(1 << 12):
                pass
        except ConnectionResetError:
            pass
    below = [["10.0.0.1", 9, "next", []]]
    with pytest.raises((BrokenStream, OSError)):
        relay.connect_to_child("127.0.0.1", port, "wrong", below).recv(1)
    with relay.connect_to_child("127.0.0.1", port, "right", below) as line:
        line.sendall(b"hello")
    thread.join(5)
    assert heard == [b"hello", below]
    assert "right" not in relay.LISTENERS


def test_a_new_owner_of_the_address_gets_nothing() -> None:
    """A child must prove that it knows the token before anything is sent to it."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        got: list[bytes] = []

        def impostor() -> None:
            line, _ = server.accept()
            with line:
                got.append(line.recv(99))
                line.sendall(bytes(48))
                got.append(line.recv(99))

        thread = threading.Thread(target=impostor)
        thread.start()
        port = server.getsockname()[1]
        with pytest.raises(BrokenStream):
            relay.connect_to_child("127.0.0.1", port, "token", [])
        thread.join(5)
    assert len(got[0]) == relay.NONCE
    assert got[1] == b""
