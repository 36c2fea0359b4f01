"""The files of a bug report about jobs: the store, job files, events, and what slots wait for."""

from collections.abc import Iterator, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

from tpuherd.bug_report.report_file import ReportFile, json_file, lines_file
from tpuherd.settings.project_access import ProjectScope
from tpuherd.store.inspect_store import StoreContents
from tpuherd.store.set_aside import read_notices
from tpuherd.store.trouble_files import TroubleStore
from tpuherd.views.event_lines import event_json

JOBS_MAX = 50
HIDDEN = "(hidden)"
#: Fields of a job whose values are the user's own; only their names are shown.
PRIVATE_FIELDS = ("env", "metadata")


def store_files(
    scope: ProjectScope, contents: StoreContents, job: str | None
) -> Iterator[ReportFile]:
    """Yield what the store has, as far as it can be read."""
    yield store_file(scope.store_folder, contents)
    chosen = [one for one in contents.jobs.values() if job in (None, one.job)]
    for stored in sorted(chosen, key=lambda one: -one.changed_at)[:JOBS_MAX]:
        about = {**asdict(stored), "document": hide_private_fields(stored.document)}
        yield json_file(f"jobs/{stored.job}.json", about, "a job file, values of env hidden")
    yield json_file("why.json", slot_messages(contents, job), "what each slot does or waits for")
    rows = (event_json(number, event) for number, event in contents.events)
    yield lines_file("events.jsonl", rows, "the newest events, as `herd events --json`")


def store_file(folder: Path, contents: StoreContents) -> ReportFile:
    about = {
        "format": contents.format,
        "files": contents.files,
        "rows": contents.rows,
        "lease": None if contents.holder is None else asdict(contents.holder),
        "troubles": [asdict(one) for one in TroubleStore(folder).read()],
        "notices": read_notices(folder),
        "problems": contents.problems,
    }
    return json_file("store.json", about, "the store: format, sizes, problems")


def hide_private_fields(document: Mapping[str, Any]) -> dict[str, Any]:
    """Return a job's fields, with only the names of variables and metadata."""
    shown = dict(document)
    for name in PRIVATE_FIELDS:
        if isinstance(document.get(name), Mapping):
            shown[name] = dict.fromkeys(document[name], HIDDEN)
    return shown


def slot_messages(contents: StoreContents, job: str | None) -> dict[str, str]:
    return {
        slot: sentence
        for slot, sentence in contents.messages.items()
        if job is None or slot.rpartition("-")[0] == job
    }


def private_values(contents: StoreContents) -> Iterator[str]:
    """Yield the values that `hide_private_fields` hides: logs may repeat them."""
    for stored in contents.jobs.values():
        for name in PRIVATE_FIELDS:
            found = stored.document.get(name)
            if isinstance(found, Mapping):
                yield from map(str, found.values())
