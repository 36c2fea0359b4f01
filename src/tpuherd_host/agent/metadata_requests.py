"""Asks the metadata server of the host."""

import socket
from typing import Mapping, Optional, Tuple

SERVER = "169.254.169.254"
HOST_VARIABLES = ("GCE_METADATA_HOST", "GCE_METADATA_IP")
POLL_S = 60
ANSWER_MAX = 1 << 16


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
