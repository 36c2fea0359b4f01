"""Code is shipped over SSH by the real agent: to simulated hosts and real sshds, with faults."""

import asyncio
import os
import random
import subprocess
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path

import pytest

from tests.conformance.host_backends import (
    KINDS,
    HostBackend,
    host_backend,
    linked,
    opened,
    ssh_connection,
)
from tests.conformance.hosts_sshd import SshdHosts
from tests.simulated.sync_hosts import tree, write
from tpuherd.ports import Host, RpcRequest
from tpuherd.remote.agent_bundle import current_agent
from tpuherd.remote.agent_link import AgentLink
from tpuherd.remote.connection_pool import ConnectionPool
from tpuherd.sync.copy_files import copy_from, copy_to
from tpuherd.sync.ship import DEFAULT_OPTIONS, Shipment, ShipOptions, ship
from tpuherd.sync.snapshot_store import Archive
from tpuherd.sync.take_snapshot import snapshot_folder
from tpuherd_host.agent.frames import LOG
from tpuherd_host.agent.log_records import RecordReader

pytestmark = pytest.mark.real
ENVIRONMENT = {"PATH": os.environ["PATH"]}
#: A folder as one line of text: every file's kind, content and executable bit.
LOOK = """
cd {dest} && find . -name .git -prune -o -type f -print0 -o -type l -print0 | sort -z |
xargs -0 -I% sh -c 'test -h "%" && echo "% -> $(readlink "%")" || \
  echo "% $(test -x "%" && echo x) $(sha256sum <"%")"' | sha256sum
"""


@pytest.fixture(scope="module", params=KINDS)
def backend(request: pytest.FixtureRequest) -> Iterator[HostBackend]:
    with host_backend(request.param) as place:
        yield place


class ShipRig:
    """A user's side, with the ways to hosts."""

    def __init__(self, backend: HostBackend, folder: Path) -> None:
        self.backend = backend
        self.folder = folder
        self.code = folder / "code"
        write(self.code, {f"d{n % 9}/f{n}": random.Random(n).randbytes(3000) for n in range(90)})
        write(self.code, {"odd name/ü": "ü", "run.sh": "#!/bin/sh\necho hello\n"})
        (self.code / "run.sh").chmod(0o755)
        (self.code / "link").symlink_to("odd name")
        self.archive = Archive(folder / "archive")

    def run(self, work: Callable[[ConnectionPool], Awaitable[None]]) -> None:
        async def limited(connections: ConnectionPool) -> None:
            async with asyncio.timeout(120):
                await work(connections)

        opened(self.backend, self.folder, current_agent()).run(limited)

    async def ship(
        self, links: list[AgentLink], dest: str = "c", options: ShipOptions = DEFAULT_OPTIONS
    ) -> Shipment:
        shot = await asyncio.to_thread(snapshot_folder, self.code, self.archive, ENVIRONMENT)
        if not shot.id:  # it is large: the user says yes
            self.archive.approve_findings(shot.findings)
            shot = await asyncio.to_thread(snapshot_folder, self.code, self.archive, ENVIRONMENT)
        return await ship(shot, dest, links, archive=self.archive, options=options)

    def look(self) -> str:
        """What LOOK says of our side."""
        words = ["sh", "-c", LOOK.format(dest=self.code)]
        return subprocess.run(words, capture_output=True, text=True, check=True).stdout


@pytest.fixture
def rig(backend: HostBackend, tmp_path: Path) -> ShipRig:
    return ShipRig(backend, tmp_path)


async def links(connections: ConnectionPool, hosts: list[Host]) -> list[AgentLink]:
    return await asyncio.gather(*(connections.get_link(host) for host in hosts))


async def said(link: AgentLink, text: str, **more: object) -> str:
    """What a command says on a host."""
    records, out = RecordReader(), bytearray()
    asked = {"id": os.urandom(6).hex(), "shell": text, **more}
    async with link.open_stream(RpcRequest(name="run", arguments=asked)) as call:
        while (piece := await call.read()) is not None:
            if piece[0] == LOG:
                out += b"".join(r.piece for r in records.feed(piece[1]) if r.port in (1, 2))
    return out.decode()


async def looks(found: list[AgentLink], dest: str = "c") -> set[str]:
    """What the hosts have there."""
    return set(await asyncio.gather(*(said(link, LOOK.format(dest=dest)) for link in found)))


def test_first_edited_and_unchanged_code(backend: HostBackend, rig: ShipRig) -> None:
    hosts = backend.node("pod", 4)

    async def work(connections: ConnectionPool) -> None:
        found = await links(connections, hosts)
        done = await rig.ship(found)
        assert (done.failed, done.slow) == ({}, {})
        assert await looks(found) == {rig.look()}
        assert done.bytes_up < 90 * 3000 * 1.1
        assert "hello" in await said(found[3], "c/run.sh")
        await said(found[1], "echo edited >c/d1/f1; echo mine >c/mine; mkdir c/out; date >c/out/x")
        write(rig.code, {"d0/f0": "edited", "new": "new"})
        (rig.code / "run.sh").unlink()
        done = await rig.ship(found)
        assert (done.failed, done.slow) == ({}, {})
        assert done.bytes_up < 1000
        assert (await said(found[1], "cat c/mine; ls c/out c/run.sh")).startswith("mine\n")
        await said(found[1], "rm -r c/mine c/out")
        assert await looks(found) == {rig.look()}
        done = await rig.ship(found)
        assert (done.bytes_up, len(done.unchanged)) == (0, 4)

    rig.run(work)


@pytest.mark.needs("tc")
def test_a_slow_uplink_carries_the_code_once_for_any_number_of_hosts(
    backend: HostBackend, rig: ShipRig
) -> None:
    if not isinstance(backend, SshdHosts):
        pytest.skip("only real sshd's have a wire that can be made thin")
    size, mbit = 2_000_000, 20
    hosts = {many: backend.node(f"thin{many}", many) for many in (1, 8)}
    carried: dict[int, int] = {}

    async def work(connections: ConnectionPool) -> None:
        for many in hosts:
            found = await links(connections, hosts[many])
            write(rig.code, {"noise": random.Random(many).randbytes(size)})
            with backend.thin(mbit) as count:
                before = count()
                done = await rig.ship(found)
                carried[many] = count() - before
            assert (done.failed, done.slow) == ({}, {})
            assert done.seconds > 0.8 * size * 8 / (mbit * 1e6)  # it really was thin
            assert await looks(found) == {rig.look()}

    rig.run(work)
    assert size < carried[1] < carried[8] < 1.15 * carried[1]


@pytest.mark.parametrize("how", ["cut", "kill"])
def test_an_interrupted_transfer_keeps_the_old_code_and_the_next_try_resumes(
    backend: HostBackend, rig: ShipRig, how: str
) -> None:
    hosts = backend.node(how, 2)

    async def work(connections: ConnectionPool) -> None:
        found = await links(connections, hosts)
        assert (await rig.ship(found)).failed == {}
        before = rig.look()
        write(rig.code, {f"big{n}": random.Random(n).randbytes(1 << 20) for n in range(12)})
        shot = await asyncio.to_thread(snapshot_folder, rig.code, rig.archive, ENVIRONMENT)
        cut = asyncio.Event()

        def watch(progress: object) -> None:
            if getattr(progress, "sent", 0) > 4 << 20:
                cut.set()

        shipping = asyncio.create_task(ship(shot, "c", found, archive=rig.archive, report=watch))
        await cut.wait()
        if how == "kill":
            connection = await ssh_connection(connections, hosts[0])
            await connection.run(f"kill -9 {found[0].hello['pid']}")
        else:
            await asyncio.to_thread(backend.cut, hosts[0])
        done = await shipping
        again = [await linked(connections, host) for host in hosts]
        if done.failed:  # else it was through before the cut came about
            assert f"{how}/w0" in done.failed
            assert await looks(again) == {before}
        done = await rig.ship(again)
        assert done.failed == {}
        assert await looks(again) == {rig.look()}

    rig.run(work)


def test_two_unconnected_nodes(backend: HostBackend, rig: ShipRig) -> None:
    if not hasattr(backend, "_weather"):
        pytest.skip("only simulated hosts are in networks of their own")
    hosts = [*backend.node("near", 4), *backend.node("far", 4)]

    async def work(connections: ConnectionPool) -> None:
        found = await links(connections, hosts)
        done = await rig.ship(found)
        assert done.failed == {}
        assert set(done.slow) <= {"far/w0"}  # none where the machine lets them meet
        assert done.bytes_up < 90 * 3000 * 2.3
        write(rig.code, {"d0/f0": "edited"})
        done = await rig.ship(found)
        assert (done.failed, done.slow) == ({}, {})
        assert done.bytes_up < 2000
        assert await looks(found) == {rig.look()}

    rig.run(work)


def test_copies_both_ways(backend: HostBackend, rig: ShipRig, tmp_path: Path) -> None:
    hosts = backend.node("copy", 2)
    write(tmp_path, {"data": random.Random(1).randbytes(3 << 20)})
    os.utime(tmp_path / "data", (1_500_000_000, 1_500_000_000))
    (tmp_path / "data").chmod(0o640)

    async def work(connections: ConnectionPool) -> None:
        found = await links(connections, hosts)
        done = await copy_to([tmp_path / "data"], "some/where/", found)
        assert (done.failed, done.slow) == ({}, {})
        assert done.bytes_up < (3 << 20) * 1.01
        shown = await said(found[1], "stat -c '%a %Y' some/where/data")
        assert shown == "640 1500000000\n"
        back = await copy_from(["some"], found, tmp_path / "back")
        assert back.failed == {}
        one, two = tree(tmp_path / "back" / "copy-w0"), tree(tmp_path / "back" / "copy-w1")
        assert one == two == {"some/where/data": ("file", (tmp_path / "data").read_bytes())}
        assert (tmp_path / "back" / "copy-w1" / "some" / "where" / "data").stat().st_mtime == 1.5e9

    rig.run(work)


def test_a_full_disk_is_refused_before_or_after_but_never_halfway(
    backend: HostBackend, rig: ShipRig
) -> None:
    hosts = backend.node("full", 2)
    if not hasattr(backend, "_weather"):
        pytest.skip("only simulated hosts have disks that fill")

    async def work(connections: ConnectionPool) -> None:
        found = await links(connections, hosts)
        assert (await rig.ship(found)).failed == {}
        before = rig.look()
        write(rig.code, {"big": random.Random(7).randbytes(30 << 20)})
        await asyncio.to_thread(backend._weather, "fill-disk", target=hosts[1].name)
        done = await rig.ship(found)
        assert set(done.failed) == {"full/w1"}
        assert "full" in done.failed["full/w1"]
        assert await looks(found[:1]) == {before}
        await asyncio.to_thread(backend._weather, "free-disk", target=hosts[1].name)
        assert (await rig.ship(found)).failed == {}
        assert await looks(found) == {rig.look()}

    rig.run(work)


@pytest.mark.heavy
def test_two_gigabytes_in_one_file_use_little_memory(backend: HostBackend, rig: ShipRig) -> None:
    hosts = backend.node("large", 1)
    with (rig.code / "large").open("wb") as file:
        file.truncate(2_200_000_000 if backend.login == "root" else 1_000_000_000)  # a small disk

    async def work(connections: ConnectionPool) -> None:
        found = await links(connections, hosts)
        done = await rig.ship(found)
        assert done.failed == {}
        assert await looks(found) == {rig.look()}
        pid = found[0].hello["pid"]
        peak = await said(found[0], f"grep VmHWM /proc/{pid}/status")
        assert int(peak.split()[1]) < 150_000, peak

    rig.run(work)
