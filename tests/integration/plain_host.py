"""A host without namespaces, for tests of host services: plain processes on loopback."""

import asyncio
import fcntl
import os
import pty
import signal
import socket
import struct
import subprocess
import sys
import termios
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from tpuherd_sim.hosts import sftp_server
from tpuherd_sim.hosts.host_protocols import Account, ChipHolder, Host, Process, Program
from tpuherd_sim.model.host_view import HostView
from tpuherd_sim.model.http_types import Request, Response

#: What an init does in a fork of its own.
SERVE_FILES = "from tpuherd_sim.hosts import sftp_server as s; s.load_library([]); s.serve_files()"
VIEW = HostView(
    key="777-0",
    zone="us-central1-a",
    node="n1",
    worker=0,
    name="t1v-n-00000777-w-0",
    uid=4711,
    image="tpu-ubuntu2204-base",
    accelerator="v5litepod-4",
    chips=4,
    device="vfio",
    pci="0x0063",
    internal_ip="10.128.0.2",
    segment="demo",
    external_ip="127.77.0.1",
    peers=(("t1v-n-00000777-w-0", "10.128.0.2"),),
    on=True,
    boot=1,
)


@dataclass
class PlainProcess:
    """A child of the test."""

    child: "subprocess.Popen[bytes]"
    pid: int

    async def wait(self) -> int:
        while (code := self.child.poll()) is None:
            await asyncio.sleep(0.005)
        return -code if code < 0 else code << 8


class PlainHost:
    """Its root is a folder for `read` and `write`; its programs see the machine's."""

    def __init__(self, folder: Path, view: HostView = VIEW) -> None:
        self.folder = folder
        self.view = view
        self.gone = asyncio.Event()
        self.children: list[subprocess.Popen[bytes]] = []
        self.chips: list[ChipHolder] = []
        self.ports: dict[tuple[str, int], int] = {}  #: where a port of the host really is

    async def spawn_program(self, program: Program, fds: Sequence[int]) -> Process:
        return self.start(program, fds, new_terminal=False)

    async def spawn_on_terminal(
        self, program: Program, size: tuple[int, int, int, int]
    ) -> tuple[Process, int]:
        master, slave = pty.openpty()
        fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", *size))
        try:
            return self.start(program, (slave, slave, slave), new_terminal=True), master
        finally:
            os.close(slave)

    def start(self, program: Program, fds: Sequence[int], *, new_terminal: bool) -> PlainProcess:
        def own_terminal() -> None:
            if new_terminal:
                fcntl.ioctl(0, termios.TIOCSCTTY, 0)

        home = self.folder / "home" / program.user
        home.mkdir(parents=True, exist_ok=True)
        argv = list(program.argv)
        if argv == [sftp_server.INTERNAL]:
            argv = [sys.executable, "-c", SERVE_FILES]
        child = subprocess.Popen(
            argv,
            executable=program.executable,
            env=dict(program.env),
            cwd=program.directory or home,
            stdin=fds[0],
            stdout=fds[1],
            stderr=fds[2],
            start_new_session=True,
            preexec_fn=own_terminal,
        )
        self.children.append(child)
        return PlainProcess(child, child.pid)

    async def connect(self, address: str, port: int) -> socket.socket:
        end = socket.socket()
        end.setblocking(False)
        end.connect_ex((address, port))
        return end

    async def connect_unix(self, path: str, user: str) -> socket.socket:
        end = socket.socket(socket.AF_UNIX)
        end.connect(path)
        end.setblocking(False)
        return end

    async def open_listener(self, address: str, port: int) -> socket.socket:
        listener = socket.create_server(("127.0.0.1", 0 if 0 < port < 10_000 else port))
        listener.setblocking(False)
        self.ports[address, port] = listener.getsockname()[1]
        return listener

    async def send_signal(self, pid: int, number: int, *, whole_session: bool) -> None:
        (os.killpg if whole_session else os.kill)(pid, number)

    async def terminate_all(self, *, reboot: bool = False) -> None:
        for child in self.children:
            child.send_signal(signal.SIGTERM)

    async def ensure_account(self, name: str) -> Account:
        home = self.folder / "home" / name
        home.mkdir(parents=True, exist_ok=True)
        return Account(name=name, uid=os.getuid(), gid=os.getgid(), home=str(home))

    async def chip_holders(self) -> list[ChipHolder]:
        return self.chips

    async def read(self, path: str) -> bytes:
        return (self.folder / path.lstrip("/")).read_bytes()

    async def write(self, path: str, content: bytes, mode: int) -> None:
        file = self.folder / path.lstrip("/")
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(content)
        file.chmod(mode)

    def die(self) -> None:
        """What a power cut does."""
        self.gone.set()
        for child in self.children:
            if child.poll() is None:
                os.killpg(child.pid, signal.SIGKILL)
            child.wait()


class PlainWorld:
    """What the world knows of one host, set by the test."""

    def __init__(self, view: HostView, keys: Mapping[str, Sequence[str]]) -> None:
        self.now = view
        self.keys = keys
        self.tree: dict[str, Any] = {"instance": {"attributes": {}, "guest-attributes": {}}}
        self.told: list[Request] = []
        self.waiting: set[asyncio.Event] = set()

    def host_view(self, key: str) -> HostView | None:
        return self.now

    def metadata_tree(self, key: str) -> dict[str, Any]:
        return self.tree

    def login_keys(self, key: str) -> Mapping[str, Sequence[str]]:
        return self.keys

    def handle_request(self, request: Request) -> Response:
        self.told.append(request)
        return Response(body=b"{}")

    async def wait_for_change(self, key: str) -> None:
        mine = asyncio.Event()
        self.waiting.add(mine)
        try:
            await mine.wait()
        finally:
            self.waiting.discard(mine)

    def change(self, **fields: Any) -> None:
        """The host is to be otherwise."""
        self.now = replace(self.now, **fields)
        self.touch()

    def touch(self) -> None:
        """Something of the host changed."""
        for one in self.waiting:
            one.set()


def fits(host: PlainHost) -> Host:
    """The double is a host to the type checker too."""
    return host
