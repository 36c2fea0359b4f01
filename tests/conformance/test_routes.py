"""Connections to hosts: one suite for simulated hosts and for real OpenSSH servers."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from time import monotonic
from typing import Any

import pytest

from tests.conformance.host_backends import (
    PING,
    HostBackend,
    linked,
    opened,
    ping,
    ssh_connection,
)
from tests.conformance.tiny_agent import small
from tpuherd.errors import IdentityMismatch, NotFound, NotReached
from tpuherd.ports import Host, RpcRequest
from tpuherd.remote import fanout
from tpuherd.remote.connection_pool import ConnectionPool, HostDirectory
from tpuherd.remote.host_key_pins import Pins
from tpuherd_host.agent.frames import STDOUT

pytestmark = pytest.mark.real


def test_each_host_of_a_node_gets_one_connection(backend: HostBackend, tmp_path: Path) -> None:
    hosts = backend.node("pod", 4)

    async def work(connections: ConnectionPool) -> None:
        async def thrice(host: Host) -> tuple[int, ...]:
            links = await asyncio.gather(*(connections.get_link(host) for _ in range(3)))
            assert len(set(map(id, links))) == 1
            await asyncio.gather(*(link.call(PING) for link in links))
            return tuple(link.hello["pid"] for link in links)

        done = await fanout.run_on_all(hosts, thrice)
        assert fanout.failure_lines(done) == []
        assert all(connections.is_alive(host) for host in hosts)
        again = await fanout.run_on_all(hosts, thrice)
        assert [one.value for one in again] == [one.value for one in done]

    opened(backend, tmp_path).run(work)


def test_a_recreated_node_is_accepted_and_its_old_incarnation_is_not_reached(
    backend: HostBackend, tmp_path: Path
) -> None:
    (old,) = backend.node("phoenix")
    opened(backend, tmp_path).run(lambda connections: ping(connections, old))
    (new,) = backend.recreate("phoenix")
    assert new.external_ip == old.external_ip
    assert new.incarnation != old.incarnation
    opened(backend, tmp_path).run(lambda connections: ping(connections, new))
    with pytest.raises(NotFound, match="was recreated"):
        opened(backend, tmp_path).run(lambda connections: ping(connections, old))


def test_a_wrong_host_key_is_refused(backend: HostBackend, tmp_path: Path) -> None:
    (host,) = backend.node("masked")
    (other,) = backend.node("other")
    opened(backend, tmp_path).run(lambda connections: ping(connections, other))
    pins = Pins(tmp_path / "pins")
    lie = replace(host, external_ip=other.external_ip)
    with pytest.raises(IdentityMismatch, match="another node has its address now: other/w0"):
        opened(Lying(backend, lie), tmp_path).run(lambda connections: ping(connections, lie))
    assert pins.pinned_keys(other)


class Lying:
    """A ground whose register says what is no longer true: the cloud lags behind."""

    def __init__(self, backend: HostBackend, lie: Host) -> None:
        self._backend = backend
        self._lie = lie

    def __getattr__(self, name: str) -> Any:
        return getattr(self._backend, name)

    @asynccontextmanager
    async def register(self) -> AsyncIterator[HostDirectory]:
        async with self._backend.register() as register:
            yield Liar(register, self._lie)


class Liar:
    """Its register."""

    def __init__(self, register: HostDirectory, lie: Host) -> None:
        self._lie = lie
        self.unreachable_reason = register.unreachable_reason
        self.look_up_host = register.look_up_host
        self.install_key = register.install_key

    async def find_current(self, host: Host) -> Host | None:
        return (await self.look_up_host(self._lie))[0]


class Keyless(Liar):
    """The register of a node whose hosts have not published their keys."""

    async def look_up_host(self, host: Host) -> tuple[Host, str]:
        return replace(host, host_keys=()), ""

    async def find_current(self, host: Host) -> Host | None:
        raise AssertionError("the cloud was asked about a host that boots")

    def __init__(self, register: HostDirectory, lie: Host) -> None:
        self.unreachable_reason = register.unreachable_reason
        self.install_key = register.install_key


class WithoutKeys(Lying):
    @asynccontextmanager
    async def register(self) -> AsyncIterator[HostDirectory]:
        async with self._backend.register() as register:
            yield Keyless(register, self._lie)


def test_a_host_that_boots_is_reached_only_if_the_cloud_shows_its_keys(
    backend: HostBackend, tmp_path: Path
) -> None:
    up, down = (replace(one, booting=True) for one in backend.node("boots", 2))
    backend.refuse(down)

    async def fail(connections: ConnectionPool) -> None:
        for host in (up, down):
            with pytest.raises(NotReached, match="its node is not READY yet"):
                await ping(connections, host)

    opened(WithoutKeys(backend, up), tmp_path).run(fail)
    assert not Pins(tmp_path / "pins").pinned_keys(up)
    opened(backend, tmp_path).run(lambda connections: ping(connections, up))
    assert Pins(tmp_path / "pins").pinned_keys(up)


def test_a_host_with_a_new_address_is_found_and_the_old_address_gets_nothing(
    backend: HostBackend, tmp_path: Path
) -> None:
    (before,) = backend.node("mover")
    opened(backend, tmp_path).run(lambda connections: ping(connections, before))
    backend.move(before)
    (after,) = backend.hosts("mover")
    assert after.external_ip != before.external_ip
    assert after.incarnation == before.incarnation
    opened(backend, tmp_path).run(lambda connections: ping(connections, before))


def test_a_refusing_host_and_a_silent_host(backend: HostBackend, tmp_path: Path) -> None:
    hosts = backend.node("ill", 4)
    backend.refuse(hosts[1])
    backend.silence(hosts[2])
    backend.hang(hosts[3])
    took: dict[int, float] = {}

    async def work(connections: ConnectionPool) -> list[fanout.FanoutResult[Any]]:
        start = monotonic()

        async def one(host: Host) -> Any:
            try:
                return await ping(connections, host)
            finally:
                took[host.worker] = monotonic() - start

        first = await fanout.run_on_all(hosts, one)
        assert took[0] < 5
        assert took[2] < 25
        again = monotonic()
        await fanout.run_on_all(hosts, one)
        assert monotonic() - again < 9, "who was waited for a moment ago is not waited for so long"
        return first

    done = opened(backend, tmp_path).run(work)
    assert done[0].error is None
    assert [type(one.error) for one in done[1:]] == [NotReached] * 3
    said = fanout.failure_lines(done)
    assert said == [
        "ill/w1: nothing listens on its port " + str(hosts[1].ssh_port),
        "ill/w[2-3]: no answer in 10 s",
    ]


def test_a_reboot_breaks_the_link_and_the_next_one_is_made(
    backend: HostBackend, tmp_path: Path
) -> None:
    (host,) = backend.node("booter")

    async def work(connections: ConnectionPool) -> None:
        link = await connections.get_link(host)
        async with link.open_stream(RpcRequest(name="echo")) as call:
            await asyncio.to_thread(backend.reboot, host)
            async with asyncio.timeout(30):
                with pytest.raises(NotReached):
                    await call.read()
        assert not link.alive
        with pytest.raises(NotReached):
            await link.call(PING)
        async with asyncio.timeout(60):
            await linked(connections, host)
            await ping(connections, host)

    opened(backend, tmp_path).run(work)


def test_a_cut_stream_is_an_error_and_the_host_is_reached_again(
    backend: HostBackend, tmp_path: Path
) -> None:
    (host,) = backend.node("cutter")

    async def work(connections: ConnectionPool) -> None:
        link = await connections.get_link(host)
        async with link.open_stream(RpcRequest(name="say", arguments={"pieces": 5})) as call:
            said = b"".join(b"%d\n" % number for number in range(5))
            got = b""
            while len(got) < len(said):
                port, piece = await call.read() or (0, b"")
                assert port == STDOUT
                got += piece
            await asyncio.to_thread(backend.cut, host)
            async with asyncio.timeout(30):
                with pytest.raises(NotReached):
                    await call.read()
        assert got == said
        async with asyncio.timeout(30):
            await linked(connections, host)
            await ping(connections, host)

    opened(backend, tmp_path).run(work)


@pytest.mark.parametrize("fate", ["silence", "hang"])
def test_a_host_that_dies_silently_is_noticed(
    backend: HostBackend, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fate: str
) -> None:
    monkeypatch.setattr("tpuherd.remote.connection_pool.KEEPALIVE_S", 0.3)
    (host,) = backend.node(f"quiet-{fate}")

    async def work(connections: ConnectionPool) -> None:
        link = await connections.get_link(host)
        async with link.open_stream(RpcRequest(name="echo")) as call:
            await asyncio.to_thread(getattr(backend, fate), host)
            async with asyncio.timeout(10):
                with pytest.raises(NotReached, match="the connection was cut"):
                    await call.read()

    opened(backend, tmp_path).run(work)


def test_closing_while_hosts_are_connecting(backend: HostBackend, tmp_path: Path) -> None:
    hosts = backend.node("early", 4)
    backend.silence(hosts[1])
    backend.hang(hosts[2])

    async def work(connections: ConnectionPool) -> float:
        waiting = [asyncio.ensure_future(ping(connections, host)) for host in hosts]
        await waiting[0]
        start = monotonic()
        await connections.close()
        ends = await asyncio.gather(*waiting, return_exceptions=True)
        assert all(isinstance(end, asyncio.CancelledError | NotReached) for end in ends[1:3])
        return monotonic() - start

    assert opened(backend, tmp_path).run(work) < 2


def test_a_crashed_agent_is_restarted_over_the_same_connection(
    backend: HostBackend, tmp_path: Path
) -> None:
    (host,) = backend.node("faller")

    async def work(connections: ConnectionPool) -> None:
        connection = await ssh_connection(connections, host)
        link = await connections.get_link(host)
        with pytest.raises(NotReached, match="the agent ended: the agent fell over"):
            await link.call(RpcRequest(name="crash"))
        await ping(connections, host)
        assert await ssh_connection(connections, host) is connection

    opened(backend, tmp_path).run(work)


def test_the_agent_is_uploaded_once(backend: HostBackend, tmp_path: Path) -> None:
    (host,) = backend.node("settler")
    there = opened(backend, tmp_path, small("first"))

    async def sent(connections: ConnectionPool) -> int:
        connection = await ssh_connection(connections, host)
        return int(connection._send_seq)  # packets are what a parcel costs

    first, second = there.run(sent), there.run(sent)
    assert second <= first

    async def bytes_sent(connections: ConnectionPool) -> Any:
        return (await connections.get_link(host)).hello["argv"]

    assert there.run(bytes_sent) == ["attach"]


def test_an_unknown_client_key_is_installed(backend: HostBackend, tmp_path: Path) -> None:
    (host,) = backend.node("guarded")
    opened(backend, tmp_path / "somebody").run(lambda connections: ping(connections, host))
    opened(backend, tmp_path / "else").run(lambda connections: ping(connections, host))


def test_a_slow_reader_with_bytes_both_ways(backend: HostBackend, tmp_path: Path) -> None:
    (host,) = backend.node("echo")

    async def work(connections: ConnectionPool) -> None:
        link = await connections.get_link(host)
        sent = bytes(range(256)) * 8192
        async with link.open_stream(RpcRequest(name="echo")) as call:
            got = bytearray()

            async def write() -> None:
                await call.write(STDOUT, sent)

            async with asyncio.TaskGroup() as group:
                group.create_task(write())
                while len(got) < len(sent):
                    piece = await call.read()
                    assert piece is not None
                    got += piece[1]
            assert bytes(got) == sent
            await call.send_eof(STDOUT)
            assert await call.read() is None
            assert await call.reply() == {}

    opened(backend, tmp_path).run(work)


def test_cancelling_one_call_leaves_the_others_alone(backend: HostBackend, tmp_path: Path) -> None:
    (host,) = backend.node("busy")

    async def work(connections: ConnectionPool) -> None:
        link = await connections.get_link(host)
        async with link.open_stream(RpcRequest(name="echo")) as kept:
            async with link.open_stream(RpcRequest(name="echo")) as left:
                await left.write(STDOUT, b"x")
            await kept.write(STDOUT, b"still here")
            assert await kept.read() == (STDOUT, b"still here")
        with pytest.raises(NotFound, match="no such verb: dance"):
            await link.call(RpcRequest(name="dance"))

    opened(backend, tmp_path).run(work)


def test_unreachable_hosts_do_not_delay_the_others(backend: HostBackend, tmp_path: Path) -> None:
    many, nodes = (64, 1) if hasattr(backend, "nodes") else (8, 1)
    hosts = [host for at in range(nodes) for host in backend.node(f"crowd{at}", many // nodes)]
    dead = [hosts[3], hosts[many // 2], hosts[-1]]
    backend.silence(dead[0])
    backend.refuse(dead[1])
    backend.hang(dead[2])

    async def work(connections: ConnectionPool) -> None:
        start = monotonic()
        living_at = 0.0
        done = []
        async for one in fanout.run_on_each(hosts, lambda host: ping(connections, host)):
            done.append(one)
            if one.error is None:
                living_at = monotonic() - start
        assert living_at < 9, "the last living one came before the dead were given up"
        assert {one.host for one in done if one.error} == set(dead)
        text = " ".join(fanout.failure_lines(done))
        assert f"w[3,{many - 1}]: no answer in 10 s" in text.replace("crowd0/", "")
        assert f"w{many // 2}: nothing listens" in text

    opened(backend, tmp_path).run(work)


def test_late_host_keys_are_waited_for(backend: HostBackend, tmp_path: Path) -> None:
    (host,) = backend.node("late")
    pins = Pins(tmp_path / "pins")
    opened(backend, tmp_path).run(lambda connections: ping(connections, host))
    assert pins.pinned_keys(host)[0].startswith("ssh-ed25519 ")
