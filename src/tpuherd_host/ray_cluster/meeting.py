"""How the hosts of a Ray cluster meet at worker 0 before Ray starts, and stay in touch.

Each sends a line of JSON to worker 0, which answers by lines: `refuse`, `join`, `end`. A connection
that ends without `end` says that the other host is gone.
"""

import json
import re
import socket
import time
from typing import Dict, List, Mapping, NamedTuple, Optional, Sequence

PORT = 6380  #: on worker 0, beside Ray's own 6379
MEET_S = 300.0  #: hosts start within seconds of each other, unless they are slow
HELLO_S = 10.0
TRY_S = 0.2
LINE_BYTES_MAX = 4096
OLDEST_RAY = (2, 9)  #: that knows a slice's resources


class Hello(NamedTuple):
    """What a host says of itself."""

    worker: int
    attempt: str
    ray: str  #: its version; empty: it is not installed
    python: str


class JoiningHost(NamedTuple):
    """A host that has come, and the connection to it."""

    hello: Hello
    line: socket.socket


def send_message(line: socket.socket, message: Mapping[str, object]) -> None:
    """Send a line; whether the other host still listens shows when it is read."""
    try:
        line.sendall(json.dumps(message).encode() + b"\n")
    except OSError:
        pass


def read_message(line: socket.socket, seconds: Optional[float]) -> Dict[str, object]:
    """Read a line; {} if the connection ends, or if it is nothing that we say."""
    line.settimeout(seconds)
    text = b""
    try:
        while not text.endswith(b"\n") and len(text) < LINE_BYTES_MAX:
            byte = line.recv(1)
            if not byte:
                return {}
            text += byte
        content = json.loads(text)
    except (OSError, ValueError):
        return {}
    return content if isinstance(content, dict) else {}


def parse_hello(content: Mapping[str, object]) -> Optional[Hello]:
    worker = content.get("worker")
    words = [content.get(name) for name in Hello._fields[1:]]
    texts = [word for word in words if isinstance(word, str)]
    if not isinstance(worker, int) or len(texts) < len(words):
        return None
    return Hello(worker, *texts)


def open_connection(head: str, hello: Hello) -> socket.socket:
    """Connect to worker 0, which may start later, and introduce this host."""
    until = time.monotonic() + MEET_S
    while True:
        try:
            line = socket.create_connection((head, PORT), timeout=HELLO_S)
        except OSError:
            if time.monotonic() > until:
                raise
            time.sleep(TRY_S)
        else:
            send_message(line, hello._asdict())
            return line


def meet_members(address: str, mine: Hello, workers: int) -> List[JoiningHost]:
    """Wait for all other hosts of this attempt; strangers are turned away."""
    found: Dict[int, JoiningHost] = {}
    until = time.monotonic() + MEET_S
    with socket.create_server((address, PORT), backlog=workers) as listener:
        while len(found) < workers - 1:
            listener.settimeout(max(0.0, until - time.monotonic()) or TRY_S)
            try:
                line, _ = listener.accept()
            except socket.timeout:
                missing = sorted(set(range(1, workers)) - set(found))
                raise OSError(f"worker {missing[0]} did not come within {MEET_S:.0f} s") from None
            hello = parse_hello(read_message(line, HELLO_S))
            if hello and hello.attempt == mine.attempt and 0 < hello.worker < workers:
                found[hello.worker] = JoiningHost(hello, line)
            else:
                line.close()
    return [found[worker] for worker in sorted(found)]


def describe_misfit(hosts: Sequence[Hello]) -> str:
    """Say why these hosts can't be one Ray cluster; "" if they can. Pure."""
    lacking = [one.worker for one in hosts if not one.ray]
    if lacking:
        where = "this host" if len(hosts) == 1 else f"worker {lacking[0]}"
        more = f" and {len(lacking) - 1} more" if len(lacking) > 1 else ""
        where = "all hosts" if len(lacking) == len(hosts) > 1 else where + more
        return (
            f"Ray is not installed on {where}: add ray to the job's `requirements`,"
            " or to `setup`: pip install ray"
        )
    for what, versions in (
        ("Ray", {one.worker: one.ray for one in hosts}),
        ("Python for Ray", {one.worker: minor_version(one.python) for one in hosts}),
    ):
        many = list(versions.values())
        usual = max(many, key=many.count)
        odd = next((worker for worker, word in versions.items() if word != usual), None)
        if odd is not None:
            return (
                f"the hosts have different versions of {what}: worker {odd} has {versions[odd]},"
                f" others have {usual}; pin one version in `requirements` or `setup`"
            )
    version = hosts[0].ray
    if [int(word) for word in re.findall(r"\d+", version)[:2]] < list(OLDEST_RAY):
        oldest = ".".join(map(str, OLDEST_RAY))
        return f"Ray {version} is too old: pin {oldest} or a newer one in `requirements` or `setup`"
    return ""


def minor_version(version: str) -> str:
    """3.11 for 3.11.7"""
    return ".".join(version.split(".")[:2])
