"""The engine mounts a job's NFS folders on every host of a gang, worker 0's own folder first."""

import asyncio
from collections.abc import Coroutine, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tpuherd.clock import WallClock
from tpuherd.engine.gang_client import GangClient
from tpuherd.engine.host_failures import HostFailure
from tpuherd.engine.host_watcher import HostWatcher, WatcherDeps
from tpuherd.engine.nfs_mounts import mount_nfs_folders
from tpuherd.errors import OperationFailed
from tpuherd.ports import Host, RpcRequest
from tpuherd.store.log_store import LogStore

FILER = "10.9.0.1"


@dataclass
class Network:
    """Hosts by address, and a file server that exports /share to all."""

    hosts: "dict[str, NfsHost]" = field(default_factory=dict)

    def may_mount(self, source: str, address: str) -> bool:
        server, _, path = source.partition(":")
        if server == FILER:
            return path == "/share"
        there = self.hosts.get(server)
        return there is not None and address in there.exports.get(path, ())


class NfsHost:
    """A host that mounts what a server lets it."""

    def __init__(self, worker: int, network: Network) -> None:
        self.host = Host(
            node="gpt-0-g1-abc", zone="us-central2-b", worker=worker, incarnation="i",
            internal_ip=f"10.0.0.{worker + 1}", external_ip=None,
        )  # fmt: skip
        self.exports: dict[str, list[str]] = {}
        self.mounts: dict[str, str] = {}
        self.network = network
        network.hosts[self.host.internal_ip] = self

    hello: Mapping[str, Any] = {}

    async def call(self, verb: RpcRequest) -> Mapping[str, Any]:
        asked = verb.arguments
        await asyncio.sleep(0)
        if verb.name == "nfs.export":
            self.exports[asked["folder"]] = list(asked["clients"])
        elif verb.name == "nfs.mount":
            if not self.network.may_mount(asked["source"], self.host.internal_ip):
                raise OperationFailed(f"{asked['source']} can't be mounted on {asked['folder']}")
            self.mounts[asked["folder"]] = asked["source"]
        return {}


def mount(folder: Path, hosts: list[NfsHost], folders: Mapping[str, str]) -> list[HostFailure]:
    def drop(work: Coroutine[Any, Any, None]) -> None:
        work.close()

    means: Any = WatcherDeps(
        hosts=None,  # type: ignore[arg-type]
        shelf=LogStore(folder),
        clock=WallClock(),
        stir=lambda: None,
        tell=lambda kind, slot, facts: None,
    )
    watches = []
    for one in hosts:
        watch = HostWatcher(one.host, "gpt-0", means)
        watch.link = one  # type: ignore[assignment]
        watches.append(watch)
    return asyncio.run(mount_nfs_folders(GangClient(means, drop), watches, folders))


def test_all_hosts_mount_from_a_file_server(tmp_path: Path) -> None:
    network = Network()
    hosts = [NfsHost(worker, network) for worker in range(4)]
    assert mount(tmp_path, hosts, {"/data": f"{FILER}:/share"}) == []
    assert [one.mounts for one in hosts] == [{"/data": f"{FILER}:/share"}] * 4
    assert not any(one.exports for one in hosts)


def test_worker_0_shares_its_own_folder_with_the_others_only(tmp_path: Path) -> None:
    network = Network()
    hosts = [NfsHost(worker, network) for worker in range(4)]
    stranger = NfsHost(8, network)
    folders = {"/data": "w0", "/more": f"{FILER}:/share"}
    assert mount(tmp_path, hosts, folders) == []
    assert hosts[0].exports == {"/data": ["10.0.0.2", "10.0.0.3", "10.0.0.4"]}
    assert hosts[0].mounts == {"/more": f"{FILER}:/share"}, "its own folder needs no mount"
    wanted = {"/data": "10.0.0.1:/data", "/more": f"{FILER}:/share"}
    assert [one.mounts for one in hosts[1:]] == [wanted] * 3
    (failed,) = mount(tmp_path, [stranger], {"/data": "10.0.0.1:/data"})
    assert failed.sentence == "10.0.0.1:/data can't be mounted on /data"


def test_a_host_alone_needs_no_server(tmp_path: Path) -> None:
    one = NfsHost(0, Network())
    assert mount(tmp_path, [one], {"/data": "w0"}) == []
    assert (one.exports, one.mounts) == ({"/data": []}, {})


def test_a_host_that_can_not_mount_fails_the_preparation(tmp_path: Path) -> None:
    network = Network()
    hosts = [NfsHost(worker, network) for worker in range(2)]
    found = mount(tmp_path, hosts, {"/data": f"{FILER}:/other", "/next": "w0"})
    assert {one.host for one in found} == {"gpt-0-g1-abc/w0", "gpt-0-g1-abc/w1"}
    assert {one.sentence for one in found} == {f"{FILER}:/other can't be mounted on /data"}
    assert not hosts[0].exports, "nothing else is tried"
