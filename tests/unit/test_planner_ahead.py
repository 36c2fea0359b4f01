"""Hosts are set up before the cloud says READY; the command starts at READY."""

from dataclasses import replace

import pytest

from tests.unit.planner_scenes import NAME, NOW, actions, bid, host, seen, sight
from tests.unit.toy_cloud import slot
from tpuherd.engine.observe import BOOTING_MAX, bids_ahead, may_boot
from tpuherd.history.apply_event import apply_slot_event
from tpuherd.model.observed import NodeState, RequestState
from tpuherd.model.slot_history import BidRecord, History, SlotHistory
from tpuherd.model.slots_and_plan import (
    DesiredSlots,
    EnginePlan,
    HistoryEvent,
    Launch,
    Prepare,
    Slot,
)
from tpuherd.planner.bid_status import host_fingerprint
from tpuherd.planner.gang_actions import NEARLY_READY_S
from tpuherd.planner.plan import plan

HOSTS = (host(0), host(1))


def planned(
    mine: BidRecord,
    *,
    state: NodeState = NodeState.MAKING,
    reached: int = 2,
    wanted: Slot | None = None,
) -> EnginePlan:
    hosts = tuple(replace(one, reached=one.worker < reached) for one in HOSTS)
    observed = seen(observations={NAME: sight(state)}, hosts={NAME: hosts})
    desired = DesiredSlots(slots={"gpt-0": wanted or slot()}, owner="me")
    history = History(slots={"gpt-0": SlotHistory(bids={NAME: mine}, generation=1)})
    return plan(desired, observed, history, NOW)


def made(**changes: object) -> BidRecord:
    return replace(bid(granted_at=NOW - 60), **changes)  # type: ignore[arg-type]


def test_hosts_that_answer_are_set_up_while_the_node_is_being_created() -> None:
    (prepare,) = actions(planned(made()), Prepare)
    assert (prepare.bid, prepare.slot) == (NAME, "gpt-0")
    assert "not READY yet" in next(step.why for step in planned(made()).steps)
    assert not actions(planned(made(), reached=1), Prepare)
    assert not actions(planned(made(), wanted=slot(boots_ahead=False)), Prepare)


def test_the_command_starts_at_ready_and_not_before() -> None:
    on = tuple(host_fingerprint(one) for one in HOSTS)
    mine = made(prepared=slot().code_digest, prepared_on=on)
    before, after = planned(mine), planned(mine, state=NodeState.READY)
    assert not actions(before, Prepare)
    assert not actions(before, Launch)
    assert before.survey_s == NEARLY_READY_S
    assert not actions(after, Prepare)
    assert [one.bid for one in actions(after, Launch)] == [NAME]


@pytest.mark.parametrize("field", ["unprepared", "missing_inputs"])
def test_what_failed_before_ready_is_tried_again_at_ready(field: str) -> None:
    assert not actions(planned(made(**{field: 1})), Prepare)
    assert actions(planned(made(**{field: 1}), state=NodeState.READY), Prepare)


@pytest.mark.parametrize("early", [True, False])
def test_a_setup_that_fails_before_ready_counts_no_failure(early: bool) -> None:
    before = SlotHistory(bids={NAME: made()}, generation=1)
    facts: dict[str, object] = {
        "bid": NAME,
        "message": "1 failed",
        "hosts": [{"host": "w0", "exit": 1}],
    }
    facts |= {"early": True} if early else {}
    event = HistoryEvent(at=NOW, kind="slot.setup_failed", job="gpt", slot="gpt-0", facts=facts)
    after = apply_slot_event(before, event)
    assert after.bids[NAME].unprepared == 1
    assert (after.failures, after.failed_why) == ((0, "") if early else (1, "1 failed"))


def test_only_hosts_with_addresses_on_granted_nodes_may_boot() -> None:
    making = sight(NodeState.MAKING)
    assert may_boot(making)
    assert may_boot(replace(making, request=RequestState.GRANTED))
    assert may_boot(sight(NodeState.MAKING, NodeState.READY))
    assert not may_boot(replace(making, request=RequestState.QUEUED))
    assert not may_boot(replace(making, nodes=(replace(making.nodes[0], hosts=0),)))
    assert not may_boot(replace(making, nodes=()))
    assert not may_boot(sight(NodeState.LOST))
    assert BOOTING_MAX >= 64


def test_which_bids_are_ahead() -> None:
    desired = DesiredSlots(slots={"gpt-0": slot()}, owner="me")
    for mine, ahead in (
        (made(), True), (made(ready_at=NOW), False), (made(withdrawn_at=NOW), False),
    ):  # fmt: skip
        history = History(slots={"gpt-0": SlotHistory(bids={NAME: mine}, generation=1)})
        assert bids_ahead(desired, history) == ({NAME} if ahead else set())
        off = DesiredSlots(slots={"gpt-0": slot(boots_ahead=False)}, owner="me")
        assert not bids_ahead(off, history)
