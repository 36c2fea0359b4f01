"""Where time and money went: of one job, and of all."""

from collections.abc import Mapping
from datetime import UTC, date, datetime, timedelta
from typing import Any

from tpuherd.accounting.accounts import current_accounts
from tpuherd.accounting.goodput import SlotAccount
from tpuherd.errors import NotFound
from tpuherd.jobs.job_queries import resolve_name
from tpuherd.jobs.ledger_cache import load_ledger
from tpuherd.store.database import Database
from tpuherd.views.cost_rows import Calendar, Day, cost_page
from tpuherd.views.job_cost_rows import job_cost_page


def job_cost(store: Database, now: float, name: str) -> dict[str, Any]:
    """Return what `herd cost NAME` shows of a job or a slot, also of a removed job."""
    job, accounts = load_accounts(store, now, name)
    return job_cost_page(job, accounts, now, removed=job not in store.stored_jobs())


def load_accounts(store: Database, now: float, name: str) -> tuple[str, list[SlotAccount]]:
    """Return the job of this name and the accounts of its slots, or that of the one slot."""
    job, slot = resolve_name(store, name)
    accounts = current_accounts(load_ledger(store), now)
    found = [
        account
        for account in accounts.values()
        if account.job == job and slot in (None, account.slot)
    ]
    if not found:
        raise NotFound(
            f"nothing is recorded of {name} yet",
            hint="the engine has not looked at it; try again in a moment",
        )
    return job, sorted(found, key=slot_number)


def slot_number(account: SlotAccount) -> int:
    tail = account.slot.rpartition("-")[2]
    return int(tail) if tail.isdecimal() else 0


def all_costs(store: Database, now: float, days: int) -> dict[str, Any]:
    """Return what `herd cost` shows: the costs of all jobs, by day for so many days."""
    ledger = load_ledger(store)
    accounts: Mapping[str, SlotAccount] = current_accounts(ledger, now)
    return cost_page(accounts.values(), ledger.past, store.stored_jobs(), local_calendar(now, days))


def local_calendar(now: float, days: int) -> Calendar:
    """Return the last days and the month, by the clock of this machine."""
    today = datetime.fromtimestamp(now, UTC).astimezone().date()
    first = today.replace(day=1)
    return Calendar(
        now=now,
        days=tuple(local_day(today - timedelta(days=back)) for back in reversed(range(days))),
        month_start=midnight(first),
        month_end=midnight((first + timedelta(days=31)).replace(day=1)),
    )


def local_day(day: date) -> Day:
    return Day(date=day.isoformat(), start=midnight(day), end=midnight(day + timedelta(days=1)))


def midnight(day: date) -> float:
    """Return when a day begins here, also where clocks are changed."""
    return datetime(day.year, day.month, day.day).astimezone().timestamp()
