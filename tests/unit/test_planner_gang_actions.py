"""What is done with a gang when several bids or several reasons apply at once."""

from dataclasses import replace
from itertools import product
from math import inf
from typing import Any

from tests.unit.planner_scenes import NAME, NOW, actions, bid, host, seen, sight
from tests.unit.toy_cloud import Toy, slot
from tpuherd.model.observed import HostRun, HostStatus, NodeState, RunState
from tpuherd.model.slot_history import AttemptRecord, GiveUpCode, History, SlotHistory, Verdict
from tpuherd.model.slots_and_plan import (
    Ask,
    Collect,
    DesiredSlots,
    EnginePlan,
    Goal,
    Launch,
    Limits,
    RecordEvent,
    Stop,
)
from tpuherd.planner import bidding, deletion_guard, gang_actions, gang_progress, step_events
from tpuherd.planner.bid_status import NODE_FAILURES_MAX, BidStatus, NodeNeed
from tpuherd.planner.bidding import COLLECT_S_MAX
from tpuherd.planner.plan import plan
from tpuherd.planner.policy import GANG, BidPhase, GangAction, GangState, Role
from tpuherd.planner.retry_limits import ReachedLimit
from tpuherd.planner.slot_input import PlanContext, SlotContext
from tpuherd.planner.verdict import judge_attempt

STALL_S = 600.0
LIMIT = ReachedLimit(code=GiveUpCode.LIFETIME, why="so")


def case(*bid_statuses: BidStatus, **changes: Any) -> SlotContext:
    """A slot whose bids have their roles."""
    world = PlanContext(
        desired=DesiredSlots(slots={}, owner="me"), observed=seen(), history=History(), now=NOW,
        sure=True, frozen="", unknown={}, probed=set(),
    )  # fmt: skip
    base: dict[str, Any] = {
        "world": world, "now": NOW, "bid_statuses": list(bid_statuses), "slot": slot(),
            "slot_history": SlotHistory(),
    }  # fmt: skip
    return SlotContext(**base | changes)


def stood(name: str = NAME, **changes: Any) -> BidStatus:
    """A bid that works."""
    marks = tuple(f"i b{worker}" for worker in (0, 1))
    mine = bid(name=name, granted_at=1.0, ready_at=2.0, prepared="c", prepared_on=marks)
    base: dict[str, Any] = {
        "bid": mine, "stage": BidPhase.READY, "observation": sight(NodeState.READY), "whole": True,
        "hosts": (host(0), host(1)), "role": Role.INCUMBENT,
    }  # fmt: skip
    return BidStatus(**base | changes)


def launched(**changes: Any) -> AttemptRecord:
    base = AttemptRecord(id="gpt-0-a1-me", number=1, bid=NAME, code_digest="c", launched_at=1.0)
    return replace(base, started_at=2.0, first_step_at=3.0, boots=("b0", "b1"), **changes)


def works(**changes: Any) -> HostRun:
    return replace(HostRun(attempt="gpt-0-a1-me", word=RunState.RUNNING, step=1), **changes)


def test_a_gang_stalls_on_its_own_node_even_with_a_successor() -> None:
    quiet = works(stepped_at=NOW - STALL_S, logged_at=NOW - STALL_S, started=1.0)
    hosts = tuple(host(worker, works=(quiet,)) for worker in (0, 1))
    old, new = stood(role=Role.UNHEALTHY, hosts=hosts), stood("gpt-0-g2-me")
    context = case(
        old, new, incumbent=new, home=old, slot_history=SlotHistory(attempt=launched(), attempts=1),
        slot=slot(limits=Limits(stall_s=STALL_S)),
    )  # fmt: skip
    assert gang_actions.gang_bid(context) is old
    assert gang_actions.gang_state(context, gang_actions.gang_bid(context)) is GangState.STALLED


def test_outputs_are_collected_if_and_only_if_the_table_says_so() -> None:
    for verdict, goal in product(Verdict, Goal):
        ended = launched(ended_at=NOW - 9, verdict=verdict)
        here = stood()
        context = case(
            here, incumbent=here, home=here, slot_history=SlotHistory(attempt=ended, attempts=1),
            slot=slot(goal=goal, outputs=True),
        )  # fmt: skip
        shape = gang_actions.choose_gang_action(context)
        found = [step.action for step in context.steps if isinstance(step.action, Collect)]
        assert bool(found) == (GANG[shape][goal] is GangAction.COLLECT), (verdict, goal)


def test_after_a_lost_store_an_attempt_is_adopted_with_all_boot_ids() -> None:
    for reached in (True, False):
        hosts = (host(0, works=(works(),)), host(1, works=(works(),), reached=reached))
        mine = stood().bid
        history = History(slots={"gpt-0": SlotHistory(bids={NAME: mine}, generation=1)})
        observed = seen(observations={NAME: sight(NodeState.READY)}, hosts={NAME: hosts})
        desired = DesiredSlots(slots={"gpt-0": slot()}, owner="me")
        found = plan(desired, observed, history, NOW)
        events = [getattr(step.action, "event", None) for step in found.steps]
        (taken,) = [one for one in events if one is not None and one.kind == "attempt.launched"]
        assert taken.facts["boots"] == (["b0", "b1"] if reached else [])
        assert (taken.facts["number"], taken.facts["bid"]) == (1, NAME)


def test_an_attempt_known_to_every_host_is_recorded_once() -> None:
    toy = Toy(slot())
    toy.run(until=lambda toy: toy.slot_history().attempts == 1)
    for _ in range(5):
        toy.tick()
    told = [event for event in toy.events if event.kind == "attempt.started"]
    assert [event.facts["attempt"] for event in told] == ["gpt-0-a1-me"]
    attempt = toy.slot_history().attempt
    assert attempt is not None and attempt.started_at == told[0].at


def notes(
    slot_history: SlotHistory, hosts: tuple[HostStatus, ...] = (), **changes: Any
) -> EnginePlan:
    """The plan for a slot on one READY node, with these hosts."""
    observed = seen(observations={NAME: sight(NodeState.READY)}, hosts={NAME: hosts})
    desired = DesiredSlots(slots={"gpt-0": slot(**changes)}, owner="me")
    return plan(desired, observed, History(slots={"gpt-0": slot_history}), NOW)


def kinds(found: EnginePlan) -> list[str]:
    return [step.action.event.kind for step in found.steps if isinstance(step.action, RecordEvent)]


def test_an_unrecorded_start_is_recorded_when_every_host_knows_it() -> None:
    for knowing in (0, 1, 2):
        hosts = tuple(
            host(worker, works=(works(),) if worker < knowing else ()) for worker in (0, 1)
        )
        attempt = replace(launched(), started_at=None, launched_at=NOW - 99)
        mine = stood().bid
        slot_history = SlotHistory(bids={NAME: mine}, generation=1, attempt=attempt, attempts=1)
        assert ("attempt.started" in kinds(notes(slot_history, hosts))) == (knowing == 2)


def test_a_node_that_failed_too_often_is_replaced_at_once() -> None:
    hosts = (host(0, boot="new"), host(1, boot="new"))
    for before in (NODE_FAILURES_MAX - 2, NODE_FAILURES_MAX - 1):
        mine = replace(stood().bid, node_failures=before)
        slot_history = SlotHistory(bids={NAME: mine}, generation=1, attempt=launched(), attempts=1)
        found = notes(slot_history, hosts)
        assert "attempt.ended" in kinds(found)
        assert bool(actions(found, Ask)) == (before == NODE_FAILURES_MAX - 1)


def test_a_finished_slot_does_not_give_up() -> None:
    for done in (None, NOW - 9):
        limits = Limits(lifetime_s=50.0, done_keep_s=1e6)
        slot_history = SlotHistory(bids={NAME: stood().bid}, first_launch_at=NOW - 99, done_at=done)
        found = kinds(notes(slot_history, (host(0), host(1)), limits=limits))
        assert ("slot.gave_up" in found) == (done is None)


def test_the_gang_state_on_a_prepared_node_is_that_of_its_last_attempt() -> None:
    shapes = {Verdict.SUCCESS: GangState.SUCCEEDED, Verdict.FAILURE: GangState.FAILED}
    for verdict in (None, *Verdict):
        ended = launched(ended_at=NOW - 9, verdict=verdict)
        here, other = stood(), stood("gpt-0-g2-me")
        expected = shapes.get(verdict, GangState.INTERRUPTED) if verdict else GangState.INTERRUPTED
        for seat, home, attempt, shape in [
            (here, here, ended, expected),
            (other, here, ended, GangState.PREPARED),
            (here, None, ended, GangState.PREPARED),
            (here, None, None, GangState.PREPARED),
        ]:
            context = case(seat, home=home, slot_history=SlotHistory(attempt=attempt))
            assert gang_actions.gang_state(context, seat) is shape


def test_a_gang_verdict_decides_the_state_unless_setup_is_needed() -> None:
    ended = launched(ended_at=NOW - 9, verdict=Verdict.SUCCESS)
    space = product(NodeNeed, (None, LIMIT), (True, False), (True, False), BidPhase, ("c", "old"))
    for need, limit, home, whole, stage, code in space:
        here = stood(stage=stage, whole=whole)
        here.bid = replace(here.bid, prepared=code)
        context = case(
            here,
            home=here if home else None,
            need=need,
            limit=limit,
            slot_history=SlotHistory(attempt=ended),
        )
        works = whole and stage in {BidPhase.READY, BidPhase.HIDDEN}
        known = stage not in {BidPhase.UNKNOWN, BidPhase.CALLING}
        settled = known and home and whole and (need is not NodeNeed.SEEK or limit is not None)
        found = gang_actions.gang_state(context, here)
        assert (found is GangState.SUCCEEDED) == (settled or (works and home and code == "c"))
        assert (found is GangState.BARE) == (works and not settled and code != "c")
        assert (found is GangState.PREPARED) == (works and not home and code == "c")
        assert (found is GangState.UNKNOWN) == (not known)


def test_what_one_host_reports_about_an_attempt() -> None:
    space = product((None, *RunState), ("", "it burnt"), *[(True, False)] * 4)
    for word, why, deadman, rebooted, reached, started in space:
        attempt = launched() if started else replace(launched(), started_at=None)
        said = () if word is None else (works(word=word, why=why, deadman=deadman),)
        one = host(0, boot="new" if rebooted else "b0", reached=reached, works=said)
        found = gang_progress.build_member(one, attempt)
        ends = word in {RunState.ENDED, RunState.LOST}
        absent = reached and not rebooted and word in {None, RunState.ABSENT}
        if rebooted:
            lost = f"{one.name} was rebooted"
        elif word is RunState.LOST:
            lost = why or f"its end was not recorded on {one.name}"
        elif ends and deadman:
            lost = "no engine contacted its host for too long"
        else:
            lost = f"{one.name} has no record of it any longer" if absent and started else ""
        assert (found.absent, found.lost, found.over) == (absent, lost, bool(lost) or ends)


def test_hosts_are_compared_by_boot_id_only_if_both_are_known() -> None:
    for boot, boots, rebooted in [
        ("b0", ("b0", "b1"), False),
        ("new", ("b0", "b1"), True),
        ("", ("b0", "b1"), False),
        ("new", (), False),
    ]:
        attempt = replace(launched(), boots=boots)
        found = gang_progress.build_member(host(0, boot=boot, works=(works(),)), attempt)
        assert ("rebooted" in found.lost) == rebooted


def test_an_attempt_runs_if_and_only_if_a_reachable_host_runs_it() -> None:
    attempt = replace(launched(), started_at=None)
    states: dict[str, dict[str, Any]] = {
        "runs": {"works": (works(),)},
        "far": {"works": (works(),), "reached": False},
        "over": {"works": (works(word=RunState.ENDED),)},
        "absent": {"works": ()},
    }
    for first, second in product(states, repeat=2):
        hosts = (host(0, **states[first]), host(1, **states[second]))
        observed = seen(observations={NAME: sight(NodeState.READY)}, hosts={NAME: hosts})
        found = gang_progress.build_gang(slot(), attempt, stood().bid, observed)
        assert found.has_live_runs == ("runs" in {first, second})
        assert len(found.live_members) == sum(one in {"runs", "absent"} for one in (first, second))


def test_the_goal_and_its_reason_if_it_differs_from_the_job() -> None:
    space = product((None, LIMIT), NodeNeed, Goal, (None, 5.0), (None, 6.0))
    for limit, need, goal, done, gave_up in space:
        context = case(
            limit=limit, need=need, slot=slot(goal=goal),
            slot_history=SlotHistory(done_at=done, gave_up_at=gave_up),
        )  # fmt: skip
        if limit is not None:
            expected = (Goal.GONE, limit.why)
        elif need is NodeNeed.NONE or gave_up is not None:
            expected = (Goal.GONE, "it is no longer needed")
        elif goal is Goal.RUN and done is not None:
            expected = (Goal.GONE, "it is done")
        else:
            expected = (goal, "the job should not run now")
        assert gang_actions.gang_goal(context) == expected


def test_a_gang_ends_with_its_node_for_the_reason_of_the_node() -> None:
    for role, why in product(Role, ("", "it is sick")):
        home = stood(role=role, why=why)
        context = case(home, home=home, slot_history=SlotHistory(attempt=launched()))
        goes = role in {Role.DEAD, Role.SURPLUS, Role.WITHDRAWN}
        expected = (Goal.IDLE, why or "its node is going away")
        assert gang_actions.gang_goal(context) == (
            expected if goes else (Goal.RUN, "the job should not run now")
        )
    homeless = case(slot_history=SlotHistory(attempt=launched()))
    assert gang_actions.gang_goal(homeless) == (Goal.IDLE, "its node is going away")


def test_a_stall_needs_all_hosts_and_more_time_before_the_first_step() -> None:
    first_s, stall_s = 2000.0, 500.0
    wanted_slot = slot(limits=Limits(first_step_s=first_s, stall_s=stall_s))
    space = product((None, 3.0), (None, 1), (None, 1), (RunState.RUNNING, RunState.ENDED))
    for told, one, two, word in space:
        for quiet in (stall_s - 1, stall_s, first_s - 1, first_s):
            said = works(step=one, started=NOW - quiet)
            hosts = (
                host(0, works=(said,)), host(1, works=(replace(said, step=two, word=word),)),
            )  # fmt: skip
            here = stood(hosts=hosts)
            attempt = replace(launched(), first_step_at=told)
            context = case(
                here,
                incumbent=here,
                home=here,
                slot_history=SlotHistory(attempt=attempt),
                slot=wanted_slot,
            )
            begun = told is not None or one is not None
            begun = begun or (two is not None and word is RunState.RUNNING)
            stalls = word is RunState.RUNNING and quiet >= (stall_s if begun else first_s)
            assert bool(gang_actions.stall_reason(context, here)) == stalls, (
                told,
                one,
                two,
                word,
                quiet,
            )


def test_there_is_something_to_collect_if_outputs_or_log_lines_remain() -> None:
    space = product((True, False), (True, False), (True, False), (None, 5.0), NodeNeed, ("", "so"))
    for outputs, drained, collected, lost, need, limit in space:
        said = works(word=RunState.ENDED, exit=0, drained=drained)
        here = stood(hosts=(host(0, works=(said,)), host(1)))
        here.bid = replace(here.bid, collected=collected, lost_at=lost)
        context = case(
            here, home=here, need=need, limit=limit, slot=slot(outputs=outputs),
            slot_history=SlotHistory(attempt=launched(ended_at=NOW - 9, verdict=Verdict.SUCCESS)),
        )  # fmt: skip
        left = (outputs or not drained) and not collected and lost is None
        assert bidding.needs_collecting(context, here) == left


def test_a_checkpoint_is_recorded_after_a_minute_or_a_share_of_the_run() -> None:
    for ran in (100.0, 60.0 / step_events.SAVED_SHARE, 90.0 / step_events.SAVED_SHARE):
        pause = max(60.0, ran * step_events.SAVED_SHARE)
        for ago in (pause - 1, pause):
            begun = launched(saved=1, saved_at=NOW - ago)
            attempt = replace(begun, launched_at=NOW - ran)
            here = stood(hosts=(host(0, works=(works(saved=2),)),))
            context = case(here, slot_history=SlotHistory(attempt=attempt))
            step_events.record_progress(context)
            assert len(context.steps) == (ago == pause)
            assert context.wake_at == (inf if ago == pause else NOW + 1)


def test_silence_counts_only_where_the_cloud_reports_healthy_nodes() -> None:
    bids = {f"gpt-{one}": bid(name=f"gpt-{one}-g1-me", granted_at=1.0) for one in range(3)}
    history = History(slots={name: SlotHistory(bids={one.name: one}) for name, one in bids.items()})
    far = tuple(host(worker, reached=False) for worker in (0, 1))
    for second in NodeState:
        shown = sight(NodeState.READY, second)
        observed = seen(
            observations={one.name: shown for one in bids.values()},
            hosts={one.name: far for one in bids.values()},
        )
        assert bool(deletion_guard.silence_reason(observed, history)) == (second is NodeState.READY)


def test_without_a_node_no_host_gets_a_message() -> None:
    homeless = case(
        slot_history=SlotHistory(attempt=launched()),
        open=gang_progress.Pending(absent="w0", deaf=True),
    )
    gang_actions.stop_attempt(homeless, GangState.RUNNING, "so")
    gang_actions.resend_to_hosts(homeless)
    idle = case(stood(), home=stood())
    gang_actions.stop_attempt(idle, GangState.RUNNING, "so")
    gang_actions.resend_to_hosts(idle)
    assert not homeless.steps and not idle.steps


def test_a_repeated_start_resumes_unless_it_is_the_first_attempt() -> None:
    for number in (1, 2, 3):
        here = stood()
        context = case(
            here, home=here, slot_history=SlotHistory(attempt=launched(number=number)),
            open=gang_progress.Pending(absent="w0"),
        )  # fmt: skip
        gang_actions.resend_to_hosts(context)
        (found,) = [step.action for step in context.steps if isinstance(step.action, Launch)]
        assert (found.number, found.resume) == (number, number > 1)


def test_the_reason_of_a_stop_is_that_of_the_gang_state() -> None:
    quiet = works(started=NOW - 9000.0)
    for step, what in ((None, "no first step and no log"), (1, "no step and no log")):
        hosts = tuple(host(worker, works=(replace(quiet, step=step),)) for worker in (0, 1))
        here = stood(hosts=hosts)
        attempt = replace(launched(), first_step_at=None)
        for shape, why in (
            (GangState.STALLED, what),
            (GangState.DOOMED, "a part is over"),
            (GangState.RUNNING, "so"),
        ):
            context = case(
                here, home=here, slot_history=SlotHistory(attempt=attempt),
                open=gang_progress.Pending(broken="a part is over"),
            )  # fmt: skip
            gang_actions.stop_attempt(context, shape, "so")
            assert why in context.steps[0].why


def test_a_withdrawal_waits_ten_minutes_for_unreachable_hosts() -> None:
    for ago in (COLLECT_S_MAX - 1, COLLECT_S_MAX):
        here = stood(whole=False, hosts=(host(0), host(1, reached=False)))
        ended = launched(ended_at=NOW - ago, verdict=Verdict.STOPPED)
        context = case(
            here,
            home=here,
            need=NodeNeed.NONE,
            slot=slot(outputs=True),
            slot_history=SlotHistory(attempt=ended),
        )
        assert bidding.needs_collecting(context, here) == (ago < COLLECT_S_MAX)
        assert context.wake_at == (NOW + 1 if ago < COLLECT_S_MAX else inf)


def test_a_request_is_resent_at_once_and_then_after_a_pause() -> None:
    for sends, pause in ((1, 0.0), (2, 10.0), (3, 20.0), (4, 40.0), (9, 300.0)):
        for ago in (pause - 1, pause):
            context = case()
            bidding.resend_ask(context, bid(sends=sends, sent_at=NOW - ago))
            assert len(context.requests) == (ago >= pause)
            assert context.wake_at == (inf if ago >= pause else NOW + 1)


def test_an_impossible_request_gives_up_when_nothing_is_held() -> None:
    for held in (True, False):
        here = stood(role=Role.WITHDRAWN)
        bids = {NAME: here.bid} if held else {}
        context = case(
            slot=slot(offers=(), no_offer="no zone has it"), slot_history=SlotHistory(bids=bids)
        )
        bidding.ask_for_nodes(context)
        assert (context.slot_history.gave_up_at is not None) == (not held)


def test_another_running_attempt_says_nothing_about_this_one() -> None:
    other = works(attempt="gpt-0-a9-me")
    for word in RunState:
        hosts = tuple(host(worker, works=(other, works(word=word))) for worker in (0, 1))
        found = judge_attempt(
            slot(), SlotHistory(attempt=launched()), stood().bid,
            seen(observations={NAME: sight(NodeState.READY)}, hosts={NAME: hosts}), NOW,
        )  # fmt: skip
        goes_on = word not in {RunState.ENDED, RunState.LOST, RunState.ABSENT}
        assert (found == gang_progress.Pending()) == goes_on, word


def test_while_an_older_attempt_is_stopped_nothing_else_happens() -> None:
    old = works(attempt="gpt-0-a0-me")
    wait_s = slot().limits.grace_s + gang_progress.NOTICE_S
    for halted, steps in ((None, 1), (NOW - wait_s + 1, 0), (NOW - wait_s, 1)):
        here = stood(hosts=(host(0, works=(old,)), host(1)))
        context = case(here, incumbent=here, slot_history=SlotHistory(halted_at=halted))
        gang_actions.choose_gang_action(context)
        assert [type(step.action) for step in context.steps] == [Stop] * steps
        assert context.wake_at == (inf if steps else NOW + 1)


def test_a_request_names_the_node_that_it_replaces() -> None:
    for role, why in product(Role, ("", "it is sick")):
        context = case(stood(role=role, why=why))
        names = why and role is not Role.WITHDRAWN
        assert bidding.reason_to_ask(context) == (
            f"instead of {NAME}: {why}" if names else "for the job"
        )
