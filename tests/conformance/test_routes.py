"""The ways to hosts: one suite for the simulator's hosts and for real OpenSSH servers."""

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from time import monotonic
from typing import Any

import pytest

from tests.conformance.host_backends import KINDS, PING, Ground, linked, opened, ping, standing
from tests.conformance.tiny_agent import small
from tpuherd.errors import IdentityMismatch, NotFound, NotReached
from tpuherd.ports import Host, RpcRequest
from tpuherd.remote import fanout
from tpuherd.remote.connection_pool import ConnectionPool, HostDirectory
from tpuherd.remote.host_key_pins import Pins
from tpuherd_host.agent.frames import STDOUT

pytestmark = pytest.mark.real


@pytest.fixture(autouse=True)
def tidy() -> None:
    """Nothing here is done to the world of the other tests."""


@pytest.fixture(scope="module", params=KINDS)
def ground(request: pytest.FixtureRequest) -> Iterator[Ground]:
    with standing(request.param) as place:
        yield place


def test_each_host_of_a_node_gets_one_connection(ground: Ground, tmp_path: Path) -> None:
    hosts = ground.node("pod", 4)

    async def work(ways: ConnectionPool) -> None:
        async def thrice(host: Host) -> tuple[int, ...]:
            links = await asyncio.gather(*(ways.get_link(host) for _ in range(3)))
            assert len(set(map(id, links))) == 1
            await asyncio.gather(*(link.call(PING) for link in links))
            return tuple(link.hello["pid"] for link in links)

        done = await fanout.run_on_all(hosts, thrice)
        assert fanout.failure_lines(done) == []
        assert all(ways.is_alive(host) for host in hosts)
        again = await fanout.run_on_all(hosts, thrice)
        assert [one.value for one in again] == [one.value for one in done]

    opened(ground, tmp_path).run(work)


def test_a_recreated_node_is_accepted_and_its_old_incarnation_is_not_reached(
    ground: Ground, tmp_path: Path
) -> None:
    (old,) = ground.node("phoenix")
    opened(ground, tmp_path).run(lambda ways: ping(ways, old))
    (new,) = ground.recreate("phoenix")
    assert new.external_ip == old.external_ip
    assert new.incarnation != old.incarnation
    opened(ground, tmp_path).run(lambda ways: ping(ways, new))
    with pytest.raises(NotFound, match="was recreated"):
        opened(ground, tmp_path).run(lambda ways: ping(ways, old))


def test_a_wrong_host_key_is_refused(ground: Ground, tmp_path: Path) -> None:
    (host,) = ground.node("masked")
    (other,) = ground.node("other")
    opened(ground, tmp_path).run(lambda ways: ping(ways, other))
    pins = Pins(tmp_path / "pins")
    lie = replace(host, external_ip=other.external_ip)
    with pytest.raises(IdentityMismatch, match="another node has its address now: other/w0"):
        opened(Lying(ground, lie), tmp_path).run(lambda ways: ping(ways, lie))
    assert pins.pinned_keys(other)


class Lying:
    """A ground whose register says what is no longer true: the cloud lags behind."""

    def __init__(self, ground: Ground, lie: Host) -> None:
        self._ground = ground
        self._lie = lie

    def __getattr__(self, name: str) -> Any:
        return getattr(self._ground, name)

    @asynccontextmanager
    async def register(self) -> AsyncIterator[HostDirectory]:
        async with self._ground.register() as register:
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


def test_a_host_with_a_new_address_is_found_and_the_old_address_gets_nothing(
    ground: Ground, tmp_path: Path
) -> None:
    (before,) = ground.node("mover")
    opened(ground, tmp_path).run(lambda ways: ping(ways, before))
    ground.move(before)
    (after,) = ground.hosts("mover")
    assert after.external_ip != before.external_ip
    assert after.incarnation == before.incarnation
    opened(ground, tmp_path).run(lambda ways: ping(ways, before))


def test_a_refusing_host_and_a_silent_host(ground: Ground, tmp_path: Path) -> None:
    hosts = ground.node("ill", 4)
    ground.refuse(hosts[1])
    ground.silence(hosts[2])
    ground.hang(hosts[3])
    took: dict[int, float] = {}

    async def work(ways: ConnectionPool) -> list[fanout.FanoutResult[Any]]:
        start = monotonic()

        async def one(host: Host) -> Any:
            try:
                return await ping(ways, host)
            finally:
                took[host.worker] = monotonic() - start

        first = await fanout.run_on_all(hosts, one)
        assert took[0] < 5
        assert took[2] < 25
        again = monotonic()
        await fanout.run_on_all(hosts, one)
        assert monotonic() - again < 9, "who was waited for a moment ago is not waited for so long"
        return first

    done = opened(ground, tmp_path).run(work)
    assert done[0].error is None
    assert [type(one.error) for one in done[1:]] == [NotReached] * 3
    said = fanout.failure_lines(done)
    assert said == [
        "ill/w1: nothing listens on its port " + str(hosts[1].ssh_port),
        "ill/w[2-3]: no answer in 10 s",
    ]


def test_a_reboot_breaks_the_link_and_the_next_one_is_made(ground: Ground, tmp_path: Path) -> None:
    (host,) = ground.node("booter")

    async def work(ways: ConnectionPool) -> None:
        link = await ways.get_link(host)
        async with link.open_stream(RpcRequest(name="echo")) as call:
            await asyncio.to_thread(ground.reboot, host)
            async with asyncio.timeout(30):
                with pytest.raises(NotReached):
                    await call.read()
        assert not link.alive
        with pytest.raises(NotReached):
            await link.call(PING)
        async with asyncio.timeout(60):
            await linked(ways, host)
            await ping(ways, host)

    opened(ground, tmp_path).run(work)


def test_a_cut_stream_is_an_error_and_the_host_is_reached_again(
    ground: Ground, tmp_path: Path
) -> None:
    (host,) = ground.node("cutter")

    async def work(ways: ConnectionPool) -> None:
        link = await ways.get_link(host)
        async with link.open_stream(RpcRequest(name="say", arguments={"pieces": 5})) as call:
            said = b"".join(b"%d\n" % number for number in range(5))
            got = b""
            while len(got) < len(said):
                port, piece = await call.read() or (0, b"")
                assert port == STDOUT
                got += piece
            await asyncio.to_thread(ground.cut, host)
            async with asyncio.timeout(30):
                with pytest.raises(NotReached):
                    await call.read()
        assert got == said
        async with asyncio.timeout(30):
            await linked(ways, host)
            await ping(ways, host)

    opened(ground, tmp_path).run(work)


@pytest.mark.parametrize("fate", ["silence", "hang"])
def test_a_host_that_dies_silently_is_noticed(
    ground: Ground, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fate: str
) -> None:
    monkeypatch.setattr("tpuherd.remote.connection_pool.KEEPALIVE_S", 0.3)
    (host,) = ground.node(f"quiet-{fate}")

    async def work(ways: ConnectionPool) -> None:
        link = await ways.get_link(host)
        async with link.open_stream(RpcRequest(name="echo")) as call:
            await asyncio.to_thread(getattr(ground, fate), host)
            async with asyncio.timeout(10):
                with pytest.raises(NotReached, match="the connection was cut"):
                    await call.read()

    opened(ground, tmp_path).run(work)


def test_closing_while_hosts_are_connecting(ground: Ground, tmp_path: Path) -> None:
    hosts = ground.node("early", 4)
    ground.silence(hosts[1])
    ground.hang(hosts[2])

    async def work(ways: ConnectionPool) -> float:
        waiting = [asyncio.ensure_future(ping(ways, host)) for host in hosts]
        await waiting[0]
        start = monotonic()
        await ways.close()
        ends = await asyncio.gather(*waiting, return_exceptions=True)
        assert all(isinstance(end, asyncio.CancelledError | NotReached) for end in ends[1:3])
        return monotonic() - start

    assert opened(ground, tmp_path).run(work) < 2


def test_a_crashed_agent_is_restarted_over_the_same_connection(
    ground: Ground, tmp_path: Path
) -> None:
    (host,) = ground.node("faller")

    async def work(ways: ConnectionPool) -> None:
        connection = await ways.get_connection(host)
        link = await ways.get_link(host)
        with pytest.raises(NotReached, match="the agent ended: the agent fell over"):
            await link.call(RpcRequest(name="crash"))
        await ping(ways, host)
        assert await ways.get_connection(host) is connection

    opened(ground, tmp_path).run(work)


def test_the_agent_is_uploaded_once(ground: Ground, tmp_path: Path) -> None:
    (host,) = ground.node("settler")
    there = opened(ground, tmp_path, small("first"))

    async def sent(ways: ConnectionPool) -> int:
        connection = await ways.get_connection(host)
        return int(connection._send_seq)  # packets are what a parcel costs

    first, second = there.run(sent), there.run(sent)
    assert second <= first

    async def bytes_sent(ways: ConnectionPool) -> Any:
        return (await ways.get_link(host)).hello["argv"]

    assert there.run(bytes_sent) == ["attach"]


def test_an_unknown_client_key_is_installed(ground: Ground, tmp_path: Path) -> None:
    (host,) = ground.node("guarded")
    opened(ground, tmp_path / "somebody").run(lambda ways: ping(ways, host))
    opened(ground, tmp_path / "else").run(lambda ways: ping(ways, host))


def test_a_port_of_the_host_is_forwarded(ground: Ground, tmp_path: Path) -> None:
    (host,) = ground.node("porter")

    async def work(ways: ConnectionPool) -> bytes:
        link = await ways.get_link(host)
        async with link.forward_port(host.ssh_port if host.ssh_port != 22 else 22) as port:
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            try:
                return await reader.read(1)
            finally:
                writer.close()

    opened(ground, tmp_path).run(work)


def test_a_slow_reader_with_bytes_both_ways(ground: Ground, tmp_path: Path) -> None:
    (host,) = ground.node("echo")

    async def work(ways: ConnectionPool) -> None:
        link = await ways.get_link(host)
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

    opened(ground, tmp_path).run(work)


def test_cancelling_one_call_leaves_the_others_alone(ground: Ground, tmp_path: Path) -> None:
    (host,) = ground.node("busy")

    async def work(ways: ConnectionPool) -> None:
        link = await ways.get_link(host)
        async with link.open_stream(RpcRequest(name="echo")) as kept:
            async with link.open_stream(RpcRequest(name="echo")) as left:
                await left.write(STDOUT, b"x")
            await kept.write(STDOUT, b"still here")
            assert await kept.read() == (STDOUT, b"still here")
        with pytest.raises(NotFound, match="no such verb: dance"):
            await link.call(RpcRequest(name="dance"))

    opened(ground, tmp_path).run(work)


def test_unreachable_hosts_do_not_delay_the_others(ground: Ground, tmp_path: Path) -> None:
    many, nodes = (64, 1) if hasattr(ground, "nodes") else (8, 1)
    hosts = [host for at in range(nodes) for host in ground.node(f"crowd{at}", many // nodes)]
    dead = [hosts[3], hosts[many // 2], hosts[-1]]
    ground.silence(dead[0])
    ground.refuse(dead[1])
    ground.hang(dead[2])

    async def work(ways: ConnectionPool) -> None:
        start = monotonic()
        living_at = 0.0
        done = []
        async for one in fanout.run_on_each(hosts, lambda host: ping(ways, host)):
            done.append(one)
            if one.error is None:
                living_at = monotonic() - start
        assert living_at < 9, "the last living one came before the dead were given up"
        assert {one.host for one in done if one.error} == set(dead)
        text = " ".join(fanout.failure_lines(done))
        assert f"w[3,{many - 1}]: no answer in 10 s" in text.replace("crowd0/", "")
        assert f"w{many // 2}: nothing listens" in text

    opened(ground, tmp_path).run(work)


def test_late_host_keys_are_waited_for(ground: Ground, tmp_path: Path) -> None:
    (host,) = ground.node("late")
    pins = Pins(tmp_path / "pins")
    opened(ground, tmp_path).run(lambda ways: ping(ways, host))
    assert pins.pinned_keys(host)[0].startswith("ssh-ed25519 ")
