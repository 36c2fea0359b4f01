"""Messages of a real engine: sent across a kill, without any secret anywhere, and its metrics."""

import json
import re
import signal
import socket
import subprocess
import threading
from collections.abc import Iterator
from contextlib import closing, contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.error import URLError
from urllib.parse import quote
from urllib.request import urlopen

import jsonschema  # type: ignore[import-untyped]
import pytest
from json_schemas import SCHEMAS

from tests.conformance.world import until
from tests.integration.engines import Owner

pytestmark = pytest.mark.real
CANARY = "canary"  #: in every secret of these tests


@contextmanager
def hook(status: int = 200) -> Iterator[tuple[str, list[dict[str, Any]]]]:
    """A webhook: its address, and what it got."""
    got: list[dict[str, Any]] = []

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            got.append(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))
            self.send_response(status)
            self.send_header("Content-Length", "0")
            self.end_headers()

        def log_message(self, *words: Any) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}/{CANARY}-address", got
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def process_arguments() -> bytes:
    """The arguments of all processes of this machine."""
    found = b""
    for file in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            found += file.read_bytes()
        except OSError:
            continue
    return found


def test_a_killed_engine_tells_later_and_no_secret_is_anywhere(user: Owner) -> None:
    with hook() as (url, got):
        (user.home / "address").write_text(url)
        (user.home / "key").write_text(f"{CANARY}-of-the-job")
        user.job(
            "gpt",
            "sleep 8; echo ValueError: bad key $KEY >&2; exit 1",
            accelerator="v4-8",
            retry={"failures": 0},
            secrets={"KEY": {"file": "key"}},
            notify=[
                {"url": {"file": "address"}, "on": ["gave_up"]},
                {"run": f"cat > {user.home}/told; env > {user.home}/told-env", "on": "gave_up"},
            ],
        )
        user.happened("attempt.started")
        assert CANARY.encode() not in process_arguments()
        assert user.kill_engine()
        assert user.herd("engine", "start").returncode == 0
        user.happened("slot.gave_up")
        told = user.home / "told"
        until(lambda: any("gave_up" in one["topics"] for one in got), "a message", seconds=60)
        until(lambda: told.exists() and told.read_text(), "the command's message", seconds=60)
        assert CANARY.encode() not in process_arguments()
    text = json.dumps(got) + (user.home / "told").read_text()
    assert "bad key ***" in text and CANARY not in text
    assert "HERD_JOB=gpt" in (user.home / "told-env").read_text()
    for words in (["status", "gpt", "--json"], ["events", "gpt", "--json"], ["engine", "metrics"],
                  ["notify", "list"], ["notify", "list", "--json"], ["engine", "logs", "-n", "999"],
                  ["why", "gpt", "--json"]):  # fmt: skip
        done = user.herd(*words)
        said = done.stdout + done.stderr
        assert done.returncode == 0 and f"{CANARY}-address" not in said, words
    (row, *_) = json.loads(user.herd("notify", "list", "--json").stdout)
    assert row["sent"] >= 1 and row["receiver"] == "webhook at 127.0.0.1"
    jsonschema.validate([row], SCHEMAS["herd notify list --json"])
    kept = [file for file in user.store_folder.rglob("*") if file.is_file()]
    named = [file for file in kept if f"{CANARY}-address".encode() in file.read_bytes()]
    assert [file.relative_to(user.store_folder).parts[0] for file in named] == ["secrets"]
    assert user.herd("down", "gpt", "--yes").returncode == 0
    assert not any(file.exists() for file in named), "they go with the job"


def test_a_test_message_says_what_came_back(user: Owner) -> None:
    with hook() as (good, got), hook(404) as (bad, _):
        said = json.dumps([{"url": good, "kind": "slack"}, bad])
        done = user.herd("notify", "set", "-", input=said)
        assert done.returncode == 0, done.stderr
        done = user.herd("notify", "test")
        assert done.returncode == 1
        assert re.fullmatch(
            r"slack at 127\.0\.0\.1: accepted in .*\nwebhook at 127\.0\.0\.1: HTTP 404\n",
            done.stdout,
        )
        assert "A test message" in got[0]["text"]
        done = user.herd("notify", "test", "--json")
        jsonschema.validate(json.loads(done.stdout), SCHEMAS["herd notify test --json"])
        assert CANARY not in done.stdout + done.stderr
    assert user.herd("notify", "set", "--clear").returncode == 0
    done = user.herd("notify", "test")
    assert (done.returncode, done.stdout) == (2, "") and "has no receivers" in done.stderr


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("- url: {env: NOT_SET}", ":1: [0].url: the variable NOT_SET is not set in your"
         " environment"),
        ("\n- kind: slac\n  url: https://x.y/z", ":2: [0].kind: 'slac' is not allowed: did you mean"
         " slack?"),
        ("notify:\n- {file: x}", ":2: notify[0].file: unknown field"),
        ("url: {command: 'echo example.com'}", ":1: url: has no scheme"),
        ("", ": names no receiver"),
        ("- [", "not valid YAML"),
    ],
)  # fmt: skip
def test_a_bad_file_is_refused_whole(user: Owner, text: str, sentence: str) -> None:
    (user.home / "receivers.yaml").write_text(text)
    done = user.herd("notify", "set", user.home / "receivers.yaml")
    assert done.returncode == 2 and sentence in done.stderr, done.stderr
    assert not any(user.store_folder.glob("secrets/.notify/*"))


def ask_prometheus(port: int, query: str) -> list[dict[str, Any]]:
    try:
        with urlopen(f"http://127.0.0.1:{port}/api/v1/query?query={quote(query)}") as answer:
            found: list[dict[str, Any]] = json.load(answer)["data"]["result"]
            return found
    except (URLError, OSError):
        return []


CONFIG = """
global: {{scrape_interval: 1s, evaluation_interval: 1s}}
rule_files: [{rules}]
scrape_configs:
  - job_name: herd
    honor_labels: true
    authorization: {{credentials: "{token}"}}
    static_configs: [{{targets: ["127.0.0.1:{port}"]}}]
"""


@pytest.mark.needs("prometheus")
def test_a_real_prometheus_scrapes_the_page_and_loads_the_rules(
    user: Owner, tmp_path: Path
) -> None:
    assert user.herd("engine", "metrics", "--alerts", "-o", tmp_path / "rules.yml").returncode == 0
    user.job("seen", "sleep 600", accelerator="v4-8")
    with closing(socket.create_server(("127.0.0.1", 0))) as free:
        own = free.getsockname()[1]
    with user.begun("ui", "--no-browser") as page:
        assert page.stdout is not None
        found = re.search(r"127\.0\.0\.1:(\d+)/\?token=(\S+)", page.stdout.readline())
        assert found is not None
        config = tmp_path / "prometheus.yml"
        config.write_text(
            CONFIG.format(rules=tmp_path / "rules.yml", port=found[1], token=found[2])
        )
        server = subprocess.Popen(
            ["prometheus", f"--config.file={config}", f"--storage.tsdb.path={tmp_path}/data",
             f"--web.listen-address=127.0.0.1:{own}"],
            stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
        )  # fmt: skip
        try:
            rows = until(
                lambda: ask_prometheus(own, 'tpuherd_job_slots{job="seen"}'), "a scrape", seconds=30
            )
            assert rows[0]["metric"]["instance"] == f"127.0.0.1:{found[1]}"
            assert ask_prometheus(own, "up")[0]["value"][1] == "1"
            with urlopen(f"http://127.0.0.1:{own}/api/v1/rules") as answer:
                (group,) = json.load(answer)["data"]["groups"]
            assert {rule["health"] for rule in group["rules"]} <= {"ok", "unknown"}
        finally:
            server.terminate()
            server.wait(60)
            page.send_signal(signal.SIGINT)
            page.wait(60)
