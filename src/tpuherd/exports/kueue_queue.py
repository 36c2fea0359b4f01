"""Writes the queue of Kueue that a job needs, for a cluster that has none. Pure."""

from collections.abc import Mapping
from typing import Any

Json = dict[str, Any]
FLEX_START, QUEUED = "flex-start", "queued"
API = "kueue.x-k8s.io/v1beta1"


def queue_manifests(
    queue: str, provisioning: str, labels: Mapping[str, str], chips: int
) -> list[Json]:
    """Return a LocalQueue with its ClusterQueue and flavor, big enough for this job alone."""
    flavor = {"name": queue, "resources": [{"name": "google.com/tpu", "nominalQuota": chips}]}
    check = f"{queue}-provisioning"
    cluster: Json = {
        "namespaceSelector": {},
        "resourceGroups": [{"coveredResources": ["google.com/tpu"], "flavors": [flavor]}],
    }
    found = [build_manifest("ResourceFlavor", queue, {"nodeLabels": dict(labels)})]
    if provisioning == QUEUED:
        found += provisioning_manifests(check)
        cluster["admissionChecksStrategy"] = {"admissionChecks": [{"name": check}]}
    return [
        *found,
        build_manifest("ClusterQueue", queue, cluster),
        build_manifest("LocalQueue", queue, {"clusterQueue": queue}),
    ]


def provisioning_manifests(name: str) -> list[Json]:
    """Return what has Kueue ask GKE for all nodes of a job at once."""
    config = {
        "provisioningClassName": "queued-provisioning.gke.io",
        "managedResources": ["google.com/tpu"],
    }
    kind = "ProvisioningRequestConfig"
    parameters = {"apiGroup": "kueue.x-k8s.io", "kind": kind, "name": name}
    check = {"controllerName": "kueue.x-k8s.io/provisioning-request", "parameters": parameters}
    return [build_manifest(kind, name, config), build_manifest("AdmissionCheck", name, check)]


def build_manifest(kind: str, name: str, spec: Json) -> Json:
    return {"apiVersion": API, "kind": kind, "metadata": {"name": name}, "spec": spec}
