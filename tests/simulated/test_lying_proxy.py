"""Behind a proxy that answers 200 with a page of its own, no command claims to know the cloud."""

import json
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from time import time
from typing import Any

import pytest

from tpuherd.cli.main import run
from tpuherd.model.slots_and_plan import Goal, HistoryEvent
from tpuherd.model.stored_job import StoredJob
from tpuherd.ports import LeaseHolder
from tpuherd.settings import project_access
from tpuherd.store.database import Database

PAGE = b"<html><body>It works!</body></html>"
BID = "pend-0-g1-7kq"
REQUEST = {
    "name": f"projects/demo/locations/us-central2-b/queuedResources/{BID}",
    "state": {"state": "WAITING_FOR_RESOURCES"},
}


class Proxy(ThreadingHTTPServer):
    """Forwards this many requests, then answers everything with its page."""

    truths = 0
    asked = 0


class Handler(BaseHTTPRequestHandler):
    """One request."""

    server: Proxy

    def do_GET(self) -> None:
        self.server.asked += 1
        honest = self.server.asked <= self.server.truths
        queue = {"queuedResources": [REQUEST]} if "queuedResources" in self.path else {}
        body = json.dumps(queue).encode() if honest else PAGE
        self.send_response(200)
        self.send_header("Content-Type", "application/json" if honest else "text/html")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def do_POST(self) -> None:
        self.do_GET()

    def do_DELETE(self) -> None:
        self.do_GET()

    def log_message(self, *words: Any) -> None:
        """Nothing of that is of interest."""


@pytest.fixture
def proxy(world: Path) -> Iterator[Proxy]:
    """Stands before the cloud, where a job waits in the queue."""
    world.mkdir()
    with Proxy(("127.0.0.1", 0), Handler) as server:
        thread = Thread(target=server.serve_forever)
        thread.start()
        url = f"http://127.0.0.1:{server.server_port}"
        facts = {"project": "demo", "url": url, "ssh_port": 2222, "pid": 1}
        (world / "world.json").write_text(json.dumps(facts))
        remember(
            project_access.resolve_scope({"HOME": str(world.parent)}, world=world).store_folder
        )
        yield server
        server.shutdown()
        thread.join()


def remember(folder: Path) -> None:
    """The job, and its request."""
    store, now = Database(folder, time()), time()
    offer = {"zone": "us-central2-b", "type": "v4-8", "runtime": "r", "tier": "spot"}
    facts = {"bid": BID, "generation": 1, "offer": offer, "node_digest": "d", "nodes": 1}
    asked = HistoryEvent(at=now, kind="bid.requested", job="pend", slot="pend-0", facts=facts)
    stored_job = StoredJob(
        job="pend", goal=Goal.RUN, document={"name": "pend"}, made_at=now, changed_at=now
    )
    store.put_job(stored_job, [asked])
    store.take_lease(LeaseHolder(pid=1, host="elsewhere"), now, 3600.0)  # no engine begins here
    store.close()


@pytest.mark.parametrize("truths", range(4))
def test_down_never_claims_that_nothing_is_left(
    proxy: Proxy, truths: int, capfd: pytest.CaptureFixture[str]
) -> None:
    proxy.truths = truths
    status = run(["down", "pend", "--yes"])
    said = capfd.readouterr()
    assert status == 1
    assert "nothing is left" not in said.out + said.err
    assert "answered, but not with JSON" in said.err
    assert proxy.asked > truths


@pytest.mark.parametrize(
    "words", [["gc"], ["exec", "pend", "--", "true"], ["engine", "adopt"]], ids=" ".join
)
def test_no_other_command_believes_the_proxy(
    proxy: Proxy, words: list[str], capfd: pytest.CaptureFixture[str]
) -> None:
    assert run(words) == 1
    said = capfd.readouterr()
    assert (said.out, "answered, but not with JSON" in said.err) == ("", True)
