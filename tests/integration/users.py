"""A user with a home, a world with a pod of four hosts, and a terminal."""

import fcntl
import json
import os
import pty
import re
import select
import shutil
import signal
import socket
import struct
import subprocess
import termios
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from time import monotonic
from typing import Any

from tests.conformance.world import HERD, World, started, until
from tpuherd.targets import expand_brackets

ZONE = "us-central2-b"
MACHINE = {"acceleratorType": "v4-32", "schedulingConfig": {"spot": True}}
Done = subprocess.CompletedProcess


@dataclass(frozen=True)
class User:
    """Somebody who has a world."""

    home: Path
    world: World
    #: What he types: of today, unless a test is about another version.
    program: Path = field(default=HERD, kw_only=True)

    def cut(self, host: str) -> None:
        """Every connection to this host ends, and others may begin."""
        for stroke in ("unreachable", "reachable"):
            self.world.ask("POST", f"sim/v1/weather/{stroke}", {"target": host})

    @property
    def env(self) -> dict[str, str]:
        return {
            "PATH": os.environ["PATH"],
            "HOME": str(self.home),
            "HERD_WORLD": str(self.world.folder),
            "LANG": "C.UTF-8",
            "TERM": "xterm",
        }

    @property
    def runtime(self) -> Path:
        """Where his keeper's socket is."""
        return self.home / ".local/state/tpuherd/run"

    def herd(self, *words: str | Path, seconds: float = 60, **more: Any) -> "Done[str]":
        """One command to its end."""
        more.setdefault("stdin", None if "input" in more else subprocess.DEVNULL)
        more.setdefault("text", True)
        more["env"] = self.env | more.pop("env", {})
        return subprocess.run([self.program, *words], capture_output=True, timeout=seconds, **more)

    @contextmanager
    def begun(self, *words: str | Path, **more: Any) -> "Iterator[subprocess.Popen[str]]":
        """Start a command that runs until it ends, or until the block does."""
        more.setdefault("stdin", subprocess.DEVNULL)
        more = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True} | more
        with subprocess.Popen([self.program, *words], env=self.env, **more) as process:
            try:
                yield process
            finally:
                process.kill()

    def daemon_pid(self) -> int | None:
        """The process id of his keeper, if one listens."""
        here = Path.cwd()
        with socket.socket(socket.AF_UNIX) as knocking:
            try:
                os.chdir(self.runtime)
                knocking.connect("keeper.sock")
            except OSError:
                return None
            finally:
                os.chdir(here)
            found = knocking.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12)
            return int(struct.unpack("3i", found)[0])

    def kept(self, id: str = "") -> list[dict[str, Any]]:
        """What the pod's agents have of a command, or of all."""
        done = self.herd("exec", "pod", "--list", "--json")
        assert done.returncode == 0, done.stderr
        return [one for one in json.loads(done.stdout) if id in ("", one["id"])]

    def running(self, title: str) -> list[dict[str, Any]]:
        """Commands of this title that run."""
        found = self.kept()
        return [one for one in found if one["title"] == title and one["phase"] == "running"]

    def leave(self) -> None:
        """His keeper ends, too."""
        self.herd("engine", "daemon", "stop", "--now")


@contextmanager
def pod(*options: str) -> Iterator[User]:
    """A user with a pod of four hosts."""
    with started("--time-scale", "60", *options) as world:
        world.node(ZONE, "pod", **MACHINE)
        user = User(world.home, world)
        try:
            yield user
        finally:
            user.leave()


class Terminal:
    """A window in which a command runs."""

    def __init__(self, user: User, *words: str, rows: int = 24, columns: int = 80) -> None:
        self.seen = b""
        self.at = 0
        self.pid, self.file = pty.fork()
        if self.pid == 0:
            os.execvpe(str(HERD), ["herd", *words], user.env)
        self.resize(rows, columns)

    def resize(self, rows: int, columns: int) -> None:
        fcntl.ioctl(self.file, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))

    def type(self, keys: bytes) -> None:
        os.write(self.file, keys)

    def _read(self, seconds: float) -> bool:
        if not select.select([self.file], [], [], seconds)[0]:
            return False
        try:
            piece = os.read(self.file, 1 << 16)
        except OSError:  # the other end is closed
            return False
        self.seen += piece
        return bool(piece)

    def expect(self, pattern: bytes, seconds: float = 20) -> "re.Match[bytes]":
        """Until this is to be seen, after what was expected before."""
        end = monotonic() + seconds
        while True:
            found = re.compile(pattern).search(self.seen, self.at)
            if found:
                self.at = found.end()
                return found
            assert monotonic() < end, f"no {pattern!r} in {self.seen[self.at :]!r}"
            self._read(0.2)

    def end(self, seconds: float = 20) -> int:
        """Its exit status."""
        stop = monotonic() + seconds
        while monotonic() < stop:
            while self._read(0.05):
                pass
            pid, status = os.waitpid(self.pid, os.WNOHANG)
            if pid:
                os.close(self.file)
                return os.waitstatus_to_exitcode(status)
        os.kill(self.pid, signal.SIGKILL)
        raise AssertionError(f"it did not end: {self.seen!r}")

    def close(self) -> None:
        """The window is closed, whatever runs in it."""
        os.close(self.file)
        os.waitpid(self.pid, 0)


def line(process: "subprocess.Popen[str]") -> str:
    """The next line of its output."""
    assert process.stdout is not None
    return process.stdout.readline()


def read_line_of_all(process: "subprocess.Popen[str]", text: str, hosts: int) -> None:
    """Read until this many hosts have printed this line; a slow one's comes last."""
    heard: set[str] = set()
    while len(heard) < hosts:
        label, _, said = line(process).rstrip("\n").partition(": ")
        assert said == text, (label, said, heard)
        heard.update(expand_brackets(label, label))


def lines_of_each(text: str) -> dict[str, list[str]]:
    """The lines of each host.

    Equal lines appear once if they arrive within a fifth of a second; on a loaded machine they
    may not.
    """
    found: dict[str, list[str]] = {}
    for line in text.splitlines():
        label, _, said = line.partition(": ")
        for host in expand_brackets(label, label):
            found.setdefault(host, []).append(said)
    return found


def said_by_all(*lines: str) -> dict[str, list[str]]:
    """The same where all four hosts of the pod say these lines."""
    return {f"pod/w{worker}": list(lines) for worker in range(4)}


def empty_home(user: User, name: str) -> User:
    """The same world with a home of its own, and so a keeper of its own, with the same keys."""
    home = user.home.parent / name
    if home.exists():
        shutil.rmtree(home)
    home.mkdir()
    config = user.home / ".config"
    if config.exists():
        shutil.copytree(config, home / ".config")
    return User(home, user.world)


__all__ = ["ZONE", "Done", "Terminal", "User", "empty_home", "line", "pod", "until"]
