"""Folders of traces are read, bad ones refused in a sentence; changes are jittered by the seed."""

import json
from pathlib import Path

import pytest

from tpuherd_lab.capacity import join_capacities, set_capacities
from tpuherd_lab.policy_run import CAPACITY, QUEUE, PolicyRun, Recovery, merge_runs
from tpuherd_lab.saves import saved_work
from tpuherd_lab.traces import Trace, TraceError, TraceSet, read_trace_folder


def write_trace(file: Path, nodes: list[object], gap: object = 60) -> None:
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(json.dumps({"metadata": {"gap_seconds": gap}, "data": nodes}))


def test_a_folder_is_a_set_and_a_folder_of_folders_several(tmp_path: Path) -> None:
    write_trace(tmp_path / "a-16-nodes" / "us-east-1a_v100_1.json", [0, 16, 9])
    write_trace(tmp_path / "a-16-nodes" / "us-central2-b.json", [1, 1, 16, 16])
    write_trace(tmp_path / "b-4-nodes" / "x_v100_4.json", [0, 1])
    (one,) = read_trace_folder(tmp_path / "a-16-nodes")
    assert [(zone.zone, zone.region) for zone in one.zones] == [
        ("us-central2-b", "us-central2"),
        ("us-east-1a", "us-east-1"),
    ]
    assert (one.name, one.gang, one.length_s) == ("a-16-nodes", 16, 180)
    both = read_trace_folder(tmp_path)
    assert [(found.name, found.gang) for found in both] == [("a-16-nodes", 16), ("b-4-nodes", 1)]


@pytest.mark.parametrize(
    ("nodes", "gap", "said"),
    [
        ([0, None, 1], 60, "data[1] must be a whole number of at least 0, not None"),
        ([], 60, "its data must be a list of whole numbers from 0 on"),
        ([1], 0, "its metadata.gap_seconds must be a number above 0"),
    ],
)
def test_a_bad_trace_is_named_with_what_is_wrong(
    tmp_path: Path, nodes: list[object], gap: object, said: str
) -> None:
    write_trace(tmp_path / "z.json", nodes, gap)
    with pytest.raises(TraceError) as refused:
        read_trace_folder(tmp_path)
    assert str(refused.value) == f"{tmp_path}/z.json is not a trace: {said}"


def test_a_folder_without_traces_is_refused(tmp_path: Path) -> None:
    with pytest.raises(TraceError, match=r"has no traces: it needs one .json file for each zone"):
        read_trace_folder(tmp_path)
    with pytest.raises(TraceError, match=r"cannot read .*/none: No such file"):
        read_trace_folder(tmp_path / "none")
    (tmp_path / "z.json").write_bytes(b"\xff\xfe")
    with pytest.raises(TraceError, match=r"z.json is not a trace: it is not text"):
        read_trace_folder(tmp_path)


def small_set() -> TraceSet:
    return TraceSet(
        name="small",
        gang=4,
        zones=(
            Trace(zone="a", region="r", tick_s=60, nodes=(0, 4, 3, 4, 4)),
            Trace(zone="b", region="r", tick_s=60, nodes=(4, 5, 0, 0, 4, 4)),
        ),
    )


def test_a_zone_has_capacity_when_it_has_the_whole_gang() -> None:
    a, b = set_capacities(small_set(), None)
    assert a.up == ((60, 120), (180, 300))
    assert b.up == ((0, 120), (240, 300)), "cut where the shortest trace ends"
    assert [a.has(at) for at in (0, 60, 119, 120, 299, 300)] == [
        False,
        True,
        True,
        False,
        True,
        False,
    ]
    assert (a.next_change(0), a.next_change(60), a.next_change(300)) == (60, 120, None)
    assert a.next_up(70) == 70 and a.next_up(130) == 180
    assert (a.up_between(0, 300), a.up_between(90, 200), a.up_between(5, 5)) == (180, 50, 0)
    assert join_capacities((a, b)).up == ((0, 120), (180, 300))


def test_jitter_moves_a_change_into_the_tick_before_it_and_is_replayed() -> None:
    for seed in range(50):
        a, _ = set_capacities(small_set(), seed)
        assert set_capacities(small_set(), seed)[0] == a
        (on, off), (again, end) = a.up
        assert 0 < on <= 60 < off <= 120 < again <= 180 and end == 300
        assert all((at * 64).is_integer() for at in (on, off, again))
    assert set_capacities(small_set(), 1) != set_capacities(small_set(), 2)


def test_saves_leave_what_was_durable() -> None:
    def left(elapsed: float) -> tuple[float, float, float]:
        work = saved_work(elapsed, interval_s=900, block_s=20, durable_s=10)
        assert work.kept_s + work.unsaved_s + work.blocked_s == elapsed
        return work.kept_s, work.unsaved_s, work.blocked_s

    assert left(0) == (0, 0, 0)
    assert left(910) == (0, 900, 10), "in the first save"
    assert left(929) == (0, 909, 20), "it is not durable yet"
    assert left(930) == (900, 10, 20)
    assert left(1850) == (1800, 10, 40)


def test_a_run_must_account_for_every_second() -> None:
    def make(productive: float, **badput: float) -> PolicyRun:
        return PolicyRun(
            policy="p", traces="t", seed=1, wanted_s=100, productive_s=productive, badput=badput
        )

    run = make(60, queue_first=30, wasted=10)
    assert (run.goodput, run.controller_badput) == (0.6, 0.1)
    for bad in ({"queue_first": 30}, {"queue_first": 41}):
        with pytest.raises(ValueError, match=r"are accounted of 100.000 s"):
            make(60, **bad)
    with pytest.raises(ValueError, match="no such buckets"):
        make(60, idle=40)


def test_runs_of_single_zones_are_summed() -> None:
    lost = Recovery(lost_at=5, first_step_at=25, without_capacity_s=15)
    assert lost.with_capacity_s == 5 and not lost.capacity_was_there
    runs = [
        PolicyRun(
            policy="p", traces="t", seed=1, wanted_s=100, productive_s=done,
            badput={QUEUE: 100 - done - 10, CAPACITY: 10}, losses=(lost,),
            api_calls={"nodes.list": 3}, peak_calls_per_minute=peak, digest=str(peak),
        )
        for done, peak in ((50, 6), (70, 9))
    ]  # fmt: skip
    both = merge_runs(runs)
    assert (both.goodput, both.wanted_s, len(both.losses)) == (0.6, 200, 2)
    assert (both.api_calls, both.peak_calls_per_minute) == ({"nodes.list": 6}, 9)
    assert both.digest not in ("6", "9")
