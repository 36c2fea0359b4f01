"""A slot with a deadline in a toy cloud: spot while there is time, on-demand when there is not."""

from dataclasses import replace
from math import inf

import pytest

from tests.unit.toy_cloud import Toy, ToyNode, offer, slot
from tpuherd.model.observed import NodeState, RequestState
from tpuherd.model.slot_history import Verdict
from tpuherd.model.slots_and_plan import (
    Deadline,
    EnginePlan,
    Launch,
    Limits,
    Offer,
    PlannedStep,
    Stop,
)

HOUR, START = 3600.0, 1000.0
SPOT = tuple(offer(zone, tier="spot", rank=0, price=1.0) for zone in ("a", "b"))
FIRM = offer("c", tier="on-demand", rank=1, price=3.0)


class WorkToy(Toy):
    """A command with some work, which goes on where it was stopped; spot comes and goes."""

    def __init__(self, work_h: float, deadline_h: float, cost: float = inf) -> None:
        found = slot(
            offers=(*SPOT, FIRM),
            deadline=Deadline(at=START + deadline_h * HOUR, since=START, work_s=work_h * HOUR),
            limits=Limits(cost=cost, stall_s=inf, first_step_s=inf),
        )
        super().__init__(found)
        self.work_s, self.done_s = work_h * HOUR, 0.0
        self.spot = True
        self.grants = lambda zone: 20.0 if zone == "c" or self.spot else inf
        self.dollars: dict[str, float] = {"spot": 0.0, "on-demand": 0.0}

    def launch(self, step: PlannedStep, action: Launch) -> None:
        self.lasts = self.work_s - self.done_s
        super().launch(step, action)

    def stop(self, step: PlannedStep, action: Stop) -> None:
        self.count_work()
        super().stop(step, action)

    def count_work(self) -> None:
        """What the running attempt has done stays."""
        for process in self.home.work.get(self.attempt_id(), {}).values():
            if process.ended is None:
                self.done_s += (self.now - process.started) / len(self.home.work)
                return

    def attempt_id(self) -> str:
        attempt = self.slot_history().attempt
        assert attempt is not None
        return attempt.id

    def tick(self, seconds: float = 30.0) -> EnginePlan:
        found = super().tick(seconds)
        for node in self.toy_nodes.values():
            if node.node in {NodeState.MAKING, NodeState.READY}:
                offer: Offer = node.ask.offer
                self.dollars[offer.tier] += (offer.price or 0.0) * seconds / HOUR
        return found

    def dry_up(self) -> None:
        """No spot is to be had any more, and what there is is taken away."""
        self.spot = False
        self.count_work()
        for node in self.spot_nodes():
            node.request, node.node = RequestState.LOST, NodeState.LOST
            node.work.clear()

    def spot_nodes(self) -> list[ToyNode]:
        return [
            one
            for one in self.toy_nodes.values()
            if one.ask.offer.tier == "spot" and one.node is not None
        ]

    def tier(self) -> str:
        """Where the attempt runs."""
        return self.home.ask.offer.tier if self.running() else ""

    def pass_hours(self, hours: float) -> None:
        end = self.now + hours * HOUR
        while self.now < end:
            self.tick()

    def finish(self) -> float:
        """Run to the end; return the hours since the submission."""
        self.run(4_000, until=lambda toy: toy.slot_history().done_at is not None)
        return (self.now - START) / HOUR


def test_spot_alone_is_used_while_there_is_some() -> None:
    toy = WorkToy(3, 6)
    assert toy.finish() < 3.2
    assert toy.dollars["on-demand"] == 0
    assert {event.facts["offer"]["tier"] for event in toy.kinds("bid.requested")} == {"spot"}


def test_without_spot_it_waits_and_is_done_in_time() -> None:
    toy = WorkToy(3, 6)
    toy.spot = False
    toy.pass_hours(0.05)
    assert not toy.running()
    assert "ahead of an even pace" in toy.last.states["gpt-0"]
    assert toy.finish() <= 6
    modes = [event.facts["mode"] for event in toy.kinds("slot.deadline_mode")]
    assert modes[0] == "catch up"


@pytest.mark.parametrize("dry_h", [0.2, 1.0, 2.8])
@pytest.mark.parametrize("deadline_h", [3.6, 4.0, 6.0])
def test_the_deadline_is_met_whenever_spot_dries_up(dry_h: float, deadline_h: float) -> None:
    toy = WorkToy(3, deadline_h)
    toy.pass_hours(dry_h)
    toy.dry_up()
    assert toy.finish() <= deadline_h
    assert not toy.kinds("slot.deadline_missed")


def test_on_demand_is_given_back_when_spot_returns() -> None:
    toy = WorkToy(3, 5)
    toy.spot = False
    toy.run(4000, until=lambda toy: toy.running())
    assert toy.tier() == "on-demand"
    toy.pass_hours(1)
    assert toy.tier() == "on-demand"
    assert "until there is spot" in toy.last.states["gpt-0"]
    toy.spot = True
    toy.run(4000, until=lambda _: toy.running() and toy.tier() == "spot")
    ended = [event.facts["verdict"] for event in toy.kinds("attempt.ended")]
    assert ended == [str(Verdict.STOPPED)]
    toy.pass_hours(0.2)
    assert {node.ask.offer.tier for node in toy.toy_nodes.values()} == {"spot"}
    assert toy.finish() <= 5
    assert toy.dollars["on-demand"] < 3.0 * 1.5


def test_near_the_deadline_on_demand_is_kept_though_there_is_spot() -> None:
    toy = WorkToy(3, 3.5)
    toy.spot = False
    toy.run(4000, until=lambda toy: toy.running())
    toy.pass_hours(0.2)
    toy.spot = True
    toy.pass_hours(1)
    assert toy.tier() == "on-demand"
    assert "no time for another loss" in toy.last.states["gpt-0"]
    assert toy.finish() <= 3.5


def test_a_deadline_never_costs_more_than_the_limit_allows() -> None:
    toy = WorkToy(3, 4, cost=4.0)
    toy.spot = False
    toy.pass_hours(4.1)
    assert toy.dollars["on-demand"] == 0
    assert "its deadline has passed" in toy.last.states["gpt-0"]
    assert len(toy.kinds("slot.deadline_missed")) == 1
    toy.spot = True
    toy.finish()
    assert sum(toy.dollars.values()) < 4.0


def test_without_allowed_on_demand_it_says_so() -> None:
    toy = WorkToy(3, 4)
    toy.change_job(offers=SPOT)
    toy.spot = False
    toy.pass_hours(1)
    assert "no on-demand node is allowed or affordable" in toy.last.states["gpt-0"]
    toy.spot = True
    toy.finish()


def test_one_request_at_a_time_is_no_reason_to_be_late() -> None:
    toy = WorkToy(3, 4)
    toy.desired = replace(toy.desired, hedge=1)
    toy.spot = False
    assert toy.finish() <= 4


def test_on_demand_is_requested_in_one_zone_after_another() -> None:
    toy = WorkToy(3, 3.3)
    dear = offer("d", tier="on-demand", rank=1, price=4.0)
    toy.zones = frozenset("abcd")
    toy.change_job(offers=(*SPOT, replace(dear, zone="b", price=None), dear, FIRM))
    toy.grants = lambda zone: 20.0 if zone == "d" else inf
    toy.tick()
    asked = [event.facts["offer"] for event in toy.kinds("bid.requested")]
    assert [one["zone"] for one in asked if one["tier"] == "on-demand"] == ["c"]
    assert toy.finish() <= 3.3
    asked = [event.facts["offer"] for event in toy.kinds("bid.requested")]
    assert [one["zone"] for one in asked if one["tier"] == "on-demand"] == ["c", "d"]


def test_the_deadline_may_be_changed_while_it_runs() -> None:
    toy = WorkToy(3, 9)
    toy.spot = False
    toy.pass_hours(0.05)
    assert not toy.running()
    toy.change_job(deadline=Deadline(at=START + 3.6 * HOUR, since=START, work_s=3 * HOUR))
    toy.pass_hours(0.1)
    assert toy.tier() == "on-demand"
    assert toy.finish() <= 3.6


def test_work_that_nobody_states_is_assumed() -> None:
    toy = WorkToy(1, 4)
    toy.change_job(deadline=Deadline(at=START + 4 * HOUR, since=START))
    toy.spot = False
    toy.pass_hours(0.05)
    assert "an assumed 2 h of work left" in toy.last.states["gpt-0"]
    assert toy.finish() <= 4
