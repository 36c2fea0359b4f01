"""Reads who this host is: its addresses, and what the metadata server says of it."""

import re
from typing import Any, Dict, Iterator, List, Mapping, Tuple

from tpuherd_host.agent.metadata_requests import get_key

#: The attributes that JAX and libtpu read, and the addresses as the cloud knows them.
KEYS = {
    "tpu_env": "attributes/tpu-env",
    "endpoints": "attributes/worker-network-endpoints",
    "worker": "attributes/agent-worker-number",
    "internal_ip": "network-interfaces/0/ip",
    "external_ip": "network-interfaces/0/access-configs/0/external-ip",
}
ENV = "ACCELERATOR_TYPE", "RUNTIME_VERSION", "WORKER_ID", "ZONE", "NODE_ID", "MEGASCALE_NUM_SLICES"
LINE = re.compile(r"\s*([A-Z][A-Z0-9_]*)\s*:\s*'?([^']*?)'?\s*")
TEXT_MAX = 8192
PATIENCE_S = (1.0, 3.0)


def parse_tpu_env(text: str) -> Dict[str, str]:
    """Parse the lines KEY: 'value' that matter."""
    found = {}
    for line in text.splitlines():
        parts = LINE.fullmatch(line)
        if parts and parts[1] in ENV:
            found[parts[1]] = parts[2]
    return found


def read_metadata(where: Tuple[str, int]) -> Dict[str, Any]:
    """Return what the metadata server answers; nothing of a server that is silent."""
    found: Dict[str, Any] = {}
    for name, key in KEYS.items():
        try:
            answer = get_key(key, where, "", PATIENCE_S)
        except OSError:
            break  # one silence is enough
        if answer is not None:
            found[name] = answer[0][:TEXT_MAX]
    found["tpu_env"] = parse_tpu_env(found.get("tpu_env", ""))
    return found


def parse_addresses(trie: str) -> Iterator[str]:
    """Find this host's own IPv4 addresses in /proc/net/fib_trie."""
    address = ""
    for line in trie.splitlines():
        words = line.split()
        if words[:1] == ["|--"] and len(words) == 2:
            address = words[1]
        elif words[:3] == ["/32", "host", "LOCAL"] and address:
            yield address


def own_addresses() -> List[str]:
    try:
        with open("/proc/net/fib_trie") as file:
            found = set(parse_addresses(file.read()))
    except OSError:
        return []
    return sorted(one for one in found if not one.startswith("127."))[:64]


def image_facts(release: str, libc: str, tpu_env: Mapping[str, str]) -> Dict[str, str]:
    """Return the names of the system and of the TPU runtime."""
    rows = dict(line.partition("=")[::2] for line in release.splitlines())
    return {
        "system": rows.get("PRETTY_NAME", "").strip('"'),
        "libc": libc,
        "runtime": tpu_env.get("RUNTIME_VERSION", ""),
    }
