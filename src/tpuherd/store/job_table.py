"""The tables of jobs, one row per job, and of what the users of a store agree on."""

import json
import re
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from tpuherd.errors import Superseded
from tpuherd.model.slots_and_plan import Goal
from tpuherd.model.stored_job import StoredJob
from tpuherd.store.connection import Connection
from tpuherd.store.schema import MalformedRows, corrupt_error, decode_row, is_time

COLUMNS = "job, goal, document, snapshot, made_at, changed_at, revision, who, patient, owned_by"
CHANGED = ", ".join(f"{one} = excluded.{one}" for one in COLUMNS.split(", ")[1:])
REPLACE = f"ON CONFLICT (job) DO UPDATE SET {CHANGED}"
#: The names of files, hosts and nodes begin with it.
NAME = re.compile(r"[A-Za-z0-9][\w.-]{0,200}", re.ASCII)
GOALS = frozenset(map(str, Goal))
COPIES_MAX = 10_000
#: Fields that are read without the rest of the document.
WORDS = ("accelerator", "tier", "run", "zones")
TABLES = ("env", "secrets", "sweep")


def read_jobs(
    connection: Connection, malformed: MalformedRows, job: str | None = None
) -> Mapping[str, StoredJob]:
    """All jobs by name, or only the job of this name."""
    chosen, values = ("", ()) if job is None else ("WHERE job = ?", (job,))
    rows = connection.execute(f"SELECT * FROM jobs {chosen} ORDER BY job", values)
    there = [about[0] for about in rows.description or ()]
    # A table that was not migrated, as it is only read, does not say whose each job is.
    places = [there.index(one) if one in there else None for one in COLUMNS.split(", ")]
    ordered = (tuple("" if at is None else row[at] for at in places) for row in rows)
    found = (parse_job_row(row, malformed) for row in ordered)
    return {one.job: one for one in found if one is not None}


def read_revisions(connection: Connection) -> Mapping[str, tuple[int, float]]:
    """The revision of each job and when it was made, without reading the documents."""
    rows = connection.execute("SELECT job, revision, made_at FROM jobs")
    return {job: (revision, made_at) for job, revision, made_at in rows}


def parse_job_row(row: tuple[Any, ...], malformed: MalformedRows) -> StoredJob | None:
    """A row's job, without its fields if they are malformed: then its nodes are left alone.

    None if no job can have this name. The database does not check contents.
    """
    job, goal, document, snapshot, made_at, changed_at, revision, who, patient, user = row
    words = all(isinstance(one, str) for one in (job, goal, snapshot, who, user))
    numbers = all(isinstance(one, int | float) for one in (made_at, changed_at, revision))
    if not (words and numbers):
        raise corrupt_error(f"the job {job!r}")
    if NAME.fullmatch(job) is None:
        malformed.add(f"a job named {job[:60]!r}", "it is left out")
        return None
    content = decode_row(document)
    damage = content is None or goal not in GOALS
    wrong = "row" if damage else find_wrong_field(content or {})
    if not (is_time(made_at) and is_time(changed_at)):
        wrong, made_at, changed_at = "time", 0.0, 0.0
    if wrong:
        effect = f"its nodes are left alone, and `herd down {job}` deletes them"
        malformed.add(f"the {wrong} of the job {job}", effect, damage=damage)
        content = {"name": job}
    return StoredJob(
        job=job,
        goal=Goal(goal) if goal in GOALS else Goal.RUN,
        document=content or {},
        snapshot=snapshot,
        made_at=made_at,
        changed_at=changed_at,
        revision=revision,
        who=who,
        patient=bool(patient),
        user=user,
    )


def find_wrong_field(document: Mapping[str, Any]) -> str:
    """Return the name of a field that would end a command which shows all jobs; "" if none is."""
    for name, value in document.items():
        if name in ("copies", "slices"):
            fits = isinstance(value, int) and 1 <= value <= COPIES_MAX
        elif name in WORDS:
            many = value if isinstance(value, list) else [value]
            fits = all(isinstance(one, str) for one in many)
        elif name == "max_cost":
            fits = not isinstance(value, int | float) or abs(value) < 1e300
        else:
            fits = name not in TABLES or isinstance(value, dict)
        if not fits:
            return name
    return ""


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


def read_setting(
    connection: Connection, name: str, malformed: MalformedRows
) -> Mapping[str, Any] | None:
    """What all users of the store agree on under this name; None: nothing yet."""
    row = connection.execute("SELECT document FROM settings WHERE name = ?", (name,)).fetchone()
    content = None if row is None else decode_row(row[0])
    if row is not None and content is None:
        malformed.add(f"the setting {name}", "it does not count", damage=True)
    return content


def put_setting(connection: Connection, name: str, document: Mapping[str, Any]) -> None:
    """Write it, within a transaction."""
    connection.execute(
        "INSERT INTO settings (name, document) VALUES (?, ?) ON CONFLICT (name)"
        " DO UPDATE SET document = excluded.document",
        (name, json.dumps(document)),
    )
