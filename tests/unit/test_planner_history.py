"""What the history remembers: every kind of event alone, and whole logs."""

import json
from dataclasses import asdict, replace
from typing import Any

import pytest

from tests.unit.planner_scenes import (  # fmt: skip
    ATTEMPT,
    NAME,
    NOW,
    bid,
)
from tests.unit.toy_cloud import Toy, offer, slot
from tpuherd.history.apply_bid_events import GONE_KEPT, read_offer, resolve_values, unfit_key
from tpuherd.history.apply_event import apply_event, events_before_step
from tpuherd.history.apply_zone_events import (
    PAUSE_LESS_S,
    PAUSE_S_MAX,
    PAUSE_S_MIN,
    lifetime_env,
    zone_stats_key,
)
from tpuherd.history.event_kinds import EVENT_KINDS
from tpuherd.model.slot_history import (
    AttemptRecord,
    BidRecord,
    History,
    SlotHistory,
    Verdict,
    ZoneStats,
    bid_cost,
)
from tpuherd.model.slots_and_plan import (
    Ask,
    Collect,
    HistoryEvent,
    Launch,
    PlannedStep,
    Prepare,
    Refusal,
    RequestKind,
    Stop,
    Withdraw,
)

BID = "gpt-0-g1-me"


def event(kind: str, at: float = 100.0, **facts: Any) -> HistoryEvent:
    return HistoryEvent(at=at, kind=kind, job="gpt", slot="gpt-0", facts=facts)


def after(*events: HistoryEvent, history: History | None = None) -> History:
    history = history or History()
    for one in events:
        history = apply_event(history, one)
    return history


def slot_history(*events: HistoryEvent) -> SlotHistory:
    return after(*events).slots["gpt-0"]


def asked(at: float = 10.0, bid: str = BID, **changes: Any) -> HistoryEvent:
    facts = {
        "bid": bid,
        "generation": 1,
        "offer": asdict(offer("a", **changes)),
        "nodes": 1,
        "node_digest": "n",
    }
    return event("bid.requested", at, **facts)


def bid_after(*events: HistoryEvent) -> BidRecord:
    return slot_history(asked(), *events).bids[BID]


def launched(number: int = 1, at: float = 50.0, **facts: Any) -> HistoryEvent:
    said = {"attempt": f"gpt-0-a{number}-me", "number": number, "bid": BID, "code_digest": "c"}
    return event("attempt.launched", at, **said | {"boots": ["x", "y"]} | facts)


def ended(verdict: str, number: int = 1, **facts: Any) -> HistoryEvent:
    return event("attempt.ended", attempt=f"gpt-0-a{number}-me", verdict=verdict, **facts)


REQUIRED = {name: kind.facts for name, kind in EVENT_KINDS.items()}


def test_unknown_kinds_and_incomplete_events_are_skipped() -> None:
    history = after(asked())
    assert apply_event(history, event("bid.renamed", bid=BID)) is history
    for kind, facts in REQUIRED.items():
        if facts:
            assert apply_event(history, event(kind)) is history


def test_events_without_memory_change_nothing() -> None:
    history = after(asked(), launched())
    others: dict[str, Any] = {
        "bid": "gpt-0-g7-me", "attempt": "gpt-0-a7-me", "state": "S", "host": "h", "notice": "w",
        "cause": "gone", "code_digest": "c", "message": "s", "hosts": [], "why": "",
        "step": 1, "verdict": "success", "file": "f", "refusal": "stockout", "grace_s": 1,
    }  # fmt: skip
    for kind, facts in REQUIRED.items():
        if kind in {"bid.withdrawn", "slot.done", "slot.gave_up", "attempt.stopping"}:
            continue
        if facts and facts <= others.keys() and not kind.startswith(("engine", "node", "job")):
            assert apply_event(history, event(kind, **others)).slots == history.slots, kind


def test_every_event_is_json() -> None:
    toy = Toy(slot(outputs=True))
    toy.run(until=Toy.running)
    toy.preempt()
    toy.run()
    copy = History()
    for one in toy.events:
        again = HistoryEvent(
            at=one.at, kind=one.kind, job=one.job, slot=one.slot,
            facts=json.loads(json.dumps(one.facts)),
        )  # fmt: skip
        assert REQUIRED[again.kind] <= again.facts.keys()
        copy = apply_event(copy, again)
    assert copy == toy.history


def test_a_request_is_remembered_with_its_offer_and_counted_again_if_repeated() -> None:
    found = slot_history(asked(10.0))
    bid = found.bids[BID]
    assert bid.offer == offer("a") and bid.generation == found.generation == 1
    assert (bid.asked_at, bid.sent_at, found.searching_at) == (10.0, 10.0, 10.0)
    found = slot_history(asked(10.0), asked(70.0))
    assert (found.bids[BID].asked_at, found.bids[BID].sent_at) == (10.0, 70.0)
    assert found.bids[BID].sends == 2
    assert len(found.bids) == 1
    assert found.searching_at == 10.0
    later = slot_history(asked(10.0), replace(asked(20.0, "gpt-0-g2-me")))
    assert later.searching_at == 10.0
    assert slot_history(asked(), event("bid.granted", bid=BID)).searching_at is None
    assert after(asked(10.0), asked(30.0), asked(80.0)).asks == (30.0, 80.0)


def test_offers_of_newer_engines_are_read() -> None:
    document = asdict(offer("a", kind=RequestKind.DIRECT)) | {"colour": "blue"}
    assert read_offer(json.loads(json.dumps(document))) == offer("a", kind=RequestKind.DIRECT)
    document.pop("kind")
    assert read_offer(document).kind is RequestKind.QUEUED


FACTS: list[tuple[str, dict[str, Any], dict[str, Any]]] = [
    ("bid.accepted", {}, {"answered_at": 100.0}),
    ("bid.granted", {}, {"granted_at": 100.0}),
    ("bid.ready", {}, {"ready_at": 100.0}),
    (
        "bid.unhealthy",
        {"state": "REPAIRING"},
        {"unhealthy_at": 100.0, "unhealthy_state": "REPAIRING"},
    ),
    ("bid.nodes_deleted", {}, {"nodes_deleted_at": 100.0}),
    ("bid.notice_received", {"host": "h", "notice": "preempted"}, {"notice_at": 100.0}),
    ("bid.missing", {}, {"missed_at": 100.0}),
    ("bid.lost", {"cause": "preempted"}, {"lost_at": 100.0, "lost_how": "preempted"}),
    (
        "bid.withdrawn",
        {"why": "w"},
        {"withdrawn_at": 100.0, "withdrawn_why": "w", "withdrawals": 1},
    ),
    (
        "bid.refused",
        {"refusal": "stockout", "message": "no"},
        {"refusal": Refusal.STOCKOUT, "sentence": "no"},
    ),
    (
        "slot.prepared",
        {"code_digest": "c", "hosts": ["i b"]},
        {"prepared": "c", "prepared_on": ("i b",), "prepared_at": 100.0},
    ),
    ("slot.collected", {"attempt": "x"}, {"collected": True}),
    (
        "slot.collect_failed",
        {"attempt": "x", "message": "s"},
        {"uncollected": 1, "uncollected_at": 100.0, "full_at": None},
    ),
    (
        "slot.collect_failed",
        {"attempt": "x", "message": "s", "code": "full"},
        {"uncollected": 1, "uncollected_at": 100.0, "full_at": 100.0},
    ),
]  # fmt: skip


@pytest.mark.parametrize(("kind", "facts", "changes"), FACTS, ids=[row[0] for row in FACTS])
def test_events_of_a_bid(kind: str, facts: dict[str, Any], changes: dict[str, Any]) -> None:
    assert bid_after(event(kind, bid=BID, **facts)) == replace(bid_after(), **changes)


def test_the_silence_of_hosts_is_not_the_cloud_s_word() -> None:
    quiet = event("bid.unhealthy", bid=BID, state="silent", code="silent", since=90.0, hosts=["w1"])
    sick = event("bid.unhealthy", bid=BID, state="REPAIRING")
    known = bid_after(quiet, sick)
    assert (known.silent_at, known.unhealthy_state) == (quiet.at, "REPAIRING")
    well = bid_after(quiet, sick, event("bid.healthy", bid=BID))
    assert (well.silent_at, well.unhealthy_at) == (quiet.at, None)
    heard = bid_after(quiet, sick, event("bid.healthy", bid=BID, code="silent", paused_s=3.0))
    assert (heard.silent_at, heard.unhealthy_at) == (None, sick.at)


def test_temporary_problems_are_forgotten() -> None:
    sick = event("bid.unhealthy", bid=BID, state="REPAIRING")
    well = bid_after(sick, event("bid.healthy", bid=BID))
    assert (well.unhealthy_at, well.unhealthy_state) == (None, "")
    missed = event("bid.missing", bid=BID)
    assert bid_after(missed, event("bid.reappeared", bid=BID)).missed_at is None


def test_a_second_withdrawal_keeps_the_first_reason_and_the_latest_time() -> None:
    first = event("bid.withdrawn", 100.0, bid=BID, why="lost")
    bid = bid_after(first, event("bid.withdrawn", 200.0, bid=BID, why="again"))
    assert (bid.withdrawn_at, bid.withdrawn_why, bid.withdrawals) == (200.0, "lost", 2)


def test_a_deleted_bid_is_remembered_by_number_and_costs_nothing() -> None:
    ready = event("bid.ready", 3600.0, bid=BID)
    gone = event("bid.deleted", 10800.0, bid=BID)
    found = slot_history(asked(), ready, gone)
    assert (dict(found.bids), found.gone, found.spent) == ({}, (1,), 2.0)
    again = event("bid.withdrawn", 20000.0, bid=BID, zone="b", why="there again")
    bid = slot_history(asked(), ready, gone, again).bids[BID]
    assert (bid.offer.zone, bid.generation, bid.withdrawn_at) == ("b", 1, 20000.0)
    found = slot_history(asked(), ready, gone, again, event("bid.deleted", 30000.0, bid=BID))
    assert (found.gone, found.spent) == ((1,), 2.0)
    assert (
        apply_event(History(), event("bid.withdrawn", bid="what")).slots["gpt-0"] == SlotHistory()
    )
    stray = slot_history(event("bid.withdrawn", bid="gpt-0-g9-me", zone="b", why=""))
    assert stray.generation == 9
    many = SlotHistory(gone=tuple(range(2, GONE_KEPT + 2)), bids={BID: bid})
    kept = after(gone, history=History(slots={"gpt-0": many})).slots["gpt-0"].gone
    assert len(kept) == GONE_KEPT and kept[-1] == 1 and kept[0] == 3


def test_cost_runs_from_ready_or_granted_to_lost_or_now() -> None:
    bid = bid_after()
    assert bid_cost(bid, 7200) == 0
    granted = replace(bid, granted_at=3600.0)
    assert bid_cost(granted, 7200) == 1.0
    assert bid_cost(replace(granted, ready_at=5400.0), 7200) == 0.5
    assert bid_cost(replace(granted, lost_at=5400.0), 7200) == 0.5
    assert bid_cost(granted, 0.0) == 0.0
    assert bid_cost(replace(granted, offer=offer("a", price=None)), 7200) == 0
    assert bid_cost(replace(granted, offer=offer("a", price=3.0)), 7200) == 3.0


def test_refusals_of_a_bid() -> None:
    taken = event("bid.refused", bid=BID, refusal="taken", message="s")
    assert slot_history(asked(), taken) == replace(slot_history(asked()), bids={})
    unfit = slot_history(
        asked(), event("bid.refused", bid=BID, refusal="configuration", message="s")
    )
    assert dict(unfit.unfit) == {unfit_key(offer("a"), "n"): "s"}
    keys = {
        unfit_key(one, digest)
        for one, digest in [
            (offer("a"), "n"), (offer("b"), "n"), (offer("a", type="t"), "n"), (offer("a"), "m"),
            (offer("a", runtime="q"), "n"), (offer("a", tier="q"), "n"),
            (offer("a", kind=RequestKind.DIRECT), "n"),
        ]
    }  # fmt: skip
    assert len(keys) == 7


def test_adoption() -> None:
    facts: dict[str, Any] = {
        "bid": BID, "generation": 4, "offer": asdict(offer("a")), "nodes": 1, "node_digest": "n",
        "asked_at": 3.0, "granted_at": 4.0, "prepared_on": ["x"], "refusal": None, "colour": "blue",
    }  # fmt: skip
    found = slot_history(event("bid.adopted", **facts))
    bid = found.bids[BID]
    assert (bid.asked_at, bid.granted_at, bid.sent_at, bid.prepared_on) == (3.0, 4.0, 100.0, ("x",))
    assert (found.generation, bid.generation, bid.slot) == (4, 4, "gpt-0")
    found = slot_history(event("bid.adopted", **facts | {"refusal": "quota"}))
    assert found.bids[BID].refusal is Refusal.QUOTA


# ---- attempts ------------------------------------------------------------------------------------


def test_a_launch_and_the_same_launch_repeated() -> None:
    found = slot_history(asked(), launched())
    assert found.attempt == AttemptRecord(
        id="gpt-0-a1-me", number=1, bid=BID, code_digest="c", launched_at=50.0, boots=("x", "y")
    )
    assert (found.attempts, found.first_launch_at) == (1, 50.0)
    again = slot_history(asked(), launched(), launched(at=90.0, boots=["z"]))
    assert again.attempt == replace(found.attempt, launched_at=90.0, launches=2, boots=("z",))
    assert (again.attempts, again.first_launch_at) == (1, 50.0)
    second = slot_history(asked(), launched(), launched(2, 90.0))
    assert second.attempt and second.attempt.number == second.attempts == 2
    assert second.first_launch_at == 50.0
    collected = event("slot.collected", bid=BID, attempt="x")
    failed = event("slot.collect_failed", bid=BID, attempt="x", message="s")
    bid = slot_history(asked(), launched(), failed, collected, launched(2)).bids[BID]
    assert (bid.collected, bid.uncollected) == (False, 0)


def test_progress_of_an_attempt() -> None:
    begin = [asked(), launched()]
    name: dict[str, Any] = {"attempt": "gpt-0-a1-me"}
    base = slot_history(*begin).attempt
    assert base
    assert slot_history(*begin, event("attempt.started", **name)).attempt == replace(
        base, started_at=100.0
    )
    assert slot_history(*begin, event("attempt.first_step", **name)).attempt == replace(
        base, first_step_at=100.0
    )
    stop = event("attempt.stopping", **name, why="w", grace_s=30)
    found = slot_history(*begin, stop)
    first = replace(base, stopping_at=100.0, stopping_why="w", stopping_s=30.0, stops=1)
    assert found.attempt == first
    stall = event("attempt.stopping", 200.0, **name, why="v", grace_s=9, stacks=True)
    assert slot_history(*begin, stop, stall).attempt == replace(
        base, stopping_at=200.0, stopping_why="w", stopping_s=9.0, stalled=True, stops=2
    )
    again = slot_history(*begin, stall, stop).attempt
    assert again and again.stalled
    late = slot_history(*begin, ended("stopped"), stop)
    assert late.attempt and late.attempt.stopping_at is None and late.halted_at == 100.0
    other = slot_history(
        *begin, event("attempt.stopping", attempt="gpt-0-a9-me", why="", grace_s=1)
    )
    assert other.attempt == base and other.halted_at == 100.0


def test_the_end_of_an_attempt() -> None:
    facts: dict[str, Any] = {
        "host": "h",
        "exit": 3,
        "lines": ["a"],
        "saved": 7,
        "sure": False,
        "why": "w",
    }
    found = slot_history(asked(), launched(), ended("failure", **facts))
    base = slot_history(asked(), launched()).attempt
    assert base and found.attempt == replace(
        base, ended_at=100.0, verdict=Verdict.FAILURE, host="h", exit=3, lines=("a",), saved=7,
        sure=False,
    )  # fmt: skip
    assert (found.failures, found.saved, found.failed_at, found.failed_why) == (1, 7, 100.0, "w")
    assert slot_history(asked(), launched(), ended("failure"), ended("failure")).failures == 1
    plain = slot_history(asked(), launched(), ended("success")).attempt
    assert plain and plain.sure and plain.host == "" and plain.lines == ()


@pytest.mark.parametrize("verdict", list(Verdict))
def test_which_budget_an_end_uses(verdict: Verdict) -> None:
    found = slot_history(asked(), launched(), ended(verdict))
    assert found.failures == (verdict is Verdict.FAILURE)
    assert found.preemptions == (verdict is Verdict.PREEMPTED)
    assert found.stalls == (verdict is Verdict.STALLED)
    fault = verdict in {Verdict.NODE_FAULT, Verdict.LOST}
    assert (found.failed_at is not None) == (fault or verdict is Verdict.FAILURE)
    assert found.bids[BID].node_failures == fault
    downs = [
        one for n in range(9) for one in (launched(n + 1), ended(verdict, n + 1, shut_down=True))
    ]
    assert slot_history(asked(), *downs).bids[BID].node_failures == 0
    assert found.bids[BID].faults == 0
    assert found.faults == 0


def test_chip_failures_count_for_the_node_and_for_the_slot() -> None:
    chips = [ended("node fault", chips=True)]
    found = slot_history(
        asked(), launched(), *chips, launched(2), ended("node fault", 2, chips=True)
    )
    assert (found.bids[BID].faults, found.bids[BID].node_failures, found.faults) == (2, 0, 2)
    other = slot_history(asked(), launched(), *chips, launched(2), ended("node fault", 2))
    assert (other.bids[BID].faults, other.bids[BID].node_failures, other.faults) == (0, 1, 1)
    for verdict in ("success", "failure", "stalled"):
        well = slot_history(
            asked(), launched(), ended("node fault"), launched(2), ended(verdict, 2)
        ).bids[BID]
        assert (well.faults, well.node_failures) == (0, 0)
    for verdict in ("preempted", "stopped"):
        same = slot_history(
            asked(), launched(), ended("node fault"), launched(2), ended(verdict, 2)
        ).bids[BID]
        assert same.node_failures == 1
    stepped = event("attempt.first_step", attempt="gpt-0-a1-me")
    assert slot_history(asked(), launched(), *chips, stepped).faults == 0


def test_a_newer_checkpoint_resets_failures_and_an_equal_one_does_not() -> None:
    start = [
        asked(), launched(), ended("failure", saved=5), launched(2), ended("stalled", 2),
        launched(3), ended("node fault", 3, chips=True), launched(4),
    ]  # fmt: skip
    saved: dict[str, Any] = {"attempt": "gpt-0-a4-me"}
    before = slot_history(*start)
    assert (before.failures, before.stalls, before.faults, before.saved) == (1, 1, 1, 5)
    for step in (4, 5):
        assert slot_history(*start, event("attempt.saved", **saved, step=step)).failures == 1
    found = slot_history(*start, event("attempt.saved", **saved, step=6))
    assert (found.failures, found.stalls, found.faults, found.saved) == (0, 0, 0, 6)
    assert found.attempt and found.attempt.saved == 6
    assert (found.bids[BID].faults, found.bids[BID].node_failures) == (0, 0)
    again = slot_history(*start, ended("failure", 4, saved=9))
    assert (again.failures, again.saved) == (1, 9)


def test_a_failed_setup_counts_only_if_a_command_failed() -> None:
    hosts = [{"host": "w0", "exit": 1}, {"host": "w1", "exit": None}]
    facts: dict[str, Any] = {"bid": BID, "message": "pip", "hosts": hosts}
    prepared = event("slot.prepared", bid=BID, code_digest="c", hosts=["x"])
    found = slot_history(asked(), prepared, event("slot.setup_failed", **facts))
    assert (found.failures, found.failed_at, found.failed_why) == (1, 100.0, "pip")
    bid = found.bids[BID]
    assert (bid.prepared, bid.prepared_on, bid.unprepared) == ("", (), 1)
    away = event("slot.setup_failed", **facts | {"hosts": [{"host": "w0", "exit": None}]})
    found = slot_history(asked(), away, away)
    assert (found.failures, found.bids[BID].unprepared) == (0, 2)
    assert slot_history(asked(), away, prepared).bids[BID].unprepared == 0
    lacks = event("slot.setup_failed", **facts | {"hosts": [], "missing": True})
    found = slot_history(asked(), lacks, lacks)
    bid = found.bids[BID]
    assert (found.failures, found.failed_why, bid.unprepared, bid.missing_inputs) == (
        0,
        "pip",
        0,
        2,
    )
    assert slot_history(asked(), lacks, prepared).bids[BID].missing_inputs == 0
    changed = HistoryEvent(at=9.0, kind="job.changed", job="gpt")
    bid = after(asked(), away, lacks, changed).slots["gpt-0"].bids[BID]
    assert (bid.unprepared, bid.missing_inputs) == (0, 0), "the node failed with other settings"


# ---- jobs ----------------------------------------------------------------------------------------


def burnt() -> History:
    history = after(asked(), launched(), ended("success"))
    used = replace(
        history.slots["gpt-0"],
        failures=2, stalls=1, faults=1, preemptions=3, done_at=1.0, gave_up_at=2.0, gave_up_why="w",
        failed_at=3.0, failed_why="f", spent=4.0, saved=5, dropped=True, generation=7,
        unfit={"x": "y"},
    )  # fmt: skip
    return replace(history, slots={"gpt-0": used, "gpt2-0": used, "gpt-11": used})


@pytest.mark.parametrize("kind", ["job.changed", "job.resumed", "job.submitted"])
def test_a_changed_job_resets_failures(kind: str) -> None:
    history = burnt()
    found = apply_event(history, HistoryEvent(at=9.0, kind=kind, job="gpt"))
    assert found.slots["gpt2-0"] == history.slots["gpt2-0"]
    assert found.slots["gpt-11"] == found.slots["gpt-0"]
    now = found.slots["gpt-0"]
    assert (now.failures, now.stalls, now.faults, now.gave_up_at, now.gave_up_why) == (
        0, 0, 0, None, "",
    )  # fmt: skip
    assert (now.failed_at, now.failed_why, now.dropped, now.unfit) == (None, "", False, {})
    assert (now.generation, now.attempts, len(now.bids)) == (7, 1, 1)
    anew = kind == "job.submitted"
    assert (now.done_at is None, now.spent == 0, now.saved is None) == (anew, anew, anew)
    assert (now.preemptions == 0, now.first_launch_at is None) == (anew, anew)
    assert now.attempt and (now.attempt.verdict is Verdict.STOPPED) == anew


def test_a_resubmitted_job_leaves_a_running_attempt_alone() -> None:
    history = after(asked(), launched(), HistoryEvent(at=1, kind="job.submitted", job="gpt"))
    attempt = history.slots["gpt-0"].attempt
    assert attempt and attempt.verdict is None
    fresh = apply_event(after(asked()), HistoryEvent(at=1, kind="job.submitted", job="gpt"))
    assert fresh.slots["gpt-0"].attempt is None


def test_ends_of_slots() -> None:
    assert slot_history(event("slot.done", why="w")).done_at == 100.0
    gave_up = slot_history(event("slot.gave_up", why="w"))
    assert (gave_up.gave_up_at, gave_up.gave_up_why) == (100.0, "w")
    dropped = apply_event(after(asked()), HistoryEvent(at=1, kind="job.removed", job="gpt"))
    assert dropped.slots["gpt-0"].dropped


# ---- the world -----------------------------------------------------------------------------------

KEY = ("a", "v4-16", "spot")


def season(*events: HistoryEvent) -> ZoneStats:
    return after(asked(), *events).zone_stats.get(KEY, ZoneStats())


def refusal(kind: str, at: float = 100.0) -> HistoryEvent:
    return event("bid.refused", at, bid=BID, refusal=kind, message="no")


def test_zone_statistics_are_kept_by_zone_type_and_tier() -> None:
    assert zone_stats_key(offer("a")) == KEY


@pytest.mark.parametrize(
    ("kind", "pause", "counts"),
    [
        ("stockout", PAUSE_S_MIN, 1), ("rate", PAUSE_S_MIN, 0), ("broken", PAUSE_S_MIN, 0),
        ("quota", 300.0, 0), ("reservation", 300.0, 0), ("permission", 300.0, 0),
    ],
)  # fmt: skip
def test_a_refusal_pauses_its_zone(kind: str, pause: float, counts: int) -> None:
    found = season(refusal(kind))
    assert (found.pause_s, found.refusals, found.refused_at, found.sentence) == (
        pause, counts, 100.0, "no",
    )  # fmt: skip
    assert found.refusal is Refusal(kind)
    again = season(refusal(kind), refusal(kind, 200.0))
    assert again == found


@pytest.mark.parametrize("kind", ["taken", "configuration"])
def test_a_faulty_request_says_nothing_about_the_zone(kind: str) -> None:
    assert season(refusal(kind)) == ZoneStats()


def several(*times: tuple[float, float]) -> History:
    history = History()
    for number, (sent, refused) in enumerate(times, 1):
        name = f"gpt-0-g{number}-me"
        history = apply_event(history, asked(sent, name))
        said = event("bid.refused", refused, bid=name, refusal="stockout", message="no")
        history = apply_event(history, said)
    return history


def test_pauses_double_up_to_a_limit_and_once_per_request() -> None:
    assert several((1, 2), (20, 21)).zone_stats[KEY].pause_s == 2 * PAUSE_S_MIN
    assert several((1, 2), (1, 3)).zone_stats[KEY].pause_s == PAUSE_S_MIN
    many = several(*((1000 * n, 1000 * n + 1) for n in range(1, 12))).zone_stats[KEY]
    assert (many.pause_s, many.refusals) == (PAUSE_S_MAX, 11)
    quota = several((1, 2))
    quota = replace(quota, zone_stats={KEY: ZoneStats(refusal=Refusal.QUOTA, pause_s=300.0)})
    quota = after(asked(50, "gpt-0-g8-me"), event("bid.refused", 60, bid="gpt-0-g8-me",
                  refusal="stockout", message="no"), history=quota)  # fmt: skip
    assert quota.zone_stats[KEY].pause_s == PAUSE_S_MIN


def test_an_exhausted_quota_does_not_double_the_pause() -> None:
    quota = ZoneStats(refusal=Refusal.QUOTA, pause_s=300.0, refused_at=90.0)
    history = replace(after(asked(50)), zone_stats={KEY: quota})
    assert after(refusal("stockout"), history=history).zone_stats[KEY].pause_s == PAUSE_S_MIN


def test_requests_are_counted_for_a_minute() -> None:
    assert after(asked(10), asked(69.5)).asks == (10, 69.5)
    assert after(asked(10), asked(70)).asks == (70,)
    assert after(asked(10), asked(70.5)).asks == (70.5,)


def test_a_request_in_the_second_of_the_refusal_counts_as_later() -> None:
    for at, pause in ((100.0, 2 * PAUSE_S_MIN), (99.0, PAUSE_S_MIN)):
        first = after(asked(), refusal("stockout"))
        (refused_at,) = {one.refused_at for one in first.zone_stats.values()}
        assert refused_at == 100.0
        other = "gpt-0-g2-me"
        again = event("bid.refused", bid=other, refusal="stockout", message="no")
        assert after(asked(at, bid=other), again, history=first).zone_stats[KEY].pause_s == pause


def test_a_late_withdrawal_counts_as_one_short_node_life() -> None:
    late = slot_history(asked(), event("bid.withdrawn", bid="gpt-0-g1-me", zone="b")).bids[BID]
    assert late.offer.zone == "a"
    other = event("bid.withdrawn", bid="gpt-0-g3-me", zone="b")
    found = slot_history(asked(), other).bids["gpt-0-g3-me"]
    assert (found.nodes, found.generation, found.offer.zone) == (1, 3, "b")
    assert (found.withdrawals, found.withdrawn_at, found.asked_at) == (1, 100.0, 100.0)


def test_a_grant_shortens_the_pause_and_is_counted_once() -> None:
    granted = event("bid.granted", bid=BID)
    before = ZoneStats(refusals=3, pause_s=200.0, refusal=Refusal.STOCKOUT, sentence="no")
    history = replace(after(asked()), zone_stats={KEY: before})
    found = after(granted, granted, history=history).zone_stats[KEY]
    assert found == ZoneStats(grants=1, pause_s=200.0 - PAUSE_LESS_S)
    assert season(granted) == ZoneStats(grants=1)


def test_waiting_times_and_node_lifetimes_are_learned() -> None:
    ready = event("bid.ready", 70.0, bid=BID)
    lost = event("bid.lost", 500.0, bid=BID, cause="preempted")
    found = season(ready, ready, lost, lost)
    assert (found.waits_s, found.lives_s) == ((60.0,), (430.0,))
    assert season(lost).lives_s == ()
    assert season(ready).waits_s == (60.0,)
    late = event("bid.ready", 90.0, bid=BID)
    assert season(ready, late).waits_s == (60.0,)


def test_scripts_are_told_how_long_similar_nodes_last() -> None:
    history = after(asked(), event("bid.ready", 70.0, bid=BID))
    assert lifetime_env(history, "gpt-0", BID) == {}
    known = replace(history, zone_stats={KEY: ZoneStats(lives_s=(100.0, 401.0))})
    assert lifetime_env(known, "gpt-0", BID) == {"HERD_LIFE_S": "250"}
    assert lifetime_env(known, "gpt-0", "gpt-0-g9-me") == lifetime_env(known, "gpt-1", BID) == {}


def test_a_notice_ends_a_node_life_whether_or_not_the_loss_is_seen() -> None:
    ready = event("bid.ready", 70.0, bid=BID)
    told = event("bid.notice_received", 400.0, bid=BID, host="w0", notice="preempted")
    ends = (event("bid.withdrawn", 410.0, bid=BID), event("bid.deleted", 500.0, bid=BID))
    lost = event("bid.lost", 450.0, bid=BID, cause="preempted")
    for story in ((told, *ends), (told, told, *ends), (told, lost, *ends)):
        assert season(ready, *story).lives_s == (330.0,)
    assert season(told, *ends).lives_s == ()
    assert season(ready, *ends).lives_s == ()


def test_permission_refusals_are_retried_after_a_change_by_the_user() -> None:
    for kind, forgiven in (("permission", True), ("quota", True), ("stockout", False)):
        history = apply_event(
            after(asked(), refusal(kind)), HistoryEvent(at=1, kind="job.changed", job="x")
        )
        assert (history.zone_stats[KEY].pause_s == 0) == forgiven
        assert (history.zone_stats[KEY].refusal is None) == forgiven


def test_quarantine_ends_with_the_node() -> None:
    bad = event("node.quarantined", node=BID, why="w")
    assert after(asked(), bad).bad_nodes == {BID: 100.0}
    assert after(asked(), bad, event("bid.deleted", bid=BID)).bad_nodes == {}
    assert after(asked(), bad, event("bid.deleted", bid="gpt-0-g2-me")).bad_nodes == {BID: 100.0}


def test_events_of_the_engine_itself() -> None:
    frozen = HistoryEvent(at=5.0, kind="engine.deletions_paused", facts={"why": "w"})
    history = after(HistoryEvent(at=4.0, kind="engine.started"), frozen)
    assert (history.started_at, history.frozen_at) == (4.0, 5.0)
    history = after(HistoryEvent(at=6.0, kind="engine.deletions_resumed"), history=history)
    assert history.frozen_at is None


# ---- the journal ---------------------------------------------------------------------------------


def test_what_the_journal_contains() -> None:
    ask = Ask(bid=BID, slot="gpt-0", generation=1, offer=offer("a"), nodes=2, node_digest="n")
    (event_,) = events_before_step(PlannedStep(action=ask, why="w"), 7.0)
    assert (event_.kind, event_.at, event_.job, event_.slot) == (
        "bid.requested",
        7.0,
        "gpt",
        "gpt-0",
    )
    assert event_.facts == {
        "bid": BID, "generation": 1, "offer": asdict(offer("a")), "nodes": 2, "node_digest": "n",
        "why": "w",
    }  # fmt: skip
    (event_,) = events_before_step(
        PlannedStep(action=Withdraw(bid=BID, slot="gpt-0", zone="a"), why="w"), 7.0
    )
    assert (event_.kind, event_.facts) == ("bid.withdrawn", {"bid": BID, "zone": "a", "why": "w"})
    launch = Launch(
        bid=BID, slot="gpt-0", attempt="x", number=2, resume=True, code_digest="c", boots=("b",)
    )
    (event_,) = events_before_step(PlannedStep(action=launch, why="w"), 7.0)
    assert event_.kind == "attempt.launched"
    assert event_.facts == {
        "attempt": "x", "number": 2, "bid": BID, "code_digest": "c", "boots": ["b"], "why": "w",
    }  # fmt: skip
    for stacks in (False, True):
        stop = Stop(bid=BID, slot="gpt-0", attempt="x", grace_s=3, stacks=stacks)
        (event_,) = events_before_step(PlannedStep(action=stop, why="w"), 7.0)
        assert event_.kind == "attempt.stopping"
        known = {"attempt": "x", "bid": BID, "grace_s": 3, "stacks": stacks, "why": "w"}
        assert event_.facts == known
    for action in (
        Prepare(bid=BID, slot="gpt-0", code_digest="c"),
        Collect(bid=BID, slot="gpt-0", attempt="x"),
    ):
        assert events_before_step(PlannedStep(action=action, why="w"), 7.0) == ()


WELL = SlotHistory(bids={NAME: bid(prepared="c", prepared_at=NOW - 100)})


def slot_event(kind: str, **facts: object) -> HistoryEvent:
    return HistoryEvent(at=NOW, kind=kind, job="gpt", slot="gpt-0", facts=facts)


def test_an_event_of_an_unknown_trial_creates_no_sweep() -> None:
    told = slot_event("trial.reported", trial=7, step=1, value=0.5)
    assert apply_event(History(), told).sweeps == {}


def test_a_finished_trial_uses_no_budget_of_the_next() -> None:
    attempt = replace(ATTEMPT, trial=1)
    ended = slot_event("attempt.ended", attempt=attempt.id, verdict="failure", why="w")
    for trial, failures in ((1, 1), (2, 0), (None, 0)):
        history = History(slots={"gpt-0": replace(WELL, attempt=attempt, trial=trial)})
        found = apply_event(history, ended).slots["gpt-0"]
        assert (found.failures, found.failed_at) == (failures, NOW if failures else None)


@pytest.mark.parametrize("kind", ["trial.ended", "trial.waiting"])
def test_the_end_of_another_trial_leaves_the_slot_alone(kind: str) -> None:
    history = History(slots={"gpt-0": SlotHistory(trial=2, failures=1)})
    said = {"trial": 1, "outcome": "failed", "why": "w", "usage": {}}
    assert apply_event(history, slot_event(kind, **said)).slots["gpt-0"].trial == 2
    assert (
        apply_event(history, slot_event(kind, **said | {"trial": 2})).slots["gpt-0"].trial is None
    )


def test_a_setter_replaces_references_and_nothing_else() -> None:
    event = HistoryEvent(at=7.0, kind="bid.unhealthy", slot="gpt-0", facts={"state": "BAD"})
    changes = {"at": "$at", "state": "$state", "text": "broken", "empty": "", "none": None}
    expected = {"at": 7.0, "state": "BAD", "text": "broken", "empty": "", "none": None}
    assert resolve_values(changes, event) == expected
