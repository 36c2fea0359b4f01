"""tools/record.py between herd and a cloud: a real engine, commands, TLS and the simulator."""

import json
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.conformance.world import HERD, ROOT, World, run, until

pytestmark = pytest.mark.real
#: What sends herd to a world at once.
PLAIN = ("HERD_WORLD", "STORAGE_EMULATOR_HOST", "CLOUDSDK_API_")


@contextmanager
def recording(world: World, file: Path) -> Iterator[dict[str, str]]:
    """A recorder whose way to Google is the world's; the environment of recorded programs."""
    google = {name: v for name, v in world.proxy_env.items() if not name.startswith(PLAIN)}
    process = subprocess.Popen(
        [sys.executable, ROOT / "tools/record.py", file],
        env=google, stdout=subprocess.PIPE, text=True,
    )  # fmt: skip
    try:
        assert process.stdout is not None
        said = [process.stdout.readline() for _ in range(10)]
        exports = (line.removeprefix("export ").strip().partition("=") for line in said)
        yield {**google, **{name: value for name, _, value in exports}}
    finally:
        process.send_signal(signal.SIGINT)
        assert process.wait(60) == 0
        process.communicate()


def lines_of(file: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in file.read_text().splitlines()]


def test_commands_and_the_engine_are_recorded_without_names(world: World, tmp_path: Path) -> None:
    file = tmp_path / "afternoon.jsonl"
    with recording(world, file) as env:
        up = ["up", "--name", "canary", "--accelerator", "v4-8", "--zones", "us-central2-b"]
        assert (done := run([HERD, "ls", "--json"], env)).returncode == 0, done.stderr
        done = run([HERD, *up, "--tier", "spot", "--yes"], env)
        assert done.returncode == 0, done.stderr
        try:
            until(lambda: '"READY"' in file.read_text(), "a node in the recording", seconds=60)
        finally:
            assert run([HERD, "down", "canary", "--yes"], env).returncode == 0
            run([HERD, "engine", "stop"], env)
    text, lines = file.read_text(), lines_of(file)
    asked = {(line["host"], line["method"], line["path"].rpartition("/")[2]) for line in lines}
    assert ("tpu.googleapis.com", "POST", "queuedResources") in asked
    assert "v4-8" in text
    assert all(line["took_s"] >= 0 for line in lines)
    assert {line["status"] for line in lines} >= {200}
    for secret in ("canary", world.facts["project"], "ya29", "ssh-ed25519 ", "vlialin", "Bearer"):
        assert secret not in text, secret
    assert file.stat().st_mode & 0o777 == 0o600


def test_other_addresses_are_reached_and_not_recorded(world: World, tmp_path: Path) -> None:
    """The world's own port stands for any other address."""
    ask = "import httpx2, sys; print(httpx2.get(sys.argv[1]).status_code)"
    with recording(world, tmp_path / "t") as env:
        address = world.url.replace("http://", "")
        tunnel = f"""
import socket, sys
s = socket.create_connection(("127.0.0.1", int(sys.argv[1])))
s.sendall(b"CONNECT {address} HTTP/1.1\\r\\n\\r\\n")
print(s.recv(100).split()[1].decode())
s.sendall(b"GET /v2/projects/demo/locations HTTP/1.1\\r\\nHost: {address}\\r\\n\\r\\n")
print(s.recv(100).split()[1].decode())
"""
        port = env["HTTPS_PROXY"].rpartition(":")[2]
        assert run([sys.executable, "-c", tunnel, port], env).stdout.split() == ["200", "200"]
        google = "https://tpu.googleapis.com/v2/projects/demo/locations"
        assert run([sys.executable, "-c", ask, google], env).stdout.split() == ["200"]
    assert [line["path"].rpartition("/")[2] for line in lines_of(tmp_path / "t")] == ["locations"]


def test_a_file_that_exists_is_not_overwritten(tmp_path: Path) -> None:
    file = tmp_path / "t"
    file.write_text("mine")
    done = run([sys.executable, ROOT / "tools/record.py", file], {})
    assert done.returncode == 2
    assert f"{file} can't be created (File exists); name another file" in done.stderr
    assert file.read_text() == "mine"
