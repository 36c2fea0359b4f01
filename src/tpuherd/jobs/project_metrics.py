"""Reads what Prometheus is told of a project: its jobs, nodes, hosts and engine."""

from collections.abc import Mapping
from contextlib import closing

from tpuherd.accounting.accounts import Ledger
from tpuherd.history.apply_zone_events import ORPHAN_KINDS, current_orphans
from tpuherd.jobs.job_queries import load_scene
from tpuherd.store.database import Database
from tpuherd.store.notify_state import NotifyState, load_notify_state
from tpuherd.store.sample_store import SampleStore
from tpuherd.views.prometheus_text import (
    ControllerFacts,
    HostValues,
    ReceiverCounts,
    metrics_text,
)


def project_metrics(
    store: Database,
    now: float,
    samples: Mapping[str, HostValues] | None = None,
    kept: Ledger | None = None,
) -> str:
    """Return all metrics; a given ledger is brought up to date."""
    scene = load_scene(store, now, kept)
    if samples is None:
        with closing(SampleStore(store.folder)) as sample_store:
            samples = sample_store.latest_hosts()
    return metrics_text(scene, samples, now, engine_facts(store, now))


def engine_facts(store: Database, now: float) -> ControllerFacts:
    holder = store.lease_holder(now)
    return ControllerFacts(
        led_since=holder.taken_at if holder else None,
        orphans=len(current_orphans(event for _, event in store.read_events(kinds=ORPHAN_KINDS))),
        receivers=receiver_counts(load_notify_state(store.folder) or NotifyState()),
    )


def receiver_counts(state: NotifyState) -> dict[str, ReceiverCounts]:
    """Add up the outboxes of equal names: of several jobs, or before a change."""
    found: dict[str, ReceiverCounts] = {}
    for box in state.boxes.values():
        before = found.get(box.title, ReceiverCounts())
        found[box.title] = ReceiverCounts(
            sent=before.sent + box.sent,
            failures=before.failures + box.failures,
            waiting=before.waiting + len(box.pending) + box.dropped,
        )
    return found
