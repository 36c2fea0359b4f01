"""The tables of jobs, one row per job, and of what the users of a store agree on."""

import json
import sqlite3
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from tpuherd.errors import Superseded
from tpuherd.model.slots_and_plan import Goal
from tpuherd.model.stored_job import StoredJob
from tpuherd.store.schema import corrupt_error

COLUMNS = "job, goal, document, snapshot, made_at, changed_at, revision, who, patient, owned_by"
OLDER = COLUMNS.replace("owned_by", "'' AS owned_by")  #: for a table without that column


def read_jobs(connection: sqlite3.Connection, job: str | None = None) -> Mapping[str, StoredJob]:
    """All jobs by name, or only the job of this name."""
    chosen, values = ("", ()) if job is None else ("WHERE job = ?", (job,))
    columns = COLUMNS if has_users(connection) else OLDER
    rows = connection.execute(f"SELECT {columns} FROM jobs {chosen} ORDER BY job", values)
    return {row[0]: parse_job_row(row) for row in rows}


def has_users(connection: sqlite3.Connection) -> bool:
    """Whether the table says whose each job is. Others are read where nothing is migrated."""
    return any(row[1] == "owned_by" for row in connection.execute("PRAGMA table_info(jobs)"))


def read_revisions(connection: sqlite3.Connection) -> Mapping[str, tuple[int, float]]:
    """The revision of each job and when it was made, without reading the documents."""
    rows = connection.execute("SELECT job, revision, made_at FROM jobs")
    return {job: (revision, made_at) for job, revision, made_at in rows}


def parse_job_row(row: tuple[Any, ...]) -> StoredJob:
    """A row's job. SQLite does not check contents: a malformed row is damage."""
    job, goal, document, snapshot, made_at, changed_at, revision, who, patient, user = row
    try:
        content = json.loads(document)
        wanted = Goal(goal)
    except (ValueError, TypeError) as error:
        raise corrupt_error(f"the job {job!r}") from error
    words = all(isinstance(one, str) for one in (job, snapshot, who, user))
    numbers = all(isinstance(one, int | float) for one in (made_at, changed_at, revision))
    if not (words and numbers and isinstance(content, dict)):
        raise corrupt_error(f"the job {job!r}")
    return StoredJob(
        job=job,
        goal=wanted,
        document=content,
        snapshot=snapshot,
        made_at=made_at,
        changed_at=changed_at,
        revision=revision,
        who=who,
        patient=bool(patient),
        user=user,
    )


def put_job(connection: sqlite3.Connection, stored: StoredJob, expected: int | None) -> StoredJob:
    """Write it as the next revision, within a transaction; returns what was written."""
    row = connection.execute("SELECT revision FROM jobs WHERE job = ?", (stored.job,)).fetchone()
    revision = 0 if row is None else int(row[0])
    if expected is not None and expected != revision:
        raise Superseded(
            f"{stored.job} was changed by another command meanwhile", hint="check it and try again"
        )
    new = replace(stored, revision=revision + 1)
    connection.execute(
        f"INSERT OR REPLACE INTO jobs ({COLUMNS}) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
        (
            new.job,
            new.goal.value,
            json.dumps(new.document),
            new.snapshot,
            new.made_at,
            new.changed_at,
            new.revision,
            new.who,
            int(new.patient),
            new.user,
        ),
    )
    return new


def remove_job(connection: sqlite3.Connection, job: str) -> None:
    """Delete its row, within a transaction."""
    connection.execute("DELETE FROM jobs WHERE job = ?", (job,))


def read_setting(connection: sqlite3.Connection, name: str) -> Mapping[str, Any] | None:
    """What all users of the store agree on under this name; None: nothing yet."""
    row = connection.execute("SELECT document FROM settings WHERE name = ?", (name,)).fetchone()
    if row is None:
        return None
    try:
        content = json.loads(row[0])
    except (ValueError, TypeError) as error:
        raise corrupt_error(f"the setting {name!r}") from error
    if not isinstance(content, dict):
        raise corrupt_error(f"the setting {name!r}")
    return content


def put_setting(connection: sqlite3.Connection, name: str, document: Mapping[str, Any]) -> None:
    """Write it, within a transaction."""
    connection.execute(
        "INSERT OR REPLACE INTO settings VALUES (?, ?)", (name, json.dumps(document))
    )
