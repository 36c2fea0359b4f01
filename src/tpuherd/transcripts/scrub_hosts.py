"""What a transcript keeps of a host: names that Google gave, counts and versions."""

import re
from collections.abc import Mapping
from typing import Any

from tpuherd.transcripts.placeholders import Placeholders
from tpuherd.transcripts.scrub_strings import is_public

ITEMS_MAX = 500
#: Names below instance/ and project/ are the metadata server's, except where people add their own.
NAME = re.compile(r"[a-z][A-Za-z0-9-]{0,40}|\d{1,3}")
#: Folders in which users and programs create entries, with the entries that are Google's.
OPEN_FOLDERS: Mapping[str, frozenset[str]] = {
    "attributes": frozenset(
        "accelerator-type agent-worker-number instance-id queued-resource-name tpu-env worker-id "
        "worker-network-endpoints ssh-keys startup-script shutdown-script enable-oslogin "
        "block-project-ssh-keys sshKeys megascale-coordinator-address megascale-num-slices "
        "megascale-slice-id".split()
    ),
    "guestAttributes": frozenset("hostkeys guestInventory".split()),
    "serviceAccounts": frozenset({"default"}),
}
ENV_KEY = re.compile(r"[A-Z][A-Z0-9_]{1,60}")
DEVICE = re.compile(r"(accel|tpu|gasket|apex)\d{1,3}|vfio/(vfio|\d{1,3})")
PCI = re.compile(r"0x[0-9a-f]{4}")
METRIC = re.compile(r"[a-z]{2,20}(\.[a-zA-Z0-9_]{1,40}){1,8}")
VERSION = re.compile(r"\d{1,3}(\.\d{1,4}){1,3}")
KERNEL = re.compile(r"\d{1,3}(\.\d{1,4}){1,2}(-\d{1,5})?(-(gcp|generic|aws|azure|cloud|amd64))?")
SYSTEM = re.compile(r"(ubuntu|debian|cos) \d{1,3}(\.\d{1,3})?")
FORM = re.compile(r"(unknown|empty|digits|address|name)(:(unknown|empty|digits|address|name)){0,4}")


def scrub_host(facts: Mapping[str, Any], hide: Placeholders) -> dict[str, Any]:
    """Return the line for one host, from what its probe printed; whatever else it is stays out."""
    kind, image = str(facts.get("type", "")), str(facts.get("runtime", ""))
    metrics = keep_matching(METRIC, list_items(facts, "metrics"), hide)
    return {
        "kind": "host",
        "type": kind if is_public("type", kind) else "<type>",
        "runtime": image if is_public("runtime", image) else "<runtime>",
        "metadata": sorted({scrub_entry(one, hide) for one in list_items(facts, "metadata")}),
        "tpu_env": keep_matching(ENV_KEY, list_items(facts, "tpu_env"), hide),
        "endpoints": keep_word(FORM, facts.get("endpoints")),
        "devices": keep_matching(DEVICE, list_items(facts, "devices"), hide),
        "pci": keep_matching(PCI, list_items(facts, "pci"), hide),
        "metrics": metrics if isinstance(facts.get("metrics"), list) else None,
        "python": keep_word(VERSION, facts.get("python")),
        "kernel": keep_word(KERNEL, facts.get("kernel")),
        "os": keep_word(SYSTEM, facts.get("os")),
    }


def list_items(facts: Mapping[str, Any], name: str) -> list[Any]:
    found = facts.get(name)
    return found[:ITEMS_MAX] if isinstance(found, list) else []


def keep_word(pattern: re.Pattern[str], value: object) -> str:
    word = str(value or "")
    return word if pattern.fullmatch(word) else "<text>" if word else ""


def keep_matching(pattern: re.Pattern[str], values: list[Any], hide: Placeholders) -> list[str]:
    words = [str(one) for one in values]
    return sorted(one if pattern.fullmatch(one) else hide.hide_value("name", one) for one in words)


def scrub_entry(path: object, hide: Placeholders) -> str:
    """Return the path of a metadata entry, with placeholders for what people named."""
    parts = [str(part) for part in path] if isinstance(path, list) else []
    shown: list[str] = []
    inside: frozenset[str] | None = None  # the names of Google's in an open folder
    for part in parts[:10]:
        if inside is None:
            clear = bool(NAME.fullmatch(part))
        else:
            clear = part in inside
        shown.append(part if clear else hide.hide_value("key", part))
        if inside is not None and not clear:
            shown += ["…"] if len(parts) > len(shown) else []
            break
        inside = OPEN_FOLDERS.get(part) if inside is None else None
    return "/".join(shown)
