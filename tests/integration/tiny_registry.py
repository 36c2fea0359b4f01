"""A registry on loopback with one small image, made of programs of this machine.

`write_image` makes it; on a host `python3 tiny_registry.py PORT FOLDER` serves it.
"""

import gzip
import hashlib
import io
import json
import platform
import subprocess
import sys
import tarfile
from collections.abc import Sequence
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

MANIFEST = "application/vnd.docker.distribution.manifest.v2+json"
CONFIG = "application/vnd.docker.container.image.v1+json"
LAYER = "application/vnd.docker.image.rootfs.diff.tar.gzip"
MACHINES = {"x86_64": "amd64", "aarch64": "arm64"}


def write_image(folder: Path, programs: Sequence[str]) -> None:
    """Write the image's parts by their digests, and `manifest`."""
    folder.mkdir()
    layer = pack_programs(programs)
    config = json.dumps({
        "architecture": MACHINES.get(platform.machine(), platform.machine()), "os": "linux",
        "config": {"Env": ["PATH=/usr/bin:/bin", "OF=image"], "Entrypoint": ["/bin/false"]},
        "rootfs": {"type": "layers", "diff_ids": [digest(layer)]},
    }).encode()  # fmt: skip
    packed = gzip.compress(layer, 1, mtime=0)
    manifest = json.dumps({
        "schemaVersion": 2, "mediaType": MANIFEST,
        "config": {"mediaType": CONFIG, "size": len(config), "digest": digest(config)},
        "layers": [{"mediaType": LAYER, "size": len(packed), "digest": digest(packed)}],
    }).encode()  # fmt: skip
    for content in (config, packed):
        (folder / digest(content).partition(":")[2]).write_bytes(content)
    (folder / "manifest").write_bytes(manifest)


def digest(content: bytes) -> str:
    return f"sha256:{hashlib.sha256(content).hexdigest()}"


def pack_programs(programs: Sequence[str]) -> bytes:
    """A tar of these programs and their libraries."""
    files = set(programs)
    for program in programs:
        told = subprocess.run(["ldd", program], capture_output=True, text=True, check=True)
        files |= {word for word in told.stdout.split() if word.startswith("/")}
    text = io.BytesIO()
    with tarfile.open(fileobj=text, mode="w") as tar:
        for file in sorted(files):
            row = tarfile.TarInfo(file.lstrip("/"))
            content = Path(file).read_bytes()
            row.size, row.mode = len(content), 0o755
            tar.addfile(row, io.BytesIO(content))
    return text.getvalue()


class RegistryHandler(BaseHTTPRequestHandler):
    """What `docker pull` asks for."""

    protocol_version = "HTTP/1.1"
    folder = Path()

    def do_GET(self) -> None:
        what = self.path.strip("/").split("/")
        if what == ["v2"]:
            self.answer(200, b"{}")
        elif what[1:3] == ["tiny", "manifests"] and what[3] in ("1", self.manifest_digest()):
            self.answer(200, (self.folder / "manifest").read_bytes(), MANIFEST)
        elif what[1:3] == ["tiny", "blobs"]:
            name = what[3].rpartition(":")[2]
            self.answer(200, (self.folder / name).read_bytes(), "application/octet-stream")
        else:
            code = {"code": "MANIFEST_UNKNOWN", "message": "manifest unknown"}
            self.answer(404, json.dumps({"errors": [code]}).encode())

    def do_HEAD(self) -> None:
        self.do_GET()

    def manifest_digest(self) -> str:
        return digest((self.folder / "manifest").read_bytes())

    def answer(self, status: int, content: bytes, kind: str = "application/json") -> None:
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(content)))
        if kind == MANIFEST:
            self.send_header("Docker-Content-Digest", digest(content))
        self.end_headers()
        if self.command == "GET":
            self.wfile.write(content)

    def log_message(self, format: str, *args: object) -> None:
        pass


if __name__ == "__main__":
    RegistryHandler.folder = Path(sys.argv[2])
    ThreadingHTTPServer(("127.0.0.1", int(sys.argv[1])), RegistryHandler).serve_forever()
