"""What a host may send as a sample, and which reports of a slot count."""

import asyncio
from collections.abc import Collection, Mapping
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.simulated.virtual_loop import run
from tpuherd.clock import LoopClock
from tpuherd.engine.host_messages import InvalidMessage
from tpuherd.engine.host_samples import SampleCollector, Value, parse_sample
from tpuherd.errors import OperationFailed
from tpuherd.model.observed import HostRun, HostStatus, RunState
from tpuherd.model.samples import ChipSample, HostSample

GOOD: Mapping[str, Any] = {
    "event": "sample", "time": 7, "cpu": 12.5, "ram": [1, 2], "disk": [3, 4], "net": [5, 6],
    "chips": [[1, 2, 99.5], [None, None, None]], "why": "",
}  # fmt: skip


def status(worker: int = 0, node: str = "gpt-0-g1-me") -> HostStatus:
    return HostStatus(node=node, worker=worker, incarnation="1", reached=True, heard_at=0.0)


def test_a_sample_has_our_time_and_its_host() -> None:
    assert parse_sample(GOOD, "gpt-0-g1-me/w0", "gpt-0", 100.0) == HostSample(
        host="gpt-0-g1-me/w0", job="gpt", slot="gpt-0", at=100.0, cpu_percent=12.5, ram_used=1,
        ram_total=2, disk_free=3, disk_total=4, net_in=5.0, net_out=6.0,
        chips=(ChipSample(hbm_used=1, hbm_total=2, duty_percent=99.5), ChipSample()),
    )  # fmt: skip
    empty = parse_sample({"event": "sample", "chips": []}, "h/w0", "gpt-0", 1.0)
    assert (empty.cpu_percent, empty.ram_used, empty.chips) == (None, None, ())


@pytest.mark.parametrize(
    "wrong",
    [
        {"cpu": float("nan")},
        {"cpu": -1},
        {"cpu": 1e9},
        {"cpu": "<script>"},
        {"ram": [1]},
        {"ram": [3, 2]},
        {"ram": [1 << 60, 1 << 61]},
        {"disk": [5, 4]},
        {"net": [float("inf"), 0]},
        {"chips": [[1, 2, 3]] * 65},
        {"chips": [[1, 2, 3]] * 10_000},
        {"chips": [[3, 2, 1]]},
        {"chips": [[1, 2, 100.6]]},
        {"chips": [{}]},
        {"chips": "x"},
        {"why": "x" * 201},
    ],
)
def test_a_sample_that_can_not_be_true_is_refused(wrong: Mapping[str, Any]) -> None:
    with pytest.raises(InvalidMessage, match="a sample"):
        parse_sample({**GOOD, **wrong}, "h/w0", "gpt-0", 1.0)


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=3), inner),
    max_leaves=8,
)


@settings(max_examples=100, deadline=None)
@given(st.dictionaries(st.sampled_from(sorted(GOOD)), JSON))
def test_any_content_is_a_sample_or_refused(content: dict[str, Any]) -> None:
    try:
        found = parse_sample({**GOOD, **content}, "h/w0", "gpt-0", 1.0)
    except InvalidMessage:
        return
    assert found.cpu_percent is None or 0 <= found.cpu_percent <= 100


class Keeper:
    """Remembers what it gets, and fails as often as a test says."""

    def __init__(self, failures: int = 0) -> None:
        self.batches: list[tuple[list[HostSample], list[Value]]] = []
        self.gone: set[str] = set()
        self.failures = failures

    async def put_samples(self, hosts: Collection[HostSample], values: Collection[Value]) -> None:
        if self.failures:
            self.failures -= 1
            raise OperationFailed("the disk is full", hint="free some space")
        self.batches.append((list(hosts), list(values)))

    async def forget_jobs(self, jobs: Collection[str]) -> None:
        self.gone |= set(jobs)


class Collected:
    """A collector that writes in virtual time."""

    def __init__(self, failures: int = 0) -> None:
        self.keeper = Keeper(failures)
        self.alarms: list[str] = []
        self.clock = LoopClock(1000.0)
        self.collector = SampleCollector(
            self.keeper, self.clock, lambda sentence, hint: self.alarms.append(sentence)
        )

    def report(
        self,
        step: int,
        worker: int = 0,
        attempt: str = "a1",
        word: RunState = RunState.RUNNING,
        **metrics: float,
    ) -> None:
        run = HostRun(attempt=attempt, word=word, step=step, metrics=metrics)
        self.collector.take_report(status(worker), "gpt-0", run)

    def values(self, name: str) -> list[tuple[float, float]]:
        return [
            (at - 1000.0, value)
            for _, values in self.keeper.batches
            for title, at, value in values
            if title.name == name
        ]


async def write_late(made: Collected) -> None:
    """Write at other moments than those at which something comes in."""
    await made.clock.sleep(0.5)
    await made.collector.write_periodically()


def play(plot: Any, failures: int = 0) -> Collected:
    async def whole() -> Collected:
        made = Collected(failures)
        task = asyncio.create_task(write_late(made))
        await plot(made)
        await made.clock.sleep(15.0)
        task.cancel()
        return made

    found: Collected = run(whole())
    return found


def test_samples_are_written_every_ten_seconds() -> None:
    async def plot(made: Collected) -> None:
        await made.clock.sleep(1.0)
        for _ in range(3):
            made.collector.take_sample(status(), "gpt-0", GOOD)
            made.collector.take_sample(status(1), "gpt-0", GOOD)
            await made.clock.sleep(10.0)

    batches = play(plot).keeper.batches
    assert [len(hosts) for hosts, _ in batches] == [2, 2, 2]
    assert batches[0][0][1].host == "gpt-0-g1-me/w1"


def test_a_flood_of_one_host_costs_one_sample() -> None:
    async def plot(made: Collected) -> None:
        made.collector.take_sample(status(), "gpt-0", GOOD)
        made.collector.take_sample(status(1), "gpt-0", GOOD)
        for _ in range(1000):
            with pytest.raises(InvalidMessage, match="more often than every 5 s"):
                made.collector.take_sample(status(), "gpt-0", GOOD)

    ((hosts, _),) = play(plot).keeper.batches
    assert len(hosts) == 2


def test_the_agent_behind_a_new_link_may_send_a_sample_at_once() -> None:
    async def plot(made: Collected) -> None:
        made.collector.take_sample(status(), "gpt-0", GOOD)
        await made.clock.sleep(1.0)
        made.collector.begin_link(status().name)
        made.collector.take_sample(status(), "gpt-0", GOOD)

    ((hosts, _),) = play(plot).keeper.batches
    assert len(hosts) == 1


def test_reports_become_values_and_a_step_rate() -> None:
    async def plot(made: Collected) -> None:
        for second in range(30):
            made.report(step=100 + 2 * second, loss=3.0 - second / 10)
            await made.clock.sleep(1.0)

    made = play(plot)
    assert made.values("loss") == [(float(n), 3.0 - n / 10) for n in range(30)]
    assert made.values("step")[-1] == (29.0, 158.0)
    assert {rate for _, rate in made.values("step_rate")} == {2.0}
    assert len(made.values("step_rate")) == 5


def test_a_later_attempt_measures_its_own_rate() -> None:
    async def plot(made: Collected) -> None:
        made.report(step=1000)
        await made.clock.sleep(20.0)
        made.report(step=10, attempt="a2")
        await made.clock.sleep(10.0)
        made.report(step=60, attempt="a2")

    assert play(plot).values("step_rate") == [(30.0, 5.0)]


def test_a_value_that_does_not_change_is_kept_each_minute() -> None:
    async def plot(made: Collected) -> None:
        for second in range(100):
            made.report(step=second, eval_loss=1.0 if second < 80 else 0.5)
            await made.clock.sleep(1.0)

    made = play(plot)
    assert made.values("eval_loss") == [(0.0, 1.0), (60.0, 1.0), (80.0, 0.5)]
    assert len(made.values("step")) == 100


def test_the_last_step_of_an_attempt_is_kept_once() -> None:
    async def plot(made: Collected) -> None:
        made.report(step=90, attempt="a0", word=RunState.ENDED)
        made.report(step=1, loss=3.0)
        await made.clock.sleep(0.2)
        made.report(step=2, loss=2.0)
        made.report(step=3, loss=1.0, word=RunState.ENDED)
        await made.clock.sleep(20.0)
        made.report(step=3, loss=1.0, word=RunState.ENDED)
        made.report(step=90, attempt="a0", word=RunState.ENDED)

    made = play(plot)
    assert made.values("step") == [(0.0, 1.0), (pytest.approx(0.2), 3.0)]
    assert [value for _, value in made.values("loss")] == [3.0, 1.0]


def test_one_host_of_a_gang_counts() -> None:
    async def plot(made: Collected) -> None:
        made.report(step=1, worker=3, loss=30.0)
        await made.clock.sleep(2.0)
        made.report(step=2, worker=0, loss=0.0)
        await made.clock.sleep(2.0)
        made.report(step=2, worker=3, loss=31.0)
        await made.clock.sleep(70.0)
        made.report(step=9, worker=2, loss=20.0)

    assert [value for _, value in play(plot).values("loss")] == [30.0, 0.0, 20.0]


def test_a_store_that_fails_costs_samples_and_an_alarm() -> None:
    async def plot(made: Collected) -> None:
        await made.clock.sleep(1.0)
        for step in range(4):
            made.report(step=step)
            await made.clock.sleep(10.0)
        made.collector.forget_jobs({"old"})

    made = play(plot, failures=2)
    assert made.alarms == ["the disk is full"] * 2
    assert [value for _, value in made.values("step")] == [2.0, 3.0]
    assert made.keeper.gone == {"old"}
