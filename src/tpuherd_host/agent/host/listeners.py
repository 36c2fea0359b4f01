"""Finds which processes listen at TCP ports, from /proc."""

import json
import os
import socket
import struct
import subprocess
import sys
from typing import Any, Collection, Dict, Iterator, List, NamedTuple

from tpuherd_host.agent import processes
from tpuherd_host.agent.host.chip_users import SUDO_S, process_user

TABLES = "/proc/net/tcp", "/proc/net/tcp6"
LISTENING = "0A"
ROWS_MAX = 200


class Listener(NamedTuple):
    """A socket that waits for connections."""

    address: str
    port: int
    inode: str


def parse_address(text: str) -> str:
    """Return an address that the kernel prints as words of this machine's byte order."""
    words = [int(text[at : at + 8], 16) for at in range(0, len(text), 8)]
    packed = struct.pack(f"={len(words)}I", *words)
    if len(packed) == 16 and packed[:12] == b"\0" * 10 + b"\xff\xff":
        packed = packed[12:]
    return socket.inet_ntop(socket.AF_INET if len(packed) == 4 else socket.AF_INET6, packed)


def parse_listeners(table: str) -> Iterator[Listener]:
    """Parse /proc/net/tcp or tcp6; other lines are skipped."""
    for line in table.splitlines()[1:]:
        words = line.split()
        if len(words) > 9 and words[3] == LISTENING:
            address, _, port = words[1].partition(":")
            try:
                yield Listener(parse_address(address), int(port, 16), words[9])
            except (ValueError, OSError, struct.error):
                continue


def read_listeners(ports: Collection[int]) -> List[Listener]:
    found: List[Listener] = []
    for table in TABLES:
        try:
            with open(table) as file:
                found += parse_listeners(file.read())
        except OSError:
            continue
    return [one for one in found if one.port in ports][:ROWS_MAX]


def socket_owners(inodes: Collection[str]) -> Dict[str, int]:
    """Return the process of each socket, as far as we may inspect it."""
    wanted = {f"socket:[{inode}]": inode for inode in inodes}
    owners: Dict[str, int] = {}
    for name in os.listdir("/proc") if wanted else ():
        if not name.isdigit():
            continue
        folder = f"/proc/{name}/fd"
        try:
            targets = {os.readlink(os.path.join(folder, file)) for file in os.listdir(folder)}
        except OSError:
            continue
        for target in wanted.keys() & targets:
            owners.setdefault(wanted[target], int(name))
    return owners


def find_listeners(ports: Collection[int]) -> List[Dict[str, Any]]:
    """Return who listens at these ports; the pid is None if it is hidden from us."""
    found = read_listeners(ports)
    owners = socket_owners({one.inode for one in found})
    rows = []
    for one in found:
        pid = owners.get(one.inode)
        rows.append(
            {
                "port": one.port,
                "address": one.address,
                "pid": pid,
                "user": process_user(pid) if pid else "",
                "command": processes.command_line(pid) if pid else "",
                "agent": processes.process_marks(pid)[0] if pid else "",
                "work": processes.process_marks(pid)[1] if pid else "",
            }
        )
    return rows


def all_listeners(ports: Collection[int]) -> List[Dict[str, Any]]:
    """Include other users' processes if sudo needs no password."""
    rows = find_listeners(ports)
    if os.getuid() == 0 or all(row["pid"] for row in rows):
        return rows
    words = ["sudo", "-n", sys.executable, "-I", "-S", sys.argv[0], "listeners"]
    try:
        done = subprocess.run(
            [*words, *map(str, sorted(ports))],
            capture_output=True,
            timeout=SUDO_S,
            stdin=subprocess.DEVNULL,
        )
        told: List[Dict[str, Any]] = json.loads(done.stdout)
    except (OSError, ValueError, subprocess.SubprocessError):
        return rows
    return told


def print_listeners(ports: List[str]) -> int:
    """Print JSON for an agent that runs this by sudo."""
    json.dump(find_listeners({int(port) for port in ports if port.isdigit()}), sys.stdout)
    return 0
