"""Writes an object to a bucket, reads it back and deletes it, as programs on this host would.

`python3 - BUCKET`: prints what worked; exits 1 with the cause of what did not. With
`--read-only` it lists the bucket and reads the first byte of an object.
"""

import json
import os
import socket
import sys
import urllib.error
import urllib.request
from typing import Dict, Optional
from urllib.parse import quote, urlencode

GOOGLE = "https://storage.googleapis.com"
ACCOUNT = "/computeMetadata/v1/instance/service-accounts/default/"
FOLDER = ".herd-check"
CONTENT = b"written by herd bucket check\n"
PATIENCE_S = 30.0


class Refused(Exception):
    """The storage said no, or nothing."""


def ask_metadata(path: str) -> str:
    host = os.environ.get("GCE_METADATA_HOST") or "metadata.google.internal"
    request = urllib.request.Request(
        f"http://{host}{ACCOUNT}{path}", headers={"Metadata-Flavor": "Google"}
    )
    with urllib.request.urlopen(request, timeout=PATIENCE_S) as answer:
        return str(answer.read().decode())


def storage_url() -> str:
    url = os.environ.get("STORAGE_EMULATOR_HOST", "").rstrip("/")
    return url if not url or "//" in url else "http://" + url


def send(method: str, path: str, headers: Dict[str, str], body: Optional[bytes] = None) -> bytes:
    """Send one request; raises Refused with the server's sentence."""
    base = storage_url() or GOOGLE
    request = urllib.request.Request(base + path, data=body, headers=headers, method=method)
    try:
        with urllib.request.urlopen(request, timeout=PATIENCE_S) as answer:
            return bytes(answer.read())
    except urllib.error.HTTPError as error:
        try:
            sentence = str(json.loads(error.read())["error"]["message"])
        except (ValueError, KeyError, TypeError):
            sentence = str(error.reason)
        raise Refused(f"{sentence} (HTTP {error.code})") from error
    except OSError as error:
        raise Refused(f"{base} can't be reached: {error}") from error


def check_write(bucket: str, headers: Dict[str, str]) -> str:
    """Write, read and delete an object of this host's own."""
    name = f"{FOLDER}/{socket.gethostname()}-{os.getpid()}"
    query = urlencode({"uploadType": "media", "name": name})
    send("POST", f"/upload/storage/v1/b/{bucket}/o?{query}", headers, CONTENT)
    path = f"/storage/v1/b/{bucket}/o/{quote(name, safe='')}"
    if send("GET", path + "?alt=media", headers) != CONTENT:
        raise Refused("what was read is not what was written")
    send("DELETE", path, headers)
    return "wrote, read and deleted an object"


def check_read(bucket: str, headers: Dict[str, str]) -> str:
    """List the bucket, and read from its first object if there is one."""
    answer = json.loads(send("GET", f"/storage/v1/b/{bucket}/o?maxResults=1", headers))
    items = answer.get("items") or []
    if not items:
        return "listed the bucket, which is empty"
    name = quote(str(items[0]["name"]), safe="")
    path = f"/storage/v1/b/{bucket}/o/{name}?alt=media"
    send("GET", path, dict(headers, Range="bytes=0-0"))
    return "listed the bucket and read from an object"


def main(words: "list[str]") -> int:
    bucket, work = words[0], check_read if "--read-only" in words else check_write
    try:
        account = ask_metadata("email")
        headers = {"Content-Type": "application/octet-stream"}
        if not storage_url():
            token = json.loads(ask_metadata("token"))["access_token"]
            headers["Authorization"] = f"Bearer {token}"
        print(f"as {account}: {work(bucket, headers)}")
    except (Refused, OSError, ValueError, KeyError) as error:
        print(error)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
