"""What becomes of each field of a job in an export: a table for each engine. Pure."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

from tpuherd.exports.jobset import kept_labels
from tpuherd.jobfile.fields import FIELDS
from tpuherd.jobfile.job_spec import JobSpec
from tpuherd.jobfile.nfs_folders import WORKER_0, find_nfs_folder

Condition = Callable[[JobSpec], bool]


@dataclass(frozen=True, kw_only=True, slots=True)
class FieldExport:
    """`becomes` is empty if the whole field is lost, `lost` if nothing of it is."""

    becomes: str = ""
    lost: str = ""
    when: Condition | None = None  #: it is lost in a job; None: wherever the field is set


def keep(becomes: str) -> FieldExport:
    return FieldExport(becomes=becomes)


def keep_part(becomes: str, lost: str, when: Condition | None = None) -> FieldExport:
    return FieldExport(becomes=becomes, lost=lost, when=when)


def lose(sentence: str) -> FieldExport:
    return FieldExport(lost=sentence)


def is_path_in_pod(job: JobSpec) -> bool:
    """Whether the checkpoints are on a disk that is deleted with its pod."""
    folder = find_nfs_folder(job.nfs, job.checkpoint)
    return bool(job.checkpoint) and not job.checkpoint.startswith("gs://") and not folder


OF_THE_ENGINE = "only herd's engine does this"
OF_THE_POOL = "a property of the node pool"
OF_THE_CLUSTER = "a property of the cluster's nodes"
NEEDS_A_PRICE = "Kubernetes knows no prices; bound the queue's quota instead"
#: What no other engine has, whichever it is.
NOWHERE = {
    name: lose(OF_THE_ENGINE)
    for name in (
        "head_start", "buckets", "data_rate", "egress_budget", "stall", "deadline",
        "work", "idle_timeout", "patience", "priority", "request", "exact", "node_name", "notify",
    )
}  # fmt: skip
SETUP = "runs on every host at each start; nothing is skipped the second time"
JOBSET: Mapping[str, FieldExport] = {
    **NOWHERE,
    "name": keep("name of the JobSet, with the number of the copy"),
    "accelerator": keep_part(
        "labels of machine and topology, hosts and chips (`google.com/tpu`)",
        "only the first type that GKE has is asked for",
        lambda job: len(job.accelerator) > 1,
    ),
    "runtime": lose("GKE's nodes have an image of their own; the container has yours"),
    "zones": keep("node affinity to these zones, of those that the cluster has"),
    "tier": keep_part(
        "label of Spot nodes or of the reservation; `--provisioning` for flex-start",
        "only the first tier is asked for, and Spot stands for preemptible",
        lambda job: len(job.tier) > 1 or job.tier[0] == "preemptible",
    ),
    "copies": keep("a JobSet each"),
    "cluster": lose("start Ray in the command, or use its operator for Kubernetes"),
    "image": keep("the container's image, unless `--image` names another"),
    "priority": lose("Kueue has its own: label the JobSet with `kueue.x-k8s.io/priority-class`"),
    "slices": keep("replicas of the job in the JobSet; GKE sets the variables of Multislice"),
    "workdir": lose("nothing ships code: build it into the image, as its working folder"),
    "repo": keep("cloned at each start; the image needs git"),
    "python": lose("the image has its own Python"),
    "requirements": lose("install the packages in the image"),
    "nfs": keep_part(
        "a volume of each server's folder",
        "no host can share its disk with the others: w0 is not mounted",
        lambda job: WORKER_0 in job.nfs.values(),
    ),
    "setup": keep(SETUP),
    "run": keep("the container's command"),
    "env": keep("variables of the container"),
    "secrets": keep("references to the Secret `NAME-secrets`, which you create"),
    "checkpoint": keep_part(
        "`HERD_CHECKPOINT`",
        "is a folder of the pod, deleted with it: use gs://BUCKET/PATH or a folder of nfs",
        is_path_in_pod,
    ),
    "profiler": keep("`HERD_PROFILER_PORT`; take traces by `kubectl port-forward`"),
    "outputs": lose("nothing brings files back: write them to a bucket"),
    "retry": keep_part(
        "`maxRestarts`; a lost node does not count, unless preemptions are limited",
        "failures and preemptions share one limit, and stalls are not noticed",
        lambda job: job.retry.preemptions is not None or job.retry.stalls != 3,
    ),
    "grace": keep("`terminationGracePeriodSeconds`; a Spot node that goes gives pods less"),
    "max_lifetime": keep("label `kueue.x-k8s.io/max-exec-time-seconds`"),
    "max_cost": lose(NEEDS_A_PRICE),
    "max_cost_per_hour": lose(NEEDS_A_PRICE),
    "node": lose("the cluster's autoscaler decides when nodes go"),
    "reservation": keep("label `cloud.google.com/reservation-name`"),
    "service_account": keep("a ServiceAccount of Kubernetes that stands for it"),
    "network": lose(OF_THE_POOL),
    "labels": keep_part(
        "labels of the JobSet and its pods",
        "labels that do not begin and end with a letter or digit are left out",
        lambda job: len(kept_labels(job)) < len(job.labels),
    ),
    "data_disks": lose("declare a PersistentVolume of the disk, and mount it in the manifest"),
    "metadata": lose(OF_THE_POOL),
    "sweep": lose("refused: only herd's engine hands out trials"),
}
SLURM: Mapping[str, FieldExport] = {
    **NOWHERE,
    "name": keep("`--job-name`"),
    "accelerator": keep_part(
        "`--nodes` and `--gres`; which nodes these are says the partition",
        "only the first type is asked for",
        lambda job: len(job.accelerator) > 1,
    ),
    "runtime": lose(OF_THE_CLUSTER),
    "zones": lose(OF_THE_CLUSTER),
    "tier": lose("the cluster's nodes are there, or come as its administrator chose"),
    "copies": keep("`--array`"),
    "cluster": lose("start Ray in the command"),
    "image": lose("the command runs on the node itself; some clusters have `--container-image`"),
    "priority": lose("Slurm has its own: `sbatch --nice`"),
    "slices": keep("as many nodes as all slices have, a slice after the other by name"),
    "workdir": lose("nothing ships code: call `sbatch` in a folder that all nodes share"),
    "repo": lose("nothing ships code: call `sbatch` in a clone that all nodes share"),
    "python": lose("activate your environment in `setup`, or before `sbatch`"),
    "requirements": lose("install the packages once, where all nodes find them"),
    "nfs": lose(OF_THE_CLUSTER),
    "setup": keep(SETUP),
    "run": keep("the command of each task of `srun`"),
    "env": keep("exported variables"),
    "secrets": keep("read where `sbatch` or the first node has them; not in the script"),
    "checkpoint": keep("`HERD_CHECKPOINT`; a folder must be one that all nodes share"),
    "profiler": keep("`HERD_PROFILER_PORT`"),
    "outputs": lose("they stay in the folder where the command writes them"),
    "retry": keep_part(
        "`--requeue`; failures are counted, lost nodes and time limits are not",
        "preemptions and stalls are not limited",
        lambda job: job.retry.preemptions is not None or job.retry.stalls != 3,
    ),
    "grace": keep("`--signal=B:TERM@…` before the time limit; else the cluster's KillWait"),
    "max_lifetime": keep_part("`--time`", "counts from the latest start on"),
    "max_cost": lose("Slurm knows no prices"),
    "max_cost_per_hour": lose("Slurm knows no prices"),
    "node": lose(OF_THE_CLUSTER),
    "reservation": lose(OF_THE_CLUSTER),
    "service_account": lose(OF_THE_CLUSTER),
    "network": lose(OF_THE_CLUSTER),
    "labels": lose(OF_THE_CLUSTER),
    "data_disks": lose(OF_THE_CLUSTER),
    "metadata": lose(OF_THE_CLUSTER),
    "sweep": lose("refused: only herd's engine hands out trials"),
}
ENGINES: Mapping[str, Mapping[str, FieldExport]] = {"jobset": JOBSET, "slurm": SLURM}


@dataclass(frozen=True, kw_only=True, slots=True)
class LostField:
    """A field that the job sets, and why the export does not have it."""

    field: str
    why: str


def list_losses(job: JobSpec, engine: str) -> Iterator[LostField]:
    """Yield what the job says and the export does not, in the order of the fields."""
    for field in FIELDS.values():
        row = ENGINES[engine][field.name]
        is_set = getattr(job, field.name) != field.default
        if row.lost and is_set and (row.when is None or row.when(job)):
            yield LostField(field=field.name, why=row.lost)
