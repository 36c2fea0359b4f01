"""Samples go from agents and scripts through the engine into the store."""

from collections.abc import Collection
from typing import Any

import pytest

from tests.simulated.engine_harness import EngineHarness, perform
from tests.simulated.engine_jobs import SimJob
from tests.simulated.engine_programs import Script
from tpuherd.engine.host_samples import Value
from tpuherd.model.samples import HostSample
from tpuherd.store.sample_store import SampleStore

LONG = {"*": Script(steps=10_000, step_s=5.0)}
SAMPLE = {
    "cpu": 40.0, "ram": [4 << 30, 64 << 30], "disk": [50 << 30, 100 << 30], "net": [1000, 2000],
    "chips": [[8 << 30, 16 << 30, 97.5]] * 4, "why": "",
}  # fmt: skip


class Direct:
    """Writes to a sample store at once: threads have no virtual time."""

    def __init__(self, store: SampleStore) -> None:
        self.store = store

    async def put_samples(self, hosts: Collection[HostSample], values: Collection[Value]) -> None:
        self.store.put_samples(hosts, values)

    async def forget_jobs(self, jobs: Collection[str]) -> None:
        self.store.forget_jobs(jobs)


async def began(play: EngineHarness) -> SampleStore:
    """A job of one node that runs, and where its samples are kept."""
    store = SampleStore(play.folder)
    play.samples = Direct(store)
    play.submit(SimJob(zones=("us-east5-a",)))
    assert await play.until(lambda: bool(play.events("attempt.started")), 3600.0)
    for machine in play.sim.virtual_hosts.machines.values():
        machine.sample = SAMPLE
    return store


def test_samples_and_reports_are_kept_while_an_attempt_runs() -> None:
    async def plot(play: EngineHarness) -> Any:
        store = await began(play)
        at = play.sim.clock.now()
        await play.advance(300.0)
        until = play.sim.clock.now()
        latest = dict(store.latest_hosts())
        series = store.read_series("gpt", since=at, until=until)
        store.close()
        return latest, series, until

    latest, series, until = perform(plot, scripts=LONG)
    assert latest
    for host, sample in latest.items():
        assert sample.host == host and host.startswith("gpt-0-g1-")
        assert (sample.cpu_percent, sample.chips[3].duty_percent) == (40.0, 97.5)
        assert until - sample.at < 25
    by_name = {(one.name.host, one.name.chip, one.name.name): one.points for one in series}
    first = min(latest)
    assert 25 <= len(by_name[first, 0, "hbm_used"]) <= 31
    assert {point.mean for point in by_name[first, 0, "hbm_used"]} == {8 << 30}
    steps = [point.mean for point in by_name["", None, "step"]]
    assert steps == sorted(steps) and len(steps) > 20
    rates = [point.mean for point in by_name["", None, "step_rate"]]
    assert rates and all(rate == pytest.approx(0.2, rel=0.1) for rate in rates)


@pytest.mark.parametrize(
    "hostile",
    [
        {"event": "sample", "cpu": -5},
        {"event": "sample", "cpu": 1e308, "chips": [[1, 2, 3]] * 10_000},
        {"event": "sample", "chips": None, "why": ["x"]},
        {"event": "sample", "ram": {"a": 1}},
    ],
)
def test_a_hostile_host_is_named_and_others_go_on(hostile: dict[str, Any]) -> None:
    async def plot(play: EngineHarness) -> Any:
        store = await began(play)
        await play.advance(30.0)
        bad, *others = play.sim.virtual_hosts.machines.values()
        bad.sample = None
        for _ in range(50):
            bad.say(hostile)
        begun = play.sim.clock.now()
        await play.advance(60.0)
        latest = dict(store.latest_hosts())
        store.close()
        named = {event.facts["host"] for event in play.events("host.invalid_data")}
        heard = {host for host, sample in latest.items() if sample.at > begun + 20}
        return bad.name, {one.name for one in others}, named, heard, play.troubles

    bad, others, named, heard, troubles = perform(plot, scripts=LONG)
    assert (named, heard, troubles) == ({bad}, others, [])
