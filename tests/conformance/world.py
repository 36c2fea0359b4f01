"""A world started as users start one, and the environments of other projects' software."""

import json
import os
import shutil
import site
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, TypeVar

import pytest

ROOT = Path(__file__).parents[2]
CLIENTS = ROOT / ".venv-clients"
HERD = Path(sys.executable).parent / "herd"
T = TypeVar("T")


@dataclass(frozen=True)
class World:
    """A running world, seen from outside."""

    folder: Path
    home: Path  #: an empty home for the clients
    facts: Mapping[str, Any]  #: its world.json

    @property
    def url(self) -> str:
        return str(self.facts["url"]).rstrip("/")

    def herd(self, *words: str) -> str:
        """What `herd sim …` prints about this world."""
        done = subprocess.run(
            [HERD, "sim", *words, "--state-dir", self.folder], capture_output=True, text=True
        )
        assert done.returncode == 0, done.stderr
        return done.stdout

    @cached_property
    def env(self) -> dict[str, str]:
        """The environment after `eval "$(herd sim env)"`, with nothing of this machine's user."""
        return self._exports()

    @cached_property
    def proxy_env(self) -> dict[str, str]:
        """The same for programs that believe to talk to Google Cloud."""
        return self._exports("--proxy")

    def _exports(self, *options: str) -> dict[str, str]:
        bare = {
            "PATH": os.environ["PATH"],
            "HOME": str(self.home),
            "LANG": "C.UTF-8",
            "USER": "vlialin",
            "LOGNAME": "vlialin",
        }
        script = 'set -e; said=$("$@"); eval "$said"; env -0'
        words: list[str | Path] = [HERD, "sim", "env", *options, "--state-dir", self.folder]
        done = subprocess.run(
            ["bash", "-c", script, "bash", *words], env=bare, capture_output=True, text=True
        )
        assert done.returncode == 0, done.stderr
        return dict(pair.split("=", 1) for pair in done.stdout.split("\0") if "=" in pair)

    def ask(self, method: str, path: str, body: Any = None) -> Any:
        """One plain request; the JSON of a good answer."""
        request = urllib.request.Request(
            f"{self.url}/{path.lstrip('/')}",
            method=method,
            data=None if body is None else json.dumps(body).encode(),
            headers={"Content-Type": "application/json"},
        )
        with urllib.request.urlopen(request, timeout=30) as answer:
            return json.load(answer)

    def node(self, zone: str, name: str, **fields: Any) -> dict[str, Any]:
        """A node made from these fields and waited for until it is READY."""
        where = f"v2/projects/{self.facts['project']}/locations/{zone}/nodes"
        body = {"runtimeVersion": "tpu-ubuntu2204-base", **fields}
        body.setdefault("networkConfig", {"enableExternalIps": True})
        self.ask("POST", f"{where}?nodeId={name}", body)
        return self.settled(zone, name)

    def settled(self, zone: str, name: str) -> dict[str, Any]:
        """The node, once it is READY; it need not be there yet."""
        where = f"v2/projects/{self.facts['project']}/locations/{zone}/nodes/{name}"

        def ready() -> dict[str, Any] | None:
            try:
                node: dict[str, Any] = self.ask("GET", where)
            except urllib.error.HTTPError as error:
                assert error.code == 404, error.read()
                return None
            return node if node["state"] == "READY" else None

        return until(ready, f"{name} to be READY", seconds=60)

    def clear(self) -> None:
        """Give everything back, again and again until the cloud has let go of it."""
        where = f"v2/projects/{self.facts['project']}/locations/-"

        def empty() -> bool:
            requests = self.ask("GET", f"{where}/queuedResources").get("queuedResources", [])
            nodes = self.ask("GET", f"{where}/nodes").get("nodes", [])
            for request in requests:
                if request["state"]["state"] != "DELETING":
                    self._delete(f"v2/{request['name']}?force=true")
            for node in nodes:
                if node["state"] != "DELETING" and "queuedResource" not in node:
                    self._delete(f"v2/{node['name']}")
            return not requests and not nodes

        until(empty, "the world to be empty", seconds=60)

    def _delete(self, path: str) -> None:
        try:
            self.ask("DELETE", path)
        except urllib.error.HTTPError as error:  # on its way, or not to be had at this moment
            assert error.code in (400, 404, 409, 429), error.read()


@contextmanager
def started(*options: str, ssh_port: int = 0, program: Path = HERD) -> Iterator[World]:
    """`herd sim start` in a folder of its own, stopped and removed at the end."""
    folder = Path(tempfile.mkdtemp(prefix="world-"))
    home = folder / "home"
    home.mkdir()
    state = folder / "state"
    words: list[str | Path] = [
        "--state-dir",
        state,
        "--port",
        "0",
        "--ssh-port",
        str(ssh_port),
        *options,
    ]
    with (folder / "out").open("wb") as out:
        process = subprocess.Popen(
            [program, "sim", "start", *words], stdout=out, stderr=out, stdin=subprocess.DEVNULL
        )
    try:

        def facts() -> dict[str, Any] | None:
            assert process.poll() is None, (folder / "out").read_text()
            return serving(state / "world.json")

        yield World(state, home, until(facts, "the world to serve", seconds=30))
    finally:
        process.terminate()
        try:
            process.wait(60)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        shutil.rmtree(folder, ignore_errors=True)


def serving(path: Path) -> dict[str, Any] | None:
    """The facts of a world that answers; None while it doesn't."""
    try:
        facts: dict[str, Any] = json.loads(path.read_text())
        with urllib.request.urlopen(f"{facts['url'].rstrip('/')}/v2/projects/demo/locations"):
            return facts
    except urllib.error.HTTPError:
        return facts
    except (FileNotFoundError, json.JSONDecodeError, OSError):
        return None


def until(look: Callable[[], T | None], what: str, seconds: float = 120.0) -> T:
    """The first answer that is not empty. The time is only how long a hopeless test waits."""
    end = time.monotonic() + seconds
    while not (answer := look()):
        assert time.monotonic() < end, f"waited {seconds:g} s for {what}"
        time.sleep(0.02)
    return answer


def run(
    words: Sequence[str | Path], env: Mapping[str, str], *, seconds: float = 120, **more: Any
) -> "subprocess.CompletedProcess[str]":
    """Run a client to its end; its output is kept, its standard input empty unless given."""
    more.setdefault("stdin", None if "input" in more else subprocess.DEVNULL)
    return subprocess.run(
        words, env=dict(env), capture_output=True, text=True, timeout=seconds, **more
    )


def client(name: str) -> Path:
    """The Python of a client's environment, or a skip that says how to make it."""
    python = CLIENTS / name / "bin" / "python"
    if not python.exists():
        pytest.skip(f"no client here: make it with tests/integration/clients/make_venv.sh {name}")
    return python


def borrow(name: str) -> None:
    """Make a client's packages importable here; ours go first."""
    python = client(name)
    version = f"python{sys.version_info[0]}.{sys.version_info[1]}"
    packages = python.parents[1] / "lib" / version / "site-packages"
    if not packages.exists():
        pytest.skip(f"the environment of {name} is of another Python: make it anew")
    site.addsitedir(str(packages))
