"""Queries the store about a sweep.

Apart from other queries: they read the job file for how it searches, and what reads job files takes
a fifth of the time of `herd ls` to load.
"""

import json
import shlex
from collections.abc import Mapping
from typing import Any

from tpuherd.errors import InvalidInput
from tpuherd.history import apply_trial_events
from tpuherd.jobfile.job_spec import JobSpec
from tpuherd.jobfile.read_job import read_fields
from tpuherd.jobs.job_queries import resolve_name
from tpuherd.model.search import Search, parameter_variable
from tpuherd.model.stored_job import StoredJob
from tpuherd.store.database import Database
from tpuherd.sweeps.scheduler import value_text
from tpuherd.sweeps.trial_env import fill_placeholders
from tpuherd.views.sweep_table import sweep_page


def sweep_status(store: Database, now: float, name: str) -> tuple[dict[str, Any], Search | None]:
    """Return what `herd sweep status` shows, and the search if the job still has one."""
    job, _ = resolve_name(store, name)
    found = apply_trial_events.build_sweep(
        event for _, event in store.read_events(job=job, kinds=tuple(apply_trial_events.SWEEPS))
    )
    if found.items:
        raise InvalidInput(f"{job} is a map", hint=f"`herd map status {job}` shows it")
    search = sweep_search(store.stored_jobs().get(job))
    if search is None and not found.trials:
        raise InvalidInput(f"{job} is not a sweep: its job file has no `sweep:`")
    return sweep_page(job, found, search, now), search


def repeating_lines(stored: StoredJob | None, row: Mapping[str, Any]) -> list[str]:
    """Return lines with the command of a trial, and the one that runs it on a TPU again; none if
    the job was removed."""
    if stored is None:
        return []
    run, params = stored.document.get("run") or "", row["params"]
    values = {name: value_text(value) for name, value in params.items()}
    if isinstance(run, str):
        quoted = {name: shlex.quote(value) for name, value in values.items()}
        command = fill_placeholders(run.strip(), quoted)
    else:
        command = shlex.join(fill_placeholders(word, values) for word in run)
    if any(f"{{{name}}}" not in str(run) for name in values):  # the script reads variables
        variables = {parameter_variable(name): value for name, value in values.items()}
        variables["HERD_PARAMS"] = json.dumps(params)
        exports = " ".join(f"{name}={shlex.quote(value)}" for name, value in variables.items())
        command = f"export {exports}; {command}"
    fixed = {"method": "grid", "parameters": params}
    if metric := (stored.document.get("sweep") or {}).get("metric"):
        fixed["metric"] = metric
    again = ["--name", f"{stored.job}-best", "--copies", "1", "--set", f"sweep={json.dumps(fixed)}"]
    return [
        f"its command:     {command}",
        f"on a TPU again:  herd sweep JOB_FILE {shlex.join(again)}",
    ]


def sweep_search(stored: StoredJob | None) -> Search | None:
    """Return how trials are chosen; None if the job was removed or another version wrote it."""
    job = read_fields(stored.document) if stored is not None else None
    return job.sweep if isinstance(job, JobSpec) else None
