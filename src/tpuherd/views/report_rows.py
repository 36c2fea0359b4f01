"""The values of `herd report JOB`, as JSON. Their types are in results.py."""

from collections.abc import Iterable, Mapping, Sequence
from math import ceil
from typing import Any

from tpuherd.accounting.advice import ASSUMES, Advice, AdviceKind, advise
from tpuherd.accounting.costs import cost_by_state
from tpuherd.accounting.goodput import (
    PARTS,
    GoodputState,
    SlotAccount,
    find_recoveries,
    seconds_by_state,
)
from tpuherd.accounting.time_products import goodput_products
from tpuherd.diagnosis.known_rules import RULES
from tpuherd.views.format_text import format_span
from tpuherd.views.job_rows import recovery_row, total_money

Json = dict[str, Any]
WHOLE = "all"  #: the name of all parts of a recovery together


def report_page(job: str, accounts: Sequence[SlotAccount], now: float, *, removed: bool) -> Json:
    products = goodput_products(accounts)
    incidents = sorted(
        (
            {**recovery_row(one), "slot": account.slot}
            for account in accounts
            for one in find_recoveries(account)
        ),
        key=lambda row: row["at"],
    )
    found = advise(accounts)
    return {
        "job": job,
        "removed": removed,
        "now": now,
        "start": min((account.start for account in accounts), default=now),
        "end": max((account.end for account in accounts), default=now),
        "wanted_s": sum(account.wanted_s for account in accounts),
        "goodput": products.goodput,
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
        "slots": [slot_report(account) for account in accounts],
        "incidents": incidents,
        "parts": part_rows([row for row in incidents if row["finished"]]),
        "improvements": [improvement_row(one) for one in found.advice],
        "silence": found.silence,
    }


def slot_report(account: SlotAccount) -> Json:
    return {
        "slot": account.slot,
        "start": account.start,
        "end": account.end,
        "wanted_s": account.wanted_s,
        "goodput": account.goodput,
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


def improvement_row(advice: Advice) -> Json:
    return {
        "kind": str(advice.kind),
        "change": change_sentence(advice),
        "assumes": ASSUMES[advice.kind],
        "gain": advice.gain,
        "goodput": advice.goodput,
    }


def change_sentence(advice: Advice) -> str:
    now, then = format_span(advice.now_s), format_span(advice.then_s)
    times = f"{advice.times} time{'' if advice.times == 1 else 's'}"
    match advice.kind:
        case AdviceKind.CHECKPOINTS:
            return f"save a checkpoint every {then} of training, instead of every {now}"
        case AdviceKind.NOTICE:
            return (
                f"save when SIGTERM announces the end of the node: {times} it came, and {now} of"
                " work was lost on average"
            )
        case AdviceKind.FAILURES:
            causes = [rule.cause for id in advice.findings if (rule := RULES.get(id))]
            causes = [cause for cause in causes if "{" not in cause]  # of a line that is not here
            why = f" ({'; '.join(causes)})" if causes else ""
            return f"mend the command: it failed {times}{why}"
        case AdviceKind.STALL:
            return f"set `stall: {advice.then_s:.0f}s`: it hung {times}, for {now} on average"
        case AdviceKind.SETUP:
            return f"shorten the set-up of a node from {now} to {then} ({times})"
        case AdviceKind.BOOT:
            return f"shorten the start of Python and its imports from {now} to {then} ({times})"
        case AdviceKind.COMPILE:
            return (
                f"keep compiled programs: later attempts compiled for {now} on average, from a"
                f" cache it takes {then}"
            )
