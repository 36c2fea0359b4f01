"""Which hosts a target means now, and when the cloud is asked about it."""

import asyncio

import pytest

from tests.simulated.cloud_user import ZONE, User, live
from tpuherd.errors import InvalidInput, NotFound
from tpuherd.ports import Host
from tpuherd.remote.resolve_hosts import RemoteSession


class Linked:
    """Ways of which some are open."""

    def __init__(self) -> None:
        self.open: set[Host] = set()

    def is_alive(self, host: Host) -> bool:
        return host in self.open


def reach_of(user: User) -> tuple[RemoteSession, Linked]:
    linked = Linked()
    return RemoteSession(user.directory, linked, user.clock, lambda: {"7kq"}), linked  # type: ignore[arg-type]


def names(hosts: list[Host]) -> list[str]:
    return [host.name for host in hosts]


def test_targets_select_hosts() -> None:
    async def work(user: User) -> None:
        reach, _ = reach_of(user)
        for name in ("gpt-0-g1-7kq", "gpt-1-g3-7kq", "gpt2"):
            await user.node(name)
        assert names(await reach.resolve_hosts("gpt/w0")) == ["gpt-0-g1-7kq/w0", "gpt-1-g3-7kq/w0"]
        assert names(await reach.resolve_hosts("gpt-1")) == ["gpt-1-g3-7kq/w0", "gpt-1-g3-7kq/w1"]
        assert names(await reach.resolve_hosts(f"{ZONE}/gpt2/w1")) == ["gpt2/w1"]
        with pytest.raises(NotFound, match=r"there is no gpt3: did you mean gpt"):
            await reach.resolve_hosts("gpt3")
        with pytest.raises(NotFound, match=r"gpt2 has no worker 5: it has w\[0-1\]"):
            await reach.resolve_hosts("gpt2/w5")
        with pytest.raises(InvalidInput, match="a bracket is not closed"):
            await reach.resolve_hosts("gpt-[0")

    live(work)


def test_a_job_of_another_owner_is_not_selected_by_its_name() -> None:
    async def work(user: User) -> None:
        reach, _ = reach_of(user)
        for name in ("gpt-0-g1-7kq", "gpt-0-g1-abc", "bert-0-g1-abc"):
            await user.node(name)
        assert {host.node for host in await reach.resolve_hosts("gpt")} == {"gpt-0-g1-7kq"}
        with pytest.raises(NotFound, match="bert-0-g1-abc belongs to another herd user"):
            await reach.resolve_hosts("bert")
        theirs = await reach.resolve_hosts("gpt-0-g1-abc,gpt-0")
        assert [(one.node, one.foreign) for one in theirs[::2]] == [
            ("gpt-0-g1-abc", True),
            ("gpt-0-g1-7kq", False),
        ]

    live(work)


def test_a_zone_that_does_not_answer_is_named() -> None:
    async def work(user: User) -> None:
        await user.node("pod")
        await user.weather("unreachable-zone", zone=ZONE)
        with pytest.raises(NotFound) as caught:
            await reach_of(user)[0].resolve_hosts("pod")
        assert caught.value.hint == f"it may be in {ZONE}, which did not answer"

    live(work)


def test_a_node_with_open_links_is_not_looked_up_again() -> None:
    async def work(user: User) -> None:
        reach, linked = reach_of(user)
        await user.node("pod")
        hosts = await reach.resolve_hosts("pod")
        linked.open.update(hosts)
        await asyncio.sleep(1000)
        asked = len(user.wire.asked)
        assert await reach.resolve_hosts("pod/w1") == hosts[1:]
        assert len(user.wire.asked) == asked
        linked.open.remove(hosts[0])
        await reach.resolve_hosts("pod/w1")
        assert len(user.wire.asked) == asked
        await reach.resolve_hosts("pod")
        assert len(user.wire.asked) == asked + 1

    live(work)


def test_a_job_may_have_grown_and_is_looked_up_again() -> None:
    async def work(user: User) -> None:
        reach, linked = reach_of(user)
        await user.node("gpt-0-g1-7kq")
        linked.open.update(await reach.resolve_hosts("gpt"))
        await user.node("gpt-1-g1-7kq")
        assert len(await reach.resolve_hosts("gpt")) == 4

    live(work)


def test_a_new_node_is_found_at_once() -> None:
    async def work(user: User) -> None:
        reach, linked = reach_of(user)
        await user.node("pod")
        linked.open.update(await reach.resolve_hosts("pod"))
        await user.node("late")
        await reach.resolve_hosts("pod")
        await user.directory.list_nodes()
        assert names(await reach.resolve_hosts("late/w0")) == ["late/w0"]

    live(work)


def test_a_recently_missing_node_is_looked_up_again() -> None:
    async def work(user: User) -> None:
        reach, _ = reach_of(user)
        with pytest.raises(NotFound, match="no nodes exist"):
            await reach.resolve_hosts("pod")
        spec = {"acceleratorType": "v4-8", "runtimeVersion": "tpu-ubuntu2204-base"}
        await user.ask("POST", f"v2/projects/demo/locations/{ZONE}/nodes?nodeId=pod", spec)
        with pytest.raises(NotFound, match="pod has no hosts yet: it is CREATING"):
            await reach.resolve_hosts("pod")

    live(work)
