"""Steps become events: the first one at once, checkpoints when they advance, and not too often."""

from itertools import pairwise
from math import inf

from tests.unit.toy_cloud import Process, Toy, slot
from tpuherd.model.slots_and_plan import Limits
from tpuherd.planner.step_events import SAVED_S, choose_startup


def working(toy: Toy) -> list[Process]:
    """The processes of a long attempt that has started."""
    toy.lasts = 3600.0
    toy.run(until=Toy.running)
    return list(toy.home.work[toy.launches[-1]].values())


def test_no_progress_without_reports() -> None:
    toy = Toy(slot())
    working(toy)
    for _ in range(30):
        toy.tick()
    assert toy.kinds("attempt.first_step") == toy.kinds("attempt.saved") == []
    assert toy.slot_history().attempt is not None


def test_the_first_step_is_recorded_once() -> None:
    toy = Toy(slot())
    processes = working(toy)
    for step in (1, 2, 3):
        for process in processes:
            process.step = step
        toy.tick()
    (event,) = toy.kinds("attempt.first_step")
    assert event.facts["step"] == 1
    assert event.facts["why"] == "attempt 1 makes progress: step 1"
    attempt = toy.slot_history().attempt
    assert attempt is not None
    assert attempt.first_step_at == event.at


def test_the_first_step_may_have_number_0() -> None:
    toy = Toy(slot())
    processes = working(toy)
    processes[1].step = 0
    toy.tick()
    (event,) = toy.kinds("attempt.first_step")
    assert event.facts["step"] == 0


def test_the_resumed_step_is_recorded_with_it() -> None:
    toy = Toy(slot())
    processes = working(toy)
    attempt = toy.launches[-1]
    processes[0].step, processes[0].resumed, processes[0].restore_s = 101, 100, 2.5
    toy.tick()
    (event,) = toy.kinds("attempt.first_step")
    assert event.facts["attempt"] == attempt
    assert (event.facts["step"], event.facts["resumed"], event.facts["restore_s"]) == (
        101, 100, 2.5,
    )  # fmt: skip


def test_checkpoints_are_recorded_when_they_advance_at_most_once_a_minute() -> None:
    toy = Toy(slot())
    processes = working(toy)
    begun = toy.now
    for saved in range(1, 61):
        processes[0].saved = saved
        toy.tick(5.0)
    told = toy.kinds("attempt.saved")
    assert len(told) == (toy.now - begun) // SAVED_S
    assert [event.facts["step"] for event in told] == [1, 13, 25, 37, 49]
    assert all(after.at - before.at == SAVED_S for before, after in pairwise(told))
    toy.tick(SAVED_S)
    assert toy.kinds("attempt.saved")[-1].facts["step"] == 60
    for _ in range(30):
        toy.tick()
    assert len(toy.kinds("attempt.saved")) == len(told) + 1


def test_a_checkpoint_waiting_for_its_minute_wakes_the_plan() -> None:
    toy = Toy(slot())
    processes = working(toy)
    processes[0].saved = 1
    toy.tick(1.0)
    at = toy.now
    processes[0].saved = 2
    toy.tick(1.0)
    assert toy.last.wake_at <= at + SAVED_S


def test_a_long_attempt_records_its_checkpoints_less_often() -> None:
    toy = Toy(slot(limits=Limits(first_step_s=inf)))
    toy.lasts = 1e7
    toy.run(until=Toy.running)
    processes = list(toy.home.work[toy.launches[-1]].values())
    for saved in range(2000):  # five weeks
        processes[0].saved = saved
        toy.tick(1500.0)
    told = toy.kinds("attempt.saved")
    assert 100 < len(told) < 500
    last, before = told[-1].at, told[-2].at
    assert last - before > 0.01 * (before - told[0].at)


def test_startup_times_are_those_of_the_slowest_host() -> None:
    """One compiles, the others find its program in the cache, and wait for it in their first step:
    the greatest of each part would add up to more than the start took."""
    compiles = {"python_s": 5.0, "compile_s": 7.0, "first_step_s": 0.4}
    waits = {"python_s": 5.2, "compile_s": 0.7, "first_step_s": 6.5}
    assert choose_startup([waits, compiles, waits]) == compiles
    assert choose_startup([{"python_s": 1.0}, waits]) == waits
