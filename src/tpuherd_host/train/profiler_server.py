"""Starts JAX's profiler server for `herd profile`, reached from this machine only, if asked."""

import os
import socket
from collections.abc import Iterator, Mapping
from contextlib import closing, suppress
from pathlib import Path

from tpuherd_host.train import process_env
from tpuherd_host.train.lazy_import import jax
from tpuherd_host.train.send_reports import ReportSender

VARIABLE = "HERD_PROFILER_PORT"
PORTS_TRIED = 16
PORT_MAX = 65535
LOOPBACK = b"lo\0"
BIND_TO_DEVICE: int | None = getattr(socket, "SO_BINDTODEVICE", None)  #: Linux only
TOO_OPEN = "no profiler: this system can't hide it from other machines"
TABLES = "/proc/self/net/tcp", "/proc/self/net/tcp6"
LISTENING = "0A"
#: Sockets whose names say that this process has a port; they live as long as it does.
CLAIMS: list[socket.socket] = []


def start_profiler(environ: Mapping[str, str]) -> None:
    """Start the server at the port that the variable names, or at the next free one.

    Whatever fails, the training goes on without it.
    """
    wanted = environ.get(VARIABLE, "")
    if not wanted.isdecimal() or not 0 < int(wanted) <= PORT_MAX:
        return
    if BIND_TO_DEVICE is None:
        process_env.log_message(TOO_OPEN)
        return
    port = claim_port(int(wanted))
    if port is None:
        process_env.log_message(f"no profiler: ports from {wanted} on are in use")
        return
    try:
        jax.profiler.start_server(port)
    except Exception as error:  # noqa: BLE001  # a training must not end because of it
        process_env.log_message(f"no profiler: {error}")
        return
    if not keep_to_this_machine(port):
        with suppress(ValueError):
            jax.profiler.stop_server()
        process_env.log_message(TOO_OPEN)
        return
    sender = ReportSender(environ)
    sender.send_with_retries({"profiler_port": port})
    sender.close()


def claim_port(first: int) -> int | None:
    """Return the first port that nobody has; JAX would share it with another process in silence."""
    for port in range(first, min(first + PORTS_TRIED, PORT_MAX + 1)):
        claim = socket.socket(socket.AF_UNIX)
        try:
            claim.bind(f"\0herd-profiler-{port}")
            for family in (socket.AF_INET, socket.AF_INET6):
                with closing(socket.socket(family)) as probe:
                    probe.bind(("", port))
        except OSError:
            claim.close()
            continue
        CLAIMS.append(claim)
        return port
    return None


def keep_to_this_machine(port: int) -> bool:
    """Bind the server's sockets to the loopback interface: JAX listens on all of them."""
    found = list(listening_files(port))
    try:
        for file in found:
            with closing(socket.socket(fileno=os.dup(file))) as listener:
                listener.setsockopt(socket.SOL_SOCKET, BIND_TO_DEVICE or 0, LOOPBACK)
    except OSError:
        return False
    return bool(found)


def listening_files(port: int) -> Iterator[int]:
    """Return this process's files that are sockets listening at the port."""
    wanted = {f"socket:[{inode}]" for inode in listening_inodes(port)}
    for file in Path("/proc/self/fd").iterdir():
        with suppress(OSError):
            if str(file.readlink()) in wanted:
                yield int(file.name)


def listening_inodes(port: int) -> Iterator[str]:
    for table in TABLES:
        try:
            with open(table) as file:
                lines = file.read().splitlines()[1:]
        except OSError:
            continue
        for line in lines:
            words = line.split()
            if words[3:4] == [LISTENING] and words[1].endswith(f":{port:04X}"):
                yield words[9]
