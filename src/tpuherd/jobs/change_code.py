"""Makes a folder the code of a job, or the part of it that the folder is."""

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from tpuherd.jobfile.read_job import JobSpec, read_fields
from tpuherd.jobfile.run_script import find_script
from tpuherd.jobs.open_project import Session, job_event, user_at_machine
from tpuherd.jobs.upload_consent import ask_upload_consent
from tpuherd.model.slots_and_plan import Goal
from tpuherd.model.stored_job import StoredJob
from tpuherd.sync.snapshot_store import Archive, open_archive
from tpuherd.sync.take_snapshot import Snapshot
from tpuherd_host.agent.snapshots.manifest import pack_row, parse_row

OTHERS_CODE = "ask them, or run the folder in a job of your own"
SHORT_ID = 12
CODE_APPLIES = {
    Goal.RUN: "from the next attempt on",
    Goal.IDLE: "on its nodes at once",
    Goal.GONE: "when it is resumed",
}


@dataclass(frozen=True, kw_only=True, slots=True)
class CodeChange:
    snapshot: str
    sentence: str


async def change_code(
    name: str, take: Callable[[Archive], Snapshot], folder: Path | None, here: Session, *, hint: str
) -> CodeChange | None:
    """Give the job the code that `take` returns; None if the user says no. Nothing is sent yet.

    `folder`: where the code is on this machine; None if it is a commit of a repository.
    """
    stored = here.get_job(name, hint=hint)
    here.check_user(stored, hint=OTHERS_CODE)
    archive = open_archive(here.place.folders.state)
    first = await asyncio.to_thread(take, archive)
    found = await ask_upload_consent(first, lambda: take(archive), archive, here.prompter)
    if found is None:
        return None
    old = archive.load_rows(stored.snapshot) if stored.snapshot else None
    part = find_part(script_of(stored), folder, found.rows, old or ())
    if part is None:
        question = (
            f"{found.source} has no {script_of(stored)}, which the job's command runs:"
            f" it would be all the code of {name}"
        )
        if not await here.prompter.ask_confirmation(question):
            return None
    if not part:
        return store_change(stored, found.id, "", archive, here)
    merged = archive.add(replace_part(old or (), found.rows, part))
    return store_change(stored, merged.id, f" with its {part}/ from here", archive, here)


def script_of(stored: StoredJob) -> str:
    """The file that the job's command runs; "" if unknown."""
    job = read_fields(stored.document)
    return find_script(job) if isinstance(job, JobSpec) else ""


def find_part(
    script: str, folder: Path | None, rows: Sequence[bytes], old: Sequence[bytes]
) -> str | None:
    """Return which folder of the code the new rows are; "": all of it; None: it seems a mistake,
    as the job's command would not find its script.
    """
    names, known = row_paths(rows), row_paths(old)
    if not script or script in names or script not in known:
        return ""
    parts = folder.resolve().parts[1:] if folder else ()
    for start in range(len(parts)):
        part = "/".join(parts[start:])
        if any(name.startswith(f"{part}/") for name in known):
            return part
    return None


def row_paths(rows: Sequence[bytes]) -> frozenset[str]:
    return frozenset(parse_row(row).path.decode(errors="replace") for row in rows)


def replace_part(old: Sequence[bytes], new: Sequence[bytes], part: str) -> list[bytes]:
    """Return the rows of the old code with a folder of it replaced."""
    place = part.encode() + b"/"
    moved = (parse_row(row) for row in new)
    return [
        *(row for row in old if not row.startswith(place)),
        *(pack_row(place + one.path, one.mode, one.size, one.id) for one in moved),
    ]


def store_change(
    stored: StoredJob, snapshot: str, what: str, archive: Archive, here: Session
) -> CodeChange:
    """Store the snapshot as the job's code; the engine takes it from there."""
    here.check_user(stored, hint=OTHERS_CODE)
    short = snapshot[:SHORT_ID]
    if snapshot == stored.snapshot:
        return CodeChange(snapshot=snapshot, sentence=f"{stored.job} already has snapshot {short}")
    archive.pin_snapshots(stored.job, [snapshot, *([stored.snapshot] if stored.snapshot else [])])
    fresh = replace(
        stored, snapshot=snapshot, patient=True, changed_at=here.clock.now(), who=user_at_machine()
    )
    applies = f"snapshot {short}{what}, {CODE_APPLIES[stored.goal]}"
    line = job_event("job.changed", fresh, f"gave it {applies}")
    here.store.put_job(fresh, [line], expected=stored.revision)
    return CodeChange(snapshot=snapshot, sentence=f"{stored.job} has {applies}")
