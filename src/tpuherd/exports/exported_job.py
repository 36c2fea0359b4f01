"""A job to export, what every engine has to be told of it, and the sentences that refuse it."""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from hashlib import sha256

from tpuherd.catalogue import Accelerator, accelerators, generations
from tpuherd.errors import InvalidInput
from tpuherd.jobfile.expand_slots import content_digest
from tpuherd.jobfile.job_spec import JobSpec
from tpuherd.jobfile.launch_spec import PROFILER_PORT
from tpuherd.jobfile.read_job import job_document
from tpuherd.jobfile.value_types import show_value

COORDINATOR_PORT = 8476


@dataclass(frozen=True, kw_only=True, slots=True)
class ExportedJob:
    """A job, and the ids of its runs if herd has it: an export goes on from their checkpoints."""

    job: JobSpec
    run_ids: tuple[str, ...] = ()  #: of each slot; none for a job file

    def run_id(self, slot: int) -> str:
        """Return the id of a slot's run; that of a job file depends on nothing but the file."""
        own = self.job.env.get("RUN_ID")
        if own:
            return own
        if self.run_ids:
            return self.run_ids[slot]
        name = f"{self.job.name}-{slot}"
        word = sha256(f"{name} {content_digest(job_document(self.job))}".encode()).hexdigest()
        return f"{name}-{word[:8]}"


def check_export(job: JobSpec) -> None:
    """Refuse what no other engine can run."""
    if job.run is None:
        raise InvalidInput(f"{job.name} has no command to export", hint="write run: in the job")
    if job.sweep is not None:
        raise InvalidInput(
            f"{job.name} is a sweep, whose trials only herd's engine hands out",
            hint="export a job that runs one trial",
        )


def check_words(**words: tuple[str, str, str]) -> None:
    """Refuse an option whose (value, pattern, kind) do not fit; "" is no value."""
    for option, (value, pattern, kind) in words.items():
        if value and not re.fullmatch(pattern, value):
            raise InvalidInput(f"--{option} {show_value(value)} is not {kind}")


def choose_gke_type(job: JobSpec) -> Accelerator:
    """Return the first of the job's types that GKE has."""
    known = [accelerators()[one] for one in job.accelerator]
    for one in known:
        if generations()[one.generation].gke:
            return one
    have = ", ".join(one.prefix for one in generations().values() if one.gke)
    raise InvalidInput(
        f"GKE has no {' or '.join(job.accelerator)}", hint=f"its types begin with {have}"
    )


def base_variables(job: JobSpec) -> Mapping[str, str]:
    """Return the variables that are the same on all hosts of all copies."""
    variables = {"HERD_JOB": job.name, "HERD_SLOTS": str(job.copies)}
    if job.checkpoint:
        variables["HERD_CHECKPOINT"] = job.checkpoint
    if job.profiler:
        variables["HERD_PROFILER_PORT"] = str(PROFILER_PORT)
    return {**variables, **{name: it for name, it in job.env.items() if name != "RUN_ID"}}
