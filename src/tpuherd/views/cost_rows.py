"""The values of `herd cost` without a job: what all jobs cost, and will cost."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from math import inf, isinf
from typing import Any

from tpuherd.accounting.costs import cost_between
from tpuherd.accounting.goodput import BilledSpan, SlotAccount
from tpuherd.model.stored_job import StoredJob
from tpuherd.views.job_rows import total_money

Json = dict[str, Any]


@dataclass(frozen=True, kw_only=True, slots=True)
class Day:
    date: str  #: 2026-01-31
    start: float
    end: float


@dataclass(frozen=True, kw_only=True, slots=True)
class Calendar:
    """The days to show, and the present month, by the user's clock."""

    now: float
    days: tuple[Day, ...]  #: today is the last
    month_start: float
    month_end: float

    @property
    def today(self) -> Day:
        return self.days[-1]


def cost_page(
    accounts: Iterable[SlotAccount],
    past: Mapping[str, Sequence[BilledSpan]],
    jobs: Mapping[str, StoredJob],
    calendar: Calendar,
) -> Json:
    """`past`: what earlier jobs of the same name were billed."""
    by_job: dict[str, list[SlotAccount]] = {job: [] for job in (*jobs, *past)}
    for account in accounts:
        by_job.setdefault(account.job, []).append(account)
    spans = {
        job: [*past.get(job, ()), *(span for account in each for span in account.billed)]
        for job, each in by_job.items()
    }
    rows = [
        cost_row(job, each, spans[job], jobs.get(job), calendar) for job, each in by_job.items()
    ]
    rows = [row for row in rows if row["total"] or row["per_hour"] or not row["removed"]]
    everything = [span for each in spans.values() for span in each]
    month = cost_between(everything, calendar.month_start, calendar.now)
    today = sum(row["today"] for row in rows)
    return {
        "now": calendar.now,
        "total": sum(row["total"] for row in rows),
        "today": today,
        "per_hour": sum(row["per_hour"] for row in rows),
        "price_known": all(row["price_known"] for row in rows),
        "jobs": sorted(rows, key=lambda row: (-row["total"], row["job"])),
        "days": [day_row(day, spans) for day in calendar.days],
        "forecast": {
            "day": today + sum(row["forecast_day"] for row in rows),
            "month": month + sum(row["forecast_month"] for row in rows),
            "day_end": calendar.today.end,
            "month_end": calendar.month_end,
        },
    }


def cost_row(
    job: str,
    accounts: Sequence[SlotAccount],
    spans: Sequence[BilledSpan],
    stored: StoredJob | None,
    calendar: Calendar,
) -> Json:
    money = total_money(accounts)
    limit = read_limit(stored)
    share = inf if limit is None else slot_limit(limit, stored)
    ends = [limit_time(account, share, calendar.now) for account in accounts]
    rising = [at for account, at in zip(accounts, ends, strict=True) if account.per_hour]
    limit_at = max(rising, default=inf)
    return {
        "job": job,
        "removed": stored is None,
        "total": sum(span.cost for span in spans) + sum(account.moved for account in accounts),
        "today": cost_between(spans, calendar.today.start, calendar.today.end),
        "per_hour": money["per_hour"],
        "price_known": all(span.per_hour is not None for span in spans),
        "max_cost": limit,
        "forecast_day": forecast_cost(accounts, ends, calendar.now, calendar.today.end),
        "forecast_month": forecast_cost(accounts, ends, calendar.now, calendar.month_end),
        "limit_at": None if isinf(limit_at) else limit_at,
    }


def read_limit(stored: StoredJob | None) -> float | None:
    """The job's `max_cost`."""
    found = None if stored is None else stored.document.get("max_cost")
    return float(found) if isinstance(found, int | float) else None


def slot_limit(limit: float, stored: StoredJob | None) -> float:
    """Its copies share the limit equally."""
    return limit / max(1, len(stored.slot_names)) if stored is not None else limit


def limit_time(account: SlotAccount, limit: float, now: float) -> float:
    """When a slot reaches its limit at the present rate, and gives its nodes back."""
    if not account.per_hour or isinf(limit):
        return inf
    return now + max(0.0, limit - account.cost) / account.per_hour * 3600


def forecast_cost(
    accounts: Iterable[SlotAccount], ends: Iterable[float], now: float, until: float
) -> float:
    """Dollars from now on until then."""
    return sum(
        account.per_hour / 3600 * max(0.0, min(until, end) - now)
        for account, end in zip(accounts, ends, strict=True)
    )


def day_row(day: Day, spans: Mapping[str, Sequence[BilledSpan]]) -> Json:
    costs = {job: cost_between(each, day.start, day.end) for job, each in spans.items()}
    return {
        "date": day.date,
        "start": day.start,
        "end": day.end,
        "cost": sum(costs.values()),
        "jobs": {job: cost for job, cost in sorted(costs.items()) if cost},
    }
