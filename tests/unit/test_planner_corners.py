"""Rare cases of the planner, one rule each, found by mutation tests."""

from dataclasses import replace
from typing import Any

import pytest

from tests.unit.planner_scenes import (
    ATTEMPT,
    NAME,
    NOW,
    actions,
    again,
    bid,
    case,
    host,
    running,
    seen,
    stood,
    with_works,
)
from tests.unit.toy_cloud import Toy, offer, slot
from tpuherd.history.apply_zone_events import zone_stats_key
from tpuherd.model.observed import HostRun, NodeState, RunState
from tpuherd.model.slot_history import AttemptRecord, History, SlotHistory, Verdict, ZoneStats
from tpuherd.model.slots_and_plan import (
    Ask,
    Collect,
    DesiredSlots,
    Goal,
    Limits,
    Prepare,
    RecordEvent,
    Refusal,
    RequestKind,
    Stop,
)
from tpuherd.planner import bidding, gang_actions, gang_progress
from tpuherd.planner.bid_status import NodeNeed
from tpuherd.planner.gang_progress import Pending, describe_end
from tpuherd.planner.plan import attempt_number, build_plan_context, plan
from tpuherd.planner.policy import BidPhase, GangState, Role
from tpuherd.planner.verdict import judge_attempt
from tpuherd.planner.zone_choice import sort_offers

# ---- gangs ---------------------------------------------------------------------------------------


def test_a_withdrawn_bid_keeps_the_seat_where_it_ran() -> None:
    here, other = (
        stood(role=Role.UNWANTED, bid=bid(name=name, ready_at=2.0)) for name in ("x", "y")
    )
    for order in ((here, other), (other, here)):
        found = gang_actions.gang_bid(case(*order, need=NodeNeed.NONE, home=here))
        assert found is here
    found = gang_actions.gang_bid(case(here, need=NodeNeed.NONE))
    assert found is here
    assert gang_actions.gang_bid(case(here, need=NodeNeed.SEEK)) is None
    assert gang_actions.gang_bid(case(stood(role=Role.OUTDATED), need=NodeNeed.NONE)) is None
    assert (
        gang_actions.gang_bid(case(stood(role=Role.UNWANTED, bid=bid()), need=NodeNeed.NONE))
        is None
    )


def test_silent_hosts_are_told_apart_from_hosts_not_yet_reached() -> None:
    far = (host(0, reached=False), host(1, reached=False))
    never = tuple(replace(one, heard_at=0.0) for one in far)
    sick = bid(granted_at=1.0, ready_at=2.0, unhealthy_at=3.0)
    for one, shape in [
        (stood(), GangState.BARE),
        (stood(stage=BidPhase.HIDDEN), GangState.BARE),
        (stood(hosts=far, whole=False), GangState.SILENT),
        (stood(hosts=never, whole=False), GangState.BOOTING),
        (stood(hosts=never, whole=False, stage=BidPhase.UNHEALTHY), GangState.SILENT),
        (stood(hosts=never, whole=False, stage=BidPhase.HIDDEN), GangState.SILENT),
        (stood(stage=BidPhase.UNHEALTHY), GangState.SILENT),
        (stood(bid=sick), GangState.SILENT),
        (stood(bid=bid(granted_at=1.0)), GangState.BOOTING),
        (stood(stage=BidPhase.UNKNOWN), GangState.UNKNOWN),
        (stood(stage=BidPhase.CALLING), GangState.UNKNOWN),
    ]:
        assert gang_actions.gang_state(case(one), one) is shape, one
    assert gang_actions.gang_state(case(), None) is GangState.NOWHERE


def test_a_host_without_reports_is_quiet_since_the_whole_gang_knew_the_attempt() -> None:
    toy = running()
    attempt = toy.slot_history().attempt
    assert attempt
    for ago, stalls in ((2700.0, True), (2699.0, False)):
        young = replace(attempt, started_at=toy.now - ago, launched_at=toy.now - 9000)
        toy.history = replace(
            toy.history, slots={"gpt-0": replace(toy.slot_history(), attempt=young)}
        )
        mute = {"started": None, "logged_at": None, "stepped_at": None}
        assert bool(actions(with_works(toy, **mute), Stop)) == stalls


def test_an_unheard_stop_is_sent_again() -> None:
    toy = running()
    toy.losing = {Stop}
    toy.change_job(goal=Goal.IDLE)
    toy.tick()
    (first,) = actions(toy.last, Stop)
    toy.tick(4.0)
    assert not actions(toy.last, Stop)
    toy.tick(2.0)
    assert actions(toy.last, Stop) == [first]
    assert toy.last.steps[-1].why == "the job should not run now"
    assert not actions(again(toy, working=frozenset(["gpt-0"])), Stop)


def test_an_unhealthy_successor_is_not_prepared() -> None:
    toy = running()
    old = toy.home.ask.bid
    toy.losing = {Prepare}
    toy.change_job(offers=(offer("a", type="v5"),))
    toy.run(until=lambda toy: any(one.ready_at for one in toy.slot_history().bids.values()
                                  if one.name != old))  # fmt: skip
    toy.tick()
    new = next(one for name, one in toy.things.items() if name != old)
    assert [one.bid for one in actions(again(toy), Prepare)] == [new.ask.bid]
    for word in (NodeState.UNHEALTHY, NodeState.MAKING, NodeState.UNKNOWN):
        new.node = word
        assert not actions(again(toy, hosts=toy.hosts()), Prepare), word
    new.node = NodeState.READY
    new.cut = True
    assert not actions(again(toy), Prepare)


def test_an_attempt_on_an_unreachable_node_may_still_run() -> None:
    def haunted(**changes: Any) -> bool:
        here, attempt = stood(**changes), replace(ATTEMPT, ended_at=NOW - 9, sure=False)
        new = stood(bid=bid(name="gpt-0-g2-me", generation=2))
        one = case(here, new, home=here)
        one.slot_history = replace(one.slot_history, attempt=attempt)
        return gang_actions.may_still_run_elsewhere(one, new)

    runs = HostRun(attempt=ATTEMPT.id, word=RunState.RUNNING)
    over = replace(runs, word=RunState.ENDED)
    assert haunted(hosts=(), whole=False)
    assert haunted(hosts=(host(0, works=(over,)),), whole=False)
    assert haunted(hosts=(host(0, works=(runs,)),))
    assert not haunted(hosts=(host(0, works=(over,)),))
    assert not haunted(hosts=(), whole=False, stage=BidPhase.LEAVING)


def test_collected_outputs_are_not_collected_again() -> None:
    toy = Toy(slot(outputs=True, limits=Limits(done_keep_s=300)))
    toy.run()
    assert len(toy.kinds("slot.collected")) == 1
    toy = running(outputs=True)
    toy.losing = {Collect}
    toy.home.work[toy.launches[0]][0].ended = toy.now
    toy.lasts = 0.0
    toy.run(until=lambda toy: bool(actions(toy.last, Collect)))
    hosts = {
        name: (words[0], replace(words[1], reached=False)) for name, words in toy.hosts().items()
    }
    assert actions(again(toy), Collect)
    assert not actions(again(toy, hosts=hosts), Collect)


def test_a_reboot_is_detected_only_if_both_boots_are_known() -> None:
    for boot, boots, rebooted in [
        ("b0", ("b0", "b1"), False), ("b2", ("b0", "b1"), True), ("", ("b0", "b1"), False),
        ("b2", (), False), ("", (), False),
    ]:  # fmt: skip
        runs = HostRun(attempt=ATTEMPT.id, word=RunState.RUNNING)
        found = gang_progress.build_member(
            host(0, boot=boot, works=(runs,)), replace(ATTEMPT, boots=boots)
        )
        assert (found.lost, found.over) == (f"{NAME}/w0 was rebooted" * rebooted, rebooted)


def test_an_attempt_ended_by_the_dead_man_switch_did_not_end_by_itself() -> None:
    over = HostRun(attempt=ATTEMPT.id, word=RunState.ENDED, exit=1, deadman=True)
    found = gang_progress.build_member(host(0, works=(over,)), ATTEMPT)
    assert found.lost == "no engine contacted its host for too long" and not found.has_failed
    for word in (RunState.RUNNING, RunState.ENDING):
        assert not gang_progress.build_member(
            host(0, works=(replace(over, word=word),)), ATTEMPT
        ).lost
    assert not gang_progress.build_member(
        host(0, works=(replace(over, deadman=False),)), ATTEMPT
    ).lost


def test_how_an_end_is_described() -> None:
    work = HostRun(attempt="x", word=RunState.ENDED, exit=3, signal=9, termed=True)
    assert describe_end(work) == "was stopped"
    assert describe_end(replace(work, termed=False)) == "was killed by signal 9"
    assert describe_end(replace(work, termed=False, signal=None)) == "exited with 3"
    assert describe_end(None) == "is gone"


# ---- the verdict ---------------------------------------------------------------------------------


def verdict_of(work: HostRun, attempt: AttemptRecord = ATTEMPT, **changes: Any) -> Any:
    """What two hosts that say the same come to."""
    hosts = tuple(host(one, works=(work,)) for one in range(2))
    observed = replace(seen(hosts={NAME: hosts}), **changes)
    slot_history = SlotHistory(attempt=replace(attempt, started_at=NOW - 40, boots=("b0", "b1")))
    return judge_attempt(slot(), slot_history, bid(granted_at=1.0, ready_at=2.0), observed, NOW)


def test_a_survey_counts_if_it_began_after_the_end() -> None:
    well = HostRun(attempt=ATTEMPT.id, word=RunState.ENDED, exit=0, ended=NOW - 5)
    assert isinstance(verdict_of(well, surveyed_at=NOW - 5), Pending)
    assert verdict_of(well, surveyed_at=NOW - 4.9).verdict is Verdict.SUCCESS


def test_a_success_before_our_stop_arrived_is_a_success() -> None:
    stopping = replace(ATTEMPT, stopping_at=NOW - 6, stopping_why="changed", stopping_s=30.0)
    well = HostRun(attempt=ATTEMPT.id, word=RunState.ENDED, exit=0, ended=NOW - 5)
    assert verdict_of(well, stopping).verdict is Verdict.SUCCESS
    assert verdict_of(replace(well, termed=True), stopping).verdict is Verdict.STOPPED
    assert verdict_of(replace(well, exit=75), stopping).verdict is Verdict.STOPPED
    one = (host(0, works=(well,)), host(1, works=(replace(well, termed=True),)))
    assert verdict_of(well, stopping, hosts={NAME: one}).verdict is Verdict.STOPPED


def test_after_a_notice_the_cloud_is_surveyed_soon() -> None:
    runs = HostRun(attempt=ATTEMPT.id, word=RunState.RUNNING)
    hosts = tuple(host(one, works=(runs,)) for one in range(2))
    mine = bid(granted_at=1.0, ready_at=2.0, notice_at=NOW - 1)
    slot_history = SlotHistory(attempt=replace(ATTEMPT, started_at=NOW - 40, boots=("b0", "b1")))
    found = judge_attempt(slot(), slot_history, mine, seen(hosts={NAME: hosts}), NOW)
    assert isinstance(found, Pending) and found.held and found.wake_at == NOW - 1 + 25 + 5


def test_only_reports_of_this_attempt_count_for_it() -> None:
    well = HostRun(attempt=ATTEMPT.id, word=RunState.ENDED, exit=0, ended=NOW - 5)
    other = HostRun(attempt="gpt-0-a0-me", word=RunState.RUNNING)
    for works in ((other, well), (well, other)):
        hosts = tuple(host(one, works=works) for one in range(2))
        assert verdict_of(well, hosts={NAME: hosts}).verdict is Verdict.SUCCESS
    young = replace(well, word=RunState.RUNNING, exit=None, ended=None)
    ended = replace(other, word=RunState.ENDED)
    hosts = tuple(host(one, works=(ended, young)) for one in range(2))
    assert verdict_of(young, hosts={NAME: hosts}) == Pending()


@pytest.mark.parametrize("change", [{"code_digest": "d"}, {"goal": Goal.RUN, "code_digest": "e"}])
def test_a_run_that_ended_before_its_stop_arrived_is_done(change: dict[str, Any]) -> None:
    toy = running()
    toy.losing = {Stop}  # no host responds
    toy.change_job(**change)
    toy.tick()
    assert actions(toy.last, Stop)
    for process in toy.home.work[toy.launches[0]].values():
        process.ended, process.exit = toy.now, 0
    toy.run()
    assert len(toy.launches) == 1
    assert toy.slot_history().done_at is not None


# ---- bids ----------------------------------------------------------------------------------------


def test_two_slots_probe_once_after_a_refusal() -> None:
    direct = (offer("a", kind=RequestKind.DIRECT),)
    for offers, many in ((direct, 1), ((offer("a"),), 2)):
        toy = Toy(slot("gpt-0", offers=offers), slot("gpt-1", offers=offers))
        toy.refuses = {"a": Refusal.STOCKOUT}
        toy.tick()
        toy.run(until=lambda toy: not any(one.bids for one in toy.history.slots.values()))
        toy.now += 7200
        assert len(actions(again(toy), Ask)) == many


def test_an_unknown_price_counts_as_zero() -> None:
    dear, free, unknown = offer("a", price=0.5), offer("b", price=0.0), offer("c", price=None)
    assert [one.zone for one in sort_offers([dear, unknown, free], {})] == ["b", "c", "a"]


def test_zones_with_known_node_lifetimes_come_before_unknown_ones() -> None:
    lives = {zone_stats_key(offer("b")): ZoneStats(lives_s=(0.5,))}
    assert [one.zone for one in sort_offers([offer("a"), offer("b")], lives)] == ["b", "a"]


def test_a_slot_with_a_fixed_name_withdraws_the_old_node_first() -> None:
    silent = (host(0, reached=False, heard_at=1.0), host(1))
    for exact, outdated, unhealthy in (
        (True, Role.DEAD, Role.DEAD),
        (False, Role.OUTDATED, Role.UNHEALTHY),
    ):
        wanted_slot = slot(exact=exact, node_digest="m")
        assert bidding.fixed_role(case(slot=wanted_slot), stood())[0] is outdated
        wanted_slot = slot(exact=exact)
        assert bidding.fixed_role(case(slot=wanted_slot), stood())[0] is Role.INCUMBENT
        old = stood(hosts=silent, whole=False)
        assert bidding.fixed_role(case(slot=wanted_slot), old)[0] is unhealthy


def test_a_log_is_complete_when_all_reachable_hosts_have_sent_theirs() -> None:
    mine = HostRun(attempt=ATTEMPT.id, word=RunState.ENDED, drained=True)
    late, other = replace(mine, drained=False), replace(mine, attempt="x", drained=False)
    for first, second, reached, waits in [
        ((mine,), (mine,), True, False), ((mine,), (late,), True, True),
        ((late,), (mine,), True, True), ((mine,), (late,), False, False),
        ((mine,), (mine, other), True, False), ((mine,), (), True, False),
    ]:  # fmt: skip
        one = stood(hosts=(host(0, works=first), host(1, works=second, reached=reached)))
        assert bidding.has_undrained_log(one, ATTEMPT.id) == waits


def test_a_failed_setup_is_not_retried_at_once() -> None:
    for missing, failed in ((True, None), (False, None), (False, 1)):
        toy = Toy(slot())
        hosts = [{"host": "w0", "exit": failed, "tail": list[str]()}]
        facts: dict[str, Any] = {"message": "no", "hosts": hosts, "missing": missing}
        toy.prepare = lambda step, action, toy=toy, facts=facts: toy.tell(  # type: ignore[method-assign, misc]
            "slot.setup_failed", step, bid=action.bid, **facts
        )
        toy.run(until=lambda toy: bool(toy.kinds("slot.setup_failed")))
        soon = replace(toy.observed())
        assert not actions(again(toy, surveyed_at=soon.surveyed_at), Prepare)
        assert again(toy).wake_at <= toy.now + 10
        toy.run(until=lambda toy: len(toy.kinds("slot.setup_failed")) == 2)
        first, second = (event.at for event in toy.kinds("slot.setup_failed"))
        assert second - first == 10


# ---- the whole -----------------------------------------------------------------------------------


def test_while_deletions_are_paused_the_plan_wakes_within_a_minute() -> None:
    toy = running()
    names = [f"x-{number}-g1-me" for number in range(3)]
    (mine,) = toy.slot_history().bids.values()
    others = {
        name[:3]: SlotHistory(bids={name: replace(mine, name=name, slot=name[:3])})
        for name in names
    }
    toy.history = replace(toy.history, slots={**toy.history.slots, **others})
    toy.home.cut = True
    found = again(toy, observations={}, hosts={})
    assert found.frozen and found.survey_s == 5
    assert toy.now < found.wake_at <= toy.now + 60
    assert all(one.action.event.kind == "engine.deletions_paused" for one in found.steps[:1])  # type: ignore[union-attr]


def test_only_a_waiting_slot_probes_for_the_others() -> None:
    direct = bid(offer=offer("a", kind=RequestKind.DIRECT))
    for one, tries in [
        (direct, True), (replace(direct, granted_at=1.0), False), (bid(), False),
        (replace(direct, refusal=Refusal.STOCKOUT), False),
        (replace(direct, withdrawn_at=1.0), False),
    ]:  # fmt: skip
        slot_history = SlotHistory(bids={NAME: one})
        desired = DesiredSlots(slots={}, owner="me")
        found = build_plan_context(desired, seen(), History(slots={"gpt-0": slot_history}), NOW)
        assert (("a", "v4-16", "spot") in found.probed) == tries, one


def test_the_plan_wakes_when_a_kept_node_expires() -> None:
    keeps = Limits(failures=0, done_keep_s=777, failed_keep_s=777)
    for exit_code in (0, 1):
        toy = Toy(slot(limits=keeps))
        toy.exit = exit_code
        toy.run(until=lambda toy: bool(toy.slot_history().done_at or toy.slot_history().gave_up_at))
        for _ in range(20):
            toy.tick()
        end = toy.slot_history().done_at or toy.slot_history().gave_up_at
        assert end is not None
        assert toy.last.wake_at == end + 777


def test_an_attempt_whose_bid_is_forgotten_is_lost() -> None:
    slot_history = SlotHistory(attempt=replace(ATTEMPT, started_at=NOW - 40), attempts=1)
    desired = DesiredSlots(slots={"gpt-0": slot()}, owner="me")
    found = plan(desired, seen(), History(slots={"gpt-0": slot_history}), NOW)
    (record, *asks) = (step.action for step in found.steps)
    assert isinstance(record, RecordEvent) and record.event.facts["verdict"] == "lost"
    assert len(asks) == 3


def test_a_success_on_a_lost_node_is_done_and_names_missing_outputs() -> None:
    lost = bid(granted_at=1.0, ready_at=2.0, lost_at=3.0, lost_how="preempted")
    for outputs, collected, bids, missing in [
        (True, False, [lost], True), (True, True, [replace(lost, collected=True)], False),
        (False, False, [lost], False), (True, False, [], True), (False, False, [], False),
    ]:  # fmt: skip
        attempt = replace(ATTEMPT, ended_at=NOW - 5, verdict=Verdict.SUCCESS)
        slot_history = SlotHistory(
            attempt=attempt, attempts=1, bids={one.name: one for one in bids}
        )
        desired = DesiredSlots(slots={"gpt-0": slot(outputs=outputs)}, owner="me")
        found = plan(desired, seen(), History(slots={"gpt-0": slot_history}), NOW)
        (done,) = (one for one in actions(found, RecordEvent) if one.event.kind == "slot.done")
        assert ("before its outputs" in done.event.facts["why"]) == missing, (outputs, collected)


def test_an_attempt_number_is_read_from_names_of_the_same_slot() -> None:
    names = {"gpt-0-a3-7kq": 3, "gpt-0-a12-me": 12, "gpt-0-ax-me": 0, "other-0-a9-me": 0,
             "gpt-0-a-me": 0, "gpt-00-a4-me": 0}  # fmt: skip
    assert {name: attempt_number(name, "gpt-0") for name in names} == names


def test_a_limit_waits_for_outputs_with_or_without_other_nodes() -> None:
    toy = running(outputs=True, limits=Limits(lifetime_s=400))
    toy.losing = {Collect}
    old = toy.home.ask.bid
    toy.change_job(offers=(offer("a", type="v5"),))
    toy.grants = lambda zone: 1e9
    toy.run(until=lambda toy: bool(toy.kinds("attempt.stopping")))
    assert len(toy.things) == 2
    for _ in range(20):
        toy.tick()
    assert old in toy.things and toy.slot_history().gave_up_at is None
    toy.losing = set()
    toy.run()
    assert toy.kinds("slot.collected") and "lifetime" in toy.slot_history().gave_up_why


def test_the_plan_wakes_when_the_wait_for_other_hosts_is_over() -> None:
    toy = running()
    toy.home.work[toy.launches[0]][1].ended = toy.now
    toy.home.work[toy.launches[0]][1].exit = 1
    assert again(toy).wake_at == toy.now + 20
