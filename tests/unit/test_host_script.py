"""A host's output is bounded."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, cast

import pytest

from tpuherd.commands import host_script
from tpuherd.errors import OperationFailed
from tpuherd.ports import Link, RpcRequest
from tpuherd_host.agent.frames import LOG, STDOUT
from tpuherd_host.agent.log_records import pack_record


class EndlessHost:
    """Answers whatever runs there with output that does not end."""

    def __init__(self) -> None:
        self.stopped: list[str] = []
        self.sent = 0

    async def call(self, verb: RpcRequest) -> dict[str, Any]:
        self.stopped.append(verb.name)
        return {}

    @asynccontextmanager
    async def open_stream(self, verb: RpcRequest) -> AsyncIterator["EndlessHost"]:
        yield self

    async def write(self, port: int, content: bytes) -> None: ...

    async def send_eof(self, port: int) -> None: ...

    async def read(self) -> tuple[int, bytes]:
        self.sent += 1 << 20
        return LOG, pack_record(0.0, STDOUT, bytes(1 << 20))


def test_a_host_that_prints_without_end_is_stopped() -> None:
    host = EndlessHost()
    with pytest.raises(OperationFailed, match="sh printed more than 64 MiB"):
        asyncio.run(host_script.run_on_host(cast("Link", host), ("sh",)))
    assert host.stopped == ["stop"]
    assert host.sent == host_script.OUTPUT_MAX + (1 << 20)
