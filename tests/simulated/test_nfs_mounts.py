"""The engine mounts a job's NFS folders on every host of a gang, worker 0's own folder first."""

import asyncio
from collections.abc import Coroutine, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from tpuherd.clock import WallClock
from tpuherd.engine.gang_client import GangClient
from tpuherd.engine.host_failures import HostFailure
from tpuherd.engine.host_watcher import HostWatcher, WatcherDeps
from tpuherd.engine.nfs_mounts import explain_failure, mount_nfs_folders
from tpuherd.ports import Host, RpcRequest
from tpuherd.store.log_store import LogStore

FILER = "10.9.0.1"
DENIED = (
    "{0} can't be mounted on /data: access denied by server while mounting {0}; the server must"
    " export it to this host's internal address"
)


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
        await asyncio.sleep(0)
        if verb.name == "ping":
            return {"time": 0.0}
        assert verb.name == "setup"
        (step,) = verb.arguments["steps"]
        folder, server = step["env"]["FOLDER"], step["env"]["SERVER"]
        done = {"id": verb.arguments["id"], "kind": "setup", "phase": "ended", "exit": 0}
        if not server:
            self.exports[folder] = step["env"]["CLIENTS"].split()
        elif self.network.may_mount(server, self.host.internal_ip):
            self.mounts[folder] = server
        else:
            said = f"mount.nfs: access denied by server while mounting {server}"
            return {**done, "exit": 1, "stage_name": step["name"], "tail": ["noise", said]}
        return done


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
    return asyncio.run(mount_nfs_folders(GangClient(means, drop), "gpt-0-g1-abc", watches, folders))


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
    assert failed.sentence == DENIED.format("10.0.0.1:/data")


def test_a_host_alone_needs_no_server(tmp_path: Path) -> None:
    one = NfsHost(0, Network())
    assert mount(tmp_path, [one], {"/data": "w0"}) == []
    assert (one.exports, one.mounts) == ({"/data": []}, {})


def test_a_host_that_can_not_mount_fails_the_preparation(tmp_path: Path) -> None:
    network = Network()
    hosts = [NfsHost(worker, network) for worker in range(2)]
    found = mount(tmp_path, hosts, {"/data": f"{FILER}:/other", "/next": "w0"})
    assert {one.host for one in found} == {"gpt-0-g1-abc/w0", "gpt-0-g1-abc/w1"}
    assert {one.sentence for one in found} == {DENIED.format(f"{FILER}:/other")}
    assert not hosts[0].exports, "nothing else is tried"


@pytest.mark.parametrize(
    ("said", "sentence"),
    [
        ("mount.nfs: Connection refused", "x:/s can't be mounted on /d: Connection refused; is the"
         " server up, and may this host reach its TCP port 2049?"),
        ("mount.nfs4: mounting x:/s failed, reason given by server: No such file or directory",
         "x:/s can't be mounted on /d: No such file or directory; the server must export this very"
         " path to this host"),
        ("timed out after 100 s", "x:/s can't be mounted on /d: timed out after 100 s; is the"
         " server up, and may this host reach its TCP port 2049?"),
        ("nfs-common can't be installed", "nfs-common can't be installed"),
    ],
)  # fmt: skip
def test_what_mount_says_is_explained(said: str, sentence: str) -> None:
    failure = HostFailure(host="gpt-0/w1", sentence="step 1 ended", exit=1, tail=("noise", said))
    explained = explain_failure(failure, {"FOLDER": "/d", "SERVER": "x:/s"})
    assert (explained.sentence, explained.tail) == (sentence, ())
