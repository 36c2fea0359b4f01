"""Writes a job for an engine, and says what it loses there. Pure."""

from collections.abc import Iterator
from dataclasses import dataclass, replace

from tpuherd.exports.exported_job import ExportedJob
from tpuherd.exports.field_table import LostField, list_losses
from tpuherd.exports.jobset import JobSetOptions, jobset_manifests, secrets_command
from tpuherd.exports.slurm_script import SlurmOptions, slurm_script
from tpuherd.exports.yaml_text import IMAGE, QUEUE, yaml_text
from tpuherd.jobfile.image_field import image_name
from tpuherd.jobfile.job_spec import JobSpec

NEW_QUEUE = "tpu"


@dataclass(frozen=True, kw_only=True, slots=True)
class Export:
    """A job as another engine reads it."""

    text: str  #: the manifests or the script
    lost: tuple[LostField, ...]  #: what the job says and the text does not
    notes: tuple[str, ...]  #: what is left to do


def export_jobset(exported: ExportedJob, options: JobSetOptions) -> Export:
    if options.with_queue and options.queue == QUEUE:
        options = replace(options, queue=NEW_QUEUE)
    if exported.job.image and options.image == IMAGE:
        options = replace(options, image=image_name(exported.job.image))
    text = yaml_text(jobset_manifests(exported, options))
    lost = tuple(list_losses(exported.job, "jobset"))
    return Export(text=text, lost=lost, notes=tuple(jobset_notes(exported.job, options)))


def export_slurm(exported: ExportedJob, options: SlurmOptions) -> Export:
    text = slurm_script(exported, options)
    return Export(text=text, lost=tuple(list_losses(exported.job, "slurm")), notes=())


def jobset_notes(job: JobSpec, options: JobSetOptions) -> Iterator[str]:
    """Yield what the user has to do before the manifests work."""
    if options.image == IMAGE:
        yield f"fill in the image: --image IMAGE, or edit {IMAGE}"
    if options.queue == QUEUE:
        yield f"fill in the queue: --queue NAME, or edit {QUEUE}"
    if job.secrets:
        yield f"create the Secret once: {secrets_command(job)}"
    if job.service_account:
        yield (
            f"let the ServiceAccount {job.name} act as {job.service_account}:"
            " role roles/iam.workloadIdentityUser"
        )
