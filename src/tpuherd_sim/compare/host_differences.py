"""Compares what hosts have with the simulated host of the same TPU type."""

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any

from tpuherd.catalogue import accelerators, generations, runtimes, zones
from tpuherd_sim.compare.differences import Findings
from tpuherd_sim.compare.model_tour import BARE, HOUR_S, Tourist
from tpuherd_sim.compare.seen_messages import Json
from tpuherd_sim.compare.transcript_file import HostRecord
from tpuherd_sim.host_services.libtpu_metrics import METRICS
from tpuherd_sim.hosts.devices import chip_files
from tpuherd_sim.model.http_types import Request
from tpuherd_sim.tpu.host_metadata import metadata_tree
from tpuherd_sim.tpu.metadata_replies import metadata_response

#: Entries that depend on what the user or another program asked for.
OPTIONAL = (
    "instance/attributes/ssh-keys", "instance/attributes/sshKeys",
    "instance/attributes/startup-script", "instance/attributes/shutdown-script",
    "instance/attributes/enable-oslogin", "instance/attributes/block-project-ssh-keys",
    "instance/attributes/queued-resource-name", "instance/attributes/megascale",
    "instance/guestAttributes", "instance/networkInterfaces/0/accessConfigs",
    "instance/upcomingMaintenance", "instance/tags", "project/attributes",
)  # fmt: skip
OPTIONAL_ENV = ("MEGASCALE_",)


@dataclass(frozen=True, kw_only=True, slots=True)
class ModelHost:
    """What the simulated host of a type has."""

    metadata: frozenset[str]
    tpu_env: frozenset[str]
    devices: frozenset[str]
    pci: frozenset[str]


def compare_host(record: HostRecord, cloud: str, findings: Findings) -> None:
    """Add every difference of one host."""
    facts, kind = record.facts, str(record.facts.get("type"))
    if kind not in accelerators() or sell_zone(kind) is None:
        findings.add("host", "type", f"the model has no hosts of {kind}", record.line)
        return
    model = build_host(kind)
    compare_names("metadata entry", words_of(facts, "metadata"), model.metadata, record, findings)
    compare_names("key of tpu-env", words_of(facts, "tpu_env"), model.tpu_env, record, findings)
    compare_names("device", words_of(facts, "devices"), model.devices, record, findings)
    compare_names("PCI id", words_of(facts, "pci"), model.pci, record, findings)
    if isinstance(facts.get("metrics"), list):
        compare_names("metric", words_of(facts, "metrics"), frozenset(METRICS), record, findings)
    if facts.get("endpoints") not in ("name:digits:address", "unknown:unknown:address"):
        sentence = f"worker-network-endpoints has the form {facts.get('endpoints')}"
        sentence += "; the model's is name:digits:address"
        findings.add("host", "endpoints", sentence, record.line)
    if cloud == "google":  # a world's hosts have the software of its machine
        compare_software(record, findings)


def compare_names(
    title: str,
    shown: frozenset[str],
    known: frozenset[str],
    record: HostRecord,
    findings: Findings,
) -> None:
    """Report what only one of the two has; what people named is a placeholder and is left out."""
    for name in sorted(shown - known):
        if not ("<" in name or is_optional(name)):
            sentence = f"{title} {name}: the model's hosts do not have it"
            findings.add("host", name, sentence, record.line)
    for name in sorted(known - shown):
        if not is_optional(name):
            sentence = f"{title} {name} is missing; the model's hosts have it"
            findings.add("host", name, sentence, record.line)


def compare_software(record: HostRecord, findings: Findings) -> None:
    """Compare the versions of Python and Ubuntu with the catalogue's for this image."""
    image = runtimes().get(str(record.facts.get("runtime")))
    if image is None:
        sentence = f"the image {record.facts.get('runtime')} is not in the catalogue"
        findings.add("host", "runtime", sentence, record.line)
        return
    python, system = str(record.facts.get("python", "")), str(record.facts.get("os", ""))
    if image.python and not f"{python}.".startswith(f"{image.python}."):
        sentence = f"{image.version} has Python {python}; the catalogue says {image.python}"
        findings.add("host", "python", sentence, record.line)
    if image.ubuntu and system != f"ubuntu {image.ubuntu}":
        sentence = f"{image.version} has {system}; the catalogue says Ubuntu {image.ubuntu}"
        findings.add("host", "os", sentence, record.line)


def words_of(facts: Json, name: str) -> frozenset[str]:
    found = facts.get(name)
    return frozenset(map(str, found)) if isinstance(found, list) else frozenset()


def is_optional(name: str) -> bool:
    return name.startswith((*OPTIONAL, *OPTIONAL_ENV))


def sell_zone(kind: str) -> str | None:
    """Return a zone that has the type."""
    return next((one.name for one in zones().values() if kind in one.types), None)


@cache
def build_host(kind: str) -> ModelHost:
    """Create a node of the type in a world of its own, and return what its first host has."""
    zone = sell_zone(kind)
    tourist = Tourist()
    generation = generations()[accelerators()[kind].generation]
    body = {**BARE, "acceleratorType": kind, "runtimeVersion": generation.runtime}
    tourist.ask("POST", f"/v2/projects/demo/locations/{zone}/nodes?nodeId=n", body)
    tourist.watch(HOUR_S, 600)
    uid = tourist.world.nodes[f"{zone}/n"].uid
    tree = metadata_tree(tourist.world, f"{uid}-0", tourist.now)
    environment = str(tree["instance"]["attributes"]["tpu-env"])
    chips = accelerators()[kind].chips_per_host
    return ModelHost(
        metadata=frozenset(shown_entries(tree)),
        tpu_env=frozenset(line.partition(":")[0] for line in environment.splitlines()),
        devices=frozenset(chip_files({"device": generation.device, "chips": chips})),
        pci=frozenset({generation.pci}),
    )


def shown_entries(tree: dict[str, Any]) -> Iterator[str]:
    """Yield the paths of the server's JSON, as they are in transcripts."""
    headers = {"metadata-flavor": "Google"}
    path = "/computeMetadata/v1/"
    request = Request(method="GET", path=path, query="recursive=true&alt=json", headers=headers)
    content = json.loads(metadata_response(tree, request).body)
    for parts in leaf_entries(content, ()):
        if parts[:2] != ("instance", "serviceAccounts") or parts[2:3] == ("default",):
            yield "/".join(parts)


def leaf_entries(value: Any, path: tuple[str, ...]) -> Iterator[tuple[str, ...]]:
    if isinstance(value, Mapping) and value:
        for name, one in value.items():
            yield from leaf_entries(one, (*path, name))
    elif isinstance(value, list) and value and isinstance(value[0], Mapping):
        for one in value:
            yield from leaf_entries(one, (*path, "0"))
    else:
        yield path
