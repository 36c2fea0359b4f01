"""The engine's pure parts: refusals, agent messages, a gang's variables, the history codec."""

from dataclasses import replace
from typing import Any

import pytest

from tpuherd.accounting.accounts import Ledger
from tpuherd.cache_codec import decode_cache, encode_cache
from tpuherd.cloud.error_replies import CloudError, parse_error
from tpuherd.cloud.parse import parse_operation
from tpuherd.cloud.state_mapping import NODES, REQUESTS, classify_refusal, node_state, request_state
from tpuherd.engine import agent_updates, gang_env
from tpuherd.engine.host_messages import AttemptStatus, parse_attempt, parse_report
from tpuherd.history.apply_event import apply_event
from tpuherd.model.node_spec import LaunchSpec
from tpuherd.model.observed import (
    HostRun,
    HostStatus,
    NodeState,
    Outlook,
    RequestState,
    RunState,
)
from tpuherd.model.slot_history import History
from tpuherd.model.slots_and_plan import HistoryEvent, Launch, Refusal
from tpuherd.planner.step_events import checkpoint_facts
from tpuherd.ports import Host
from tpuherd_host.agent.state_machine.rpc_attempts import WORDS_MAX
from tpuherd_host.agent.state_machine.state import (
    CLOSING,
    ENDED,
    FREEING,
    LOST,
    RUNNING,
    STARTING,
    SWEEPING,
    WAITING,
)

NO_MORE = 'There is no more capacity in the zone "europe-west4-a"; you can try in another zone'
RATE = "Quota exceeded for quota metric 'Maximum number of CreateNode requests per minute'"


@pytest.mark.parametrize(
    ("code", "sentence", "tier", "word"),
    [
        (8, NO_MORE, "spot", Refusal.STOCKOUT),
        (8, "Insufficient reserved capacity. Contact customer support", "reserved", "reservation"),
        (9, "Insufficient reserved capacity. Contact customer support", "reserved", "reservation"),
        (5, "Reservation not found", "spot", Refusal.STOCKOUT),
        (8, RATE, "spot", Refusal.RATE),
        (8, "Quota limit 'TPUV6E…' has been exceeded. Limit: 0", "spot", Refusal.QUOTA),
        (8, "Quota 'TPUV5PPerProjectPerZoneForTPUAPI' exhausted. Limit 8", "spot", Refusal.QUOTA),
        (7, "Permission denied on 'locations/us-central2-b'", "spot", Refusal.PERMISSION),
        (3, "the accelerator v5litepod-8 was not found in zone", "spot", Refusal.CONFIGURATION),
        (3, "update is not supported while in state PREEMPTED", "spot", Refusal.BROKEN),
        (6, "Resource 'x' already exists", "spot", Refusal.TAKEN),
        (13, "an internal error has occurred", "spot", Refusal.BROKEN),
        (14, "Internal error. Please try again", "spot", Refusal.BROKEN),
        (99, "a code of tomorrow", "spot", Refusal.BROKEN),
    ],
)
def test_refusals_are_classified(code: int, sentence: str, tier: str, word: str) -> None:
    assert classify_refusal(CloudError(code=code, sentence=sentence), tier) == word


def test_errors_are_classified_by_word_status_or_code() -> None:
    assert (
        parse_error({"status": "FAILED_PRECONDITION", "message": "no [EID: 0x1]."}, 400).code == 9
    )
    assert parse_error({}, 429) == CloudError(code=8, sentence="HTTP status 429")
    failed = {"error": {"code": 8, "message": f"{NO_MORE} [EID: 0xba3]"}}
    assert parse_operation(failed).error == CloudError(code=8, sentence=NO_MORE)


def test_unseen_states_are_unknown() -> None:
    assert request_state("LEVITATING") is RequestState.UNKNOWN
    assert node_state("LEVITATING", "HEALTHY") is NodeState.UNKNOWN
    assert node_state("READY", "UNHEALTHY_MAINTENANCE") is NodeState.UNHEALTHY
    assert node_state("PREEMPTED", "UNHEALTHY_MAINTENANCE") is NodeState.LOST
    assert set(REQUESTS.values()) == set(RequestState) - {RequestState.UNKNOWN}
    assert set(NODES.values()) == set(NodeState) - {NodeState.UNKNOWN}


def told(**more: Any) -> AttemptStatus:
    """An attempt as its agent tells it."""
    whole = {"id": "gpt-0-a1-abc", "phase": RUNNING, "stage": 0, "stages": 1, "stopped": False}
    return parse_attempt(whole | more)


@pytest.mark.parametrize("stopped", [False, True])
@pytest.mark.parametrize(
    ("phase", "word"),
    [
        (WAITING, RunState.RUNNING),
        (STARTING, RunState.RUNNING),
        (RUNNING, RunState.RUNNING),
        (SWEEPING, RunState.ENDING),
        (FREEING, RunState.ENDING),
        (CLOSING, RunState.ENDING),
        (ENDED, RunState.ENDED),
        (LOST, RunState.LOST),
    ],
)
def test_phases_reported_by_the_agent(phase: str, word: RunState, stopped: bool) -> None:
    expected = RunState.ENDING if stopped and word is RunState.RUNNING else word
    assert agent_updates.run_state(told(phase=phase, stopped=stopped)) is expected


def test_a_setup_within_an_attempt_is_setup() -> None:
    assert agent_updates.run_state(told(stage=0, stages=2)) is RunState.SETUP
    assert agent_updates.run_state(told(stage=1, stages=2)) is RunState.RUNNING


def test_reports_of_a_script_are_never_taken_back() -> None:
    work = HostRun(attempt="a", word=RunState.RUNNING)
    for report in ({"step": 5, "saved": 4}, {"step": 6, "saved": 2}, {"complete": True}, {}):
        work = agent_updates.merge_step_report(work, parse_report(report), 10.0)
    assert (work.step, work.saved, work.complete) == (6, 4, True)
    assert (
        agent_updates.merge_step_report(work, parse_report({"step": "six", "saved": None}), 11.0)
        == work
    )


def test_unreserved_numbers_in_a_report_are_metrics() -> None:
    work = HostRun(attempt="a", word=RunState.RUNNING)
    report = {"step": 5, "total": 9, "loss": 2, "time": 1.0, "stopped": True, "note": "x"}
    work = agent_updates.merge_step_report(work, parse_report(report), 10.0)
    assert work.metrics == {"loss": 2.0}
    work = agent_updates.merge_step_report(work, parse_report({"accuracy": 0.5}), 11.0)
    assert work.metrics == {"loss": 2.0, "accuracy": 0.5} and work.step == 5


def test_output_from_before_this_engine_is_dated_by_its_agent() -> None:
    fresh = agent_updates.merge_attempt_status(told(started=10.0, logged=90.0), None, 100.0)
    assert fresh.logged_at == 90.0
    assert (
        agent_updates.merge_attempt_status(told(started=10.0, logged=None), None, 100.0).logged_at
        == 10.0
    )
    assert (
        agent_updates.merge_attempt_status(told(started=10.0, logged=1e9), None, 100.0).logged_at
        == 100.0
    )
    assert (
        agent_updates.merge_attempt_status(told(started=10.0, logged=50.0), fresh, 101.0).logged_at
        == 90.0
    )


def test_a_live_step_is_dated_by_our_clock() -> None:
    """A host whose clock is an hour behind does not stand still."""
    first = agent_updates.merge_step_report(
        HostRun(attempt="a", word=RunState.RUNNING),
        parse_report({"step": 1, "time": 6400.0}),
        10000.0,
    )
    assert first.stepped_at == 6400.0  # perhaps it arrived while no engine ran
    assert agent_updates.merge_step_report(
        first, parse_report({"step": 2, "time": 6410.0}), 10010.0
    ).stepped_at == (10010.0)


def test_a_flood_of_names_is_bounded_and_known_values_go_on() -> None:
    work = HostRun(attempt="gpt-0-a1-7kq", word=RunState.RUNNING)
    for report in range(40):
        told = {"loss": 1.0 / (report + 1), **{f"{report}-{name}": 1.0 for name in range(20)}}
        work = agent_updates.merge_step_report(work, parse_report(told), 10.0 + report)
    assert len(work.metrics) == WORDS_MAX and work.metrics["loss"] == 1 / 40


def test_what_checkpoints_cost_is_no_metric() -> None:
    told = {"saves": 3, "save_blocked_s": 4.5, "save_took_s": -1.0, "loss": 2.0}
    report = parse_report({"step": 9, "saved": 8, **told})
    assert report.saving == {"saves": 3.0, "save_blocked_s": 4.5}
    assert report.refused == ("save_took_s",)
    assert report.metrics == {"loss": 2.0}
    known = agent_updates.merge_step_report(
        HostRun(attempt="a", word=RunState.RUNNING), report, 5.0
    )
    assert checkpoint_facts([known]) == report.saving


def test_startup_times_are_no_metrics() -> None:
    report = parse_report(
        {"step": 1, "python_s": 0.4, "import_s": "x", "compile_s": 2, "loss": 3.0}
    )
    assert report.startup == {"python_s": 0.4, "compile_s": 2.0}
    assert (report.metrics, report.refused) == ({"loss": 3.0}, ("import_s",))
    known = agent_updates.merge_step_report(
        HostRun(attempt="a", word=RunState.RUNNING), report, 10.0
    )
    assert known.startup == report.startup


def test_the_pace_is_the_median() -> None:
    assert agent_updates.median_step_time([(0.0, 0), (10.0, 10), (20.0, 20), (120.0, 30)]) == 1.0
    assert agent_updates.median_step_time([(0.0, 0)]) is None


def test_a_deadly_notice_remains() -> None:
    host = HostStatus(node="n", worker=0, incarnation="i", reached=True, heard_at=0.0)
    assert agent_updates.apply_notice(host, "preempted", "FALSE", 1.0) == host
    doomed = agent_updates.apply_notice(host, "preempted", "TRUE", 2.0)
    assert (doomed.notice, doomed.outlook, doomed.notice_at) == ("preempted", Outlook.GONE, 2.0)
    assert agent_updates.apply_notice(doomed, "preempted", "FALSE", 3.0) == doomed
    assert agent_updates.apply_notice(doomed, "maintenance-event", "NONE", 3.0) == doomed
    warned = agent_updates.apply_notice(
        host, "maintenance-event", "MIGRATE_ON_HOST_MAINTENANCE", 2.0
    )
    assert (warned.outlook, warned.notice_at) == (Outlook.STAYS, 2.0)
    assert agent_updates.apply_notice(warned, "maintenance-event", "NONE", 3.0) == host


TERMINATE = ("maintenance-event", "TERMINATE_ON_HOST_MAINTENANCE")
LEAVING = {
    TERMINATE: Outlook.RETURNS,
    ("shutdown", "REBOOT"): Outlook.RETURNS,
    ("shutdown", "TERM"): Outlook.OFF,
}


def test_of_several_notices_the_one_that_says_more_counts() -> None:
    told = HostStatus(node="n", worker=0, incarnation="i", reached=True, heard_at=0.0, boot="b1")
    for first, outlook in LEAVING.items():
        leaving = agent_updates.apply_notice(told, *first, 2.0)
        assert (leaving.outlook, leaving.notice_at, leaving.is_leaving) == (outlook, 2.0, True)
        for second, other in LEAVING.items():
            both = agent_updates.apply_notice(leaving, *second, 3.0)
            expected = Outlook.OFF if {outlook, other} == {Outlook.OFF} else Outlook.RETURNS
            assert (both.outlook, both.notice_at) == (expected, 2.0)
        gone = agent_updates.apply_notice(leaving, "preempted", "TRUE", 3.0)
        assert (gone.outlook, gone.is_leaving) == (Outlook.GONE, False)
        assert agent_updates.apply_boot(leaving, "b1") == leaving
        assert agent_updates.apply_boot(leaving, "b2") == replace(told, boot="b2")
        assert agent_updates.apply_boot(gone, "b2").outlook is Outlook.GONE
    maintained = agent_updates.apply_notice(told, *TERMINATE, 2.0)
    assert agent_updates.apply_notice(maintained, "maintenance-event", "NONE", 3.0) == told


def hosts(*nodes: str) -> list[Host]:
    """Two workers each."""
    return [
        Host(
            node=node,
            zone="z",
            worker=worker,
            incarnation=node,
            internal_ip=f"10.0.{part}.{worker}",
            external_ip=None,
        )
        for part, node in enumerate(nodes)
        for worker in (0, 1)
    ]


def test_the_hosts_of_a_gang_know_their_place() -> None:
    launch = Launch(
        bid="b", slot="gpt-0", attempt="a", number=3, resume=True, code_digest="c", boots=()
    )
    one = gang_env.gang_environment(hosts("n"), 1, launch)
    assert one["HERD_ATTEMPT"] == "3"
    assert one["HERD_RESUME"] == "1"
    assert (one["HERD_WORKER"], one["HERD_WORKERS"]) == ("1", "2")
    assert one["HERD_COORDINATOR"] == "10.0.0.0:8476"
    assert one["JAX_COORDINATOR_BIND_ADDRESS"] == "10.0.0.1:8476"
    assert not [name for name in one if name.startswith("MEGASCALE")]
    assert "RAY_ADDRESS" not in one
    ray = gang_env.gang_environment(hosts("n"), 1, launch, "ray")
    assert (ray["RAY_ADDRESS"], ray["HERD_ADDRESS"]) == ("10.0.0.0:6379", "10.0.0.1")
    two = gang_env.gang_environment(hosts("n-0", "n-1"), 2, launch)
    assert two["MEGASCALE_SLICE_ID"] == "1"
    assert two["MEGASCALE_NUM_SLICES"] == "2"
    assert two["MEGASCALE_COORDINATOR_ADDRESS"] == "10.0.0.0"


def test_each_process_of_a_gang_has_a_run_of_wandb_over_all_attempts() -> None:
    order = LaunchSpec(shell="x", argv=(), env={"RUN_ID": "gpt-0-ab"}, wandb=True)
    gang = [gang_env.default_environment(hosts("n"), index, order) for index in (0, 1)]
    gang = [{key: it for key, it in one.items() if "WANDB" in key} for one in gang]
    allowed = {"WANDB_RESUME": "allow", "WANDB_RUN_GROUP": "gpt-0-ab"}
    assert gang[0] == {"WANDB_RUN_ID": "gpt-0-ab", **allowed}
    assert gang[1] == {"WANDB_RUN_ID": "gpt-0-ab-w1", **allowed}
    alone = gang_env.default_environment(hosts("n")[:1], 0, order)
    assert "WANDB_RUN_GROUP" not in alone
    trial = replace(order, trial={"RUN_ID": "gpt-t3"})
    assert gang_env.default_environment(hosts("n"), 0, trial)["WANDB_RUN_ID"] == "gpt-t3"


@pytest.mark.parametrize(
    "change", [{"wandb": False}, {"cluster": "ray"}, {"env": {"RUN_ID": "a/b"}}, {"env": {}}]
)
def test_no_run_of_wandb_is_chosen_where_there_may_be_several(change: dict[str, Any]) -> None:
    order = LaunchSpec(shell="x", argv=(), env={"RUN_ID": "gpt-0-ab"}, wandb=True)
    found = gang_env.default_environment(hosts("n"), 0, replace(order, **change))
    assert not [name for name in found if name.startswith("WANDB")]


def test_hosts_know_where_torch_meets_and_no_rank() -> None:
    """webdataset refuses to start where WORLD_SIZE is above 1 and it has no split by node."""
    order = LaunchSpec(shell="x", argv=())
    launch = Launch(
        bid="b", slot="gpt-0", attempt="a", number=1, resume=False, code_digest="c", boots=()
    )
    found = gang_env.default_environment(hosts("n-0", "n-1"), 2, order)
    assert found == {
        "MASTER_ADDR": "10.0.0.0", "MASTER_PORT": "29500", "NODE_RANK": "2", "NNODES": "4",
    }  # fmt: skip
    place = gang_env.gang_environment(hosts("n-0", "n-1"), 2, launch)
    assert place["HERD_ADDRESSES"] == "10.0.1.0,10.0.1.1"
    assert not {"RANK", "WORLD_SIZE", "TPU_WORKER_HOSTNAMES"} & {*found, *place}
    assert gang_env.default_environment(hosts("n"), 1, replace(order, cluster="ray")) == {}


def test_the_history_is_decoded_as_it_was_encoded() -> None:
    offer = {"zone": "z", "type": "v4-8", "runtime": "r", "tier": "spot", "kind": "queued"}
    asked = {"bid": "gpt-0-g1-abc", "generation": 1, "offer": offer, "nodes": 1}
    events: list[tuple[str, dict[str, Any]]] = [
        ("bid.requested", {**asked, "node_digest": "d"}),
        ("bid.accepted", {"bid": "gpt-0-g1-abc"}),
        ("bid.granted", {"bid": "gpt-0-g1-abc"}),
        ("bid.ready", {"bid": "gpt-0-g1-abc"}),
        ("slot.prepared", {"bid": "gpt-0-g1-abc", "code_digest": "c", "hosts": ["i b"]}),
        (
            "attempt.launched",
            {"attempt": "a1", "number": 1, "bid": "gpt-0-g1-abc", "code_digest": "c"},
        ),
        ("attempt.ended", {"attempt": "a1", "verdict": "preempted", "lines": ["x"]}),
        ("bid.lost", {"bid": "gpt-0-g1-abc", "cause": "preempted"}),
    ]
    history = History()
    for at, (kind, facts) in enumerate(events):
        event = HistoryEvent(at=float(at), kind=kind, job="gpt", slot="gpt-0", facts=facts)
        history = apply_event(history, event)
    content = encode_cache(history)
    assert decode_cache(History, content) == history
    assert decode_cache(Ledger, content) is None
    assert decode_cache(History, content[:-1]) is None
