"""When the planner wants to run again if nothing happens: no later, and not at once."""

from dataclasses import replace
from math import inf

from tests.unit.planner_scenes import (  # fmt: skip
    NAME,
    NOW,
    actions,
    again,
    bid,
    case,
    host,
    running,
    seen,
    sight,
)
from tests.unit.toy_cloud import Toy, offer, slot
from tpuherd.model.observed import HostRun, HostStatus, NodeState, RunState
from tpuherd.model.slot_history import AttemptRecord, GiveUpCode, History, SlotHistory
from tpuherd.model.slots_and_plan import (
    Collect,
    DesiredSlots,
    Goal,
    Limits,
    Withdraw,
)
from tpuherd.planner.bid_status import SILENT_S, BidStatus
from tpuherd.planner.bidding import DRAIN_S, FELL_SILENT_S, is_log_draining
from tpuherd.planner.gang_progress import LAUNCH_S
from tpuherd.planner.observations_to_events import find_bid_events
from tpuherd.planner.plan import find_orphans, plan
from tpuherd.planner.policy import BidPhase
from tpuherd.planner.retry_limits import limit_times, reached_limit
from tpuherd.planner.slot_input import PlanContext, SlotContext


def blank(slot_history: SlotHistory | None = None) -> SlotContext:
    """A slot before any decision."""
    world = PlanContext(
        desired=DesiredSlots(slots={}, owner="me"), observed=seen(), history=History(), now=NOW,
        sure=True, frozen="", unknown={}, probed=set(),
    )  # fmt: skip
    return SlotContext(
        world=world, slot=slot(), slot_history=slot_history or SlotHistory(), now=NOW
    )


def test_the_plan_wakes_at_the_earliest_time_and_never_in_the_past() -> None:
    for times, wake_at in [
        ((), inf),
        ((NOW,), inf),
        ((NOW - 1,), inf),
        ((NOW + 1,), NOW + 1),
        ((NOW + 9, NOW + 4, NOW - 4, NOW + 7), NOW + 4),
    ]:
        case = blank()
        for at in times:
            case.wake_by(at)
        assert case.wake_at == wake_at
    case = blank()
    for seconds in (9.0, 5.0, 7.0):
        case.survey_within(seconds)
    assert case.survey_s == 5.0


def test_a_slot_that_gives_up_is_planned_again_at_once() -> None:
    case = blank()
    case.give_up(GiveUpCode.IDLE, "so")
    assert case.wake_at == NOW


def test_the_plan_wakes_when_a_limit_is_reached() -> None:
    for limits in (Limits(lifetime_s=500.0), Limits(cost=0.5)):
        toy = running(limits=limits)
        slot_history = toy.slot_history()
        assert slot_history.first_launch_at is not None
        (mine,) = slot_history.bids.values()
        assert mine.ready_at is not None and mine.offer.price is not None
        due = min(
            slot_history.first_launch_at + limits.lifetime_s,
            mine.ready_at + 3600.0 * (limits.cost - slot_history.spent) / mine.offer.price,
        )
        assert abs(again(toy).wake_at - due) < 1e-6


def test_while_deletions_are_paused_the_cloud_is_surveyed_often() -> None:
    far = {f"gpt-{number}-g1-me": f"gpt-{number}" for number in range(3)}
    history = History(
        slots={
            where: SlotHistory(
                bids={name: bid(name=name, slot=where, granted_at=1.0, ready_at=2.0, prepared="c")}
            )
            for name, where in far.items()
        },
        frozen_at=NOW - 1,
    )
    silent = [host(n, reached=False, heard_at=NOW - FELL_SILENT_S) for n in (0, 1)]
    hosts = {name: tuple(replace(one, node=name) for one in silent) for name in far}
    sights = {name: replace(sight(NodeState.READY), bid=name) for name in far}
    observed = seen(observations=sights, hosts=hosts)
    begun = AttemptRecord(id="x", number=1, bid=NAME, code_digest="c", launched_at=NOW - 1)
    for attempt, survey_s, wake_at in [
        (None, 5.0, NOW + SILENT_S - FELL_SILENT_S),
        (begun, 3.0, NOW - 1 + LAUNCH_S),
    ]:
        slots = {where: slot(where) for where in far.values()}
        held = replace(history.slots["gpt-0"], attempt=attempt)
        lived = replace(history, slots={**history.slots, "gpt-0": held})
        found = plan(DesiredSlots(slots=slots, owner="me"), observed, lived, NOW)
        assert found.frozen
        assert (found.survey_s, found.wake_at) == (survey_s, wake_at)


def test_the_last_log_lines_are_waited_for_to_the_second() -> None:
    def lines(drained: bool) -> tuple[HostStatus, ...]:
        work = HostRun(attempt="gpt-0-a1-me", word=RunState.ENDED, exit=1, drained=drained)
        return (host(0, works=(work,)),)

    for ago, drained, waits in [
        (DRAIN_S - 1, False, True),
        (DRAIN_S, False, False),
        (DRAIN_S - 1, True, False),
    ]:
        attempt = AttemptRecord(
            id="gpt-0-a1-me", number=1, bid=NAME, code_digest="c", launched_at=1.0,
            ended_at=NOW - ago,
        )  # fmt: skip
        case = blank(SlotHistory(attempt=attempt))
        one = BidStatus(
            bid=bid(), stage=BidPhase.READY, observation=None, hosts=lines(drained), whole=True
        )  # fmt: skip
        assert is_log_draining(case, one) == waits
        assert case.wake_at == (NOW - ago + DRAIN_S if waits else inf)


def test_unwanted_bids_are_withdrawn_only_after_a_recorded_removal() -> None:
    """Jobs may be lost with their store: then their nodes are shown, and left alone."""
    bids = [bid(), bid(name="gpt-0-g2-me", generation=2)]
    for taken_back, dropped, wanted in [
        (0, False, False), (1, False, False), (2, False, False),
        (0, True, False), (0, False, True),
    ]:  # fmt: skip
        known = [
            replace(one, withdrawn_at=NOW - 50, withdrawals=1) if place < taken_back else one
            for place, one in enumerate(bids)
        ]
        slot_history = SlotHistory(
            bids={one.name: one for one in known}, dropped=dropped, generation=2
        )
        slots = {"gpt-1": slot("gpt-1", goal=Goal.IDLE)} if wanted else {}
        sights = {one.name: replace(sight(NodeState.READY), bid=one.name) for one in known}
        desired, history = (
            DesiredSlots(slots=slots, owner="me"),
            History(slots={"gpt-0": slot_history}),
        )
        observed = seen(observations=sights)
        found = plan(desired, observed, history, NOW)
        mine = taken_back == len(bids) or dropped or wanted
        assert ("gpt-0" in found.states) == mine
        assert {one.bid for one in find_orphans(desired, observed, history)} == (
            set() if mine else set(sights)
        )


def test_of_a_finished_slot_only_reappearing_bids_are_mentioned() -> None:
    history = History(slots={"gpt-0": SlotHistory(gone=(1,), generation=1, dropped=True)})
    ghost = {NAME: sight(NodeState.READY)}
    for sights, told in (({}, False), (ghost, True)):
        found = plan(DesiredSlots(slots={}, owner="me"), seen(observations=sights), history, NOW)
        assert ("gpt-0" in found.states) == told
        assert bool(actions(found, Withdraw)) == told


def test_a_withdrawn_node_being_deleted_is_left_alone() -> None:
    history = History(slots={"gpt-0": SlotHistory(gone=(1,), generation=1, dropped=True)})
    found = plan(
        DesiredSlots(slots={}, owner="me"),
        seen(observations={NAME: sight(NodeState.LEAVING)}),
        history,
        NOW,
    )
    assert not actions(found, Withdraw)


def test_a_toy_world_at_rest_needs_nothing() -> None:
    toy = Toy(slot(goal=Goal.GONE))
    found = again(toy)
    assert found.rest and found.wake_at == inf and not found.steps


def test_the_plan_wakes_when_a_kept_node_expires() -> None:
    keep = Limits(done_keep_s=50, failed_keep_s=70)
    for goal, done, gave_up, wake_at in [
        (Goal.RUN, NOW - 1, None, NOW + 49),
        (Goal.RUN, None, NOW - 1, NOW + 69),
        (Goal.IDLE, None, NOW - 1, NOW + 69),
        (Goal.RUN, NOW - 50, None, inf),
        (Goal.GONE, NOW - 1, NOW - 1, inf),
    ]:
        one = slot(goal=goal, limits=keep)
        slot_history = SlotHistory(done_at=done, gave_up_at=gave_up)
        desired = DesiredSlots(slots={one.name: one}, owner="me")
        found = plan(desired, seen(), History(slots={one.name: slot_history}), NOW)
        assert found.wake_at == wake_at, (goal, done, gave_up)


def test_the_plan_wakes_when_the_cost_limit_is_reached() -> None:
    wanted_slot = slot(limits=Limits(cost=7.0))
    for prices, due_s in [((4.0,), 5400.0 - 900.0), ((4.0, 2.0), 3600.0 - 600.0), ((None,), inf)]:
        bids = [
            bid(
                name=f"gpt-0-g{place}-me",
                granted_at=NOW - (900.0 if len(prices) == 1 else 600.0),
                offer=offer("a", price=price),
            )
            for place, price in enumerate(prices, 1)
        ]
        slot_history = SlotHistory(bids={one.name: one for one in bids}, spent=1.0)
        assert min(limit_times(wanted_slot, slot_history, NOW), default=inf) == NOW + due_s


def test_forgiven_failures_are_described_in_words() -> None:
    for most, said in [(0, "none is"), (1, "1 is"), (2, "2 are"), (3, "3 are")]:
        wanted_slot = slot(limits=Limits(stalls=most))
        found = reached_limit(wanted_slot, SlotHistory(stalls=most + 1), NOW)
        assert found is not None and f", {said} forgiven" in found.why


def test_nothing_is_recorded_about_unobserved_bids() -> None:
    missed = bid(granted_at=1.0, ready_at=2.0, missed_at=NOW - 9)
    for stage in (BidPhase.CALLING, BidPhase.HIDDEN):
        assert not list(find_bid_events(missed, stage, sight(NodeState.READY), ()))


def test_without_open_work_the_cloud_is_surveyed_once_a_minute() -> None:
    assert case().survey_s == 60.0
    assert again(Toy()).survey_s == 60.0


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


def test_a_finished_job_wakes_the_plan_when_its_node_expires() -> None:
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


def test_a_limit_waits_for_outputs_with_or_without_other_nodes() -> None:
    toy = running(outputs=True, limits=Limits(lifetime_s=400))
    toy.losing = {Collect}
    old = toy.home.ask.bid
    toy.change_job(offers=(offer("a", type="v5"),))
    toy.grants = lambda zone: 1e9
    toy.run(until=lambda toy: bool(toy.kinds("attempt.stopping")))
    assert len(toy.toy_nodes) == 2
    for _ in range(20):
        toy.tick()
    assert old in toy.toy_nodes and toy.slot_history().gave_up_at is None
    toy.losing = set()
    toy.run()
    assert toy.kinds("slot.collected") and "lifetime" in toy.slot_history().gave_up_why


def test_the_plan_wakes_when_the_wait_for_other_hosts_is_over() -> None:
    toy = running()
    toy.home.work[toy.launches[0]][1].ended = toy.now
    toy.home.work[toy.launches[0]][1].exit = 1
    assert again(toy).wake_at == toy.now + 20
