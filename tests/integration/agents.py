"""Agents for tests: each in its own home, called through `attach` as SSH would."""

import contextlib
import functools
import json
import os
import select
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, TypeVar

from tests.interpreters import find_python
from tpuherd.remote.agent_bootstrap import minified_script as program
from tpuherd.remote.agent_bundle import current_agent
from tpuherd_host.agent import frames
from tpuherd_host.agent.effects.task_store import ram_folder
from tpuherd_host.agent.log_records import Record, RecordReader
from tpuherd_host.agent.processes import all_processes, marked_task

PATIENCE_S = 30.0
T = TypeVar("T")
AGENT_NAMES = ("herd-agent", "herd-supervisor")  #: in the process table
VERSIONS = ("3.8", "3.10", "3.12", "3.13")


@functools.cache
def pythons() -> dict[str, str]:
    """Interpreters by version: the one that runs the tests, and older and newer ones."""
    found = {"own": sys.executable}
    found.update((v, path) for v in VERSIONS if (path := find_python(v)) is not None)
    return found


def until(look: Callable[[], T], seconds: float = PATIENCE_S) -> T:
    """What `look` gives as soon as that is something."""
    end = time.monotonic() + seconds
    while not (found := look()):
        assert time.monotonic() < end, "it did not come"
        time.sleep(0.02)
    return found


class Gone(Exception):
    """The connection is over."""


class Failed(Exception):
    """FAIL."""

    def __init__(self, content: dict[str, Any]) -> None:
        super().__init__(content["sentence"])
        self.error: str = content["error"]


class AgentClient:
    """A controller's connection."""

    def __init__(self, process: "subprocess.Popen[bytes]", epoch: int, owner: str) -> None:
        self.process = process
        self.reader = frames.FrameReader()
        self.waiting: list[frames.Frame] = []
        self.events: list[dict[str, Any]] = []
        self.last = 0
        self.greedy = True  #: gives credit for all that comes
        self.hello = self.frame(0, kinds=(frames.HELLO,)).content
        mine = {"protocol": frames.PROTOCOL, "who": "test", "owner": owner, "epoch": epoch}
        self.send(frames.pack_json(frames.HELLO, 0, mine))

    def send(self, piece: bytes) -> None:
        assert self.process.stdin is not None
        os.write(self.process.stdin.fileno(), piece)

    def pull(self, seconds: float = PATIENCE_S) -> bool:
        """Read what comes; False where nothing does in time."""
        assert self.process.stdout is not None
        if not select.select([self.process.stdout], [], [], seconds)[0]:
            return False
        piece = os.read(self.process.stdout.fileno(), 1 << 18)
        if not piece:
            raise Gone
        for frame in self.reader.feed(piece):
            if frame.kind == frames.EVENT:
                self.events.append(frame.content)
            else:
                self.waiting.append(frame)
        return True

    def frame(self, id: int, kinds: tuple[int, ...] = ()) -> frames.Frame:
        """The next frame of a call."""
        while True:
            for index, frame in enumerate(self.waiting):
                if frame.id == id and (not kinds or frame.kind in kinds):
                    return self.waiting.pop(index)
            assert self.pull(), "nothing came"

    def ask(self, verb: str, **arguments: Any) -> int:
        """Open a call."""
        self.last += 1
        self.send(frames.pack_json(frames.CALL, self.last, {"verb": verb, **arguments}))
        return self.last

    def stream(self, id: int) -> tuple[dict[str, Any], bytes]:
        """All that comes of a call, to its end."""
        pieces = []
        while True:
            frame = self.frame(id)
            if frame.kind == frames.DATA:
                pieces.append(frame.payload[1:])
                if self.greedy:
                    self.send(frames.pack_credit(id, len(frame.payload) - 1))
            elif frame.kind == frames.FAIL:
                raise Failed(frame.content)
            elif frame.kind == frames.REPLY:
                return frame.content, b"".join(pieces)

    def call(self, verb: str, **arguments: Any) -> dict[str, Any]:
        """Ask and get the answer."""
        return self.stream(self.ask(verb, **arguments))[0]

    def run(self, id: str, **arguments: Any) -> tuple[dict[str, Any], list[Record]]:
        """A command to its end."""
        return self.records(self.ask("run", id=id, **arguments))

    def records(self, id: int) -> tuple[dict[str, Any], list[Record]]:
        work, text = self.stream(id)
        return work, list(RecordReader().feed(text))

    def data(self, id: int, many: int) -> bytes:
        """Read this many bytes of a stream without granting credit."""
        text = b""
        while len(text) < many:
            text += self.frame(id, kinds=(frames.DATA,)).payload[1:]
        return text

    def event(self, name: str, **fields: Any) -> dict[str, Any]:
        """The first event of a kind."""
        end = time.monotonic() + PATIENCE_S
        while True:
            for event in self.events:
                if event["event"] == name and fields.items() <= event.items():
                    return event
            assert self.pull(max(0.0, end - time.monotonic())), f"no {name}: {self.events}"

    def leave(self) -> None:
        """As a network does: without a word."""
        self.process.kill()
        self.process.wait()
        for file in (self.process.stdin, self.process.stdout):
            if file is not None:
                file.close()


class Agents:
    """A home in which agents live."""

    def __init__(self, home: Path, interpreter: str) -> None:
        self.home = home
        self.folder = home / ".tpuherd"
        self.interpreter = interpreter
        self.environment: dict[str, str] = {"GCE_METADATA_HOST": "127.0.0.1:9"}
        self.clients: list[AgentClient] = []
        self.folder.mkdir(mode=0o700)
        self.file = self.folder / current_agent().name
        self.file.write_bytes(current_agent().content)

    def start(self, file: Path | None = None) -> "subprocess.Popen[bytes]":
        return self.process(str(file or self.file), "attach")

    def begin(self) -> "subprocess.Popen[bytes]":
        """As a host's shell does it, which need not have the agent yet."""
        return self.process("-c", program("bootstrap_on_host.py"), str(self.file))

    def process(self, *rest: str) -> "subprocess.Popen[bytes]":
        words = [self.interpreter, "-I", "-S", *rest]
        env = {"PATH": os.environ["PATH"], "HOME": str(self.home), "SHELL": "/bin/sh"}
        return subprocess.Popen(
            words, stdin=-1, stdout=-1, bufsize=0, env={**env, **self.environment}
        )

    def attach(self, epoch: int = 0, file: Path | None = None, owner: str = "me") -> AgentClient:
        client = AgentClient(self.start(file), epoch, owner)
        self.clients.append(client)
        return client

    def memory(self, client: AgentClient, row: str = "VmHWM") -> int:
        """The agent's, in bytes."""
        text = Path(f"/proc/{client.hello['pid']}/status").read_text()
        rows = dict(line.split(":", 1) for line in text.splitlines())
        return int(rows[row].split()[0]) * 1024

    def supervisor_pid(self, client: AgentClient) -> int:
        """The pid of the agent's other half."""
        among = all_processes().values()
        return next((p.pid for p in among if p.parent == client.hello["pid"] and not p.gone), 0)

    def kill(self, client: AgentClient) -> None:
        """The agent, in the hardest way."""
        os.kill(client.hello["pid"], signal.SIGKILL)
        until(
            lambda: (
                not Path(f"/proc/{client.hello['pid']}/fd").exists() or gone(client.hello["pid"])
            )
        )

    def end(self) -> None:
        shutil.rmtree(ram_folder(str(self.folder)), ignore_errors=True)
        for client in self.clients:
            client.leave()
        mine = f"HOME={self.home}".encode()
        for pid in all_processes():
            with contextlib.suppress(OSError):
                name = Path(f"/proc/{pid}/comm").read_text().strip()
                ours = mine in Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
                if (ours and name in AGENT_NAMES) or marked_task(pid, str(self.folder)):
                    os.kill(pid, signal.SIGKILL)


def say(pipe: Path, word: str) -> None:
    """Write into a named pipe as soon as somebody reads from it."""

    def said() -> bool:
        with contextlib.suppress(OSError):
            file = os.open(pipe, os.O_WRONLY | os.O_NONBLOCK)
            os.write(file, word.encode())
            os.close(file)
            return True
        return False

    until(said)


def gone(pid: int) -> bool:
    """Whether a process has ended; it may be a zombie."""
    one = all_processes().get(pid)
    return one is None or one.gone


def sleeps(pid: int) -> bool:
    """Whether a process waits for something, and does nothing meanwhile."""
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "S"


@contextlib.contextmanager
def agents(home: Path, version: str = "own") -> Iterator[Agents]:
    """A home, and nothing left of it afterwards."""
    made = Agents(home, pythons()[version])
    try:
        yield made
    finally:
        made.end()


@contextlib.contextmanager
def little_room(home: Path) -> Iterator[None]:
    """It has a small disk of its own."""
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=24m", "none", home], check=True)
    try:
        yield
    finally:
        subprocess.run(["umount", "-l", home], check=True)


def text(records: list[Record], port: int = frames.STDOUT) -> bytes:
    """What came out on a port."""
    return b"".join(record.piece for record in records if record.port == port)


def status(folder: Path) -> dict[str, Any]:
    """What an agent wrote down of a piece of work."""
    content: dict[str, Any] = json.loads((folder / "status.json").read_text())
    return content
