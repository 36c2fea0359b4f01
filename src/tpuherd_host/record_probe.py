"""Prints, as JSON, names of what this host has: no values, addresses or texts.

`python3 -`: which metadata answers, the keys of tpu-env, devices, versions. The standard library
only, for every Python since 3.8.
"""

import json
import os
import platform
import re
import socket
import sys
import urllib.request
from typing import Any, Dict, Iterator, List, Optional, Tuple

TREE = "/computeMetadata/v1/?recursive=true&alt=json"
PATIENCE_S = 10.0
DEVICE = re.compile(r"(accel|tpu|gasket|apex)\d+|vfio")
GOOGLE = "0x1ae0"
PCI = "/sys/bus/pci/devices"
METRICS = ("127.0.0.1", 8431)
METHOD = "/tpu.monitoring.runtime.RuntimeMetricService/ListSupportedMetrics"
PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
DATA, HEADERS, SETTINGS, PING = 0, 1, 4, 6  # frames of HTTP/2
END = 1
BYTES_MAX = 1 << 20
ENV_KEY = re.compile(r"^([A-Z][A-Z0-9_]*):", re.M)


def read_tree() -> Dict[str, Any]:
    host = os.environ.get("GCE_METADATA_HOST") or "metadata.google.internal"
    request = urllib.request.Request("http://" + host + TREE, headers={"Metadata-Flavor": "Google"})
    try:
        with urllib.request.urlopen(request, timeout=PATIENCE_S) as answer:
            found = json.loads(answer.read())
    except (OSError, ValueError):
        return {}
    return found if isinstance(found, dict) else {}


def leaf_paths(value: Any, path: Tuple[str, ...] = ()) -> Iterator[Tuple[str, ...]]:
    if isinstance(value, dict) and value:
        for name, one in value.items():
            yield from leaf_paths(one, (*path, str(name)))
    elif isinstance(value, list) and value and isinstance(value[0], dict):
        for one in value:
            yield from leaf_paths(one, (*path, "0"))
    else:
        yield path


def endpoint_form(value: str) -> str:
    """Return the form of the first of the worker endpoints, such as name:digits:address."""
    parts = value.split(",")[0].split(":")
    return ":".join(part_form(part) for part in parts)


def part_form(part: str) -> str:
    if not part or part == "unknown":
        return part or "empty"
    if part.isdigit():
        return "digits"
    return "address" if re.fullmatch(r"[0-9.]+", part) else "name"


def list_devices() -> List[str]:
    found = []
    for name in sorted(os.listdir("/dev")):
        if name == "vfio" and os.path.isdir("/dev/vfio"):
            found += sorted("vfio/" + one for one in os.listdir("/dev/vfio"))
        elif DEVICE.fullmatch(name):
            found.append(name)
    return found


def list_pci() -> List[str]:
    """Return the device ids of Google's accelerators."""
    found = []
    places = sorted(os.listdir(PCI)) if os.path.isdir(PCI) else []
    for place in places:
        words = [
            read_word(os.path.join(PCI, place, name)) for name in ("vendor", "class", "device")
        ]
        if words[0] == GOOGLE and words[1].startswith("0x12"):
            found.append(words[2])
    return found


def read_word(path: str) -> str:
    try:
        with open(path, encoding="utf-8") as file:
            return file.read(64).strip()
    except OSError:
        return ""


def supported_metrics() -> Optional[List[str]]:
    """Return the metrics that libtpu lists; None while no program uses the chips."""
    try:
        with socket.create_connection(METRICS, timeout=PATIENCE_S) as link:
            return parse_names(call_grpc(link, METHOD))
    except (OSError, ValueError):
        return None


def call_grpc(link: socket.socket, path: str) -> bytes:
    """Return the reply to an empty message: the little of HTTP/2 that this takes."""
    words = {
        ":method": "POST", ":scheme": "http", ":path": path, ":authority": "localhost",
        "content-type": "application/grpc", "te": "trailers",
    }  # fmt: skip
    block = b"".join(b"\0" + hpack_text(name) + hpack_text(text) for name, text in words.items())
    link.sendall(PREFACE + frame(SETTINGS, 0, 0) + frame(HEADERS, 4, 1, block))
    link.sendall(frame(DATA, END, 1, bytes(5)))
    stream, reply, ended = link.makefile("rb"), b"", False
    while not ended and len(reply) < BYTES_MAX:
        head = stream.read(9)
        if len(head) < 9:
            break
        payload = stream.read(int.from_bytes(head[:3], "big"))
        kind, flags = head[3], head[4]
        if kind in (SETTINGS, PING) and not flags & 1:
            link.sendall(frame(kind, 1, 0, payload if kind == PING else b""))
        elif kind in (DATA, HEADERS):
            reply += payload if kind == DATA else b""
            ended = bool(flags & END)
    return reply[5:]


def frame(kind: int, flags: int, stream: int, payload: bytes = b"") -> bytes:
    head = len(payload).to_bytes(3, "big") + bytes((kind, flags)) + stream.to_bytes(4, "big")
    return head + payload


def hpack_text(text: str) -> bytes:
    return bytes((len(text),)) + text.encode()


def parse_names(message: bytes) -> List[str]:
    """Return the first text of each message in a repeated field 1."""
    found, at = [], 0
    while at < len(message):
        size, start = read_size(message, at)
        inner, begin = read_size(message, start)
        found.append(message[begin : begin + inner].decode("utf-8", "replace"))
        at = start + size
    return found


def read_size(message: bytes, at: int) -> Tuple[int, int]:
    """Return the length of a field 1 at this place, and where its content begins."""
    if message[at : at + 1] != b"\x0a":
        raise ValueError("not a field 1 with a length")
    size, shift = 0, 0
    for place in range(at + 1, min(at + 6, len(message))):
        size |= (message[place] & 0x7F) << shift
        if message[place] < 0x80:
            return size, place + 1
        shift += 7
    raise ValueError("the length has no end")


def os_release() -> str:
    text = ""
    for path in ("/etc/os-release", "/usr/lib/os-release"):
        try:
            with open(path, encoding="utf-8") as file:
                text = file.read(1 << 14)
            break
        except OSError:
            continue
    words: Dict[str, str] = dict(re.findall(r"^(ID|VERSION_ID)=\"?([\w.]+)", text, re.M))
    return (words.get("ID", "") + " " + words.get("VERSION_ID", "")).strip()


def main() -> int:
    tree = read_tree()
    instance = tree.get("instance")
    attributes = instance.get("attributes") if isinstance(instance, dict) else None
    own: Dict[str, Any] = attributes if isinstance(attributes, dict) else {}
    environment = str(own.get("tpu-env", ""))
    image = re.search(r"^RUNTIME_VERSION: '([^']*)'", environment, re.M)
    facts = {
        "type": own.get("accelerator-type", ""),
        "runtime": image.group(1) if image else "",
        "metadata": sorted({path for path in leaf_paths(tree) if path}),
        "tpu_env": sorted(set(ENV_KEY.findall(environment))),
        "endpoints": endpoint_form(str(own.get("worker-network-endpoints", ""))),
        "devices": list_devices(),
        "pci": list_pci(),
        "metrics": supported_metrics(),
        "python": platform.python_version(),
        "kernel": platform.release(),
        "os": os_release(),
    }
    sys.stdout.write(json.dumps(facts) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
