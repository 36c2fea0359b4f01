"""A known node proves by its hosts that it still exists, without a request to the cloud."""

import asyncio
from dataclasses import replace
from pathlib import Path

import pytest

from tests.simulated.cloud_user import ZONE, User, live
from tpuherd.cloud.node_cache import NodeCache
from tpuherd.cloud.nodes_api import NodeList
from tpuherd.errors import IdentityMismatch, NotFound
from tpuherd.ports import Host
from tpuherd.remote.resolve_hosts import PROOF_S, CloudNodeDirectory, RemoteSession


class Hosts:
    """Ways to hosts whose keys are known; some answer with another one, some not at all."""

    def __init__(self) -> None:
        self.linked: set[Host] = set()
        self.strangers: set[str] = set()
        self.silent: set[str] = set()
        self.unknown: set[str] = set()

    def is_alive(self, host: Host) -> bool:
        return host in self.linked

    def has_pinned_key(self, host: Host) -> bool:
        return host.name not in self.unknown

    async def get_link(self, host: Host) -> None:
        if host.name in self.strangers:
            raise IdentityMismatch("somebody else answers there")
        if host.name in self.silent:
            await asyncio.Event().wait()
        self.linked.add(host)


def begun(user: User, file: Path) -> tuple[RemoteSession, Hosts]:
    """A new process of ours."""
    directory = CloudNodeDirectory(user.cloud, 22, user.clock, NodeCache(file))
    hosts = Hosts()
    return RemoteSession(directory, hosts, user.clock, lambda: {"7kq"}), hosts  # type: ignore[arg-type]


async def asked(user: User, reach: RemoteSession, target: str) -> int:
    """How often the cloud is asked for what a target means."""
    before = len(user.wire.asked)
    await reach.resolve_hosts(target)
    return len(user.wire.asked) - before


def test_linked_hosts_prove_their_node(tmp_path: Path) -> None:
    async def work(user: User) -> None:
        await user.node("pod")
        await begun(user, tmp_path / "nodes")[0].resolve_hosts("pod")
        reach, _ = begun(user, tmp_path / "nodes")
        assert await asked(user, reach, "pod/w1") == 0
        assert await asked(user, reach, "pod/w1") == 0
        assert await asked(user, reach, "pod") == 1  # w0 has no link

    live(work)


@pytest.mark.parametrize("trouble", ["strangers", "silent", "unknown"])
def test_an_unproven_node_costs_a_request_and_a_moment(trouble: str, tmp_path: Path) -> None:
    async def work(user: User) -> None:
        await user.node("pod")
        await begun(user, tmp_path / "nodes")[0].resolve_hosts("pod")
        reach, hosts = begun(user, tmp_path / "nodes")
        getattr(hosts, trouble).add("pod/w1")
        begin = user.clock.now()
        assert await asked(user, reach, "pod") == 1
        assert user.clock.now() - begin <= 2 * PROOF_S + 0.1

    live(work)


def test_jobs_and_missing_nodes_are_looked_up(tmp_path: Path) -> None:
    async def work(user: User) -> None:
        for name in ("gpt-0-g1-7kq", "pod"):
            await user.node(name)
        await begun(user, tmp_path / "nodes")[0].resolve_hosts("pod")
        assert await asked(user, begun(user, tmp_path / "nodes")[0], "gpt") == 1
        assert await asked(user, begun(user, tmp_path / "nodes")[0], "pod,gpt-0") == 1
        await user.ask("DELETE", f"v2/projects/demo/locations/{ZONE}/nodes/pod")
        await asyncio.sleep(600)
        reach, hosts = begun(user, tmp_path / "nodes")
        hosts.silent.add("pod/w0")
        with pytest.raises(NotFound, match="there is no pod"):
            await reach.resolve_hosts("pod")

    live(work)


def test_the_cache_file_holds_no_secrets(tmp_path: Path) -> None:
    async def work(user: User) -> None:
        file = tmp_path / "folder" / "nodes"
        assert NodeCache(file).load_nodes() is None
        await user.node("pod")
        survey = await user.cloud.list_nodes()
        secret = replace(survey.nodes[0], metadata={"startup-script": "export TOKEN=1"})
        NodeCache(file).save_nodes(NodeList(nodes=(secret,), unknown=()))
        assert NodeCache(file).load_nodes() == NodeList(
            nodes=(replace(secret, metadata={}),), unknown=()
        )
        assert b"TOKEN" not in file.read_bytes()
        assert file.stat().st_mode & 0o777 == 0o600
        NodeCache(file).save_nodes(NodeList(nodes=(), unknown=(ZONE,)))
        assert NodeCache(file).load_nodes() is not None
        assert [one.name for one in file.parent.iterdir()] == ["nodes"]
        for broken in ("", "{}", "[[1]]", "[1]", '[["a"],'):
            file.write_text(broken)
            assert not getattr(NodeCache(file).load_nodes(), "nodes", ())

    live(work)
