"""A host's messages reach the planner, whenever the engine starts to listen."""

import asyncio
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from typing import Any, cast

import pytest

from tests.simulated.engine_harness import EngineHarness, perform
from tests.simulated.engine_jobs import SimJob
from tests.simulated.engine_ports import EngineLife, Hosts
from tests.simulated.engine_programs import Script
from tpuherd.engine.host_watcher import HostWatcher, WatcherDeps
from tpuherd.errors import OperationFailed
from tpuherd.model.observed import Outlook
from tpuherd.ports import Host, Link, RpcRequest, Stream
from tpuherd.store.log_store import LogStore

LONG = {"*": Script(steps=10_000, step_s=5.0)}
LATE_S = 3.0
HEARD_S = 5.0


def hello(play: EngineHarness) -> dict[str, str]:
    """What an agent learns about its caller."""
    return {"who": "me", "owner": play.owner}


class Late(Hosts):
    """Links that come to hand a while after the agent has greeted."""

    def __init__(self, play: EngineHarness, greeted: Callable[[], object]) -> None:
        super().__init__(play.sim.virtual_hosts.machines, hello(play), EngineLife())
        self.greeted = greeted

    async def open_link(self, host: Host) -> Link:
        link = await super().open_link(host)
        self.greeted()
        await asyncio.sleep(LATE_S)
        return link


class Grudging:
    """A link on which nothing can be followed for a while."""

    def __init__(self, link: Link, refusals: int) -> None:
        self.link = link
        self.refusals = refusals

    def __getattr__(self, name: str) -> Any:
        return getattr(self.link, name)

    def open_stream(self, verb: RpcRequest) -> AbstractAsyncContextManager[Stream]:
        if self.refusals:
            self.refusals -= 1
            raise OperationFailed("too many calls")
        return self.link.open_stream(verb)


class Grudges(Hosts):
    """Hosts with such links."""

    async def open_link(self, host: Host) -> Link:
        return cast(Link, Grudging(await super().open_link(host), refusals=3))


def watched(play: EngineHarness, hosts: Hosts) -> HostWatcher:
    """A watch of the first host of the job's node."""
    assert play.engine is not None
    bid = str(play.events("bid.requested")[0].facts["bid"])
    host = play.engine.parts.cloud.bid_hosts(bid)[0]
    shelf = LogStore(play.folder / "logs-too")
    means = WatcherDeps(hosts=hosts, shelf=shelf, clock=play.sim.clock, stir=lambda: None)
    return HostWatcher(host, "gpt-0", means)


@pytest.mark.parametrize("moment_s", [0.0, LATE_S / 2, LATE_S - 0.01, LATE_S, LATE_S + 0.03])
def test_no_notice_is_lost_between_hello_and_subscription(moment_s: float) -> None:
    async def plot(play: EngineHarness) -> bool:
        play.submit(SimJob(zones=("us-east5-a",)))
        assert await play.until(lambda: bool(play.events("attempt.started")), 3600.0)
        node = "us-east5-a/gpt-0-g1-7kq"

        def strike() -> None:
            assert play.sim.weather("preempt", target=node, notice_s=60)

        loop = asyncio.get_running_loop()
        watch = watched(play, Late(play, lambda: loop.call_later(moment_s, strike)))
        watch.wanted.set()
        life = asyncio.create_task(watch.run())
        await asyncio.sleep(LATE_S + HEARD_S)
        life.cancel()
        return watch.status.outlook is Outlook.GONE

    assert perform(plot, scripts=LONG)


def test_a_log_is_followed_again_when_its_attempt_will_send_no_more_events() -> None:
    async def plot(play: EngineHarness) -> list[bool]:
        play.submit(SimJob(zones=("us-east5-a",), limits={"done_keep_s": 3600.0}))
        assert await play.until(lambda: bool(play.events("attempt.started")), 3600.0)
        watch = watched(play, Grudges(play.sim.virtual_hosts.machines, hello(play), EngineLife()))
        assert await play.until(lambda: bool(play.events("attempt.ended")), 3600.0)
        watch.wanted.set()
        life = asyncio.create_task(watch.run())
        await asyncio.sleep(HEARD_S)
        life.cancel()
        return [one.drained for one in watch.status.works]

    assert perform(plot, scripts={"*": Script(steps=3, step_s=1.0)}) == [True]
