"""What the store tells of a sweep, for whoever asks."""

from typing import Any

from tpuherd.core import sweep
from tpuherd.core.spec import checked
from tpuherd.core.spec_job import Job, Search
from tpuherd.core.view_sweep import sweep_page
from tpuherd.core.wish import Wish
from tpuherd.desk.reading import named
from tpuherd.ports import Unfit
from tpuherd.store.database import Database


def swept(store: Database, now: float, name: str) -> tuple[dict[str, Any], Search | None]:
    """What `herd sweep status` shows, and how its trials are chosen if that is still known."""
    job, _ = named(store, name)
    found = sweep.of(event for _, event in store.events(job=job, kinds=tuple(sweep.SWEEPS)))
    search = searched(store.wishes().get(job))
    if search is None and not found.trials:
        raise Unfit(f"{job} is no sweep: its job file has no `sweep:`")
    return sweep_page(job, found, search, now), search


def searched(wish: Wish | None) -> Search | None:
    """How trials are chosen; None where the job was dropped, or another herd has written it."""
    job = checked(wish.document) if wish is not None else None
    return job.sweep if isinstance(job, Job) else None
