"""Watches the host's metadata server for notices that the host is going away."""

import _thread
import socket
import time
from typing import Callable, Mapping, Optional, Tuple

KEYS = ("preempted", "maintenance-event")
SERVER = "169.254.169.254"
HOST_VARIABLES = ("GCE_METADATA_HOST", "GCE_METADATA_IP")
POLL_S = 60
ANSWER_MAX = 1 << 16
ANSWER_S = 0.5  #: for an answer that is due at once, when there is little time
#: Between tries: the server of a new host starts late, and other hosts have none.
PATIENCE_S = (0.25, 300.0)


def server_address(environment: Mapping[str, str]) -> Tuple[str, int]:
    for name in HOST_VARIABLES:
        host, _, port = environment.get(name, "").partition(":")
        if host:
            return host, int(port) if port.isdigit() else 80
    return SERVER, 80


def build_request(key: str, host: str, tag: str) -> bytes:
    """Ask for a change of one key within POLL_S; without a tag, for its value now."""
    wait = f"?wait_for_change=true&timeout_sec={POLL_S}&last_etag={tag}" if tag else ""
    path = f"/computeMetadata/v1/instance/{key}{wait}"
    head = f"GET {path} HTTP/1.0\r\nHost: {host}\r\nMetadata-Flavor: Google\r\n\r\n"
    return head.encode()


def parse_answer(answer: bytes) -> Optional[Tuple[str, str]]:
    """Return value and tag; None if the answer is not from a metadata server."""
    head, _, body = answer.partition(b"\r\n\r\n")
    status, *lines = head.decode("latin-1").split("\r\n")
    if status.split(" ")[1:2] != ["200"]:
        return None
    fields = {name.lower(): value.strip() for name, _, value in (n.partition(":") for n in lines)}
    if fields.get("metadata-flavor") != "Google":
        return None  # another server has that address
    return body.decode("utf-8", "replace").strip(), fields.get("etag", "0")


def get_key(
    key: str, where: Tuple[str, int], tag: str, patience_s: Tuple[float, float] = (3.0, POLL_S + 15)
) -> Optional[Tuple[str, str]]:
    line = socket.socket(socket.AF_INET)
    try:
        line.settimeout(patience_s[0])
        line.connect(where)
        line.settimeout(patience_s[1])
        line.sendall(build_request(key, where[0], tag))
        answer = b""
        while len(answer) < ANSWER_MAX:
            piece = line.recv(1 << 14)
            if not piece:
                break
            answer += piece
    finally:
        line.close()
    return parse_answer(answer)


def report_current(key: str, where: Tuple[str, int], tell: Callable[[str, str], None]) -> None:
    """Report the key's value if the server answers at once."""
    try:
        found = get_key(key, where, "", (ANSWER_S, ANSWER_S))
    except OSError:
        return
    if found is not None:
        tell(key, found[0])


def watch_key(key: str, where: Tuple[str, int], tell: Callable[[str, str], None]) -> None:
    """Report each change of a key, forever."""
    tag = ""
    patience_s = PATIENCE_S[0]
    while True:
        try:
            found = get_key(key, where, tag)
        except OSError:
            found = None
        if found is None:
            tag = ""
            time.sleep(patience_s)
            patience_s = min(patience_s * 2, PATIENCE_S[1])
            continue
        patience_s = PATIENCE_S[0]
        if found[1] == tag:
            time.sleep(0.05)  # do not spin if the server answers at once
        tag = found[1]
        tell(key, found[0])


def start_watchers(where: Tuple[str, int], tell: Callable[[str, str], None]) -> None:
    """Start a thread for each key."""
    for key in KEYS:
        _thread.start_new_thread(watch_key, (key, where, tell))
