"""`herd sim compare` on what hosts have: equal to the simulated host, or named."""

from collections.abc import Callable
from typing import Any

import pytest

from tpuherd.catalogue import accelerators
from tpuherd.transcripts.placeholders import Placeholders
from tpuherd.transcripts.scrub_hosts import scrub_host
from tpuherd_sim.compare.differences import Findings
from tpuherd_sim.compare.host_differences import build_host, compare_host, sell_zone
from tpuherd_sim.compare.transcript_file import HostRecord
from tpuherd_sim.host_services.libtpu_metrics import METRICS

Facts = dict[str, Any]


def host_facts(kind: str = "v4-8", runtime: str = "tpu-ubuntu2204-base") -> Facts:
    """What a host like the simulated one has, after the scrubbing."""
    model = build_host(kind)
    probed = {
        "type": kind,
        "runtime": runtime,
        "metadata": [entry.split("/") for entry in model.metadata],
        "tpu_env": list(model.tpu_env),
        "devices": list(model.devices),
        "pci": list(model.pci),
        "metrics": list(METRICS),
        "endpoints": "name:digits:address",
        "python": "3.10.12",
        "kernel": "6.8.0-1015-gcp",
        "os": "ubuntu 22.04",
    }
    return scrub_host(probed, Placeholders(key=b"k", start=0.0))


def sentences(facts: Facts, cloud: str = "google") -> list[str]:
    findings = Findings()
    compare_host(HostRecord(line=3, facts=facts), cloud, findings)
    return [one.sentence for one in findings.in_order()]


#: The smallest size of each generation.
SIZES = {
    one.generation: one.type
    for one in sorted(accelerators().values(), key=lambda one: -one.chips)
    if sell_zone(one.type)
}


@pytest.mark.parametrize("kind", SIZES.values())
def test_a_host_of_every_generation_is_like_itself(kind: str) -> None:
    assert sentences(host_facts(kind)) == []


ALTERATIONS: dict[str, tuple[Callable[[Facts], object], str]] = {
    "a key of tpu-env is new": (
        lambda facts: facts["tpu_env"].append("COOLANT"),
        "key of tpu-env COOLANT: the model's hosts do not have it",
    ),
    "a key of tpu-env is gone": (
        lambda facts: facts["tpu_env"].remove("ACCELERATOR_TYPE"),
        "key of tpu-env ACCELERATOR_TYPE is missing; the model's hosts have it",
    ),
    "metadata has more": (
        lambda facts: facts["metadata"].append("instance/partnerAttributes"),
        "metadata entry instance/partnerAttributes: the model's hosts do not have it",
    ),
    "metadata has less": (
        lambda facts: facts["metadata"].remove("instance/preempted"),
        "metadata entry instance/preempted is missing; the model's hosts have it",
    ),
    "a device is another": (
        lambda facts: facts.update(devices=["vfio/0", "vfio/vfio"]),
        "device vfio/0: the model's hosts do not have it",
    ),
    "a chip is another": (
        lambda facts: facts.update(pci=["0x00ff"]),
        "PCI id 0x00ff: the model's hosts do not have it",
    ),
    "a metric is new": (
        lambda facts: facts["metrics"].append("tpu.runtime.coolant.degrees"),
        "metric tpu.runtime.coolant.degrees: the model's hosts do not have it",
    ),
    "endpoints are a plain list": (
        lambda facts: facts.update(endpoints="address"),
        "worker-network-endpoints has the form address; the model's is name:digits:address",
    ),
    "the image has another Python": (
        lambda facts: facts.update(python="3.12.3"),
        "tpu-ubuntu2204-base has Python 3.12.3; the catalogue says 3.10",
    ),
    "the image has another system": (
        lambda facts: facts.update(os="ubuntu 24.04"),
        "tpu-ubuntu2204-base has ubuntu 24.04; the catalogue says Ubuntu 22.04",
    ),
    "the image is new": (
        lambda facts: facts.update(runtime="tpu-ubuntu2404-base"),
        "the image tpu-ubuntu2404-base is not in the catalogue",
    ),
    "the type is new": (
        lambda facts: facts.update(type="v9-8"),
        "the model has no hosts of v9-8",
    ),
}


@pytest.mark.parametrize("name", ALTERATIONS)
def test_what_is_different_is_named(name: str) -> None:
    alter, sentence = ALTERATIONS[name]
    facts = host_facts()
    alter(facts)
    assert sentence in sentences(facts)


def test_what_people_named_is_no_difference() -> None:
    facts = host_facts()
    facts["metadata"] += ["instance/attributes/<key:12345678>", "instance/attributes/ssh-keys"]
    assert sentences(facts) == []


def test_the_software_of_a_world_is_its_machines() -> None:
    assert sentences({**host_facts(), "python": "3.14.0", "os": "debian 13"}, "world") == []


def test_a_hostile_record_does_not_stop_the_comparison() -> None:
    values: tuple[Any, ...] = (None, 7, {"a": []}, [[], {}], "x" * 1000)
    for field in host_facts():
        for value in values:
            assert isinstance(sentences({**host_facts(), field: value}), list)
