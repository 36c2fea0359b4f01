"""The values that `herd ls` and `herd status` show, as JSON or as text.

Their types are in results.py.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from tpuherd.accounting.costs import is_billed
from tpuherd.accounting.goodput import (
    STARTUP,
    AttemptAccount,
    GoodputState,
    LossRecovery,
    SlotAccount,
    combined_goodput,
    find_recoveries,
)
from tpuherd.accounting.slot_account import live_bids
from tpuherd.model.slot_history import BidRecord, Verdict
from tpuherd.model.slots_and_plan import Goal
from tpuherd.model.stored_job import StoredJob
from tpuherd.model.trouble import TroubleRecord
from tpuherd.views.finding_lines import finding_row
from tpuherd.views.format_text import format_span
from tpuherd.views.trouble_line import problem_rows

#: A slot's phase in a table.
WORDS: Mapping[GoodputState, str] = {
    GoodputState.QUEUE_FIRST: "queued",
    GoodputState.CAPACITY_WAIT: "queued",
    GoodputState.CONTROLLER_GAP: "waiting",
    GoodputState.PROVISION: "booting",
    GoodputState.HOST_SETUP: "setup",
    GoodputState.STARTING: "starting",
    GoodputState.RESTORE: "starting",
    GoodputState.COMPILE: "starting",
    GoodputState.PRODUCTIVE: "running",
    GoodputState.UNREPORTED: "running",
    GoodputState.SAVING: "running",
    GoodputState.WASTED: "running",
    GoodputState.STOPPING: "stopping",
    GoodputState.DETECT: "recovering",
    GoodputState.PROCESS_DOWN: "failing",
    GoodputState.HUNG: "failing",
    GoodputState.UNKNOWN: "silent",
    GoodputState.IDLE: "idle",
    GoodputState.STOPPED: "stopped",
    GoodputState.DONE: "done",
    GoodputState.GAVE_UP: "gave up",
}
#: States in which nothing runs, and a node that is there is unhealthy before all else.
AT_NODES = frozenset(
    {
        GoodputState.PROVISION,
        GoodputState.HOST_SETUP,
        GoodputState.CONTROLLER_GAP,
        GoodputState.IDLE,
    }
)
#: A job's goal in a table.
GOALS: Mapping[Goal, str] = {Goal.RUN: "run", Goal.IDLE: "idle", Goal.GONE: "stopped"}
LEAVING = "leaving"  #: no longer desired, and not completely deleted

Json = dict[str, Any]


@dataclass(frozen=True, kw_only=True, slots=True)
class StoreView:
    now: float
    stored_jobs: Mapping[str, StoredJob] = field(default_factory=dict)
    accounts: Mapping[str, SlotAccount] = field(default_factory=dict)
    states: Mapping[str, str] = field(
        default_factory=dict
    )  #: the engine's latest message for each slot
    map_ends: Mapping[str, tuple[int, str]] = field(
        default_factory=dict
    )  #: exit status and reason, by job, of maps whose items have all ended
    engine: bool = False  #: whether an engine runs
    troubles: Sequence[TroubleRecord] = ()


def wanted_slots(stored_job: StoredJob) -> tuple[str, ...]:
    return () if stored_job.goal is Goal.GONE else stored_job.slot_names


def job_slot_names(scene: StoreView, job: str) -> tuple[str, ...]:
    """The job's desired and existing slots, in order."""
    stored_job = scene.stored_jobs.get(job)
    there = [one.slot for one in scene.accounts.values() if one.job == job]
    if stored_job is not None and stored_job.goal is not Goal.GONE:
        there = [
            name for name in there if scene.accounts[name].bids
        ]  # else it was removed by scaling
    names = {*(wanted_slots(stored_job) if stored_job else ()), *there}
    return tuple(sorted(names, key=lambda name: int(name.rpartition("-")[2])))


def slot_phase(account: SlotAccount | None) -> str:
    if account is None:
        return "waiting"
    if account.state is GoodputState.STOPPED and account.bids:
        return LEAVING
    if account.state in AT_NODES:
        live = live_bids(account.bids)
        if any(bid.unhealthy_at for bid in live):
            return "unhealthy"
        if any(bid.silent_at for bid in live):
            return WORDS[GoodputState.UNKNOWN]
    return WORDS[account.state]


def job_row(scene: StoreView, job: str) -> Json:
    stored_job = scene.stored_jobs.get(job)
    names = job_slot_names(scene, job)
    accounts = [scene.accounts[name] for name in names if name in scene.accounts]
    phases: dict[str, int] = {}
    for name in names:
        word = slot_phase(scene.accounts.get(name))
        phases[word] = phases.get(word, 0) + 1
    bids = [bid for account in accounts if (bid := slot_bid(account)) is not None]
    starts = [stored_job.made_at] if stored_job else [account.start for account in accounts]
    attempts = [account.runs[-1].attempt.number for account in accounts if account.runs]
    return {
        "job": job,
        "user": stored_job.user if stored_job else "",
        "goal": GOALS[stored_job.goal] if stored_job else "removed",
        "phase": ", ".join(phases) if len(phases) < 2 else count_phases(phases),
        "phases": phases,
        "slots": len(wanted_slots(stored_job)) if stored_job else 0,
        "slices": int(stored_job.document.get("slices") or 1) if stored_job else 1,
        "ready": sum(bid.ready_at is not None and bid.silent_at is None for bid in bids),
        "idle": sum(bid.idle_at is not None for bid in bids),
        "type": sorted({bid.offer.type for bid in bids}),
        "zones": sorted({bid.offer.zone for bid in bids}),
        "attempt": max(attempts, default=0),
        "age_s": scene.now - min(starts, default=scene.now),
        **total_money(accounts),
        **goodput_values(accounts),
    }  # fmt: skip


def has_many_users(rows: Iterable[Mapping[str, Any]]) -> bool:
    """Whether the jobs are of several users: only then does it matter whose each one is."""
    return len({row["user"] for row in rows if row["user"]}) > 1


def count_phases(phases: Mapping[str, int]) -> str:
    """3 running, 1 queued"""
    return ", ".join(f"{many} {word}" for word, many in phases.items())


def goodput_values(accounts: Sequence[SlotAccount]) -> Json:
    """The goodput as far as it is known; and if it is not, or not of all time, how far and why."""
    share, unreported_s = combined_goodput(accounts), sum(one.unreported_s for one in accounts)
    many = "" if share is None else f" for {format_span(unreported_s)}"
    why = f"unknown{many}: the script reports no steps" if unreported_s else ""
    return {"goodput": share, "goodput_why": why}


def total_money(accounts: Iterable[SlotAccount]) -> Json:
    known = list(accounts)
    return {
        "cost": sum(account.cost for account in known),
        "per_hour": sum(account.per_hour for account in known),
        "price_known": all(account.priced for account in known),
    }


def slot_bid(account: SlotAccount) -> BidRecord | None:
    """The bid that fills the slot: that of its attempt, else the one closest to ready."""
    there = live_bids(account.bids)
    if account.runs and account.runs[-1].attempt.ended_at is None:
        for bid in there:
            if bid.name == account.runs[-1].attempt.bid:
                return bid
    granted = [bid for bid in there if bid.granted_at is not None]
    return min(granted, key=lambda bid: (bid.ready_at is None, bid.granted_at), default=None)


def job_page(scene: StoreView, job: str, names: Iterable[str]) -> Json:
    stored_job = scene.stored_jobs.get(job)
    return {
        **job_row(scene, job),
        "submitted_at": stored_job.made_at if stored_job else None,
        "who": stored_job.who if stored_job else "",
        "document": dict(stored_job.document) if stored_job else {},
        "engine": scene.engine,
        "problems": problem_rows(scene.troubles),
        "slot_details": [slot_page(scene, name) for name in names],
    }


def slot_page(scene: StoreView, name: str) -> Json:
    account = scene.accounts.get(name)
    page: Json = {
        "slot": name,
        "phase": slot_phase(account),
        "why": scene.states.get(name, ""),
    }
    if account is None:
        return {**page, "zone": "", "attempt": 0, "step": None, "saved": None,
                "best_step": None, "milestone": None, **goodput_values([]),
                "cost": 0.0, "per_hour": 0.0, "price_known": True, "steps_lost": 0, "wanted_s": 0.0,
                "seconds": {}, "bids": [], "attempts": [], "recoveries": []}  # fmt: skip
    bid = slot_bid(account)
    return {
        **page,
        "why": page["why"] or account.over_why,
        "zone": bid.offer.zone if bid else "",
        "attempt": account.runs[-1].attempt.number if account.runs else 0,
        "step": account.step,
        "saved": account.saved,
        "best_step": account.marks.get("best_step"),
        "milestone": account.marks.get("milestone"),
        **goodput_values([account]),
        **total_money([account]),
        "steps_lost": account.steps_lost,
        "wanted_s": account.wanted_s,
        "seconds": {str(state): time for state, time in account.seconds.items() if time},
        "bids": [bid_row(bid, scene.now) for bid in account.bids],
        "attempts": [attempt_row(run, scene.now) for run in account.runs],
        "recoveries": [recovery_row(one) for one in find_recoveries(account)],
    }


def bid_row(bid: BidRecord, now: float) -> Json:
    stage, since = bid_stage(bid)
    return {
        "bid": bid.name,
        "zone": bid.offer.zone,
        "type": bid.offer.type,
        "tier": bid.offer.tier,
        "stage": stage,
        "duration_s": now - since,
        "per_hour": bid.offer.price if is_billed(bid) else None,
        "message": (bid.withdrawn_why or bid.sentence).removeprefix(f"{bid.name}: "),
    }


def bid_stage(bid: BidRecord) -> tuple[str, float]:
    """The stage of a bid, and since when; the latest stage wins."""
    stages = (
        (bid.withdrawn_at, "being deleted"),
        (bid.lost_at, bid.lost_how or "lost"),
        (bid.notice_at, "notice received"),
        (
            bid.unhealthy_at,
            f"unhealthy ({bid.unhealthy_state})" if bid.unhealthy_state else "unhealthy",
        ),
        (bid.silent_at, "silent"),
        (bid.ready_at, "ready"),
        (bid.granted_at, "being created"),
    )
    if bid.refusal is not None and bid.withdrawn_at is None:
        return f"refused: {bid.refusal}", bid.sent_at or bid.asked_at
    for at, word in stages:
        if at is not None:
            return word, at
    return "requested", bid.asked_at


def attempt_row(run: AttemptAccount, now: float) -> Json:
    attempt = run.attempt
    return {
        "number": attempt.number,
        "attempt": attempt.id,
        "bid": attempt.bid,
        "zone": run.zone,
        "type": run.type,
        "launched_at": attempt.launched_at,
        "duration_s": (attempt.ended_at or now) - attempt.launched_at,
        "verdict": None if attempt.verdict is None else str(attempt.verdict),
        "why": run.why,
        "resumed": run.resumed,
        "startup": startup_parts(run),
        "step": run.points[-1][1] if run.points else None,
        "first_failing": attempt.host if attempt.verdict not in QUIET else "",
        "exit": attempt.exit,
        "lines": list(attempt.lines),
        "finding": finding_row(attempt.finding, attempt.lines, attempt.bid),
    }


def startup_parts(run: AttemptAccount | None) -> Json:
    startup = run.startup if run is not None else {}
    return {name: startup[name] for name in STARTUP if name in startup}


#: No host failed.
QUIET = frozenset({None, Verdict.SUCCESS, Verdict.STOPPED})


def recovery_row(recovery: LossRecovery) -> Json:
    return {
        "at": recovery.at,
        "finished": recovery.over,
        "verdict": str(recovery.verdict),
        "why": recovery.why,
        "attempt": recovery.before.attempt.number,
        "from_zone": recovery.before.zone,
        "to_zone": recovery.after.zone if recovery.after else None,
        "seconds": recovery.until - recovery.at,
        "parts": recovery.parts,
        "startup": startup_parts(recovery.after),
        "steps_lost": recovery.steps_lost,
    }
