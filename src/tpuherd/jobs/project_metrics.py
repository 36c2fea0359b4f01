"""Reads what Prometheus is told of a project: its jobs, nodes, hosts and engine."""

from collections.abc import Mapping

from tpuherd.accounting.accounts import Ledger
from tpuherd.jobs.job_queries import load_scene
from tpuherd.store.database import Database
from tpuherd.views.prometheus_text import ControllerFacts, HostValues, metrics_text


def project_metrics(
    store: Database,
    now: float,
    samples: Mapping[str, HostValues] | None = None,
    kept: Ledger | None = None,
) -> str:
    """Return all metrics; a given ledger is brought up to date."""
    scene = load_scene(store, now, kept)
    return metrics_text(scene, samples or {}, now, engine_facts(store, now))


def engine_facts(store: Database, now: float) -> ControllerFacts:
    holder = store.lease_holder(now)
    return ControllerFacts(led_since=holder.taken_at if holder else None)
