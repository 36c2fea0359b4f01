"""Impossible trainings are refused by one host with one sentence, before the first step."""

from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread

import pytest

from tests.conformance.world import client
from tests.integration.test_train_pods import SRC, Pod, refused

NOT_YOURS = "herd@demo.iam.gserviceaccount.com does not have storage.objects.list access"

pytestmark = [pytest.mark.real]


class BucketHandler(BaseHTTPRequestHandler):
    """A bucket that is somebody else's, and one that is down."""

    def do_GET(self) -> None:
        code, said = (503, "Come back later.") if "/b/down/" in self.path else (403, NOT_YOURS)
        content = b'{"error": {"code": %d, "message": "%s"}}' % (code, said.encode())
        self.send_response(code)
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    def log_message(self, format: str, *args: object) -> None:
        pass


@pytest.fixture
def server() -> Iterator[str]:
    with ThreadingHTTPServer(("127.0.0.1", 0), BucketHandler) as server:
        Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()


@pytest.fixture
def pod(tmp_path: Path) -> Pod:
    return Pod(client("inside"), tmp_path)


@pytest.mark.parametrize(
    ("words", "hosts", "says"),
    [
        (("--batch", 17), 2, "a global batch of 17 can't be divided among 2 hosts; use 1 or 17"),
        (("--shards", 1), 2, "1 shards are too few for 2 hosts × 1 loader workers: make more"),
        (("--shards", 3), 4, "3 shards are too few for 4 hosts × 1 loader workers: make more"),
    ],
    ids=["batch", "shards", "shards-of-four"],
)
def test_data_that_cannot_be_shared(
    pod: Pod, tmp_path: Path, words: tuple[object, ...], hosts: int, says: str
) -> None:
    refused(pod.run(tmp_path / "p", *words, count=hosts, chips=1), says)


def test_a_forbidden_bucket(pod: Pod, server: str) -> None:
    ended = pod.run("gs://theirs/x", STORAGE_EMULATOR_HOST=server)
    refused(ended, f"gs://theirs/x: {NOT_YOURS} (HTTP 403)")


def test_a_bucket_outage_is_retried(pod: Pod, server: str) -> None:
    """With any other status than 78 it is tried again."""
    ended = pod.run("gs://down/x", STORAGE_EMULATOR_HOST=server)
    refused(ended, "gs://down/x: Come back later. (HTTP 503)", 1)


@pytest.mark.parametrize("hosts", [1, 2])
def test_an_old_jax(pod: Pod, tmp_path: Path, hosts: int) -> None:
    """As its package says of itself; what it then lacks does not matter any more."""
    said = tmp_path / "old" / "jax-0.4.13.dist-info"
    said.mkdir(parents=True)
    (said / "METADATA").write_text("Metadata-Version: 2.1\nName: jax\nVersion: 0.4.13\n")
    nobody = "127.0.0.1:1"  # they do not meet: each prints it
    python_path = f"{said.parent}:{SRC}"
    ended = pod.run(tmp_path / "p", count=hosts, PYTHONPATH=python_path, HERD_COORDINATOR=nobody)
    for one in ended:
        refused([one], "jax is 0.4.13, too old for this: pip install -U 'jax>=0.4.34'")
