"""Running hosts for tests: a log of their reports, and programs run inside."""

import asyncio
import json
import os
import tempfile
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from tpuherd_sim.hosts.host_pool import HostPool, PoolSettings
from tpuherd_sim.hosts.host_protocols import Host, Program
from tpuherd_sim.model.host_view import HostView
from tpuherd_sim.model.http_types import Request, Response

WALLED = ("namespaces-root", "namespaces-user")


class ReportLog:
    """Records the reports of hosts."""

    def __init__(self) -> None:
        self.reports: list[tuple[str, str, int]] = []  #: host, event, boot
        self.news = asyncio.Event()

    def host_view(self, key: str) -> HostView | None:
        return None

    def metadata_tree(self, key: str) -> dict[str, Any]:
        return {}

    def login_keys(self, key: str) -> Mapping[str, Sequence[str]]:
        return {}

    def handle_request(self, request: Request) -> Response:
        body = json.loads(request.body)
        key = request.path.rpartition("/")[2].removesuffix(":report")
        self.reports.append((key, body["event"], body["boot"]))
        self.news.set()
        return Response()

    async def wait_for_change(self, key: str) -> None:
        await asyncio.Event().wait()

    async def wait_for_report(self, *report: object) -> None:
        """Wait for a report."""
        async with asyncio.timeout(20):
            while report not in self.reports:
                self.news.clear()
                await self.news.wait()


@dataclass(frozen=True, kw_only=True)
class HostRig:
    """A rack under test."""

    pool: HostPool
    reports_log: ReportLog
    folder: Path
    views: dict[str, HostView | None]

    async def apply(self, *views: HostView) -> list[Host]:
        """Have these hosts."""
        self.views.update({view.key: view for view in views})
        await self.pool.apply_views(dict(self.views))
        return [self.pool.hosts[view.key] for view in views if view.key in self.pool.hosts]

    async def change(self, key: str, **fields: Any) -> Host | None:
        """Have one of them otherwise."""
        view = self.views[key]
        assert view is not None
        self.views[key] = replace(view, **fields)
        await self.pool.apply_views({key: self.views[key]})
        return self.pool.hosts.get(key)


def view(worker: int = 0, segment: str = "a", **fields: Any) -> HostView:
    """A host of a node with four."""
    names = [(f"t1v-n-{segment}-w-{index}", f"10.128.0.{index + 2}") for index in range(4)]
    plain = HostView(
        key=f"{segment}-{worker}",
        zone="us-central2-b",
        node="n",
        worker=worker,
        name=names[worker][0],
        uid=4711 + worker,
        image="tpu-ubuntu2204-base",
        accelerator="v5litepod-16",
        chips=4,
        device="vfio",
        pci="0x0063",
        internal_ip=names[worker][1],
        external_ip=f"127.66.0.{worker + 2}",
        segment=segment,
        peers=tuple(names),
        on=True,
        boot=0,
    )
    return replace(plain, **fields)


@asynccontextmanager
async def host_rig(mode: str | None, **make: Any) -> AsyncIterator[HostRig]:
    """A rack that is there until the end of the block."""
    with tempfile.TemporaryDirectory(prefix="hosts-") as folder:
        Path(folder).chmod(0o755)
        reports_log = ReportLog()
        pool = HostPool(reports_log, Path(folder), PoolSettings(mode=mode, **make))
        await pool.start()
        try:
            yield HostRig(pool=pool, reports_log=reports_log, folder=Path(folder), views={})
        finally:
            await pool.close()


@cache
def trouble(mode: str) -> str | None:
    """Why this machine can't have hosts of that kind."""
    if mode == "namespaces-root" and os.getuid() != 0:
        return "needs root"

    async def trial() -> None:
        async with host_rig(mode):
            pass

    try:
        asyncio.run(trial())
    except OSError as error:
        return str(error.strerror or error)
    return None


def need(mode: str) -> None:
    """Skip with a word where hosts of that kind can't be had."""
    why = trouble(mode)
    if why:
        pytest.skip(why)


@dataclass(frozen=True)
class Ran:
    """How a script ended and what it printed."""

    code: int
    text: str


async def run(host: Host, script: str, user: str = "root") -> Ran:
    """Run a script of bash in a host."""
    reader, writer = os.pipe()
    nothing = os.open(os.devnull, os.O_RDONLY)
    try:
        program = Program(argv=["bash", "-c", script], executable="/bin/bash", user=user)
        process = await host.spawn_program(program, [nothing, writer, writer])
    finally:
        os.close(writer)
        os.close(nothing)
    async with asyncio.timeout(60):
        text = await everything(reader)
        return Ran(os.waitstatus_to_exitcode(await process.wait()), text)


async def everything(reader: int) -> str:
    """What comes out of a pipe until its end."""
    stream = asyncio.StreamReader()
    loop = asyncio.get_running_loop()
    with open(reader, "rb", buffering=0) as pipe:
        transport, _ = await loop.connect_read_pipe(
            lambda: asyncio.StreamReaderProtocol(stream), pipe
        )
        try:
            return (await stream.read()).decode(errors="replace").strip()
        finally:
            transport.close()


async def becomes(true: Callable[[], bool], seconds: float = 10) -> bool:
    """Whether something comes true in time."""
    async with asyncio.timeout(seconds):
        while not true():
            await asyncio.sleep(0.01)
    return True
