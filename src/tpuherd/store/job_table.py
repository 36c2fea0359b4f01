"""The tables of jobs, one row per job, and of what the users of a store agree on."""

import json
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from tpuherd.errors import Superseded
from tpuherd.model.slots_and_plan import Goal
from tpuherd.model.stored_job import StoredJob
from tpuherd.store.connection import Connection
from tpuherd.store.schema import corrupt_error

COLUMNS = "job, goal, document, snapshot, made_at, changed_at, revision, who, patient, owned_by"
CHANGED = ", ".join(f"{one} = excluded.{one}" for one in COLUMNS.split(", ")[1:])
REPLACE = f"ON CONFLICT (job) DO UPDATE SET {CHANGED}"


def read_jobs(connection: Connection, job: str | None = None) -> Mapping[str, StoredJob]:
    """All jobs by name, or only the job of this name."""
    chosen, values = ("", ()) if job is None else ("WHERE job = ?", (job,))
    rows = connection.execute(f"SELECT * FROM jobs {chosen} ORDER BY job", values)
    there = [about[0] for about in rows.description or ()]
    # A table that was not migrated, as it is only read, does not say whose each job is.
    places = [there.index(one) if one in there else None for one in COLUMNS.split(", ")]
    ordered = (tuple("" if at is None else row[at] for at in places) for row in rows)
    return {row[0]: parse_job_row(row) for row in ordered}


def read_revisions(connection: Connection) -> Mapping[str, tuple[int, float]]:
    """The revision of each job and when it was made, without reading the documents."""
    rows = connection.execute("SELECT job, revision, made_at FROM jobs")
    return {job: (revision, made_at) for job, revision, made_at in rows}


def parse_job_row(row: tuple[Any, ...]) -> StoredJob:
    """A row's job. The database does not check contents: a malformed row is damage."""
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


def put_job(connection: Connection, stored: StoredJob, expected: int | None) -> StoredJob:
    """Write it as the next revision, within a transaction; returns what was written."""
    row = connection.execute("SELECT revision FROM jobs WHERE job = ?", (stored.job,)).fetchone()
    revision = 0 if row is None else int(row[0])
    if expected is not None and expected != revision:
        raise Superseded(
            f"{stored.job} was changed by another command meanwhile", hint="check it and try again"
        )
    new = replace(stored, revision=revision + 1)
    connection.execute(
        f"INSERT INTO jobs ({COLUMNS}) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?) {REPLACE}",
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


def remove_job(connection: Connection, job: str) -> None:
    """Delete its row, within a transaction."""
    connection.execute("DELETE FROM jobs WHERE job = ?", (job,))


def read_setting(connection: Connection, name: str) -> Mapping[str, Any] | None:
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


def put_setting(connection: Connection, name: str, document: Mapping[str, Any]) -> None:
    """Write it, within a transaction."""
    connection.execute(
        "INSERT INTO settings (name, document) VALUES (?, ?) ON CONFLICT (name)"
        " DO UPDATE SET document = excluded.document",
        (name, json.dumps(document)),
    )
