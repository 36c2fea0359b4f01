"""Gives an existing job new code without stopping what runs."""

from dataclasses import replace

from tpuherd.jobs.open_project import Session, job_event, user_at_machine
from tpuherd.model.slots_and_plan import Goal
from tpuherd.model.stored_job import StoredJob
from tpuherd.sync.snapshot_store import Archive

SHORT = 12
WHEN = {
    Goal.RUN: "from the next attempt on",
    Goal.IDLE: "on its nodes at once",
    Goal.GONE: "when it is resumed",
}


def update_code(wish: StoredJob, snapshot: str, archive: Archive, here: Session) -> str:
    """Store the snapshot as the job's code; return a message for the user."""
    short = snapshot[:SHORT]
    if snapshot == wish.snapshot:
        return f"{wish.job} already has snapshot {short}"
    archive.pin_snapshots(wish.job, [snapshot, *([wish.snapshot] if wish.snapshot else [])])
    fresh = replace(
        wish, snapshot=snapshot, patient=True, changed_at=here.clock.now(), who=user_at_machine()
    )
    line = job_event("job.changed", fresh, f"gave it snapshot {short}, {WHEN[wish.goal]}")
    here.store.put_job(fresh, [line], expected=wish.revision)
    return f"{wish.job} has snapshot {short}, {WHEN[wish.goal]}"
