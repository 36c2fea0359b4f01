"""The rows of the web page and of `herd top`: jobs, their slots, nodes and their hosts, as JSON.

What is unknown is null. Times are seconds since 1970; money is dollars.
"""

from collections.abc import Collection, Iterable, Mapping

from tpuherd.accounting.costs import cost_between
from tpuherd.accounting.goodput import BilledSpan, GoodputState, SlotAccount
from tpuherd.catalogue import accelerators
from tpuherd.model.samples import CHIP_VALUES, HOST_VALUES, ChipSample, HostSample, Series
from tpuherd.model.slot_history import BidRecord
from tpuherd.model.slots_and_plan import HistoryEvent
from tpuherd.model.stored_job import StoredJob
from tpuherd.views.event_lines import event_line
from tpuherd.views.job_rows import Json as Json
from tpuherd.views.job_rows import (
    StoreView,
    bid_stage,
    goodput_values,
    job_row,
    job_slot_names,
    slot_bid,
    slot_phase,
)

#: What a slot that nothing is known of is doing: herd has not asked for a node yet.
NEW = GoodputState.CONTROLLER_GAP


def overview_job_row(view: StoreView, job: str) -> Json:
    """A job without its slots."""
    stored = view.stored_jobs.get(job)
    return {
        **job_row(view, job),
        "kind": job_kind(stored),
        "submitted_at": stored.made_at if stored else None,
    }


def job_kind(stored: StoredJob | None) -> str:
    """job, sweep or map"""
    sweep = stored.document.get("sweep") if stored is not None else None
    if not isinstance(sweep, Mapping):
        return "job"
    return "map" if sweep.get("items") else "sweep"


def overview_slot_rows(
    view: StoreView, job: str, before: Mapping[str, Json], changed: Collection[str]
) -> dict[str, Json]:
    """The slots of a job, by name and in order; those that did not change as they were before."""
    return {
        name: before[name]
        if name in before and name not in changed
        else overview_slot_row(view, name)
        for name in job_slot_names(view, job)
    }


def overview_slot_row(view: StoreView, name: str) -> Json:
    account = view.accounts.get(name)
    row: Json = {
        "slot": name,
        "phase": slot_phase(account),
        "total": None,
        "state": str(NEW if account is None else account.state),
        "why": view.states.get(name, "") or (account.over_why if account else ""),
    }
    bid = None if account is None else slot_bid(account)
    offer = None if bid is None else bid.offer
    row |= {
        "zone": offer.zone if offer else None,
        "type": offer.type if offer else None,
        "tier": offer.tier if offer else None,
        "node": bid.name if bid else None,
    }
    if account is None:
        return {**row, "attempt": 0, "step": None, "saved": None, **goodput_values([]),
                "cost": 0.0, "per_hour": 0.0}  # fmt: skip
    return {
        **row,
        "attempt": account.runs[-1].attempt.number if account.runs else 0,
        "step": account.step,
        "saved": account.saved,
        **goodput_values([account]),
        "cost": account.cost,
        "per_hour": account.per_hour,
    }


def node_rows(account: SlotAccount) -> dict[str, Json]:
    """The nodes that exist or are being created for a slot, by name, without their hosts."""
    return {bid.name: node_row(bid, account) for bid in account.bids if has_nodes(bid)}


def has_nodes(bid: BidRecord) -> bool:
    """Whether the cloud has granted its nodes, and has not deleted them."""
    granted = bid.granted_at is not None or bid.ready_at is not None
    return granted and bid.nodes_deleted_at is None


def node_row(bid: BidRecord, account: SlotAccount) -> Json:
    stage, since = bid_stage(bid)
    chips = chips_per_host(bid.offer.type)
    return {
        "node": bid.name,
        "job": account.job,
        "slot": account.slot,
        "zone": bid.offer.zone,
        "type": bid.offer.type,
        "tier": bid.offer.tier,
        "stage": stage,
        "since": since,
        "per_hour": bid.offer.price,
        "chips_per_host": chips,
        "hosts": [empty_host_row(name, at, chips) for at, name in enumerate(host_names(bid))],
    }


def chips_per_host(type: str) -> int:
    """0 for a type that this herd does not know."""
    known = accelerators().get(type)
    return known.chips_per_host if known is not None else 0


def host_names(bid: BidRecord) -> list[str]:
    """gpt-0-g1-7kq/w0, …; of a multislice run those of all nodes, in order."""
    nodes = [bid.name] if bid.nodes == 1 else [f"{bid.name}-{part}" for part in range(bid.nodes)]
    return [f"{node}/w{worker}" for node in nodes for worker in range(bid.offer.hosts)]


def empty_host_row(name: str, worker: int, chips: int) -> Json:
    """A host without a sample; `worker` counts through all nodes of a multislice run."""
    unknown: list[None] = [None] * chips
    return {
        "host": name,
        "worker": worker,
        "at": None,
        **dict.fromkeys(HOST_VALUES),
        **{value: list(unknown) for value in CHIP_VALUES},
        "why": "",
    }


def sampled_host_row(empty: Json, sample: HostSample) -> Json:
    """The same host with its last sample; it has as many chips as its type says."""
    blank = [ChipSample()] * len(empty["duty"])
    chips = [*sample.chips, *blank][: len(blank)]
    return {
        **empty,
        "at": sample.at,
        "cpu": sample.cpu_percent,
        "ram_used": sample.ram_used,
        "ram_total": sample.ram_total,
        "disk_free": sample.disk_free,
        "disk_total": sample.disk_total,
        "net_in": sample.net_in,
        "net_out": sample.net_out,
        "hbm_used": [chip.hbm_used for chip in chips],
        "hbm_total": [chip.hbm_total for chip in chips],
        "duty": [chip.duty_percent for chip in chips],
        "why": sample.why,
    }


def series_row(series: Series) -> Json:
    """A series for a chart, its points as [at, low, mean, high]."""
    name = series.name
    return {
        "slot": name.slot,
        "host": name.host,
        "chip": name.chip,
        "name": name.name,
        "points": series.points,
    }


def overview_event_row(seq: int, event: HistoryEvent) -> Json:
    return {
        "seq": seq,
        "at": event.at,
        "kind": event.kind,
        "job": event.job,
        "slot": event.slot,
        "line": event_line(event),
    }


def total_cost(
    accounts: Iterable[SlotAccount], past: Iterable[BilledSpan], midnight: float, now: float
) -> Json:
    """The money of all jobs: ever, since midnight, and for an hour as it is now.

    `past`: what earlier jobs of the same names were billed.
    """
    known, before = list(accounts), list(past)
    today = sum(cost_between(account.billed, midnight, now) for account in known)
    return {
        "today": today + cost_between(before, midnight, now),
        "total": sum(account.cost for account in known) + cost_between(before, 0.0, now),
        "per_hour": sum(account.per_hour for account in known),
        "price_known": all(account.priced for account in known),
    }


#: What is shown of an engine when none runs.
NO_ENGINE: Json = {"running": False, "since": None, "host": None, "pid": None, "version": None}


def engine_row(*, since: float, host: str, pid: int, version: str) -> Json:
    """The engine that keeps the jobs running."""
    about = {"since": since, "host": host, "pid": pid, "version": version or None}
    return {"running": True, **about}
