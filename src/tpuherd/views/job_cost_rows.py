"""The values of `herd cost JOB`, as JSON. Their types are in cost_results.py."""

from collections.abc import Iterable, Mapping, Sequence
from math import ceil
from typing import Any

from tpuherd.accounting.costs import cost_by_state
from tpuherd.accounting.goodput import (
    PARTS,
    GoodputState,
    SlotAccount,
    find_recoveries,
    seconds_by_state,
)
from tpuherd.accounting.time_products import goodput_products
from tpuherd.views.job_rows import goodput_values, recovery_row, total_money

Json = dict[str, Any]
WHOLE = "all"  #: the name of all parts of a recovery together


def job_cost_page(job: str, accounts: Sequence[SlotAccount], now: float, *, removed: bool) -> Json:
    products = goodput_products(accounts)
    incidents = sorted(
        (
            {**recovery_row(one), "slot": account.slot}
            for account in accounts
            for one in find_recoveries(account)
        ),
        key=lambda row: row["at"],
    )
    return {
        "job": job,
        "removed": removed,
        "now": now,
        "start": min((account.start for account in accounts), default=now),
        "end": max((account.end for account in accounts), default=now),
        "wanted_s": sum(account.wanted_s for account in accounts),
        **goodput_values(accounts),
        "scheduling": products.scheduling,
        "runtime": products.runtime,
        "program": products.program,
        "seconds": named_sums(
            seconds_by_state(span for account in accounts for span in account.spans)
        ),
        "money": sum_mappings(named_sums(cost_by_state(account)) for account in accounts),
        **total_money(accounts),
        "moved": sum(account.moved for account in accounts),
        "steps_lost": sum(account.steps_lost for account in accounts),
        "slots": [slot_cost(account) for account in accounts],
        "incidents": incidents,
        "parts": part_rows([row for row in incidents if row["finished"]]),
    }


def slot_cost(account: SlotAccount) -> Json:
    return {
        "slot": account.slot,
        "start": account.start,
        "end": account.end,
        "wanted_s": account.wanted_s,
        **goodput_values([account]),
        "seconds": named_sums(account.seconds),
        "money": named_sums(cost_by_state(account)),
        "cost": account.cost,
        "steps_lost": account.steps_lost,
        "spans": [
            {"start": span.start, "end": span.end, "state": str(span.state)}
            for span in account.spans
        ],
    }


def named_sums(values: Mapping[GoodputState, float]) -> dict[str, float]:
    """The states with a value, in the order in which a slot goes through them."""
    return {str(state): values[state] for state in GoodputState if values.get(state)}


def sum_mappings(each: Iterable[Mapping[str, float]]) -> dict[str, float]:
    sums: dict[str, float] = {}
    for values in each:
        for name, value in values.items():
            sums[name] = sums.get(name, 0.0) + value
    return sums


def part_rows(incidents: Sequence[Json]) -> list[Json]:
    """How long each part of the recoveries took; none without any."""
    if not incidents:
        return []
    times = {part: [row["parts"][part] for row in incidents] for part in PARTS}
    return [
        part_row(part, seconds)
        for part, seconds in {**times, WHOLE: [row["seconds"] for row in incidents]}.items()
    ]


def part_row(part: str, seconds: Sequence[float]) -> Json:
    ordered = sorted(seconds)
    return {
        "part": part,
        "p50": quantile(ordered, 0.5),
        "p90": quantile(ordered, 0.9),
        "worst": ordered[-1],
        "total": sum(ordered),
    }


def quantile(ordered: Sequence[float], share: float) -> float:
    """The least value that this share of all does not exceed."""
    return ordered[max(0, ceil(share * len(ordered)) - 1)]
