"""Writes a job as JobSets of Kubernetes, for GKE with Kueue. Pure."""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from math import ceil, inf
from typing import Any

from tpuherd.catalogue import Accelerator, generations
from tpuherd.errors import InvalidInput
from tpuherd.exports.exported_job import (
    COORDINATOR_PORT,
    ExportedJob,
    base_variables,
    check_export,
    check_words,
    choose_gke_type,
)
from tpuherd.exports.kueue_queue import FLEX_START, QUEUED, queue_manifests
from tpuherd.exports.shell_lines import UNFIT, code_lines, run_lines, secret_word
from tpuherd.exports.yaml_text import IMAGE, QUEUE
from tpuherd.jobfile.job_spec import JobSpec
from tpuherd.jobfile.nfs_folders import SERVER, WORKER_0

Json = dict[str, Any]
REPLICATED = "slice"
POD_NAME_MAX = 63
RANDOM_LETTERS = 6  #: that Kubernetes appends to a pod's name, with the dash
ENDLESS = 2_147_483_647
DAY_S = 86_400
QUEUED_S = 7 * DAY_S  #: the longest that flex-start gives a node for
LABEL = re.compile(r"(?:[a-z0-9](?:[a-z0-9_-]*[a-z0-9])?)?")
#: GKE deletes a pod that its node could not save; Kubernetes marks all such pods.
DISRUPTED = {"type": "DisruptionTarget", "status": "True"}
START = """\
export HERD_WORKER=$((HERD_SLICE * {hosts} + JOB_COMPLETION_INDEX))
export HERD_ATTEMPT=$((HERD_RESTARTS + 1)) HERD_RESUME=$((HERD_RESTARTS > 0))
{run}exit "$status"
"""


@dataclass(frozen=True, kw_only=True, slots=True)
class JobSetOptions:
    """What a job file does not say."""

    image: str = IMAGE
    queue: str = QUEUE
    provisioning: str = ""  #: flex-start or queued, instead of the job's tier
    with_queue: bool = False  #: also the queue itself, for an empty cluster


def jobset_manifests(exported: ExportedJob, options: JobSetOptions) -> list[Json]:
    """Return what to apply: a JobSet a copy, and what they refer to."""
    job = exported.job
    check_export(job)
    check_words(
        image=(options.image, r"[\w./:@+-]+", "the name of an image"),
        queue=(options.queue, r"[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?", "a queue's name"),
    )
    kind = choose_gke_type(job)
    check_pod_names(job, kind)
    found: list[Json] = []
    if options.with_queue:
        chips = kind.chips * job.slices * job.copies
        found += queue_manifests(options.queue, options.provisioning, node_labels(kind), chips)
    if job.service_account:
        found.append(
            {
                "apiVersion": "v1",
                "kind": "ServiceAccount",
                "metadata": {
                    "name": job.name,
                    "annotations": {"iam.gke.io/gcp-service-account": job.service_account},
                },
            }
        )
    return found + [build_jobset(exported, slot, kind, options) for slot in range(job.copies)]


def check_pod_names(job: JobSpec, kind: Accelerator) -> None:
    """Kubernetes makes no pod whose name is too long for a host name."""
    last = f"{job.name}-{job.copies - 1}-{REPLICATED}-{job.slices - 1}-{kind.hosts - 1}"
    length = len(last) + RANDOM_LETTERS
    if length > POD_NAME_MAX:
        raise InvalidInput(
            f"{job.name} is too long a name for Kubernetes: pods would have names of"
            f" {length} characters, and may have {POD_NAME_MAX}",
            hint="give the job a shorter name",
        )


def build_jobset(
    exported: ExportedJob, slot: int, kind: Accelerator, options: JobSetOptions
) -> Json:
    job, name = exported.job, f"{exported.job.name}-{slot}"
    labels = {"kueue.x-k8s.io/queue-name": options.queue}
    if job.max_lifetime != inf:
        labels["kueue.x-k8s.io/max-exec-time-seconds"] = str(ceil(job.max_lifetime))
    annotations = {
        "alpha.jobset.sigs.k8s.io/exclusive-topology": "cloud.google.com/gke-nodepool",
    }
    if options.provisioning == QUEUED:
        longest = str(ceil(min(job.max_lifetime, QUEUED_S)))
        annotations["provreq.kueue.x-k8s.io/maxRunDurationSeconds"] = longest
    pod = build_pod(exported, slot, kind, options)
    return {
        "apiVersion": "jobset.x-k8s.io/v1alpha2",
        "kind": "JobSet",
        "metadata": {
            "name": name,
            "labels": {**kept_labels(job), **labels},
            "annotations": annotations,
        },
        "spec": {
            "failurePolicy": failure_policy(job),
            "replicatedJobs": [{
                "name": REPLICATED,
                "replicas": job.slices,
                "template": {"spec": {
                    "parallelism": kind.hosts,
                    "completions": kind.hosts,
                    "completionMode": "Indexed",
                    "backoffLimit": 0,
                    "podFailurePolicy": POD_FAILURES,
                    "template": {"metadata": {"labels": kept_labels(job)}, "spec": pod},
                }},
            }],
        },
    }  # fmt: skip


def kept_labels(job: JobSpec) -> dict[str, str]:
    """Return the labels that are also labels of Kubernetes, which end in a letter or digit."""
    return {name: it for name, it in job.labels.items()
            if LABEL.fullmatch(name) and LABEL.fullmatch(it)}  # fmt: skip


#: The job controller names the index of the rule that matched in its message.
POD_FAILURES: Json = {"rules": [
    {"action": "FailJob", "onExitCodes": {
        "containerName": "main", "operator": "In", "values": [UNFIT],
    }},
    {"action": "FailJob", "onPodConditions": [DISRUPTED]},
]}  # fmt: skip


def failure_policy(job: JobSpec) -> Json:
    """Restart all hosts; a lost node counts only if the job limits preemptions."""
    failures, preemptions = job.retry.failures, job.retry.preemptions
    limit = ENDLESS if failures is None else failures
    rules = [failure_rule("unfit", "FailJobSet", 0)]
    if preemptions is None:
        rules.append(failure_rule("preempted", "RestartJobSetAndIgnoreMaxRestarts", 1))
    else:
        limit = min(ENDLESS, limit + preemptions)
    return {"maxRestarts": limit, "rules": rules}


def failure_rule(name: str, action: str, index: int) -> Json:
    return {
        "name": name,
        "action": action,
        "onJobFailureReasons": ["PodFailurePolicy"],
        "onJobFailureMessagePatterns": [f"rule at index {index}"],
    }


def node_labels(kind: Accelerator) -> dict[str, str]:
    return {
        "cloud.google.com/gke-tpu-accelerator": generations()[kind.generation].gke,
        "cloud.google.com/gke-tpu-topology": kind.topology,
    }


def provisioning_labels(job: JobSpec, provisioning: str) -> dict[str, str]:
    """Return the labels of nodes that are had in the job's way."""
    if provisioning:
        words = {QUEUED: "queued", FLEX_START: "flex-start"}
        return {f"cloud.google.com/gke-{words[provisioning]}": "true"}
    if job.tier[0] in ("spot", "preemptible"):
        return {"cloud.google.com/gke-spot": "true"}
    if job.tier[0] == "reserved" and job.reservation:
        return {"cloud.google.com/reservation-name": job.reservation}
    return {}


def build_pod(exported: ExportedJob, slot: int, kind: Accelerator, options: JobSetOptions) -> Json:
    """The pod of one host. It shares the host's network, which several slices need to be fast."""
    job = exported.job
    start = START.format(hosts=kind.hosts, run=run_lines(job, code_lines(job)))
    volumes = nfs_volumes(job)
    pod: Json = {
        "restartPolicy": "Never",
        "terminationGracePeriodSeconds": ceil(job.grace),
        "hostNetwork": True,
        "dnsPolicy": "ClusterFirstWithHostNet",
        **({"serviceAccountName": job.name} if job.service_account else {}),
        "nodeSelector": {**node_labels(kind), **provisioning_labels(job, options.provisioning)},
        **({"affinity": zone_affinity(job)} if job.zones else {}),
        "tolerations": [{"key": "google.com/tpu", "operator": "Exists", "effect": "NoSchedule"}],
        "containers": [{
            "name": "main",
            "image": options.image,
            "command": ["bash", "-c", escape_references(start)],
            "env": build_variables(exported, slot, kind),
            "ports": [{"containerPort": port} for port in (8471, 8080, COORDINATOR_PORT)],
            "resources": {"limits": {"google.com/tpu": kind.chips_per_host}},
            **({"volumeMounts": [{"name": one["name"], "mountPath": path}
                                 for path, one in volumes.items()]} if volumes else {}),
        }],
    }  # fmt: skip
    return pod | ({"volumes": list(volumes.values())} if volumes else {})


def zone_affinity(job: JobSpec) -> Json:
    zones = {
        "key": "topology.kubernetes.io/zone",
        "operator": "In",
        "values": list(job.zones),
    }
    terms = {"nodeSelectorTerms": [{"matchExpressions": [zones]}]}
    return {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": terms}}


def nfs_volumes(job: JobSpec) -> Mapping[str, Json]:
    """Return the volume of each folder that a server shares; worker 0's disk is no server here."""
    found: dict[str, Json] = {}
    for folder, server in job.nfs.items():
        match = SERVER.fullmatch(server)
        if match and server != WORKER_0:
            share = {"server": match["address"].strip("[]"), "path": match["path"]}
            found[folder] = {"name": f"nfs-{len(found)}", "nfs": share}
    return found


def build_variables(exported: ExportedJob, slot: int, kind: Accelerator) -> list[Json]:
    """The container's variables; those that count are computed by its shell."""
    job, name = exported.job, f"{exported.job.name}-{slot}"
    run_id = exported.run_id(slot)
    plain = {
        "RUN_ID": run_id,
        "HERD_RUN_ID": run_id,
        "HERD_SLOT": str(slot),
        "HERD_WORKERS": str(kind.hosts * job.slices),
        # The first pod of the first slice, by the name that JobSet's service gives it.
        "HERD_COORDINATOR": f"{name}-{REPLICATED}-0-0.{name}:{COORDINATOR_PORT}",
        "TPU_SKIP_MDS_QUERY": "true",  # pods learn of their slice by variables
        **base_variables(job),
    }
    found: list[Json] = [
        label_variable("HERD_SLICE", "job-index"),
        label_variable("HERD_RESTARTS", "restart-attempt"),
    ]
    found += [{"name": key, "value": escape_references(it)} for key, it in plain.items()]
    for secret in job.secrets:
        reference = {"name": secrets_name(job), "key": secret.name}
        found.append({"name": secret.name, "valueFrom": {"secretKeyRef": reference}})
    return found


def label_variable(name: str, label: str) -> Json:
    path = f"metadata.labels['jobset.sigs.k8s.io/{label}']"
    return {"name": name, "valueFrom": {"fieldRef": {"fieldPath": path}}}


def secrets_name(job: JobSpec) -> str:
    return f"{job.name}-secrets"


def secrets_command(job: JobSpec) -> str:
    """Return the shell command that creates the Secret; no process gets values as arguments."""
    names = "".join(f"{one.name}=%s\\n" for one in job.secrets)
    values = " ".join(map(secret_word, job.secrets))
    create = f"kubectl create secret generic {secrets_name(job)} --from-env-file=/dev/stdin"
    return f"printf '{names}' {values} | {create}"


def escape_references(text: str) -> str:
    """Double each $ that Kubernetes would read as a reference: $(NAME) or $$."""
    return re.sub(r"\$(?=[$(])", "$$", text)
