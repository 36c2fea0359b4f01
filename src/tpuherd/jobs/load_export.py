"""Finds the job to export: one of the store, or one in a file."""

from pathlib import Path

from tpuherd.errors import InvalidInput, NotFound
from tpuherd.exports.exported_job import ExportedJob
from tpuherd.jobfile.cross_checks import CHECKS_ELSEWHERE
from tpuherd.jobfile.launch_spec import run_id
from tpuherd.jobfile.read_job import Mistake, read_document, read_fields
from tpuherd.jobfile.yaml_with_lines import read_yaml
from tpuherd.jobs.open_project import no_job_message
from tpuherd.store.database import Database


def is_file_name(target: str) -> bool:
    """Whether a word names a file: the name of a job has neither a dot nor a slash."""
    return "." in target or "/" in target


def read_export_file(target: str, folder: Path) -> ExportedJob | list[Mistake]:
    """Read a job file, whose type and zone may be those of another engine."""
    try:
        text = (folder / Path(target).expanduser()).read_text(encoding="utf-8-sig")
    except (OSError, ValueError, RuntimeError) as error:
        reason = getattr(error, "strerror", None) or "not a text file"
        raise InvalidInput(f"{target} can't be read: {reason}") from error
    found = read_document(read_yaml(text), CHECKS_ELSEWHERE)
    return found if isinstance(found, list) else ExportedJob(job=found)


def load_export(store: Database, name: str) -> ExportedJob | list[Mistake]:
    """Load a job with the ids of its runs, so that their checkpoints are found."""
    stored = store.stored_jobs().get(name)
    if stored is None:
        said = no_job_message(name, store.stored_jobs())
        raise NotFound(said, hint=f"write ./{name} for a job file of that name")
    job = read_fields(stored.document)
    if isinstance(job, list):
        return job
    ids = tuple(run_id(slot, stored.made_at) for slot in stored.slot_names)
    return ExportedJob(job=job, run_ids=ids)
