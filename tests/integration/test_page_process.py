"""`herd ui` as a process: its address, its ports, and its end."""

import os
import signal
import socket
import subprocess
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from time import monotonic
from typing import Any
from urllib.request import Request, urlopen

import pytest

from tests.conformance.world import HERD

pytestmark = pytest.mark.real


@pytest.fixture
def environ(tmp_path: Path) -> dict[str, str]:
    """A user of a project without a login: what is stored can be shown all the same."""
    return {
        "HOME": str(tmp_path),
        "PATH": os.environ["PATH"],
        "GOOGLE_CLOUD_PROJECT": "demo",
        "NO_GCE_CHECK": "true",
        "LANG": "C.UTF-8",
    }


@contextmanager
def serving(environ: Mapping[str, str], *words: str) -> Iterator["subprocess.Popen[str]"]:
    with subprocess.Popen(
        [HERD, "ui", "--no-browser", *words], env=environ, text=True,
        stdout=subprocess.PIPE, stderr=subprocess.PIPE,
    ) as process:  # fmt: skip
        try:
            yield process
        finally:
            process.kill()


def read_address(process: "subprocess.Popen[str]") -> tuple[int, str]:
    """The port and the token of the one line that it prints."""
    assert process.stdout is not None
    said = process.stdout.readline()
    assert said.startswith("Serving http://127.0.0.1:"), said
    port, _, token = said.split()[1].removeprefix("http://127.0.0.1:").partition("/?token=")
    return int(port), token


def lasting_port() -> int:
    """A free port that stays free: the kernel gives none below these to other programs."""
    with open("/proc/sys/net/ipv4/ip_local_port_range") as file:
        first = int(file.read().split()[0])
    for port in range(first - 1 - os.getpid() % 5000, 1024, -1):
        with socket.socket() as probe:
            if probe.connect_ex(("127.0.0.1", port)) != 0:
                return port
    pytest.fail("no port is free")


def get(port: int, path: str, token: str) -> Any:
    """The answer, open to be read."""
    headers = {"Authorization": f"Bearer {token}"}
    return urlopen(Request(f"http://127.0.0.1:{port}{path}", headers=headers), timeout=60)


def test_it_ends_at_once_with_open_streams_and_its_address_stays(
    environ: dict[str, str], tmp_path: Path
) -> None:
    with serving(environ, "--port", str(lasting_port())) as process:
        port, token = read_address(process)
        with get(port, "/", token) as page:
            assert b"tpuherd" in page.read()
        with get(port, "/app.js", token) as script:
            assert script.headers["content-type"].startswith("text/javascript")
            assert script.headers["etag"]
        stream = get(port, "/api/stream", token)
        assert stream.readline() == b"retry: 1000\n"
        with serving(environ) as other:
            second, same = read_address(other)
            assert (second != port, same) == (True, token)
        refused = subprocess.run(
            [HERD, "ui", "--no-browser", "--port", str(port)], env=environ, capture_output=True
        )
        assert refused.returncode == 2
        assert refused.stderr.decode() == (
            f"herd ui: port {port} on 127.0.0.1 can't be used (Address already in use);"
            " leave --port out to use a free one\n"
        )
        begun = monotonic()
        process.send_signal(signal.SIGINT)
        assert process.wait(60) == 130
        assert monotonic() - begun < 5
        assert process.stderr is not None
        assert process.stderr.read() == "", "no traceback"
        stream.close()
    with serving(environ, "--port", str(port)) as again:
        assert read_address(again) == (port, token), "open pages reconnect"
