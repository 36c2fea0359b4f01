"""What is done with gangs and nodes in special cases: stalls, collecting, old attempts."""

from dataclasses import replace
from functools import partial
from itertools import pairwise, product
from math import inf
from typing import Any

import pytest

from tests.unit.planner_scenes import actions, again, running, swarm, with_works
from tests.unit.toy_cloud import Process, Toy, offer, slot
from tpuherd.model.observed import HostRun, NodeState, ObservedState, RequestState, RunState
from tpuherd.model.slot_history import FULL, Verdict
from tpuherd.model.slots_and_plan import (
    Ask,
    Collect,
    DesiredSlots,
    EnginePlan,
    Goal,
    HistoryEvent,
    Launch,
    Limits,
    Prepare,
    Refusal,
    Stop,
    Withdraw,
)
from tpuherd.planner.bid_status import HALTS_MAX
from tpuherd.planner.bidding import (
    FELL_SILENT_S,
    FULL_S,
    LEAVING_S_MAX,
    NOTICE_S,
    SILENT_LOOK_S,
)
from tpuherd.planner.plan import plan

# ---- stalls --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("works", "limit_s"),
    [
        ({}, 2700.0),
        ({"step": 4, "stepped_at": 0.0}, 600.0),
        ({"step": 4, "step_s": 29.0}, 600.0),
        ({"step": 4, "step_s": 100.0}, 2000.0),
    ],
)
def test_a_stall_is_no_step_and_no_output_for_as_long_as_the_pace_allows(
    works: dict[str, Any], limit_s: float
) -> None:
    toy = running()
    for field in ("stepped_at", "logged_at"):
        for ago, stalls in ((limit_s, True), (limit_s - 1, False)):
            quiet = {"started": 1.0, "logged_at": 1.0, "stepped_at": 1.0}
            found = with_works(toy, **works | quiet | {field: toy.now - ago})
            stops = actions(found, Stop)
            assert bool(stops) == stalls, (field, ago)
            assert all(stop.stacks and stop.grace_s == 30 for stop in stops)
            if not stalls:
                assert found.wake_at <= toy.now + 1


def test_an_unreachable_host_does_not_stall() -> None:
    toy = running()
    old = {"started": 1.0, "logged_at": 2.0}
    assert actions(with_works(toy, **old), Stop)
    toy.home.cut = True
    assert not actions(with_works(toy, **old), Stop)
    toy.home.cut = False
    toy.home.heard = 2000.0
    toy.home.cut = False
    assert not actions(with_works(toy, **old), Stop)


def test_one_active_host_prevents_a_stall() -> None:
    toy = running()
    (words,) = toy.hosts().values()
    quiet = tuple(replace(one, started=1.0, logged_at=2.0) for one in words[0].works)
    hosts = {toy.home.ask.bid: (replace(words[0], works=quiet), words[1])}
    assert not actions(again(toy, hosts=hosts), Stop)


# ---- bringing back -------------------------------------------------------------------------------


class Clumsy(Toy):
    """Bringing back fails, and says so."""

    code = ""

    def collect(self, step: Any, action: Collect) -> None:
        facts = {"bid": action.bid, "attempt": action.attempt, "message": "disk full"}
        self.tell("slot.collect_failed", step, **facts, code=self.code)


def test_after_success_collecting_is_retried_forever_with_growing_pauses() -> None:
    toy = Clumsy(slot(outputs=True))
    toy.run(until=lambda toy: bool(toy.kinds("slot.collect_failed")))
    for _ in range(400):
        toy.tick()
    times = [event.at for event in toy.kinds("slot.collect_failed")]
    gaps = [after - before for before, after in pairwise(times)]
    assert gaps[:5] == [15, 30, 60, 120, 240]
    assert set(gaps[5:]) == {300}
    assert len(toy.toy_nodes) == 1 and not toy.last.rest
    assert "fetching its outputs" in toy.last.states["gpt-0"]
    toy.change_job(goal=Goal.GONE)
    toy.run()
    assert not toy.toy_nodes


def test_outputs_that_would_fill_our_disk_stay_on_their_node_for_an_hour() -> None:
    toy = Clumsy(slot(outputs=True))
    toy.code = FULL
    toy.run(until=lambda toy: bool(toy.kinds("slot.collect_failed")))
    toy.tick()
    said = toy.last.states["gpt-0"]
    assert "would fill the disk of the engine's machine" in said
    assert "fetched again in 1 h" in said or "fetched again in 59 m" in said
    assert toy.toy_nodes
    toy.run(1000)
    first, second = (event.at for event in toy.kinds("slot.collect_failed"))
    assert second - first == FULL_S
    assert not toy.toy_nodes
    (done,) = toy.kinds("slot.done")
    assert done.at >= second
    assert "its outputs did not all fit" in done.facts["why"]


def test_what_would_fill_our_disk_keeps_no_node_of_a_removed_job() -> None:
    toy = Clumsy(slot(outputs=True))
    toy.code, toy.lasts = FULL, 1e9
    toy.run(until=Toy.running)
    begun = toy.now
    toy.change_job(goal=Goal.GONE)
    toy.run()
    assert not toy.toy_nodes
    assert toy.now < begun + FULL_S


def test_when_the_job_is_removed_collecting_is_tried_three_times() -> None:
    toy = Clumsy(slot(outputs=True))
    toy.lasts = 1e9
    toy.run(until=Toy.running)
    toy.change_job(goal=Goal.GONE)
    toy.run()
    assert len(toy.kinds("slot.collect_failed")) == 3
    assert not toy.toy_nodes


def test_after_a_notice_outputs_are_fetched_once_before_the_node_is_given_back() -> None:
    toy = Toy(slot(outputs=True))
    toy.run(until=Toy.running)
    old = toy.home
    old.deadly = True
    toy.tick()
    noticed = toy.now
    toy.losing = {Collect}  # it is under way
    toy.calling = frozenset()
    toy.tick(2)
    (collect,) = actions(toy.last, Collect)
    assert collect.bid == old.ask.bid
    assert collect.within_s == NOTICE_S - (toy.now - noticed)
    assert not actions(toy.last, Withdraw)
    toy.calling = frozenset([collect.bid])
    toy.tick(2)
    assert not actions(toy.last, Withdraw) and not actions(toy.last, Collect)
    toy.calling = frozenset()
    facts = {"bid": collect.bid, "attempt": collect.attempt}
    toy.note(HistoryEvent(at=toy.now, kind="slot.collected", job="gpt", slot="gpt-0", facts=facts))
    toy.tick(2)
    assert [one.bid for one in actions(toy.last, Withdraw)] == [collect.bid]
    toy.losing = set()
    toy.run()
    assert [one.facts["attempt"] for one in toy.kinds("slot.collected")].count(collect.attempt) == 1


@pytest.mark.parametrize("why", ["over", "failed", "lost", "cut"])
def test_a_node_with_a_notice_is_given_back_when_nothing_more_can_come(why: str) -> None:
    toy = (Clumsy if why == "failed" else Toy)(slot(outputs=True))
    toy.run(until=Toy.running)
    old = toy.home
    old.deadly = True
    toy.tick()
    toy.losing = set() if why == "failed" else {Collect}
    toy.tick(2)
    assert actions(toy.last, Collect)
    if why == "lost":
        old.request, old.node = RequestState.LOST, NodeState.LOST
    old.cut = why == "cut"
    toy.tick(NOTICE_S if why == "over" else 1)
    assert [one.bid for one in actions(toy.last, Withdraw)] == [old.ask.bid]
    assert not actions(toy.last, Collect)


def test_the_next_attempt_does_not_wait_for_the_outputs_of_a_node_that_is_replaced() -> None:
    toy = Toy(slot(outputs=True))
    toy.lasts = 1e9
    toy.run(until=Toy.running)
    old = toy.home.ask.bid
    toy.change_job(node_digest="other")
    toy.losing = {Collect}
    toy.run(until=lambda toy: bool(actions(toy.last, Collect)))
    (collect,) = actions(toy.last, Collect)
    assert (collect.bid, collect.within_s) == (old, LEAVING_S_MAX)
    toy.calling = frozenset([old])
    toy.run(until=lambda toy: toy.running() and toy.home.ask.bid != old)
    assert old in toy.toy_nodes
    toy.calling = frozenset()
    toy.run(until=lambda toy: old not in toy.toy_nodes)


def test_silent_hosts_are_waited_for_before_giving_up_but_not_forever() -> None:
    toy = running(outputs=True)
    toy.change_job(goal=Goal.GONE)
    toy.run(until=Toy.has_ended_attempt)
    toy = running(outputs=True)
    (bid,) = toy.slot_history().bids
    toy.losing = {Collect}
    toy.change_job(goal=Goal.GONE)
    for _ in range(20):
        toy.tick()
    assert bid in toy.toy_nodes

    def half(toy: Toy) -> dict[str, Any]:
        return {
            name: (words[0], replace(words[1], reached=False))
            for name, words in Toy.hosts(toy).items()
        }

    toy.hosts = lambda: half(toy)  # type: ignore[method-assign]
    for _ in range(60):
        toy.tick()
    assert bid in toy.toy_nodes
    toy.run(until=lambda toy: not toy.toy_nodes)
    ended = toy.slot_history().attempt
    assert ended and ended.ended_at
    assert 600 <= toy.now - ended.ended_at <= 660


def is_gone(toy: Toy, bid: str) -> bool:
    return bid not in toy.toy_nodes or toy.toy_nodes[bid].ends < 1e9


def test_the_last_log_lines_are_waited_for_on_a_leaving_node() -> None:
    for drained, waits in ((True, False), (False, True)):
        toy = running()
        toy.home.deadly = True
        bid = toy.home.ask.bid

        def words(toy: Toy = toy, drained: bool = drained) -> dict[str, Any]:
            return {
                name: tuple(
                    replace(one, works=tuple(replace(w, drained=drained) for w in one.works))
                    for one in found
                )
                for name, found in Toy.hosts(toy).items()
            }

        toy.hosts = words  # type: ignore[method-assign]
        toy.run(until=partial(is_gone, bid=bid))
        attempt = next(event.at for event in toy.kinds("attempt.ended"))
        assert (toy.now - attempt >= 30) == waits
        assert toy.now - attempt <= 35


# ---- twice, and not twice ------------------------------------------------------------------------


def test_a_withdrawal_without_effect_is_resent_with_growing_pauses() -> None:
    toy = running()
    toy.losing = {Withdraw}
    toy.change_job(goal=Goal.GONE)
    for _ in range(300):
        toy.tick()
    times = [event.at for event in toy.kinds("bid.withdrawn") if event.at > 50_090]
    gaps = [after - before for before, after in pairwise(times)]
    assert gaps[:6] == [10, 20, 40, 80, 160, 300]
    assert "deleting gpt-0" in toy.last.states["gpt-0"]


def test_an_unanswered_request_is_resent_under_its_name_when_a_newer_survey_lacks_it() -> None:
    toy = Toy(slot(offers=(offer("a"),)))
    toy.losing = {Ask}
    toy.tick()
    seen = replace(toy.observed(), surveyed_at=toy.now - 1)
    assert not plan(toy.desired, seen, toy.history, toy.now).steps
    calling = replace(toy.observed(), surveyed_at=toy.now + 1, calling=frozenset(["gpt-0-g1-me"]))
    assert not plan(toy.desired, calling, toy.history, toy.now).steps
    for _ in range(200):
        toy.tick()
    assert {event.facts["bid"] for event in toy.kinds("bid.requested")} == {"gpt-0-g1-me"}
    times = [event.at for event in toy.kinds("bid.requested")]
    gaps = [after - before for before, after in pairwise(times)]
    assert gaps == [5, 10, 20, 40, 80, 160, 300, 300]
    toy.losing = set()
    toy.run()
    assert len(toy.launches) == 1


def test_repeated_requests_come_before_new_ones() -> None:
    toy = Toy(*(slot(f"gpt-{number}", offers=(offer("a"),)) for number in range(4)))
    toy.desired = replace(toy.desired, creates_per_min=2)
    toy.losing = {Ask}
    toy.tick()
    first = {event.slot for event in toy.kinds("bid.requested")}
    toy.tick(61)
    assert {event.slot for event in toy.kinds("bid.requested")} == first
    assert len(toy.kinds("bid.requested")) == 4
    assert toy.last.wake_at == toy.now + 60
    assert "waiting for its turn" in toy.last.states["gpt-3"]


def test_an_older_attempt_still_running_is_stopped_before_anything_else() -> None:
    toy = running()
    toy.preempt()
    toy.run(until=Toy.running)
    toy.home.work["gpt-0-a1-me"] = {0: Process(started=toy.now)}
    found = again(toy)
    (stop,) = actions(found, Stop)
    assert (stop.attempt, stop.bid, stop.grace_s) == ("gpt-0-a1-me", toy.home.ask.bid, 30)
    stopped = toy.slot_history().attempt
    toy.losing = {Stop}
    toy.check = lambda: None  # type: ignore[method-assign]
    for _ in range(14):
        toy.tick()
    assert toy.slot_history().attempt == stopped
    times = [event.at for event in toy.kinds("attempt.stopping")]
    assert [after - before for before, after in pairwise(times)] == [35.0]


def test_a_node_whose_ended_attempt_can_not_be_stopped_is_replaced() -> None:
    toy = running()
    toy.preempt()
    toy.run(until=Toy.running)
    node, name = toy.home, toy.home.ask.bid
    node.work["gpt-0-a1-me"] = {0: Process(started=toy.now)}
    toy.losing, stopping = {Stop}, partial(toy.kinds, "attempt.stopping")
    toy.check = lambda: None  # type: ignore[method-assign]
    toy.run(until=lambda toy: len(stopping()) == HALTS_MAX)
    assert len(toy.toy_nodes) == 1, "no other was asked for"
    toy.losing = set()
    toy.run(until=lambda toy: name not in toy.toy_nodes)
    toy.run(until=Toy.running)
    assert "can't be ended" in toy.kinds("bid.withdrawn")[-1].facts["why"]


def test_a_stop_comes_before_other_steps_of_the_slot_and_overtakes_its_start() -> None:
    toy = running()
    busy = frozenset(["gpt-0"])
    started = toy.slot_history()
    attempt = started.attempt
    assert attempt
    young = replace(started, attempt=replace(attempt, started_at=None))
    for goal, slot_history in product((Goal.GONE, Goal.RUN), (started, young)):
        toy.change_job(goal=goal)
        bids = dict(slot_history.bids)
        if goal is Goal.RUN:
            bids[attempt.bid] = replace(bids[attempt.bid], notice_at=toy.now)
        toy.history = replace(toy.history, slots={"gpt-0": replace(slot_history, bids=bids)})
        assert len(actions(again(toy, working=busy), Stop)) == 1
        assert len(actions(again(toy), Stop)) == 1


def test_no_launch_while_the_last_attempt_may_run_elsewhere() -> None:
    toy = running()
    old = toy.home
    toy.home.cut = True
    toy.run(1000, until=lambda toy: len(toy.toy_nodes) > 1)
    toy.run(
        1000,
        until=lambda toy: sum(bool(one.prepared) for one in toy.slot_history().bids.values()) > 1,
    )
    toy.losing = {Withdraw}
    for _ in range(60):
        toy.tick()
    assert len(toy.launches) == 1
    attempt = toy.slot_history().attempt
    assert attempt and attempt.ended_at and not attempt.sure
    old.cut = False
    toy.run(until=lambda toy: len(toy.launches) == 2)
    assert all(one.ended for one in old.work["gpt-0-a1-me"].values())


def test_a_bid_that_reappears_after_its_withdrawal_is_withdrawn_again() -> None:
    toy = running(goal=Goal.IDLE)
    name = toy.kinds("bid.deleted")[0].facts["bid"]
    (ready,) = toy.sights().values()
    assert toy.last.survey_s == 60

    def found(request: RequestState | None = RequestState.ACTIVE, **changes: Any) -> EnginePlan:
        late = replace(ready, bid=name, zone="b", request=request)
        return again(toy, observations={**toy.sights(), name: late}, **changes)

    (withdraw,) = actions(found(), Withdraw)
    assert (withdraw.bid, withdraw.zone, withdraw.slot) == (name, "b", "gpt-0")
    assert found().survey_s == 5
    for request in (RequestState.ENDING, RequestState.LEAVING):
        assert not actions(found(request), Withdraw)
        assert found(request).survey_s == 5
    assert not actions(found(calling=frozenset([name])), Withdraw)
    silent = {
        f"x-{n}-g1-me": tuple(replace(one, reached=False) for one in words)
        for n in range(3)
        for words in toy.hosts().values()
    }
    others = {
        f"x-{n}": replace(
            toy.slot_history(), attempt=None, attempts=9,
            bids={f"x-{n}-g1-me": replace(bid, name=f"x-{n}-g1-me")},
        )
        for n in range(3)
        for bid in toy.slot_history().bids.values()
    }  # fmt: skip
    toy.history = replace(toy.history, slots={**toy.history.slots, **others})
    hosts = {**toy.hosts(), **silent}
    sights = {**toy.sights(), **{bid: replace(ready, bid=bid) for bid in silent}}
    late = {name: replace(ready, bid=name, zone="b")}
    frozen = again(toy, hosts=hosts, observations={**sights, **late})
    assert frozen.frozen and not actions(frozen, Withdraw)
    toy.change_job(goal=Goal.GONE)
    frozen = again(toy, hosts=hosts, observations={**sights, **late})
    assert frozen.frozen and name in {one.bid for one in actions(frozen, Withdraw)}


# ---- frozen --------------------------------------------------------------------------------------


def test_while_deletions_are_paused_only_removed_jobs_are_withdrawn() -> None:
    toy = swarm(4, lasts=2000, ticks=8)
    kept = [one for one in toy.toy_nodes.values() if one.ask.slot != "gpt-3"]
    for toy_node in kept:
        toy_node.cut = True
    toy.tick()
    assert toy.last.frozen and toy.last.survey_s <= 5 and toy.last.wake_at <= toy.now + 60
    assert toy.kinds("engine.deletions_paused")
    gone = {"gpt-3": replace(toy.desired.slots["gpt-3"], goal=Goal.GONE)}
    toy.desired = replace(toy.desired, slots={**toy.desired.slots, **gone})
    for _ in range(20):
        toy.tick()
    assert sorted(one.ask.slot for one in toy.toy_nodes.values()) == ["gpt-0", "gpt-1", "gpt-2"]
    assert len(toy.kinds("engine.deletions_paused")) == 1
    kept[0].request, kept[0].node = RequestState.LOST, NodeState.LOST
    kept[0].work.clear()
    for _ in range(6):
        toy.tick()
        assert toy.last.frozen
    assert kept[0].ends > 1e9
    assert len(toy.toy_nodes) > 3
    for toy_node in kept[1:]:
        toy_node.cut = False
    toy.tick()
    toy.tick()
    assert not toy.last.frozen
    assert len(toy.kinds("engine.deletions_resumed")) == 1


@pytest.mark.parametrize("goal", [Goal.RUN, Goal.IDLE])
def test_setup_that_only_a_change_of_the_job_can_mend_is_not_tried_again(goal: Goal) -> None:
    toy = Toy(slot(goal=goal, limits=Limits(failures=3)))
    why = "requirements.txt can't be installed: Because there is no version of tiny==9"

    def failing(step: Any, action: Any) -> None:
        hosts = [{"host": "w0", "exit": 78, "tail": []}]
        toy.tell("slot.setup_failed", step, bid=action.bid, message=why, hosts=hosts, unfit=True)

    toy.prepare = failing  # type: ignore[method-assign]
    toy.run(600)
    assert len(toy.kinds("slot.setup_failed")) == 1
    (gave_up,) = toy.kinds("slot.gave_up")
    assert gave_up.facts["why"] == f"it can't run like this: {why}"


# ---- what is worn --------------------------------------------------------------------------------


def test_chips_failing_twice_replace_the_node_but_not_forever() -> None:
    toy = Toy(slot(limits=Limits(failures=0)))
    toy.exit = 1
    launch = toy.launch

    def failing(step: Any, action: Launch) -> None:
        launch(step, action)
        for processes in toy.toy_nodes[action.bid].work.values():
            for process in processes.values():
                process.tail = ("RuntimeError: TPU initialization failed: busy",)

    toy.launch = failing  # type: ignore[method-assign]
    toy.run(1000)
    bids = [event.facts["bid"] for event in toy.kinds("attempt.launched")]
    assert len(bids) == 5
    assert len(set(bids)) == 3 and bids[0] == bids[1] and bids[2] == bids[3]
    assert [event.facts["node"] for event in toy.kinds("node.quarantined")] == [bids[0], bids[2]]
    assert "fail to initialize on every node" in toy.slot_history().gave_up_why


@pytest.mark.parametrize("goal", [Goal.RUN, Goal.IDLE])
def test_a_failing_setup_is_retried_with_pauses_and_gives_up(goal: Goal) -> None:
    toy = Toy(slot(goal=goal))

    def failing(step: Any, action: Prepare) -> None:
        hosts = [{"host": "w0", "exit": 1, "tail": []}]
        toy.tell("slot.setup_failed", step, bid=action.bid, message="pip failed", hosts=hosts)

    toy.prepare = failing  # type: ignore[method-assign]
    toy.run()
    times = [event.at for event in toy.kinds("slot.setup_failed")]
    assert len(times) == 4
    assert toy.slot_history().gave_up_why.endswith("pip failed")
    assert times[3] - times[2] >= 40
    assert not toy.toy_nodes


def test_an_unhealthy_node_works_until_its_successor_is_prepared() -> None:
    toy = running()
    old = toy.home
    old.node = NodeState.UNHEALTHY
    toy.losing = {Prepare}
    toy.run(until=lambda toy: any(one.ready_at for one in toy.slot_history().bids.values()
                                  if one.name != old.ask.bid))  # fmt: skip
    for _ in range(20):
        toy.tick()
    assert not toy.kinds("attempt.stopping")
    assert old.ends > 1e9
    toy.losing = set()
    toy.run(until=lambda toy: len(toy.launches) == 2)
    assert old.ends < 1e9


def test_exact_jobs_try_the_next_zone_only_after_their_patience() -> None:
    toy = Toy(slot(exact=True))
    toy.grants = lambda zone: 1e9
    toy.tick()
    asked_at = toy.now
    for late, gone in ((599.0, False), (600.0, True)):
        toy.now = asked_at + late
        found = again(toy)
        assert bool(actions(found, Withdraw)) == gone
        assert gone or found.wake_at == asked_at + 600
    alone = Toy(slot(exact=True, offers=(offer("a"),)))
    alone.grants = toy.grants
    alone.tick()
    alone.now += 900
    assert not actions(again(alone), Withdraw)
    unhealthy = running(exact=True)
    unhealthy.home.node = NodeState.UNHEALTHY
    unhealthy.run(until=lambda toy: bool(toy.kinds("attempt.stopping")))
    assert not unhealthy.kinds("bid.requested")[1:]


# ---- words ---------------------------------------------------------------------------------------


def state(toy: Toy, **changes: Any) -> str:
    return again(toy, **changes).states["gpt-0"]


def test_who_uses_the_chips_is_named_until_the_attempt_has_started() -> None:
    toy = Toy(slot(offers=(offer("a"),)))
    toy.losing = {Launch}
    toy.run(until=lambda toy: toy.slot_history().attempt is not None)
    name = next(iter(toy.toy_nodes))
    assert state(toy) == f"attempt 1 on {name} in a is being started"
    words = toy.hosts()[name]
    held = {name: (words[0], replace(words[1], held="`x` (pid 7 of ann) holds /dev/accel0"))}
    assert state(toy, hosts=held).endswith(
        f"is being started, once its chips are free: {name}/w1: {held[name][1].held}"
    )


def test_slot_messages() -> None:
    toy = Toy(slot(offers=(offer("a"), offer("b"))))
    assert state(toy, zones=frozenset()) == "requesting in a, b"
    toy.grants = lambda zone: 200.0 if zone == "a" else inf
    toy.tick()
    toy.tick()
    assert state(toy) == "waiting for capacity in a, b for less than a minute"
    for _ in range(30):
        toy.tick()
    assert state(toy) == "waiting for capacity in a, b for 2 min"
    toy.run(until=lambda toy: any(one.node for one in toy.toy_nodes.values()))
    assert state(toy) == "gpt-0-g1-me in a is being created (less than a minute so far)"
    name = "gpt-0-g1-me"
    toy.toy_nodes[name].cut = True
    toy.run(until=lambda toy: toy.toy_nodes[name].node is NodeState.READY)
    assert state(toy) == "gpt-0-g1-me in a is READY, 0 of 2 hosts reached"
    words = toy.hosts()[name]
    trouble = {name: (words[0], replace(words[1], trouble="key refused"))}
    assert state(toy, hosts=trouble).endswith("0 of 2 hosts reached: key refused")
    toy.toy_nodes[name].cut = False
    toy.losing = {Prepare, Launch}
    toy.tick()
    assert state(toy) == "gpt-0-g1-me in a is being set up"
    toy.losing = {Launch}
    toy.tick()
    toy.tick()
    assert state(toy) == "attempt 1 on gpt-0-g1-me in a is being started"
    toy.losing = set()
    toy.lasts = 1e9
    toy.run(until=Toy.running)
    for _ in range(13):
        toy.tick()
    assert state(toy) == "attempt 1 on gpt-0-g1-me in a has been running for 1 min"
    toy.home.cut = True
    assert state(toy).endswith(f"runs; not responding: {name}/w0, {name}/w1")
    toy.home.cut = False
    toy.change_job(goal=Goal.GONE)
    assert state(toy) == "not needed; attempt 1 is being stopped"
    toy.tick()
    toy.tick()
    assert state(toy) == f"not needed; deleting {name} (LEAVING)"
    toy.run()
    assert state(toy) == "not needed; nothing is left"


def test_slot_messages_about_problems() -> None:
    toy = running()
    name = toy.home.ask.bid
    toy.home.node = NodeState.UNHEALTHY
    toy.reboot()
    toy.tick()
    toy.tick()
    assert state(toy).startswith(f"{name} in a is unhealthy (UNHEALTHY), for less than a minute")
    toy.home.node = NodeState.UNKNOWN
    toy.tick()
    assert "in a state that herd does not know" in state(toy)
    toy = running()
    toy.home.deadly = True
    toy.losing = {Stop}
    toy.tick()
    assert "is being stopped: its node received a preemption notice" in state(toy)
    toy = running()
    toy.change_job(goal=Goal.IDLE)
    toy.run(until=Toy.has_ended_attempt)
    toy.home.work["gpt-0-a1-me"] = {0: Process(started=toy.now)}
    toy.losing = {Stop}
    toy.tick()
    assert "has ended; it was told to stop, 1 of 3 times" in state(toy)
    toy = running(limits=Limits(lifetime_s=200))
    toy.run(until=lambda toy: toy.now > 50_400)
    assert state(toy) == ("gave up: it has reached its lifetime of 3 min; nothing is left")


def test_slot_messages_about_kept_nodes() -> None:
    toy = Toy(slot(limits=Limits(done_keep_s=300)))
    toy.run(until=lambda toy: toy.slot_history().done_at is not None)
    assert state(toy) == "done; the node is kept for 5 min more"
    toy.run()
    assert state(toy) == "done; nothing is left"
    toy = Toy(slot(limits=Limits(done_keep_s=inf)))
    toy.run(until=lambda toy: toy.slot_history().done_at is not None)
    assert state(toy) == "done; the node stays until `herd down gpt`"
    toy = Toy(slot(limits=Limits(failures=0, failed_keep_s=300)))
    toy.exit = 1
    toy.run(until=lambda toy: toy.slot_history().gave_up_at is not None)
    assert state(toy).endswith("the node is kept for 5 min more")
    assert len(toy.toy_nodes) >= 1
    toy.run()
    toy = Toy(slot(goal=Goal.IDLE))
    toy.run(until=lambda toy: any(bid.prepared for bid in toy.slot_history().bids.values()))
    assert state(toy) == "gpt-0-g1-me in a is ready for use"


@pytest.mark.parametrize(
    ("refusal", "said"),
    [
        (Refusal.QUOTA, " (request more quota, or allow other zones); next request in 4 min"),
        (
            Refusal.RESERVATION,
            " (check that the reservation exists and has capacity); next request in 4 min",
        ),
        (
            Refusal.PERMISSION,
            " (grant the account roles/tpu.admin, or allow other zones); next request in 4 min",
        ),
        (Refusal.STOCKOUT, "; next request in less than a minute"),
    ],
)
def test_why_a_zone_is_not_asked_what_to_do_and_when_it_is(refusal: Refusal, said: str) -> None:
    toy = Toy(slot())
    toy.refuses = {"b": refusal}
    toy.grants = lambda zone: 1e9
    toy.tick()
    toy.tick()
    toy.tick()
    assert state(toy) == f"waiting for capacity in a, c for less than a minute; b: no{said}"


def test_a_failed_attempt_waits_its_pause_and_says_why() -> None:
    toy = Toy(slot())
    toy.exit = 1
    toy.run(until=lambda toy: len(toy.kinds("attempt.ended")) == 3)
    assert "will be tried again soon: gpt-0-g1-me/w0 exited with 1" in state(toy)
    assert again(toy).wake_at <= toy.now + 20


def test_a_job_without_slots_is_at_rest() -> None:
    found = plan(DesiredSlots(slots={}, owner="me"), ObservedState(), Toy().history, 1.0)
    assert found.rest and not found.steps and found.survey_s == 60


def test_the_verdict_of_a_stop_by_the_user_says_so() -> None:
    toy = running()
    toy.change_job(goal=Goal.IDLE)
    toy.run(until=lambda toy: not toy.running())
    attempt = toy.slot_history().attempt
    assert attempt and attempt.verdict is Verdict.STOPPED
    assert attempt.stopping_why == "the job should not run now"


def test_a_run_under_another_name_is_ignored() -> None:
    toy = running()
    alien = HostRun(attempt="other-0-a9-me", word=next(iter(toy.hosts().values()))[0].works[0].word)
    hosts = {
        name: tuple(replace(one, works=(*one.works, alien)) for one in words)
        for name, words in toy.hosts().items()
    }
    stops = actions(again(toy, hosts=hosts), Stop)
    assert [stop.attempt for stop in stops] == ["other-0-a9-me"]


# ---- how often the cloud is looked at ------------------------------------------------------------


def test_the_cloud_is_surveyed_often_while_work_is_open() -> None:
    toy = Toy(slot())
    toy.tick()
    assert toy.tick().survey_s == 5
    toy = running()
    assert toy.last.survey_s == 5
    ended = with_works(toy, ended=toy.now, exit=0, word=RunState.ENDED)
    assert ended.survey_s == 3
    idle = Toy(slot(goal=Goal.IDLE))
    idle.run(until=lambda toy: any(bid.prepared for bid in toy.slot_history().bids.values()))
    for _ in range(12):
        idle.tick()
    assert idle.last.survey_s == 60
    (toy_node,) = idle.toy_nodes.values()
    for word, survey_s in ((NodeState.READY, 60), (NodeState.UNHEALTHY, 5), (NodeState.MAKING, 5)):
        toy_node.node = word
        assert again(idle).survey_s == survey_s
    toy_node.node, toy_node.cut = NodeState.READY, True
    for silent_s, look_s in ((FELL_SILENT_S - 1, SILENT_LOOK_S), (FELL_SILENT_S, 5)):
        toy_node.heard = idle.now - silent_s
        assert again(idle).survey_s == look_s
    toy_node.cut = False
    late = replace(toy_node, ask=replace(toy_node.ask, bid="gpt-0-g2-me"))
    idle.toy_nodes["gpt-0-g2-me"] = late
    assert again(idle).survey_s == 5
