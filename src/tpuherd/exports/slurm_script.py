"""Writes a job as a batch script for Slurm. Pure."""

from dataclasses import dataclass
from math import ceil, inf

from tpuherd.catalogue import Accelerator, accelerators
from tpuherd.exports.exported_job import (
    COORDINATOR_PORT,
    ExportedJob,
    base_variables,
    check_export,
    check_words,
)
from tpuherd.exports.shell_lines import UNFIT, export_line, run_lines, secret_word, shell_path
from tpuherd.jobfile.job_spec import JobSpec

MEGASCALE_PORT = 8081
NAME = r"[A-Za-z0-9_.-]+(:[A-Za-z0-9_.-]+)?"
LIST = r"[A-Za-z0-9_.-]+(,[A-Za-z0-9_.-]+)*"
SIGNAL_S_MAX = 65_535
#: What each host runs. A host that was only asked to stop is not the one that failed.
TASK = """\
export HERD_WORKER=$SLURM_PROCID
{slice}{run}[ "$asked" = 0 ] || [ "$status" = 0 ] || exit 1
exit "$status"
"""
#: Slurm may ask a job to stop at any time, also before its step is there to be asked.
TRAP = """\
stopping=0 step=
trap 'stopping=1; [ -z "$step" ] || ask_to_stop' TERM
"""
#: Slurm itself starts it again after a lost node; a cancelled job, which runs no more, ends.
BATCH = """\
IFS= read -r -d '' task <<'{end}' || true
{task}{end}

ask_to_stop() {{
  until squeue --noheader --steps --job="$SLURM_JOB_ID" --format=%i | grep -q '[.]0$'; do
    kill -0 "$step" 2>/dev/null || return
    sleep 1
  done
  scancel --signal=TERM "$SLURM_JOB_ID"
}}
status=143
if [ "$stopping" = 0 ]; then
  srun --kill-on-bad-exit=1 bash -c "$task" &
  step=$!
  [ "$stopping" = 0 ] || ask_to_stop
  while kill -0 "$step" 2>/dev/null; do wait "$step"; done
  wait "$step"
  status=$?
fi
[ "$status" != 0 ] || exit 0
echo "herd: the command ended with status $status" >&2
[ "$status" != {unfit} ] || exit {unfit}
[ "$(squeue --noheader --job="$SLURM_JOB_ID" --format=%T)" = RUNNING ] || exit "$status"
if [ "$stopping" = 1 ]; then
{stopped}elif [ -z "$(sinfo --Node --noheader --dead --nodes="$SLURM_JOB_NODELIST")" ]; then
{failed}fi
scontrol requeue "$SLURM_JOB_ID"
"""
#: Slurm keeps the number of failures, as the job's comment: no file has to be shared.
FAILED = """\
  failures=$(squeue --noheader --job="$SLURM_JOB_ID" --format=%k | tr -dc 0-9)
  failures=$((${{failures:-0}} + 1))
  [ "$failures" -le {limit} ] || exit "$status"
  scontrol update jobid="$SLURM_JOB_ID" comment="failures=$failures"
"""


@dataclass(frozen=True, kw_only=True, slots=True)
class SlurmOptions:
    """What a job file does not say."""

    partition: str = ""
    gres: str = "tpu"  #: the name of the chips in the cluster; "" if it has none


def slurm_script(exported: ExportedJob, options: SlurmOptions) -> str:
    job = exported.job
    check_export(job)
    check_words(
        partition=(options.partition, LIST, "a partition's name"),
        gres=(options.gres, NAME, "the name of a generic resource"),
    )
    kind = accelerators()[job.accelerator[0]]
    head = [f"#SBATCH {one}" for one in batch_options(job, kind, options)]
    task = build_task(job, kind)
    body = BATCH.format(task=task, end=free_word(task), **restart_lines(job), unfit=UNFIT)
    lines = ["#!/usr/bin/env bash", *head, "", TRAP, *variable_lines(exported), "", body]
    return "\n".join(lines)


def batch_options(job: JobSpec, kind: Accelerator, options: SlurmOptions) -> list[str]:
    found = [
        f"--job-name={job.name}",
        f"--nodes={kind.hosts * job.slices}",
        "--ntasks-per-node=1",
        "--exclusive",
    ]
    if options.gres:
        found.append(f"--gres={options.gres}:{kind.chips_per_host}")
    if options.partition:
        found.append(f"--partition={options.partition}")
    if job.copies > 1:
        found.append(f"--array=0-{job.copies - 1}")
    if job.max_lifetime != inf:
        found.append(f"--time={ceil(job.max_lifetime / 60)}")
    ahead = min(max(1, ceil(job.grace)), SIGNAL_S_MAX)
    output = "%x-%A-%a.log" if job.copies > 1 else "%x-%j.log"
    return [
        *found,
        "--requeue",
        f"--signal=B:TERM@{ahead}",
        "--open-mode=append",
        f"--output={output}",
    ]


def variable_lines(exported: ExportedJob) -> list[str]:
    """Return the lines that set the variables; srun hands them on to all hosts."""
    job = exported.job
    plain = base_variables(job)
    checkpoint = plain.get("HERD_CHECKPOINT", "")
    lines = [
        export_line(plain),
        "export HERD_SLOT=${SLURM_ARRAY_TASK_ID:-0}",
        run_id_line(exported),
        "export HERD_RUN_ID=$RUN_ID",
        "export HERD_ATTEMPT=$((${SLURM_RESTART_COUNT:-0} + 1))",
        "export HERD_RESUME=$((HERD_ATTEMPT > 1)) HERD_WORKERS=$SLURM_NNODES",
        'first=$(scontrol show hostnames "$SLURM_JOB_NODELIST" | head -n 1)',
        f"export HERD_COORDINATOR=$first:{COORDINATOR_PORT}",
    ]
    if checkpoint.startswith("~/"):
        lines.append(f"export HERD_CHECKPOINT={shell_path(checkpoint)}")
    if job.slices > 1:
        lines.append(
            f"export MEGASCALE_NUM_SLICES={job.slices} MEGASCALE_PORT={MEGASCALE_PORT}"
            " MEGASCALE_COORDINATOR_ADDRESS=$first"
        )
    for secret in job.secrets:
        lines.append(f"{secret.name}={secret_word(secret)} || exit 1; export {secret.name}")
    return lines


def run_id_line(exported: ExportedJob) -> str:
    """A run that herd began goes on; another is one run for each `sbatch`, over all its starts."""
    job = exported.job
    own = job.env.get("RUN_ID")
    if own or exported.run_ids:
        ids = " ".join(exported.run_id(slot) for slot in range(job.copies))
        return f"runs=({ids}); export RUN_ID=${{runs[HERD_SLOT]}}"
    return (
        f"export RUN_ID=${{RUN_ID:-{job.name}-$HERD_SLOT-${{SLURM_ARRAY_JOB_ID:-$SLURM_JOB_ID}}}}"
    )


def build_task(job: JobSpec, kind: Accelerator) -> str:
    own = f"export MEGASCALE_SLICE_ID=$((SLURM_PROCID / {kind.hosts}))\n" if job.slices > 1 else ""
    return TASK.format(slice=own, run=run_lines(job, stopped=1))


def restart_lines(job: JobSpec) -> dict[str, str]:
    """Return what is done when the job was asked to stop, and when it failed."""
    ended = '  exit "$status"\n' if job.max_lifetime != inf else "  :\n"
    limit = job.retry.failures
    return {"stopped": ended, "failed": "  :\n" if limit is None else FAILED.format(limit=limit)}


def free_word(text: str) -> str:
    """Return a word that is no line of the text."""
    word = "HERD_TASK"
    while word in text.splitlines():
        word += "_"
    return word
