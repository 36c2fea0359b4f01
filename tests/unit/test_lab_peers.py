"""Each model of another tool goes through the states that its source says."""

from dataclasses import replace

import pytest

from tpuherd_lab.bounds import find_bounds
from tpuherd_lab.capacity import Capacity
from tpuherd_lab.constants import NAIVE, Constants, add_faults
from tpuherd_lab.peers.call_log import CallLog
from tpuherd_lab.peers.recorder import RunRecorder, Scene
from tpuherd_lab.peers.registry import MODELS, POLICIES, record_run
from tpuherd_lab.policy_run import DOWN, HUNG
from tpuherd_lab.statistics import summarize_runs
from tpuherd_lab.traces import Trace, TraceSet

#: Ten events: a has capacity, loses it, has it again …; a and b are of one region.
A = Capacity("a", ((0, 4000), (5000, 9000)), "r")
B = Capacity("b", ((4300, 4700), (9500, 12000)), "r")
C = Capacity("c", ((8000, 11000),), "q")
STEADY = replace(
    NAIVE, create_s=(70, 70), stockout_s=(25, 25), delete_s=(40, 40), visible_s=(15, 15)
)

STATES = {
    # list every 10 s; delete; create without a pause: at 4060, 4085 … 5010 is the first that works
    "tpucare": """
        0 create a, 70 ready a, 385 train, 4000 lost a, 4020 detected, 4020 delete, 4060 create a,
        5080 ready a, 5395 train, 9000 lost a, 9020 detected, 9020 delete, 9060 create a""",
    # looks every 30 s; one create after the delete; then nothing until a human looks
    "tpunicorn": """
        0 create a, 70 ready a, 385 train, 4000 lost a, 4030 detected, 4030 delete, 4071 create a,
        4096 gone""",
    # 25 s more before the set-up; 10 s more after the delete; 5 s more between creates
    "levanter-babysit": """
        0 create a, 70 ready a, 410 train, 4000 lost a, 4020 detected, 4020 delete, 4070 create a,
        5070 ready a, 5410 train, 9000 lost a, 9020 detected, 9020 delete, 9070 create a""",
    # looks once in a tick of 300 s
    "uniform-progress": """
        0 create a, 70 ready a, 385 train, 4000 lost a, 4270 detected, 4270 create a, 5170 ready a,
        5485 train, 9000 lost a, 9070 detected, 9070 create a""",
    # the same, and goes to the next zone in the list each time
    "greedy": """
        0 create a, 70 ready a, 385 train, 4000 lost a, 4270 detected, 4270 create a,
        4500 create b, 4570 ready b, 4700 lost b, 4870 detected, 4870 create b, 5100 create c,
        5400 create a, 5470 ready a, 5785 train, 9000 lost a, 9070 detected, 9070 create a,
        9300 create b, 9600 create c, 9670 ready c, 9985 train""",
    # three tries of the region in which it was, b after a; then all zones
    "skypilot-failover": """
        create a, ready a, train, lost a, detected, delete,
        create a, create b, back off, create a, create b, back off, create a, create b,
        create a, create b, ready b, lost b, detected, delete,
        create a, create b, back off, create a, create b, back off, create a, create b,
        create a, ready a, train, lost a, detected, delete,
        create a, create b, back off, create a, create b, back off, create a, create b,
        create a, create b, create c, ready c, train""",
    # three tries of the other region; then all zones
    "skypilot-eager": """
        create a, ready a, train, lost a, detected, delete,
        create c, back off, create c, back off, create c,
        create a, create b, create c, back off, create a, create b, ready b, lost b, detected,
        delete, create c, back off, create c, back off, create c,
        create a, create b, create c, back off, create a, ready a, train, lost a, detected, delete,
        create c, ready c, train, lost c, detected, delete, create a, create b, ready b, train""",
}


def play(name: str, constants: Constants = STEADY, length_s: float = 14000) -> RunRecorder:
    zones = (A,) if MODELS[name].scope == "zone" else (A, B, C)
    scene = Scene(
        policy=name, traces="ten events", zones=zones, constants=constants, seed=1,
        length_s=length_s, tick_s=300,
    )  # fmt: skip
    return record_run(MODELS[name], scene)


@pytest.mark.parametrize("name", MODELS)
def test_a_model_goes_through_the_states_of_its_source(name: str) -> None:
    expected = [state.strip() for state in STATES[name].split(",")]
    with_times = expected[0][0].isdigit()
    states = [f"{at:g} {state}" if with_times else state for at, state in play(name).states]
    assert states[: len(expected)] == expected


@pytest.mark.parametrize("name", MODELS)
def test_a_model_is_replayed_and_accounts_for_every_second(name: str) -> None:
    first, again = (play(name).close_books() for _ in range(2))
    assert first == again
    assert first.productive_s + sum(first.badput.values()) == 14000, "exactly"
    assert {loss.lost_at for loss in first.losses} <= {4000, 4700, 9000, 11000, 12000}
    assert first.billed_s >= first.productive_s


def test_the_time_without_capacity_is_not_the_controllers() -> None:
    run = play("tpucare").close_books()
    loss = run.losses[0]
    assert (loss.detected_at, loss.replaced_at, loss.without_capacity_s) == (4020, 5080, 1000)
    assert loss.with_capacity_s == 395
    assert run.badput["capacity_wait"] == 6000, "5000 s of it after the last loss"
    assert run.badput["controller_gap"] == 80


@pytest.mark.parametrize(
    ("name", "crash", "hang"),
    [
        ("tpucare", "human", "human"),
        ("levanter-babysit", "loop", "human"),
        ("skypilot-eager", "loop", "human"),
    ],
)
def test_who_sees_that_the_script_has_crashed_or_hangs(name: str, crash: str, hang: str) -> None:
    zone = Capacity("a", ((0, 1e7),), "r")
    faulty = replace(add_faults(STEADY), human_look_s=7200)
    scene = Scene(
        policy=name, traces="one zone", zones=(zone,), constants=faulty, seed=3, length_s=1e6
    )
    run = record_run(MODELS[name], scene)
    ends = [state for _, state in run.states]
    books = run.close_books()
    for state, bucket, sees in (("crashed", DOWN, crash), ("hung", HUNG, hang)):
        mean = books.badput[bucket] / max(1, ends.count(state))
        assert ends.count(state) > 1
        assert (mean > 600) == (sees == "human"), f"{state}: {mean:.0f} s until it is seen"


def test_long_waits_are_skipped_with_about_as_many_calls() -> None:
    zone = Capacity("a", ((100_000, 200_000),), "r")
    scene = Scene(
        policy="tpucare", traces="t", zones=(zone,), constants=NAIVE, seed=1, length_s=150_000
    )
    run = record_run(MODELS["tpucare"], scene)
    ready_at = next(at for at, state in run.states if state == "ready a")
    assert 100_040 < ready_at < 100_140
    assert 3900 < run.close_books().api_calls["nodes.create"] < 4100, "one in 25 s on average"


def test_a_policy_for_one_zone_runs_in_every_zone() -> None:
    traces = TraceSet(
        name="two",
        zones=(
            Trace(zone="a", region="r", tick_s=600, nodes=(1,) * 100),
            Trace(zone="b", region="r", tick_s=600, nodes=(0,) * 100),
        ),
    )
    run = POLICIES["tpucare"](traces, 1, NAIVE)
    assert run.wanted_s == 2 * traces.length_s
    assert 0.48 < run.goodput < 0.5
    both = POLICIES["skypilot-eager"](traces, 1, NAIVE)
    assert both.wanted_s == traces.length_s and both.goodput > 0.95


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize("nodes", [(0,), (0,) * 500, (1,), (1, 0) * 50])
def test_odd_traces_are_run_to_their_end(name: str, nodes: tuple[int, ...]) -> None:
    zones = tuple(
        Trace(zone=zone, region=zone[0], tick_s=45.3, nodes=nodes) for zone in ("r1", "r2", "q1")
    )
    traces = TraceSet(name="odd", zones=zones)
    run = POLICIES[name](traces, 7, add_faults(NAIVE))
    row = summarize_runs([run], {7: find_bounds(traces, 7)})
    if not any(nodes):
        assert (run.goodput, row.ratio.mean, run.losses) == (0, 0, ())
    assert row.ratio.mean <= 1


def test_the_most_calls_in_a_minute_are_counted_over_series_and_single_calls() -> None:
    log = CallLog(end=10_000)
    log.add_polls("list", 0, 5000, 10)
    assert (log.calls["list"], log.peak) == (500, 6)
    for at in range(5000, 5040, 10):
        log.add_call("create", at)
        log.add_call("create", at + 1)
    assert log.peak == 10, "eight creates, and the last two lists of the same minute"
    log.add_call("create", 10_000)
    assert log.calls["create"] == 8, "what is after the end does not count"
