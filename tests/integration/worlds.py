"""Worlds started, killed and inspected as a user does it, in folders removed after the test."""

import http.client
import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.conformance.world import until as until

HERD = [sys.executable, "-m", "tpuherd.launcher"]
ZONE = "us-central2-b"
NODE = {"acceleratorType": "v4-8", "runtimeVersion": "tpu-ubuntu2204-base"}


def herd(*words: str, home: Path, **more: str) -> "subprocess.CompletedProcess[str]":
    """One command, in an environment without anything of ours."""
    return subprocess.run(
        [*HERD, *words],
        env=environment(home, more),
        capture_output=True,
        text=True,
        timeout=60,
        stdin=subprocess.DEVNULL,
    )


def environment(home: Path, more: Mapping[str, str]) -> dict[str, str]:
    """That of a user who has nothing yet."""
    return {"PATH": os.environ["PATH"], "HOME": str(home), "LANG": "C.UTF-8", **more}


@dataclass(frozen=True, kw_only=True)
class Running:
    """A world in the foreground, without a terminal."""

    folder: Path
    process: "subprocess.Popen[str]"

    @property
    def facts(self) -> dict[str, Any]:
        found: dict[str, Any] = json.loads((self.folder / "world.json").read_text())
        return found

    def ask(self, method: str, path: str, body: Any = None) -> tuple[int, dict[str, Any]]:
        """One request to the API: status and JSON."""
        connection = http.client.HTTPConnection("127.0.0.1", self.facts["port"], timeout=30)
        try:
            connection.request(method, path, None if body is None else json.dumps(body))
            answer = connection.getresponse()
            return answer.status, json.loads(answer.read() or b"{}")
        finally:
            connection.close()

    def create(self, name: str) -> dict[str, Any]:
        """A node; the answer must be good."""
        where = f"/v2/projects/demo/locations/{ZONE}/nodes?nodeId={name}"
        status, answer = self.ask("POST", where, NODE)
        assert status == 200, answer
        return answer

    def nodes(self) -> dict[str, str]:
        """The state of every node by its id."""
        status, answer = self.ask("GET", "/v2/projects/demo/locations/-/nodes")
        assert status == 200, answer
        return {node["name"].rpartition("/")[2]: node["state"] for node in answer.get("nodes", ())}

    def kill(self) -> None:
        """As the system does it when memory is short."""
        self.process.send_signal(signal.SIGKILL)
        self.process.wait(60)

    def stop(self) -> int:
        """In order."""
        self.process.send_signal(signal.SIGTERM)
        return self.process.wait(60)


@contextmanager
def running(folder: Path, *options: str, hosts: str = "none") -> Iterator[Running]:
    """A world that answers, ended at the end."""
    words = ["sim", "start", "--state-dir", str(folder), "--hosts", hosts, *options]
    folder.parent.mkdir(exist_ok=True)
    with (folder.parent / "said").open("a") as stderr:
        process = subprocess.Popen(
            [*HERD, *words],
            env=environment(folder.parent, {}),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=stderr,
            text=True,
        )
    try:
        assert process.stdout is not None
        first = process.stdout.readline()
        assert first.startswith("ready: "), said(folder)
        yield Running(folder=folder, process=process)
    finally:
        process.kill()
        process.communicate(timeout=30)


def said(folder: Path) -> str:
    """What the worlds of this folder wrote to stderr."""
    return (folder.parent / "said").read_text()
