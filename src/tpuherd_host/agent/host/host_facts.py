"""Reads a host's facts and parses them with pure functions: the verb `facts`."""

import os
import shutil
import socket
import sys
import time
from typing import Any, Dict, List, Mapping, Optional

from tpuherd_host.agent import processes
from tpuherd_host.agent.host.chip_users import chip_devices
from tpuherd_host.agent.threaded_rpc import ThreadedCall

PCI = "/sys/bus/pci/devices"
GOOGLE = "0x1ae0"
CHIPS = {  # by device, and by subsystem where two generations share one
    ("0x0027", "0x004e"): "v2",
    ("0x0027", "0x004f"): "v3",
    ("0x005e", ""): "v4",
    ("0x0063", ""): "v5e",
    ("0x0062", ""): "v5p",
    ("0x006f", ""): "v6e",
    ("0x0076", ""): "v7x",
}
TOOLS = ("pip", "pip3", "uv", "git", "docker", "zstd", "apt-get", "sudo", "tmux")


def read_text(path: str) -> str:
    """Return a small file's text; "" if it is missing."""
    try:
        with open(path, encoding="utf-8", errors="replace") as file:
            return file.read(1 << 16).strip()
    except OSError:
        return ""


def parse_meminfo(meminfo: str) -> Dict[str, int]:
    """Return total and available bytes from /proc/meminfo."""
    rows = dict(line.partition(":")[::2] for line in meminfo.splitlines())
    wanted = {"total": "MemTotal", "available": "MemAvailable"}
    found = {name: rows.get(row, "").split() for name, row in wanted.items()}
    return {name: int(words[0]) * 1024 for name, words in found.items() if words}


def chip_generation(vendor: str, device: str, subsystem: str) -> Optional[str]:
    """Return a PCI device's generation; "" for an unknown chip, None if it is not a chip."""
    if vendor != GOOGLE:
        return None
    for (known, below), generation in CHIPS.items():
        if device == known and below in ("", subsystem):
            return generation
    return ""


def list_chips() -> List[Dict[str, str]]:
    found = []
    try:
        places = sorted(os.listdir(PCI))
    except OSError:
        places = []
    for place in places:
        folder = os.path.join(PCI, place)
        names = ("vendor", "device", "subsystem_device", "class")
        vendor, device, subsystem, kind = (read_text(os.path.join(folder, name)) for name in names)
        generation = chip_generation(vendor, device, subsystem)
        if generation or (generation == "" and kind.startswith("0x12")):
            found.append({"place": place, "device": device, "generation": generation})
    return found


def disk_space(path: str) -> Dict[str, int]:
    facts = os.statvfs(path)
    return {
        "total": facts.f_blocks * facts.f_frsize,
        "free": facts.f_bavail * facts.f_frsize,
        "files_free": facts.f_favail,
    }


def find_tools(environment: Mapping[str, str]) -> Dict[str, Optional[str]]:
    """Return the paths of programs that a setup may need."""
    path = environment.get("PATH", os.defpath)
    return {name: shutil.which(name, path=path) for name in TOOLS}


def basic_facts(home: str) -> Dict[str, Any]:
    """Return the facts that change."""
    return {
        "time": time.time(),
        "cores": os.cpu_count(),
        "load": list(os.getloadavg()),
        "memory": parse_meminfo(read_text("/proc/meminfo")),
        "disk": disk_space(home),
    }


def collect_facts(call: ThreadedCall) -> Dict[str, Any]:
    system = os.uname()
    return {
        **basic_facts(call.paths.home),
        "boot": processes.boot_id(),
        "host": socket.gethostname(),
        "kernel": system.release,
        "machine": system.machine,
        "python": ".".join(map(str, sys.version_info[:3])),
        "executable": sys.executable,
        "uptime_s": processes.uptime_seconds(),
        "shm": disk_space("/dev/shm") if os.path.isdir("/dev/shm") else None,
        "chips": list_chips(),
        "devices": chip_devices(),
        "hugepages": read_text("/sys/kernel/mm/transparent_hugepage/enabled"),
        "preload": call.paths.environment.get("LD_PRELOAD", ""),
        "tools": find_tools(call.paths.environment),
    }
