"""The policy laboratory's traces, its bound, and its models of other tools."""

import json
import os
import random
from dataclasses import replace
from functools import cache
from pathlib import Path

import pytest
from bench.lab.account import BUCKETS, PolicyRun, merge_runs
from bench.lab.bounds import find_bounds, most_productive_s, upper_bound
from bench.lab.capacity import Capacity, join_capacities, set_capacities
from bench.lab.compare import run_policy
from bench.lab.constants import NAIVE
from bench.lab.peers import MODELS, RunRecorder, Scene, run_peer, saved_work
from bench.lab.traces import Trace, TraceError, TraceSet, read_trace_folder

ROOT = Path(__file__).parents[2]
TRACES = Path(os.environ.get("HERD_TRACES", ROOT.parent / "shared" / "traces"))
STEP = 20


def write_trace(file: Path, nodes: list[object]) -> None:
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(json.dumps({"metadata": {"gap_seconds": 60}, "data": nodes}))


def test_a_folder_is_a_set_and_a_folder_of_folders_several(tmp_path: Path) -> None:
    write_trace(tmp_path / "a-16-nodes" / "us-east-1a_v100_1.json", [0, 16, 9])
    write_trace(tmp_path / "a-16-nodes" / "us-central2-b.json", [1, 1, 16, 16])
    write_trace(tmp_path / "b-4-nodes" / "x_v100_4.json", [0, 1])
    (one,) = read_trace_folder(tmp_path / "a-16-nodes")
    assert [zone.region for zone in one.zones] == ["us-central2", "us-east-1"]
    assert (one.name, one.gang, one.length_s) == ("a-16-nodes", 16, 180)
    both = read_trace_folder(tmp_path)
    assert [(found.name, found.gang) for found in both] == [("a-16-nodes", 16), ("b-4-nodes", 1)]


def test_a_bad_trace_is_named(tmp_path: Path) -> None:
    write_trace(tmp_path / "z.json", [0, None, 1])
    with pytest.raises(TraceError, match=r"z.json is not a trace: data\[1\] must be"):
        read_trace_folder(tmp_path)


def test_capacity_is_there_for_the_whole_gang_and_jittered_by_the_seed() -> None:
    traces = TraceSet(
        name="small",
        gang=4,
        zones=(
            Trace(zone="a", region="r", tick_s=60, nodes=(0, 4, 3, 4, 4)),
            Trace(zone="b", region="r", tick_s=60, nodes=(4, 5, 0, 0, 4, 4)),
        ),
    )
    a, b = set_capacities(traces, None)
    assert (a.up, b.up) == (((60, 120), (180, 300)), ((0, 120), (240, 300)))
    assert [a.has(at) for at in (0, 60, 119, 120, 299, 300)] == [
        False,
        True,
        True,
        False,
        True,
        False,
    ]
    assert a.next_up(70) == 70 and a.next_up(130) == 180
    assert (a.up_between(0, 300), a.up_between(90, 200), a.up_between(5, 5)) == (180, 50, 0)
    assert join_capacities((a, b)).up == ((0, 120), (180, 300))
    for seed in range(50):
        (on, off), (again, end) = set_capacities(traces, seed)[0].up
        assert 0 < on <= 60 < off <= 120 < again <= 180 and end == 300
    assert set_capacities(traces, 1) == set_capacities(traces, 1) != set_capacities(traces, 2)


def search_all_plans(zones: list[Capacity], boot: int, length: int) -> int:
    """Try every zone in every step; a start is productive after `boot` steps."""

    @cache
    def best(step: int, zone: int, started: int) -> int:
        if step == length:
            return 0
        most = best(step + 1, -1, 0)
        for other, capacity in enumerate(zones):
            until = capacity.up_until(step * STEP)
            if until is not None and until >= (step + 1) * STEP:
                age = started + 1 if other == zone else 1
                most = max(most, (age > boot) + best(step + 1, other, min(age, boot + 1)))
        return most

    return best(0, -1, 0) * STEP


@pytest.mark.parametrize("seed", range(25))
def test_the_bound_is_what_a_search_of_all_plans_finds(seed: int) -> None:
    chance = random.Random(seed)
    zones = []
    for name in "abc":
        cuts = sorted(chance.sample(range(31), 6))
        up = tuple((a * STEP, b * STEP) for a, b in zip(cuts[::2], cuts[1::2], strict=True))
        zones.append(Capacity(name, up, "r"))
    boot = chance.randint(0, 3)
    assert most_productive_s(zones, boot * STEP) == search_all_plans(zones, boot, 30)


@pytest.mark.skipif(not TRACES.is_dir(), reason="needs a folder of measured traces: HERD_TRACES")
@pytest.mark.parametrize(
    ("folder", "everywhere", "region", "zone"),
    [
        ("aws-9-zones-1-node", 0.9900, 0.8187, 0.6363),
        ("aws-3-zones-16-nodes", 0.7532, 0.4096, 0.3636),
    ],
)
def test_the_bounds_of_measured_traces(
    folder: str, everywhere: float, region: float, zone: float
) -> None:
    (traces,) = read_trace_folder(TRACES / folder)
    for scope, published in (("all", everywhere), ("region", region), ("zone", zone)):
        mean = sum(upper_bound(traces, seed, scope) for seed in (1, 2, 3)) / 3
        assert mean == pytest.approx(published, abs=0.002)


def test_saves_leave_what_was_durable() -> None:
    made = replace(NAIVE, save_block_s=20, save_durable_s=10)
    left = [saved_work(elapsed_s, made) for elapsed_s in (0, 910, 929, 930, 1850)]
    assert left == [(0, 0, 0), (0, 900, 10), (0, 909, 20), (900, 10, 20), (1800, 10, 40)]


def test_a_run_accounts_for_every_second_and_runs_are_summed() -> None:
    def make(productive: float, queued: float) -> PolicyRun:
        badput = dict.fromkeys(BUCKETS, 0.0) | {"queue_first": queued}
        return PolicyRun(policy="p", wanted_s=100, productive_s=productive, badput=badput)

    both = merge_runs([make(60, 40), make(80, 20)])
    assert (both.goodput, both.wanted_s, both.badput["queue_first"]) == (0.7, 200, 60)
    with pytest.raises(ValueError, match=r"101.000 s are accounted of 100.000 s"):
        make(60, 41)


#: a has capacity, loses it, has it again …; a and b are of one region.
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
    # three tries of the other region; then all zones
    "skypilot-eager": """
        create a, ready a, train, lost a, detected, delete,
        create c, back off, create c, back off, create c,
        create a, create b, create c, back off, create a, create b, ready b, lost b, detected,
        delete, create c, back off, create c, back off, create c,
        create a, create b, create c, back off, create a, ready a, train, lost a, detected, delete,
        create c, ready c, train, lost c, detected, delete, create a, create b, ready b, train""",
}


def play(name: str) -> RunRecorder:
    zones = (A,) if MODELS[name][1] == "zone" else (A, B, C)
    return run_peer(Scene(policy=name, zones=zones, constants=STEADY, seed=1, length_s=14000))


@pytest.mark.parametrize("name", MODELS)
def test_a_model_goes_through_the_states_of_its_source(name: str) -> None:
    expected = [state.strip() for state in STATES[name].split(",")]
    states = [f"{at:g} {one}" if name == "tpucare" else one for at, one in play(name).states]
    assert states[: len(expected)] == expected
    assert play(name).close_books() == play(name).close_books()
    if name == "tpucare":  # 5000 s of it after the last loss
        badput = play(name).close_books().badput
        assert (badput["capacity_wait"], badput["controller_gap"]) == (6000, 80)


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize("nodes", [(0,), (0,) * 500, (1,), (1, 0) * 50])
def test_odd_traces_are_run_to_their_end(name: str, nodes: tuple[int, ...]) -> None:
    zones = [Trace(zone=z, region=z[0], tick_s=45.3, nodes=nodes) for z in ("r1", "r2", "q1")]
    traces = TraceSet(name="odd", zones=tuple(zones))
    assert run_policy(name, traces, 7, NAIVE).goodput <= find_bounds(traces, 7).all
