"""The plan in a closed loop with a toy world: it ends as it should, whatever happens."""

from dataclasses import replace

import pytest

from tests.unit.planner_scenes import swarm
from tests.unit.toy_cloud import Toy, offer, slot
from tpuherd.model.observed import NodeState, RequestState
from tpuherd.model.slot_history import Verdict
from tpuherd.model.slots_and_plan import (
    Ask,
    Collect,
    Goal,
    HistoryEvent,
    Launch,
    Limits,
    PlannedStep,
    Prepare,
    Refusal,
    RequestKind,
    Stop,
    Withdraw,
)
from tpuherd.planner.bid_status import UNHEALTHY_S_MAX


def test_a_job_runs_once_and_leaves_nothing() -> None:
    toy = Toy(slot()).run()
    assert len(toy.launches) == 1
    assert toy.slot_history().done_at is not None
    assert not toy.toy_nodes
    assert toy.most == 1


def test_a_preempted_job_continues_elsewhere() -> None:
    toy = Toy(slot())
    toy.run(until=Toy.running)
    lost = toy.slot_history().attempt
    toy.preempt()
    toy.run()
    last = toy.slot_history().attempt
    assert lost and last and lost.bid != last.bid
    assert len(toy.launches) == 2
    assert toy.slot_history().preemptions == 1
    assert toy.slot_history().done_at is not None


def test_a_notice_stops_and_requests_in_one_plan() -> None:
    toy = Toy(slot())
    toy.run(until=Toy.running)
    toy.home.deadly = True
    found = toy.tick()
    kinds = [type(step.action) for step in found.steps]
    assert kinds.count(Ask) == 3
    stop = next(step.action for step in found.steps if isinstance(step.action, Stop))
    assert stop.grace_s == Limits().notice_grace_s
    assert Withdraw not in kinds
    toy.run()
    assert toy.slot_history().preemptions == 1
    assert not toy.toy_nodes


def test_a_failing_command_gives_up_after_its_budget() -> None:
    toy = Toy(slot())
    toy.exit = 3
    toy.run()
    assert len(toy.launches) == 4
    assert toy.slot_history().gave_up_why.startswith("it failed 4 times")
    assert not toy.toy_nodes


def test_without_retries_one_failure_is_the_end() -> None:
    toy = Toy(slot(limits=Limits(failures=0)))
    toy.exit = 3
    assert len(toy.run().launches) == 1


def test_a_command_that_can_never_run_is_not_retried() -> None:
    toy = Toy(slot())
    toy.exit = 78
    toy.run()
    assert len(toy.launches) == 1
    assert toy.slot_history().gave_up_why.startswith("it can't run like this: ")
    assert not toy.toy_nodes


def test_an_advancing_checkpoint_resets_failures() -> None:
    toy = Toy(slot(limits=Limits(failures=1)))
    toy.exit = 1
    for number in range(1, 7):
        toy.run(until=lambda toy: len(toy.launches) == number and toy.running())  # noqa: B023
        for process in toy.home.work[toy.launches[-1]].values():
            process.saved = number
    assert toy.slot_history().gave_up_at is None
    toy.run()
    assert len(toy.launches) == 7
    assert toy.slot_history().gave_up_at is not None


@pytest.mark.parametrize("goal", [Goal.GONE, Goal.IDLE])
def test_the_goal_changes_while_the_job_runs(goal: Goal) -> None:
    toy = Toy(slot())
    toy.run(until=Toy.running)
    toy.change_job(goal=goal)
    toy.run(until=lambda toy: not toy.running())
    attempt = toy.slot_history().attempt
    assert attempt and attempt.verdict is Verdict.STOPPED
    for _ in range(30):
        toy.tick()
    assert len(toy.toy_nodes) == (goal is Goal.IDLE)
    assert toy.last.rest == (goal is Goal.GONE)


@pytest.mark.parametrize("seen", [False, True])
def test_a_stopped_attempt_ends_though_its_job_is_resumed_at_once(seen: bool) -> None:
    toy = Toy(slot())
    toy.run(until=Toy.running)
    toy.note(HistoryEvent(at=toy.now, kind="job.stopped", job="gpt"))
    if seen:  # the engine looks in between
        toy.change_job(goal=Goal.GONE)
        toy.tick()
        toy.change_job(goal=Goal.RUN)
    toy.note(HistoryEvent(at=toy.now, kind="job.resumed", job="gpt"))
    toy.run()
    ends = [event.facts["verdict"] for event in toy.kinds("attempt.ended")]
    assert ends == [Verdict.STOPPED, Verdict.SUCCESS]
    bids = {event.facts["bid"] for event in toy.kinds("attempt.launched")}
    assert len(bids) == 1


def test_idle_then_run() -> None:
    toy = Toy(slot(goal=Goal.IDLE))
    toy.run(until=lambda toy: any(bid.prepared for bid in toy.slot_history().bids.values()))
    assert not toy.launches
    toy.change_job(goal=Goal.RUN)
    assert len(toy.run().launches) == 1


def test_an_idle_node_is_withdrawn_after_a_while() -> None:
    toy = Toy(slot(goal=Goal.IDLE, limits=Limits(idle_s=600)))
    toy.run()
    assert "nothing has run on it for 10 min" in toy.slot_history().gave_up_why
    assert not toy.toy_nodes


def test_a_reboot_restarts_on_the_same_node() -> None:
    toy = Toy(slot())
    toy.run(until=Toy.running)
    toy.reboot()
    toy.run()
    assert len(toy.launches) == 2
    assert len({event.facts["bid"] for event in toy.kinds("attempt.launched")}) == 1


def test_changed_code_stops_prepares_and_restarts() -> None:
    toy = Toy(slot())
    toy.run(until=Toy.running)
    toy.change_job(code_digest="d")
    toy.run()
    assert [event.facts["code_digest"] for event in toy.kinds("attempt.launched")] == ["c", "d"]
    assert toy.most == 1


def test_patient_code_waits_for_the_next_attempt() -> None:
    toy = Toy(slot())
    toy.run(until=Toy.running)
    toy.change_job(code_digest="d", patient=True)
    toy.tick()
    assert not toy.kinds("attempt.stopping")
    toy.preempt()
    toy.run()
    assert [event.facts["code_digest"] for event in toy.kinds("attempt.launched")] == ["c", "d"]
    assert toy.kinds("attempt.ended")[0].facts["verdict"] == "preempted"


def test_another_type_runs_on_until_its_successor_is_prepared() -> None:
    toy = Toy(slot())
    toy.lasts = 500
    toy.run(until=Toy.running)
    old = toy.home.ask.bid
    toy.change_job(offers=tuple(offer(zone, type="v5e-16") for zone in "abc"), node_digest="m")
    toy.run(until=lambda toy: bool(toy.kinds("attempt.stopping")))
    new = next(bid for bid in toy.slot_history().bids.values() if bid.prepared and bid.name != old)
    assert new.offer.type == "v5e-16"
    toy.run()
    assert len(toy.launches) == 2
    assert toy.slot_history().done_at is not None


def test_exact_jobs_bid_for_one_node_at_a_time() -> None:
    toy = Toy(slot(exact=True))
    toy.grants = lambda zone: 20.0 if zone == "c" else 1e9

    def never_two(toy: Toy) -> bool:
        assert len(toy.toy_nodes) <= 1
        return toy.last.rest

    toy.run(1000, until=never_two)
    assert toy.slot_history().done_at is not None
    assert len(toy.kinds("bid.requested")) >= 3


def test_exact_jobs_replace_a_node_only_after_it_is_gone() -> None:
    toy = Toy(slot(exact=True))
    toy.run(until=Toy.running)
    toy.preempt()

    def never_two(toy: Toy) -> bool:
        assert len(toy.toy_nodes) <= 1
        return toy.last.rest

    toy.run(until=never_two)
    assert len(toy.launches) == 2


def test_a_node_name_that_is_in_use_is_asked_for_again_each_minute() -> None:
    toy = Toy(slot(exact=True))
    toy.refuses = dict.fromkeys("abc", Refusal.NAME_IN_USE)
    begun = toy.now
    toy.run(until=lambda toy: len(toy.kinds("bid.requested")) == 4)
    assert 180 <= toy.now - begun <= 300
    assert toy.history.zone_stats == {}  # it says nothing about others
    toy.refuses = {}
    assert toy.run().slot_history().done_at is not None


def test_no_capacity_anywhere_waits_and_says_so() -> None:
    toy = Toy(slot())
    toy.refuses = dict.fromkeys("abc", Refusal.STOCKOUT)
    for _ in range(200):
        toy.tick()
    assert 6 <= len(toy.kinds("bid.requested")) <= 30
    assert "no" in toy.last.states["gpt-0"]
    due = min(one.refused_at + one.pause_s for one in toy.history.zone_stats.values())
    assert toy.last.wake_at == max(due, toy.now)
    toy.refuses = {}
    assert toy.run(800).slot_history().done_at


def test_an_impossible_request_gives_up_with_a_reason() -> None:
    toy = Toy(slot())
    toy.refuses = dict.fromkeys("abc", Refusal.CONFIGURATION)
    toy.run()
    assert toy.slot_history().gave_up_why == "no node can be requested: no"
    assert len(toy.kinds("bid.requested")) == 3


def test_a_zone_without_permission_is_skipped_for_minutes() -> None:
    toy = Toy(slot())
    toy.refuses = {"a": Refusal.PERMISSION}
    toy.run(until=Toy.running)
    toy.preempt()
    toy.run()
    assert [event.facts["offer"]["zone"] for event in toy.kinds("bid.requested")].count("a") == 1


def test_a_new_permission_is_noticed_within_minutes_and_one_slot_tries_it() -> None:
    toy = Toy(*(slot(f"gpt-{number}", offers=(offer("a"),)) for number in range(8)))
    toy.refuses = {"a": Refusal.PERMISSION}
    end = toy.now + 1500
    while toy.now < end:
        toy.tick()
    asked = [event.at for event in toy.kinds("bid.requested")]
    later = [at for at in asked if at > min(asked) + 10]
    assert 3 <= len(later) == len(set(later)) <= 6
    toy.refuses = {}
    given_at = toy.now
    toy.run(until=lambda toy: len(toy.launches) == 8)
    assert (
        min(event.at for event in toy.kinds("bid.requested") if event.at > given_at)
        < given_at + 310
    )


def test_a_name_in_use_takes_the_next_number_and_touches_nothing() -> None:
    toy = Toy(slot(offers=(offer("a"),)))
    toy.refuses = {"a": Refusal.TAKEN}
    toy.tick()
    toy.refuses = {}
    toy.run()
    assert [event.facts["generation"] for event in toy.kinds("bid.requested")] == [1, 2]
    assert "gpt-0-g1-me" not in {event.facts["bid"] for event in toy.kinds("bid.withdrawn")}


def test_the_budget_of_creates_is_kept_and_fair() -> None:
    toy = Toy(*(slot(f"gpt-{number}") for number in range(20)))
    toy.desired = replace(toy.desired, creates_per_min=12)
    toy.grants = lambda zone: 1e9
    for _ in range(12):
        toy.tick()
    times = [event.at for event in toy.kinds("bid.requested")]
    assert len(times) == 12
    assert len({event.slot for event in toy.kinds("bid.requested")}) == 12
    for _ in range(100):
        toy.tick()
    times = [event.at for event in toy.kinds("bid.requested")]
    assert len(times) == 60
    assert all(sum(at <= one < at + 60 for one in times) <= 12 for at in times)


def test_an_unhealthy_node_is_waited_for_and_then_replaced() -> None:
    toy = Toy(slot())
    toy.lasts = 1e9
    toy.run(until=lambda toy: toy.running() and len(toy.toy_nodes) == 1)
    old = toy.home.ask.bid
    toy.home.node = NodeState.UNHEALTHY
    while toy.now < 1000 + UNHEALTHY_S_MAX:
        toy.tick()
        assert len(toy.toy_nodes) == 1
    toy.run(until=lambda toy: len(toy.launches) == 2)
    assert old not in toy.toy_nodes or toy.toy_nodes[old].node is NodeState.LEAVING


def test_an_unknown_state_is_left_alone() -> None:
    toy = Toy(slot())
    toy.lasts = 1e9
    toy.run(until=Toy.running)
    toy.home.node = NodeState.UNKNOWN
    for _ in range(400):
        toy.tick()
    assert len(toy.toy_nodes) == 1
    assert len(toy.launches) == 1


def test_hosts_never_reached_are_replaced_after_an_hour() -> None:
    toy = Toy(slot(offers=(offer("a"),)))
    toy.run(until=lambda toy: len(toy.toy_nodes) == 1)
    first = next(iter(toy.toy_nodes.values()))
    first.cut = True
    while toy.now < 4500:
        toy.tick()
        assert len(toy.toy_nodes) == 1
    toy.run()
    assert toy.slot_history().done_at is not None
    assert len(toy.launches) == 1


def test_a_node_that_never_becomes_ready_is_replaced() -> None:
    toy = Toy(slot(offers=(offer("a"),)))
    toy.run(until=lambda toy: any(one.node for one in toy.toy_nodes.values()))
    next(iter(toy.toy_nodes.values())).ready = 1e9
    toy.run(3000)
    assert toy.slot_history().done_at is not None


def test_a_silent_node_that_the_cloud_calls_healthy_gets_no_second_attempt() -> None:
    toy = Toy(slot())
    toy.lasts = 3000
    toy.run(until=Toy.running)
    toy.home.cut = True
    old = toy.home
    toy.run(1000, until=lambda toy: len(toy.launches) == 2)
    assert old.ends < 1e9


def test_deletions_wait_when_half_of_the_hosts_fall_silent_at_once() -> None:
    toy = swarm(4, lasts=2400, ticks=10)
    for toy_node in toy.toy_nodes.values():
        toy_node.cut = True
    for _ in range(400):
        toy.tick()
        assert toy.last.frozen
        assert len(toy.toy_nodes) == 4
    assert toy.history.frozen_at is not None
    for toy_node in toy.toy_nodes.values():
        toy_node.cut = False
    toy.run(2000)
    assert toy.history.frozen_at is None
    assert len(toy.launches) == 4


def test_an_empty_list_is_not_believed_at_once() -> None:
    toy = swarm(3, lasts=600, ticks=6)
    hosts = toy.hosts
    toy.survey = {}
    toy.hosts = dict  # type: ignore[method-assign]
    for _ in range(8):
        toy.tick()
    assert toy.last.frozen
    assert len(toy.kinds("bid.lost")) == 0
    toy.survey = None
    toy.hosts = hosts  # type: ignore[method-assign]
    toy.run()
    assert len(toy.launches) == 3


def test_a_node_that_stays_missing_is_replaced() -> None:
    toy = swarm(3, lasts=300, ticks=6)
    toy.toy_nodes.clear()
    toy.run()
    assert len(toy.launches) == 6


def test_a_silent_zone_changes_nothing() -> None:
    toy = Toy(slot())
    toy.lasts = 2000
    toy.run(until=Toy.running)
    toy.zones = frozenset()
    for _ in range(200):
        assert not [step for step in toy.tick().steps if not isinstance(step.action, Launch)]
    assert len(toy.toy_nodes) == 1


def test_a_late_grant_is_withdrawn_again() -> None:
    toy = Toy(slot())
    toy.run(until=lambda toy: bool(toy.kinds("bid.deleted")))
    late = next(event.facts["bid"] for event in toy.kinds("bid.deleted"))
    toy.create(
        PlannedStep(action=Withdraw(bid=late, slot="gpt-0", zone="b"), why=""), ask_of(toy, late)
    )
    toy.run()
    assert not toy.toy_nodes


def ask_of(toy: Toy, bid: str) -> Ask:
    event = next(event for event in toy.kinds("bid.requested") if event.facts["bid"] == bid)
    return Ask(
        bid=bid,
        slot=event.slot,
        generation=event.facts["generation"],
        offer=offer(event.facts["offer"]["zone"]),
        nodes=1,
        node_digest="n",
    )


def test_an_orphan_is_left_alone() -> None:
    toy = Toy(slot())
    toy.run(until=Toy.running)
    stray = replace(ask_of(toy, "gpt-0-g1-me"), bid="gpt-0-g9-me")
    toy.create(PlannedStep(action=stray, why=""), stray)
    for _ in range(100):
        toy.tick()
    assert list(toy.toy_nodes) == ["gpt-0-g9-me"]
    toy.history = replace(toy.history, slots={})
    toy.tick()
    assert {event.facts["generation"] for event in toy.kinds("bid.requested")[-3:]} == {10, 11, 12}


def test_scaling_down_withdraws_the_rest() -> None:
    toy = Toy(slot("gpt-0"), slot("gpt-1"))
    toy.lasts = 1e9
    toy.run(until=lambda toy: len(toy.launches) == 2)
    toy.desired = replace(toy.desired, slots={"gpt-0": toy.desired.slots["gpt-0"]})
    for _ in range(40):
        toy.tick()
    assert {toy_node.ask.slot for toy_node in toy.toy_nodes.values()} == {"gpt-0"}


def test_bids_without_a_job_are_left_alone_until_a_removal_is_recorded() -> None:
    toy = Toy(slot())
    toy.lasts = 1e9
    toy.run(until=Toy.running)
    for _ in range(10):
        toy.tick()
    toy.desired = replace(toy.desired, slots={})
    for _ in range(40):
        toy.tick()
    assert len(toy.toy_nodes) == 1
    toy.note(replace(toy.events[0], kind="job.removed", slot="", facts={}))
    for _ in range(40):
        toy.tick()
    assert not toy.toy_nodes


def test_after_a_lost_store_the_running_attempt_is_adopted() -> None:
    toy = Toy(slot())
    toy.lasts = 400
    toy.run(until=Toy.running)
    for _ in range(20):
        toy.tick()
    (bid,) = toy.slot_history().bids.values()
    toy.history = replace(toy.history, slots={})
    toy.note(
        replace(
            toy.events[0],
            kind="bid.adopted",
            facts={
                "bid": bid.name,
                "generation": bid.generation,
                "offer": {"zone": bid.offer.zone, "type": "v4-16", "runtime": "r", "tier": "spot",
                          "hosts": 2},
                "nodes": 1,
                "node_digest": "n",
            },
        )
    )  # fmt: skip
    toy.run()
    assert len(toy.launches) == 1
    assert toy.slot_history().done_at is not None


def test_a_finished_job_can_be_submitted_again() -> None:
    toy = Toy(slot()).run()
    toy.note(replace(toy.events[0], kind="job.submitted", slot="", facts={}))
    toy.run()
    assert toy.launches == ["gpt-0-a1-me", "gpt-0-a2-me"]
    resumed = [event.facts["attempt"] for event in toy.kinds("attempt.launched")]
    assert len(resumed) == 2


def test_a_node_is_kept_as_long_as_requested_after_the_end() -> None:
    toy = Toy(slot(limits=Limits(done_keep_s=600)))
    toy.run(until=lambda toy: toy.slot_history().done_at is not None)
    done_at = toy.slot_history().done_at
    toy.run(until=lambda toy: not toy.toy_nodes)
    assert done_at and 600 <= toy.now - done_at <= 640


def test_outputs_are_collected_before_the_node_is_deleted() -> None:
    toy = Toy(slot(outputs=True)).run()
    kinds = [event.kind for event in toy.events]
    attempt = toy.slot_history().attempt
    assert attempt
    collected = kinds.index("slot.collected")
    gone = max(at for at, event in enumerate(toy.events)
               if event.kind == "bid.withdrawn" and event.facts["bid"] == attempt.bid)  # fmt: skip
    assert collected < kinds.index("slot.done") < gone


def test_outputs_of_a_lost_node_are_reported_missing() -> None:
    toy = Toy(slot(outputs=True))
    toy.losing = {Collect}
    toy.run(until=Toy.has_ended_attempt)
    toy.preempt()
    toy.run()
    assert "lost before its outputs" in toy.kinds("slot.done")[0].facts["why"]
    assert len(toy.launches) == 1


@pytest.mark.parametrize("limits", [Limits(lifetime_s=100), Limits(cost=0.03)])
def test_a_limit_stops_collects_and_withdraws(limits: Limits) -> None:
    toy = Toy(slot(limits=limits, outputs=True))
    toy.lasts = 1e9
    toy.run()
    assert toy.slot_history().gave_up_why
    assert toy.kinds("slot.collected")
    assert not toy.toy_nodes


def test_a_stall_saves_stacks_and_restarts_under_its_own_budget() -> None:
    toy = Toy(slot(limits=Limits(first_step_s=300, stalls=1)))
    toy.lasts = 1e9
    toy.run(1000)
    assert len(toy.launches) == 2
    assert toy.slot_history().gave_up_why.startswith("it stalled twice")
    assert all(event.facts["stacks"] for event in toy.kinds("attempt.stopping"))
    assert toy.slot_history().failures == 0


def test_direct_creates_probe_one_by_one_after_a_refusal() -> None:
    direct = tuple(offer(zone, kind=RequestKind.DIRECT) for zone in "ab")
    toy = Toy(*(slot(f"gpt-{number}", offers=direct) for number in range(8)))
    toy.refuses = dict.fromkeys("ab", Refusal.STOCKOUT)
    for _ in range(120):
        toy.tick()
    times = [event.at for event in toy.kinds("bid.requested")]
    late = [at for at in times if at > 1200]
    assert len(late) <= 12
    toy.refuses = {}
    toy.run(1000)
    assert len(toy.launches) == 8


def test_a_worse_rank_waits_for_patience() -> None:
    toy = Toy(slot(offers=(offer("a"), offer("b", rank=1))))
    toy.grants = lambda zone: 20.0 if zone == "b" else 1e9
    toy.run()
    asked = {event.facts["offer"]["zone"]: event.at for event in toy.kinds("bid.requested")}
    assert 600 <= asked["b"] - asked["a"] <= 610


FAULTS = [
    "lost ask", "deaf ask", "lost withdraw", "deaf prepare", "lost prepare", "lost launch",
    "deaf launch", "lost stop", "preempt", "reboot", "sick", "silent", "zone", "vanish", "notice",
    "suspending", "leave",
]  # fmt: skip
ACTIONS = {"ask": Ask, "withdraw": Withdraw, "prepare": Prepare, "launch": Launch, "stop": Stop}


class Trouble:
    """One fault that strikes at one tick and is over six ticks later."""

    def __init__(self, name: str, at: int) -> None:
        self.name, self.at = name, at

    def strike(self, toy: Toy, tick: int) -> None:
        how, _, what = self.name.partition(" ")
        mine = self.at <= tick < self.at + 6
        if how in {"lost", "deaf"}:
            hit = toy.losing if how == "lost" else toy.deafened
            if mine:
                hit.add(ACTIONS[what])
        elif how == "zone":
            toy.zones = frozenset() if mine else frozenset("abc")
        elif tick in {self.at, self.at + 6}:
            self.nodes(toy, how, begins=mine)

    @staticmethod
    def nodes(toy: Toy, how: str, *, begins: bool) -> None:
        ready = [
            one
            for one in toy.toy_nodes.values()
            if one.node in {NodeState.READY, NodeState.UNHEALTHY}
        ]
        for toy_node in ready[:1]:
            if how == "silent":
                toy_node.cut = begins
            elif how == "leave" and begins:
                toy_node.leaving_since, toy_node.cut = toy.now, True
            elif how == "leave":
                toy_node.leaving_since, toy_node.cut = None, False
                strike(toy, toy_node.ask.bid, "reboot")
            elif how == "sick":
                toy_node.node = NodeState.UNHEALTHY if begins else NodeState.READY
            elif begins:
                strike(toy, toy_node.ask.bid, how)
        if how == "suspending" and not begins:
            for toy_node in toy.toy_nodes.values():
                if toy_node.request is RequestState.ENDING:
                    toy_node.request = RequestState.LOST


def strike(toy: Toy, bid: str, how: str) -> None:
    """At once, and for good."""
    toy_node = toy.toy_nodes[bid]
    if how == "vanish":
        del toy.toy_nodes[bid]
    elif how == "notice":
        toy_node.deadly = True
    elif how == "reboot":
        toy_node.boot += 1
        for processes in toy_node.work.values():
            for process in processes.values():
                process.lost = process.lost or process.ended is None
    else:
        toy_node.node = NodeState.LOST
        toy_node.request = RequestState.ENDING if how == "suspending" else RequestState.LOST
        toy_node.work.clear()


@pytest.mark.parametrize("fault", FAULTS)
def test_any_fault_at_any_time_ends_well(fault: str) -> None:
    for at in range(30):
        survive(Trouble(fault, at))


@pytest.mark.parametrize("second", FAULTS)
@pytest.mark.parametrize("first", FAULTS)
def test_two_faults_end_well(first: str, second: str) -> None:
    # Times spread over all pairs: each pair sees a few of them.
    place = FAULTS.index(first) * 5 + FAULTS.index(second) * 3
    for at, gap in ((place % 24, 0), ((place + 11) % 24, 4)):
        survive(Trouble(first, at), Trouble(second, at + gap))


def survive(*troubles: Trouble) -> None:
    toy = Toy(slot())
    ticks = 0

    def until(toy: Toy) -> bool:
        nonlocal ticks
        toy.losing, toy.deafened = set(), set()
        for trouble in troubles:
            trouble.strike(toy, ticks)
        ticks += 1
        return toy.last.rest and ticks > 40

    toy.run(900, until=until)
    story = [(trouble.name, trouble.at) for trouble in troubles]
    assert toy.slot_history().done_at is not None, story
    assert not toy.toy_nodes, story
    assert toy.slot_history().failures == 0, story
