"""The wishes: one row a job."""

import json
import sqlite3
from collections.abc import Mapping
from dataclasses import replace

from tpuherd.core.model import Goal
from tpuherd.core.wish import Wish
from tpuherd.ports import Outdated

COLUMNS = "job, goal, document, snapshot, made_at, changed_at, revision, who, patient"


def read(connection: sqlite3.Connection) -> Mapping[str, Wish]:
    """All of them, by job."""
    return {
        job: Wish(
            job=job,
            goal=Goal(goal),
            document=json.loads(document),
            snapshot=snapshot,
            made_at=made_at,
            changed_at=changed_at,
            revision=revision,
            who=who,
            patient=bool(patient),
        )
        for (
            job, goal, document, snapshot, made_at, changed_at, revision, who, patient
        ) in connection.execute(f"SELECT {COLUMNS} FROM wishes ORDER BY job")
    }  # fmt: skip


def put(connection: sqlite3.Connection, wish: Wish, expected: int | None) -> Wish:
    """Write it within a transaction, as the next revision; the wish as it is then."""
    row = connection.execute("SELECT revision FROM wishes WHERE job = ?", (wish.job,)).fetchone()
    revision = 0 if row is None else int(row[0])
    if expected is not None and expected != revision:
        raise Outdated(
            f"{wish.job} was changed by somebody else meanwhile", hint="look, and say it again"
        )
    new = replace(wish, revision=revision + 1)
    connection.execute(
        f"INSERT OR REPLACE INTO wishes ({COLUMNS}) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)",
        (
            new.job,
            new.goal.value,
            json.dumps(new.document, ensure_ascii=False),
            new.snapshot,
            new.made_at,
            new.changed_at,
            new.revision,
            new.who,
            int(new.patient),
        ),
    )
    return new


def drop(connection: sqlite3.Connection, job: str) -> None:
    """Forget it, within a transaction."""
    connection.execute("DELETE FROM wishes WHERE job = ?", (job,))
