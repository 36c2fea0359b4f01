"""Keeps the receivers of a project, and the hidden values of all receivers, with the secrets."""

import json
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any, Protocol

from tpuherd.jobfile.notify_fields import NOTIFY
from tpuherd.model.receivers import Receiver
from tpuherd.model.stored_job import StoredJob
from tpuherd.notify.ready_receivers import ReadyReceiver, resolve_receivers
from tpuherd.store.secret_files import SecretFiles

SUFFIX = ".notify"  #: no job's name ends so; with it alone: the project's
RECEIVERS = "receivers"


class SecretReader(Protocol):
    def get(self, job: str) -> Mapping[str, str]: ...


def notify_key(job: str = "") -> str:
    """Return where the hidden values of a job's receivers are; those of the project without one."""
    return f"{job}{SUFFIX}"


def put_receivers(
    secrets: SecretFiles, receivers: Sequence[Receiver], values: Mapping[str, str]
) -> None:
    """Make these the receivers of the project; an empty list removes them."""
    secrets.remove(notify_key())
    if not receivers:
        return
    for name, value in values.items():
        secrets.put(notify_key(), name, value)
    secrets.put(notify_key(), RECEIVERS, json.dumps(NOTIFY.write(receivers)))


def project_receivers(secrets: SecretReader) -> tuple[ReadyReceiver, ...]:
    """Return the receivers of all jobs that name none."""
    values = secrets.get(notify_key())
    raw: Any = []
    with suppress(ValueError):
        raw = json.loads(values.get(RECEIVERS, "[]"))
    return resolve_receivers(NOTIFY.read(raw, lambda *_: None) or (), values, of_job=False)


def job_receivers(
    stored_job: StoredJob,
    secrets: SecretReader,
    project: Sequence[ReadyReceiver],
    *,
    others: bool,
) -> tuple[ReadyReceiver, ...]:
    """Return a job's own receivers, or else those of the project."""
    raw = stored_job.document.get("notify")
    if raw is None:
        return tuple(project)
    specs = NOTIFY.read(raw, lambda *_: None) or ()
    if not specs:
        return ()
    values = secrets.get(notify_key(stored_job.job))
    return resolve_receivers(specs, values, of_job=True, others=others)
