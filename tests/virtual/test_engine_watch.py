"""What a host has to say reaches the judgement, whenever the engine begins to listen."""

import asyncio
from collections.abc import Callable

import pytest

from tests.virtual.engine_play import Play, perform
from tests.virtual.engine_ports import Hosts, Life
from tests.virtual.engine_programs import Script
from tests.virtual.engine_wishes import Wished
from tpuherd.engine.watch import Means, Watch
from tpuherd.ports import Host, Link
from tpuherd.store.logs import Shelf

LONG = {"*": Script(steps=10_000, step_s=5.0)}
LATE_S = 3.0
HEARD_S = 5.0


class Late(Hosts):
    """Links that come to hand a while after the agent has greeted."""

    def __init__(self, play: Play, greeted: Callable[[], object]) -> None:
        super().__init__(play.ground.rack.machines, {"who": "me", "owner": play.owner}, Life())
        self.greeted = greeted

    async def open(self, host: Host) -> Link:
        link = await super().open(host)
        self.greeted()
        await asyncio.sleep(LATE_S)
        return link


def watched(play: Play, hosts: Hosts) -> Watch:
    """A watch of the first host of the job's node."""
    assert play.engine is not None
    bid = str(play.events("bid.asked")[0].facts["bid"])
    host = play.engine.parts.cloud.hosts(bid)[0]
    shelf = Shelf(play.folder / "logs-too")
    means = Means(hosts=hosts, shelf=shelf, clock=play.ground.clock, stir=lambda: None)
    return Watch(host, "gpt-0", means)


@pytest.mark.parametrize("moment_s", [0.0, LATE_S / 2, LATE_S - 0.01, LATE_S, LATE_S + 0.03])
def test_no_notice_falls_between_the_greeting_and_the_listening(moment_s: float) -> None:
    async def plot(play: Play) -> bool:
        play.wish(Wished(zones=("us-east5-a",)))
        assert await play.until(lambda: bool(play.events("attempt.started")), 3600.0)
        node = "us-east5-a/gpt-0-g1-7kq"

        def strike() -> None:
            assert play.ground.weather("preempt", target=node, notice_s=60)

        loop = asyncio.get_running_loop()
        watch = watched(play, Late(play, lambda: loop.call_later(moment_s, strike)))
        watch.wanted.set()
        life = asyncio.create_task(watch.live())
        await asyncio.sleep(LATE_S + HEARD_S)
        life.cancel()
        return watch.word.deadly

    assert perform(plot, scripts=LONG)
