"""What the store tells of a sweep, for whoever asks."""

from typing import Any

from tpuherd.errors import Unfit
from tpuherd.history import apply_trial_events
from tpuherd.jobfile.job_spec import Job
from tpuherd.jobfile.read_job import checked
from tpuherd.jobs.job_queries import named
from tpuherd.model.search import Search
from tpuherd.model.stored_job import Wish
from tpuherd.store.database import Database
from tpuherd.views.sweep_table import sweep_page


def swept(store: Database, now: float, name: str) -> tuple[dict[str, Any], Search | None]:
    """What `herd sweep status` shows, and how its trials are chosen if that is still known."""
    job, _ = named(store, name)
    found = apply_trial_events.of(
        event for _, event in store.events(job=job, kinds=tuple(apply_trial_events.SWEEPS))
    )
    search = searched(store.wishes().get(job))
    if search is None and not found.trials:
        raise Unfit(f"{job} is no sweep: its job file has no `sweep:`")
    return sweep_page(job, found, search, now), search


def searched(wish: Wish | None) -> Search | None:
    """How trials are chosen; None where the job was dropped, or another herd has written it."""
    job = checked(wish.document) if wish is not None else None
    return job.sweep if isinstance(job, Job) else None
