"""A running host as the controller sees it: its channel, its processes, its end."""

import asyncio
import signal
import socket
import stat
import tempfile
from collections.abc import Callable, Sequence

from tpuherd_sim.hosts.channel import Channel, int_field, single_file, text_field
from tpuherd_sim.hosts.host_protocols import Account, ChipHolder, Program
from tpuherd_sim.hosts.messages import MalformedMessage, Message
from tpuherd_sim.model.host_view import HostView

KILLED = int(signal.SIGKILL)  #: as a wait status
READ_MAX = 1 << 20


class HostProcess:
    """A program that was started inside."""

    def __init__(self, pid: int) -> None:
        self.pid = pid
        self.ended: asyncio.Future[int] = asyncio.get_running_loop().create_future()

    async def wait(self) -> int:
        return await asyncio.shield(self.ended)

    def set_status(self, status: int) -> None:
        if not self.ended.done():
            self.ended.set_result(status)


class RunningHost:
    """One boot of one host."""

    def __init__(
        self, view: HostView, number: int, link: socket.socket, cut: Callable[["RunningHost"], None]
    ) -> None:
        self.view = view
        self.number = number
        self.boot = view.boot
        self.gone = asyncio.Event()
        self.up: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.expected = False  #: we ended it, or it is already reported
        self.weather = ("up", False, False)  #: network, hung, disk full: as applied
        self.jobs: dict[int, HostProcess] = {}
        self.cut = cut
        self.channel = Channel(link, self.handle_event, self.on_hang_up)

    def handle_event(self, news: Message) -> None:
        """Handle an event of the init."""
        match news.get("event"):
            case "up":
                if not self.up.done():
                    self.up.set_result(None)
            case "failed":
                if not self.up.done():
                    self.up.set_exception(OSError(5, str(news.get("why"))[:500]))
            case "exit":
                pid, status = news.get("pid"), news.get("status")
                if isinstance(pid, int) and isinstance(status, int):
                    job = self.jobs.pop(pid, None)
                    if job is not None:
                        job.set_status(status & 0xFFFF)

    def on_hang_up(self) -> None:
        """Note that the channel closed: the host is dead, or will be."""
        if not self.gone.is_set():
            self.cut(self)
        if not self.up.done():
            self.up.set_exception(OSError(104, "the host died while it started"))

    def mark_dead(self) -> None:
        """Mark the host and all of its processes as dead."""
        self.gone.set()
        self.channel.close()
        for job in self.jobs.values():
            job.set_status(KILLED)
        self.jobs.clear()
        if self.up.done() and not self.up.cancelled():
            self.up.exception()  # retrieved

    async def spawn_program(self, program: Program, fds: Sequence[int]) -> HostProcess:
        started: list[HostProcess] = []
        await self.channel.send_request(
            "spawn",
            program_message(program),
            list(fds)[:3],
            at_once=lambda m: started.append(self.register_process(m)),
        )
        return started[0]

    async def spawn_on_terminal(
        self, program: Program, size: tuple[int, int, int, int]
    ) -> tuple[HostProcess, int]:
        started: list[HostProcess] = []
        _, files = await self.channel.send_request(
            "terminal",
            {**program_message(program), "size": list(size)},
            at_once=lambda m: started.append(self.register_process(m)),
        )
        return started[0], single_file(files, stat.S_ISCHR)

    def register_process(self, reply: Message) -> HostProcess:
        """Register a started program before its end can be reported."""
        job = HostProcess(int_field(reply, "pid"))
        self.jobs[job.pid] = job
        return job

    async def connect(self, address: str, port: int) -> socket.socket:
        _, files = await self.channel.send_request("connect", {"address": address, "port": port})
        return received_socket(files)

    async def connect_unix(self, path: str, user: str) -> socket.socket:
        _, files = await self.channel.send_request("connect_unix", {"path": path, "user": user})
        return received_socket(files)

    async def open_listener(self, address: str, port: int) -> socket.socket:
        _, files = await self.channel.send_request("listen", {"address": address, "port": port})
        return received_socket(files)

    async def send_signal(self, pid: int, number: int, *, whole_session: bool) -> None:
        message = {"pid": pid, "number": int(number), "whole_session": whole_session}
        await self.channel.send_request("signal", message)

    async def terminate_all(self, *, reboot: bool = False) -> None:
        await self.channel.send_request("terminate", {"reboot": reboot})

    async def ensure_account(self, name: str) -> Account:
        reply, _ = await self.channel.send_request("account", {"name": name})
        uid, gid = int_field(reply, "uid"), int_field(reply, "gid")
        return Account(name=name, uid=uid, gid=gid, home=text_field(reply, "home"))

    async def chip_holders(self) -> list[ChipHolder]:
        reply, _ = await self.channel.send_request("holders", {})
        found = reply.get("holders")
        if not isinstance(found, list):
            raise MalformedMessage("holders is not a list")
        return [parse_holder(each) for each in found if isinstance(each, dict)]

    async def write(self, path: str, content: bytes, mode: int) -> None:
        with tempfile.TemporaryFile(buffering=0) as file:
            file.write(content)
            file.seek(0)
            await self.channel.send_request("write", {"path": path, "mode": mode}, [file.fileno()])

    async def read(self, path: str) -> bytes:
        _, files = await self.channel.send_request("read", {"path": path})
        with open(single_file(files, stat.S_ISREG), "rb") as file:  # noqa: ASYNC230  # a local file
            return file.read(READ_MAX)


def program_message(program: Program) -> Message:
    """Return a program as the init reads it."""
    return {
        "argv": list(program.argv),
        "env": dict(program.env),
        "user": program.user,
        "directory": program.directory,
        "executable": program.executable,
    }


def parse_holder(found: Message) -> ChipHolder:
    cpu_s = found.get("cpu_s")
    return ChipHolder(
        device=text_field(found, "device", 64),
        pid=int_field(found, "pid"),
        resident_bytes=int_field(found, "resident"),
        cpu_s=float(cpu_s) if isinstance(cpu_s, int | float) else 0.0,
    )


def received_socket(files: list[int]) -> socket.socket:
    link = socket.socket(fileno=single_file(files, stat.S_ISSOCK))
    link.setblocking(False)
    return link
